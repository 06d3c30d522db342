"""How a stage ends."""

import pytest
import torch

from editjudge.core.main import guarded


def stop(error: Exception) -> None:
    raise error


@pytest.mark.parametrize("kind", [MemoryError, torch.OutOfMemoryError])
def test_a_lack_of_memory_is_one_line(kind: type[Exception]) -> None:
    with pytest.raises(
        SystemExit, match=r"^annotate: out of memory: 9 GiB wanted; what is finished is kept: give smaller"
    ):
        guarded("annotate", stop, kind("9 GiB wanted\nand a long explanation"))


def test_another_error_of_the_program_keeps_its_traceback() -> None:
    with pytest.raises(RuntimeError, match="a bug"):
        guarded("annotate", stop, RuntimeError("a bug"))
