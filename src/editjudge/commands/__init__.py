"""What people run beside the graph."""

from editjudge.core import portable

portable.set_up()  # before NumPy, OpenCV and torch are loaded
