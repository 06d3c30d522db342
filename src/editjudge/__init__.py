"""editjudge: from raw (image, instruction) pairs to a measured judge of visual consistency, on DVC stages."""

from editjudge.core import portable

portable.set_up()  # before any module of ours loads NumPy, OpenCV or torch
