"""Editors that do what real ones do on bad days. What one does, the request's instruction says."""

import ctypes
import functools
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from editjudge.editors import making
from editjudge.editors.protocol import Edited, EditFailed, Editor, Request
from editjudge.editors.settings import ProceduralSetting

GREY = np.full((24, 32, 3), 128, np.uint8)
FOREVER = 600


class OutOfMemoryError(RuntimeError):
    """As torch.OutOfMemoryError, which is known by its name."""


class AcceleratorError(RuntimeError):
    """As torch.AcceleratorError, which is known by its name."""


class Moody:
    """Writes its process and the key of each request to the log before it edits."""

    def __init__(self, log: Path, device: str) -> None:
        self.log = log

    def edit(self, request: Request) -> Edited:
        tried_before = request.key in {key for _, key in read(self.log)}
        write(self.log, request.key)
        mood = request.instruction.removesuffix(" once")
        return Edited(GREY, None) if mood != request.instruction and tried_before else MOODS[mood]()


def read(log: Path) -> list[tuple[int, str]]:
    """Process and key of each try, in order."""
    lines = log.read_text().splitlines() if log.exists() else []
    return [(int(pid), key) for pid, _, key in (line.partition(" ") for line in lines)]


def write(log: Path, word: str) -> None:
    """One line, whole even where several processes write."""
    file = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(file, f"{os.getpid()} {word}\n".encode())
    os.close(file)


def raised(error: BaseException) -> Edited:
    raise error


MOODS = {
    "well": lambda: Edited(GREY, 1.23456),
    "black": lambda: Edited(np.zeros((24, 32, 3), np.uint8), None),
    "square": lambda: Edited(np.full((32, 32, 3), 9, np.uint8), None),
    "grey": lambda: Edited(GREY[..., 0], None),
    "refuse": lambda: raised(EditFailed("safety_checker", "withheld")),
    "raise": lambda: raised(KeyError("image_latents")),
    "memory": lambda: raised(MemoryError("31 GiB")),
    "cuda memory": lambda: raised(OutOfMemoryError("CUDA out of memory\nand much more")),
    "cuda": lambda: raised(AcceleratorError("an illegal memory access")),
    "stop": lambda: raised(StopIteration()),
    "exit": lambda: os._exit(3),
    "kill": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "crash": lambda: ctypes.string_at(0),
    "hang": lambda: time.sleep(FOREVER) or Edited(GREY, None),
    "hang in C": lambda: ctypes.PyDLL(None).sleep(FOREVER) or Edited(GREY, None),  # no other thread may run
}


def moody(log: Path) -> Callable[[str], Editor]:
    return functools.partial(Moody, log)


def broken(log: Path, how: str, device: str) -> Moody:
    """An editor that cannot be loaded."""
    write(log, how)
    MOODS[how]()
    return Moody(log, device)


class Witness:
    """Fails every edit, with what its process was when it was loaded."""

    def __init__(self, device: str) -> None:
        import sys

        visible = os.environ.get("CUDA_VISIBLE_DEVICES")
        started = "torch" in sys.modules and sys.modules["torch"].cuda.is_initialized()
        self.seen = f"{device}, sees {visible}, CUDA {started}"
        time.sleep(0.3)  # long enough for each place to get a worker that is asked

    def edit(self, request: Request) -> Edited:
        time.sleep(0.3)
        raise EditFailed("witness", self.seen)


class Logged:
    """A real editor that writes to the log what it is about to edit, and takes its time."""

    def __init__(self, log: Path, model: str, setting: ProceduralSetting, device: str) -> None:
        self.log, self.editor = log, making.load(model, setting, device)

    def edit(self, request: Request) -> Edited:
        write(self.log, request.key)
        time.sleep(0.02)
        return self.editor.edit(request)
