"""Where resume state lies; files and folders that are there whole or not at all, though runs use them at a time."""

import errno
import hashlib
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from fcntl import LOCK_EX, LOCK_NB, flock
from pathlib import Path
from uuid import uuid4

WORK = "EDITJUDGE_WORK"
FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
FULL_TEXTS = ("No space left on device", "disk is full")  # of safetensors and of SQLite


def work(*names: str) -> Path:
    """A path in the folder of resume state: the one that the environment variable EDITJUDGE_WORK names, else `work`.

    Experiments that run in copies of the repository share what each has finished where the variable names a folder
    outside of them."""
    return Path(os.environ.get(WORK) or "work", *names)


def partial(path: Path) -> Path:
    """A temporary name beside `path` that no other process has."""
    return path.with_name(f"{path.name}.{uuid4().hex[:12]}.partial")


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary name for a file that becomes `path` where the block ends without an error, and else goes away.

    An OSError of a full disk, which the system raises without a name, is given that of the file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = partial(path)
    try:
        yield temporary
        os.replace(temporary, path)
    except OSError as error:
        if is_full(error):
            error.filename = str(path)
        raise
    finally:
        temporary.unlink(missing_ok=True)


def is_full(error: BaseException | None) -> bool:
    """Whether a full disk, quota or limit of a file's size is what an error says or came from."""
    while error is not None:
        by_number = isinstance(error, OSError) and error.errno in FULL
        if by_number or any(text in str(error) for text in FULL_TEXTS):
            return True
        error = error.__cause__ or error.__context__
    return False


def sha256(path: Path) -> str:
    """Of the file's content, hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_bytes(path: Path, data: bytes) -> None:
    """The file, whole or not at all; its folder is made."""
    with replacing(path) as temporary:
        temporary.write_bytes(data)


@contextmanager
def held(path: Path) -> Iterator[None]:
    """One thread of one process at a time is in the block of a lock file, which is made and stays."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        flock(file, LOCK_EX)
        yield


@contextmanager
def whole(folder: Path) -> Iterator[Path]:
    """A new folder beside `folder`, on the same disk, which takes its place when the block ends without an exception.

    The new folder's own name is always the same, and it is locked: what a killed process left there is removed.
    BlockingIOError: another process is writing it."""
    folder = folder.absolute()
    new = folder.with_name(f".{folder.name}.merge-new")
    new.mkdir(parents=True, exist_ok=True)
    lock = os.open(new, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        flock(lock, LOCK_EX | LOCK_NB)
        if not new.is_dir():  # it got its final name between the two calls
            raise BlockingIOError
    except BlockingIOError as error:
        os.close(lock)
        raise BlockingIOError(f"another process is writing {new}") from error
    try:
        for path in new.iterdir():
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
        yield new
        for path in (*new.iterdir(), new):
            flush(path)
        if folder.exists():
            shutil.rmtree(folder)
        new.rename(folder)
        flush(folder.parent)
    except BaseException:
        shutil.rmtree(new, ignore_errors=True)
        raise
    finally:
        os.close(lock)


def flush(path: Path) -> None:
    """Waits until a file's or a folder's content is on the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
