"""A folder that appears whole or not at all, whatever kills the process that writes it."""

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def whole(folder: Path) -> Iterator[Path]:
    """A new folder beside `folder`, on the same disk, which takes its name when the block ends without an exception.

    What had the name before stays until then. The new folder's own name is always the same, and it is locked: what a
    killed process left there is known by having no lock, and is removed; one that was killed between its two renames
    gets its old folder back. BlockingIOError: another one is writing it.
    """
    folder = folder.absolute()
    folder.parent.mkdir(parents=True, exist_ok=True)
    new, old = (folder.with_name(f".{folder.name}.merge-{part}") for part in ("new", "old"))
    lock = _locked(new)
    try:
        for path in new.iterdir():
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
        _restore(folder, old)
        shutil.rmtree(old, ignore_errors=True)
        yield new
        for path in (*new.iterdir(), new):
            flush(path)
        if folder.exists():
            folder.rename(old)
        new.rename(folder)
        flush(folder.parent)
        shutil.rmtree(old, ignore_errors=True)
    except BaseException:
        shutil.rmtree(new, ignore_errors=True)
        _restore(folder, old)
        raise
    finally:
        os.close(lock)


def _locked(new: Path) -> int:
    """The open and locked folder `new`, made if it is not there."""
    new.mkdir(exist_ok=True)
    lock = os.open(new, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.fstat(lock).st_ino != new.stat().st_ino:  # it got its final name between the two calls
            raise BlockingIOError
    except (BlockingIOError, FileNotFoundError) as error:
        os.close(lock)
        raise BlockingIOError(f"another process is writing {new}") from error
    return lock


def _restore(folder: Path, old: Path) -> None:
    if old.exists() and not folder.exists():
        old.rename(folder)


def flush(path: Path) -> None:
    """Waits until a file's or a folder's content is on the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
