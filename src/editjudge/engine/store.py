"""Large data beside the record caches: files named by their content, in a folder or a bucket, that every node reaches.

Workers of a cluster write there what is large in their answers, and the stage's process keeps where it lies."""

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path

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
        import fsspec

        try:
            with fsspec.open(self.path, "rb") as file:
                data = bytes(file.read())
        except FileNotFoundError:
            raise FileError(f"{self.path}: not there: run the stage again, which makes it anew") from None
        if hashlib.sha256(data).hexdigest() != self.sha256:
            store, path = fsspec.core.url_to_fs(self.path)
            store.rm(path)
            raise FileError(f"{self.path}: damaged, and removed: run the stage again, which makes it anew")
        return data

    def is_there(self) -> bool:
        import fsspec

        store, path = fsspec.core.url_to_fs(self.path)
        return bool(store.exists(path))


def keep(data: bytes) -> Kept:
    """Written once, and whole or not at all: a bucket shows no part of an object."""
    kept = Kept(hashlib.sha256(data).hexdigest())
    if not kept.is_there():
        if "://" in kept.path:
            import fsspec

            store, path = fsspec.core.url_to_fs(kept.path)
            store.pipe_file(path, data)
        else:
            write_bytes(Path(kept.path), data)
    return kept
