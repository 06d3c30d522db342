"""Models that look at images: encoders, segmenters, depth, faces, parsing, pose, LPIPS; embedded and real."""
