"""Options of the benchmarks."""

import pytest

from editjudge.core import portable

portable.set_up()  # before NumPy, OpenCV and torch are loaded


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--layers", type=int, default=8, help="of the merge's random base: 36 is all of 8B, 35 GB of disk")
    parser.addoption("--requests", type=int, default=10_000, help="to the reward service that is attacked")
    parser.addoption("--vocabulary", type=int, default=32000, help="of that base; 151936 in 8B")
