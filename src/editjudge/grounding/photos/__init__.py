"""From photographs to grounded instructions, as ImgEdit's data pipeline has it: pool, regions, instructions."""
