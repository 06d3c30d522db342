"""A checkpoint behind HTTP."""
