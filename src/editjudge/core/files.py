"""Where resume state lies, and files and folders that appear whole or not at all, also if several runs write them."""

import errno
import hashlib
import importlib.util
import json
import os
import shutil
import sys
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from fcntl import LOCK_EX, LOCK_NB, flock
from pathlib import Path

from editjudge.core.errors import FileError

WORK = "EDITJUDGE_WORK"
WHOLE = "whole"  # in a sealed folder: the hashes of its files
SEAL = 32  # bytes of a kept file's hash, at its beginning
FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
FULL_TEXTS = ("No space left on device", "disk is full")  # of safetensors and of SQLite


def work(*names: str) -> Path:
    """A path in the folder of resume state: that of the environment variable EDITJUDGE_WORK, else `work`.

    Copies of the repository share finished work if the variable names one folder for all of them."""
    return Path(os.environ.get(WORK) or "work", *names)


@contextmanager
def replacing(path: Path, durable: bool = True) -> Iterator[Path]:
    """A temporary file, empty, that becomes `path` if the block ends without an error, and is removed otherwise.

    durable: it is on the disk before it gets the name, and the name before this returns: a power cut loses neither.
    The OSError of a full disk gets the file's name, which the system leaves out."""
    make_folder(path.parent, durable and not path.parent.is_dir())
    temporary, lock = _temporary(path)
    try:
        yield temporary
        if durable:
            flush(temporary)
        os.replace(temporary, path)
    except BaseException as error:
        temporary.unlink(missing_ok=True)
        if isinstance(error, OSError) and is_full(error):
            error.filename = str(path)
        raise
    finally:
        os.close(lock)
    if durable:
        flush(path.parent)


def _temporary(path: Path, number: int = 0) -> tuple[Path, int]:
    """A file beside `path` and a lock: nobody else writes it. What a killed process left there is taken over."""
    name = path.with_name(f"{path.name}.{number}.partial")
    lock = os.open(name, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
    with suppress(BlockingIOError, FileNotFoundError):
        flock(lock, LOCK_EX | LOCK_NB)
        if os.path.samestat(os.fstat(lock), os.stat(name)):  # its writer has not just given it its name
            os.truncate(lock, 0)
            return name, lock
    os.close(lock)
    return _temporary(path, number + 1)


def make_folder(path: Path, durable: bool) -> None:
    """With those around it. durable: they are on the disk before this returns."""
    path.mkdir(parents=True, exist_ok=True)
    for around in path.absolute().parents if durable else ():
        if os.access(around, os.W_OK):
            flush(around)


def is_full(error: BaseException | None) -> bool:
    """Whether an error, or one of its causes, is a full disk, quota or limit of a file's size."""
    while error is not None:
        by_number = isinstance(error, OSError) and error.errno in FULL
        if by_number or any(text in str(error) for text in FULL_TEXTS):
            return True
        error = error.__cause__ or error.__context__
    return False


def in_package(place: str) -> Path | None:
    """The file at a place whose first part is an installed package; None where that is not installed."""
    package, _, rest = place.partition("/")
    spec = importlib.util.find_spec(package)
    return Path(spec.submodule_search_locations[0]) / rest if spec and spec.submodule_search_locations else None


def sha256(path: Path) -> str:
    """Of the file's content, hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def hashes_of(folder: Path, files: Iterable[Path]) -> dict[str, str]:
    """The SHA-256 of files, by their names in the folder."""
    return {file.relative_to(folder).as_posix(): sha256(file) for file in files}


def md5(path: Path) -> str:
    """As in dvc.lock: of a file's bytes; of a folder's list of files, with `.dir` behind. FileError: no such path."""
    if path.is_dir():
        files = sorted((file.relative_to(path).as_posix(), file) for file in path.rglob("*") if file.is_file())
        listed = [{"md5": md5(file), "relpath": name} for name, file in files]
        return hashlib.md5(json.dumps(listed, sort_keys=True).encode()).hexdigest() + ".dir"
    if not path.is_file():
        raise FileError(f"{path} not found: no such file or folder")
    with path.open("rb") as file:
        return hashlib.file_digest(file, "md5").hexdigest()


def seal(folder: Path) -> None:
    """Writes the hashes of all files of a folder into WHOLE, a file of it, once they are on the disk."""
    for file in (files := _files(folder)):
        flush(file)
    write_bytes(folder / WHOLE, json.dumps(hashes_of(folder, files)).encode())


def damaged(folder: Path) -> str | None:
    """The name of a file that is gone, came later or has other bytes than when the folder was sealed; None: none."""
    try:
        was = dict(json.loads((folder / WHOLE).read_bytes()))
    except (ValueError, TypeError):
        return WHOLE
    found = hashes_of(folder, _files(folder))
    return min((name for name in {*was, *found} if was.get(name) != found.get(name)), default=None)


def _files(folder: Path) -> list[Path]:
    return [file for file in sorted(folder.rglob("*")) if file.is_file() and file != folder / WHOLE]


def write_bytes(path: Path, data: bytes) -> None:
    """The file, whole or not at all; its folder is made."""
    with replacing(path) as temporary:
        temporary.write_bytes(data)


def keep(path: Path, data: bytes) -> None:
    """The bytes behind a hash of them and of the file's name, by which `kept` knows them. Whole or not at all; what a
    power cut takes is made anew."""
    with replacing(path, durable=False) as temporary:
        temporary.write_bytes(_sealed(path, data) + data)


def kept(path: Path) -> bytes | None:
    """What `keep` wrote. None: nothing, or other bytes, or those of another file; a line then says so."""
    try:
        found = path.read_bytes()
    except FileNotFoundError:
        return None
    seal, data = found[:SEAL], found[SEAL:]
    if seal == _sealed(path, data):
        return data
    print(f"{path}: damaged: what it kept is made anew", file=sys.stderr)
    return None


def read_kept(path: Path) -> bytes:
    """What `keep` has just written. FileError: it is gone or damaged."""
    if (data := kept(path)) is None:
        raise FileError(f"{path} is gone or damaged: run the stage again, which makes it anew")
    return data


def _sealed(path: Path, data: bytes) -> bytes:
    name = path.relative_to(work()) if path.is_relative_to(work()) else path.name  # of two runs' files, its own
    digest = hashlib.sha256(f"{name}\0".encode())
    digest.update(data)
    return digest.digest()


@contextmanager
def held(path: Path) -> Iterator[None]:
    """One thread of one process at a time is in the block of a lock file, which is made and stays."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        flock(file, LOCK_EX)
        yield


@contextmanager
def whole(folder: Path) -> Iterator[Path]:
    """A new folder beside `folder` that takes its place if the block ends without an exception.

    It is locked and always has the same name, so what a killed process left in it is removed. BlockingIOError: another
    process is writing it."""
    folder = folder.absolute()
    new = folder.with_name(f".{folder.name}.merge-new")
    new.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        lock = os.open(new, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        stack.callback(os.close, lock)
        try:
            flock(lock, LOCK_EX | LOCK_NB)
            if not new.is_dir():  # it got its final name between the two calls
                raise BlockingIOError
        except BlockingIOError as error:
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


def flush(path: Path) -> None:
    """Waits until a file's or a folder's content is on the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
