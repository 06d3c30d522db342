"""The stages of dvc.yaml, a module each: a pure function on values in memory and a small main().

`python -m editjudge.stages.X` imports this package before the stage's own module, so before NumPy, OpenCV and torch."""

from editjudge.core import portable

portable.set_up()
