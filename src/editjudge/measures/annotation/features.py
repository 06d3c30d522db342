"""Features of source images, kept in work/ across runs: a new editing model or measure encodes no source again.

Features of edits are not kept, since their measures are in the record cache. There is a file for each image and model,
named by the hash of the pixels and of the model. Files are written under a temporary name, so that processes need no
locks. Embedded encoders are faster than reading a file, so theirs are not kept.
"""

import hashlib
import zipfile
import zlib
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from editjudge.core.files import replacing

GIGABYTE = 1e9
FULL = 0.9  # of the folder's bytes: there is room to be made
Arrays = Sequence[np.ndarray]


@dataclass
class FeatureStore:
    """Arrays by name in a folder. most: bytes that this process may write; 0: nothing is kept or looked for."""

    folder: Path
    most: float
    written: float = 0.0

    def get(self, name: str) -> list[np.ndarray] | None:
        """The arrays under a name, or None where there are none that can be read."""
        try:
            with np.load(self._path(name), allow_pickle=False) as found:
                return [found[key] for key in sorted(found)]
        except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile, zlib.error):
            return None

    def put(self, name: str, arrays: Arrays) -> None:
        """Keep up to 10 arrays, unless there is no more room."""
        size = sum(array.nbytes for array in arrays)
        if self.written + size > self.most:
            return
        with replacing(self._path(name)) as partial, partial.open("wb") as file:
            np.savez(file, allow_pickle=False, **{str(n): array for n, array in enumerate(arrays)})
        self.written += size

    def _path(self, name: str) -> Path:
        return self.folder / name[:2] / f"{name}.npz"


def said(
    store: FeatureStore,
    model: str,
    rgbs: Sequence[np.ndarray],
    sources: Sequence[bool],
    ask: Callable[[list[np.ndarray]], Sequence[Arrays]],
) -> list[Arrays]:
    """What a model says of each image: kept, or asked for. Equal images, such as unedited ones, are asked once.

    model: a hash of all but the image that the answer depends on. sources: which images' answers are kept.
    """
    names = []
    for rgb in rgbs:
        digest = hashlib.blake2b(f"{model} {rgb.shape}".encode(), digest_size=24)
        digest.update(np.ascontiguousarray(rgb).data)
        names.append(digest.hexdigest())
    kept = {name for name, is_source in zip(names, sources, strict=True) if is_source} if store.most else set()
    found: dict[str, Arrays] = {name: arrays for name in kept if (arrays := store.get(name)) is not None}
    missing = {name: rgb for name, rgb in zip(names, rgbs, strict=True) if name not in found}
    if missing:
        for name, answer in zip(missing, ask(list(missing.values())), strict=True):
            found[name] = answer
            if name in kept:
                store.put(name, answer)
    return [found[name] for name in names]


def trim(folder: Path, most: float) -> float:
    """Delete the files that were written first until at most half of `most` bytes are left, where they are nearly full.

    What a killed process left half written is among them. Returns the bytes that may be written.
    """
    stats = {}
    for file in folder.glob("*/*"):
        with suppress(FileNotFoundError):  # another stage has trimmed it
            stats[file] = file.stat()
    size = sum(stat.st_size for stat in stats.values())
    goal = most if size <= FULL * most else most / 2
    for file in sorted(stats, key=lambda file: (stats[file].st_mtime_ns, stats[file].st_size, file)):
        if size <= goal:
            break
        file.unlink(missing_ok=True)
        size -= stats[file].st_size
    return max(most - size, 0.0)
