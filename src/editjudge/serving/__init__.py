"""A checkpoint, or a scorer, behind HTTP."""
