"""Where resume state lies, and files that are there whole or not at all. Runs may use the same folder at a time."""

import errno
import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from fcntl import LOCK_EX, LOCK_NB, flock
from functools import cache
from pathlib import Path
from typing import BinaryIO
from uuid import uuid4

import psutil

from editjudge.core.errors import UserError

WORK = "EDITJUDGE_WORK"
JOURNAL = "EDITJUDGE_JOURNAL"
JOURNALS = ("wal", "delete")
FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
FULL_TEXTS = ("No space left on device", "disk is full")  # of safetensors and of SQLite
NETWORK = ("9p", "afs", "beegfs", "ceph", "cifs", "fuse", "gfs", "gluster", "gpfs", "lustre", "nfs", "smb")


def work(*names: str) -> Path:
    """A path in the folder of resume state: the one that the environment variable EDITJUDGE_WORK names, else `work`.

    Experiments that run in copies of the repository share what each has finished where the variable names a folder
    outside of them.
    """
    return Path(os.environ.get(WORK) or "work", *names)


def partial(path: Path) -> Path:
    """A temporary name beside `path` that no other process has."""
    return path.with_name(f"{path.name}.{uuid4().hex[:12]}.partial")


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary name for a file that becomes `path` where the block ends without an error, and else goes away.

    An OSError of a full disk, which the system raises without a name, is given that of the file.
    """
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


def locked(path: Path) -> BinaryIO:
    """A lock file that is made and held, by the file that is returned, until that is closed or the process ends."""
    file = path.open("wb")
    flock(file, LOCK_EX)
    return file


def is_free(path: Path) -> bool:
    """Whether nobody holds a lock file; one that is left over from a process that ended is taken away."""
    try:
        with path.open("r+b") as file:
            flock(file, LOCK_EX | LOCK_NB)
            path.unlink(missing_ok=True)
    except BlockingIOError:
        return False
    except FileNotFoundError:
        pass
    return True


def journal(folder: Path) -> str:
    """SQLite's journal_mode for files in a folder: what EDITJUDGE_JOURNAL says, else by the folder's file system.

    wal, a write-ahead log, is quick, and needs memory that all runs share: they are on one machine. delete, a rollback
    journal, is for network file systems, whose locks must hold between machines (NFS: not mounted with `nolock`).
    """
    given = os.environ.get(JOURNAL)
    if given:
        if given not in JOURNALS:
            raise UserError(f"{JOURNAL} is {given!r}: only {' and '.join(JOURNALS)} are known")
        return given
    return "delete" if file_system(folder).startswith(NETWORK) else "wal"


@cache
def file_system(folder: Path) -> str:
    """The type of the file system on which a folder lies, such as ext4 or nfs4; empty where it is not known."""
    mounted = {Path(part.mountpoint): part.fstype for part in psutil.disk_partitions(all=True)}
    place = folder.resolve()
    return next((mounted[each] for each in (place, *place.parents) if each in mounted), "")
