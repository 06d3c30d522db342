"""Large data beside the record caches: files named by their content, in a folder or a bucket, that every node reaches.

Workers of a cluster write there what is large in their answers, and the stage's process keeps where it lies."""

import hashlib
import os
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from editjudge.core.errors import FileError
from editjudge.core.files import work, write_bytes

STORE = "EDITJUDGE_STORE"  # a folder, or such as s3://bucket/folder; by default store/ in the folder of resume state
LARGE = 64 * 1024  # bytes from which on data is kept here, and does not pass through the stage's process


@dataclass(frozen=True)
class Kept:
    """Bytes in the store: `bytes(kept)` reads them."""

    sha256: str

    @property
    def path(self) -> str:
        return f"{os.environ.get(STORE) or work('store')}/{self.sha256[:2]}/{self.sha256}"

    def __bytes__(self) -> bytes:
        """FileError: not there, or not what was written."""
        store, path = _at(self.path)
        try:
            data = bytes(store.cat_file(path))
        except FileNotFoundError:
            _listed.cache_clear()
            raise FileError(f"{self.path}: not there: run the stage again, which makes it anew") from None
        if hashlib.sha256(data).hexdigest() != self.sha256:
            store.rm(path)
            _listed.cache_clear()
            raise FileError(f"{self.path}: damaged, and removed: run the stage again, which makes it anew")
        return data

    def is_there(self) -> bool:
        """A bucket is asked once for all names of a folder, and again only for one that was not among them."""
        folder = self.path.rpartition("/")[0]
        return ("://" in folder and self.sha256.encode() in _listed(folder)) or _exists(self.path)


def _at(path: str) -> tuple[Any, str]:
    """The file system of a path, and the path in it."""
    import fsspec

    return fsspec.core.url_to_fs(path)


def _exists(path: str) -> bool:
    store, path = _at(path)
    return bool(store.exists(path))


@cache
def _listed(folder: str) -> frozenset[bytes]:
    """The names in a bucket's folder: a thousand come with one request."""
    store, path = _at(folder)
    try:
        names = store.ls(path, detail=False, refresh=True)
    except FileNotFoundError:
        return frozenset()
    store.invalidate_cache(path)  # else what is written from now on is not seen
    return frozenset(str(name).rpartition("/")[2].encode() for name in names)


def keep(data: bytes) -> Kept:
    """Written once, and whole or not at all: a bucket shows no part of an object."""
    kept = Kept(hashlib.sha256(data).hexdigest())
    if not _exists(kept.path):
        if "://" in kept.path:
            store, path = _at(kept.path)
            store.pipe_file(path, data)
        else:
            write_bytes(Path(kept.path), data)
    return kept
