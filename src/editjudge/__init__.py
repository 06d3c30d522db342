"""editjudge: from raw (image, instruction) pairs to a measured judge of visual consistency, on DVC stages."""
