"""Finds duplicate pairs: same key, same bytes, or nearly the same perceptual hash. Memory is bounded.

A pair is a duplicate where an earlier one has the same instruction, cases and white space aside, and the same image;
the same image with another instruction is a pair of its own. Two 64-bit hashes that differ in at most n bits are equal
in at least one of n + 1 bands of them, so only those with an equal band are compared (Norouzi, Punjani and Fleet 2012,
multi-index hashing). The index is in SQLite, on disk beyond its page cache. Kept pairs are numbered from 0."""

import sqlite3
from contextlib import AbstractContextManager

import imagehash
import numpy as np
from PIL import Image

from editjudge.core.tables import RowError
from editjudge.engine.resume import fingerprint

HASH_BITS = 64
CACHE_KIB = 65_536
TAKEN = "duplicate key"


class Seen(AbstractContextManager["Seen"]):
    """The pairs that were kept, in a temporary file that SQLite deletes when this process ends."""

    def __init__(self, near_bits: int) -> None:
        """near_bits: as `Filters.near_bits`."""
        self.near_bits, self.count = near_bits, 0
        self._db = sqlite3.connect("", isolation_level=None)
        for setting in ("journal_mode=OFF", "synchronous=OFF", f"cache_size=-{CACHE_KIB}"):
            self._db.execute(f"PRAGMA {setting}")
        columns = "name BLOB, hash BLOB, kept INTEGER, PRIMARY KEY (name, hash)"
        self._db.execute(f"CREATE TABLE seen ({columns}) WITHOUT ROWID")
        self._db.execute("BEGIN")  # one transaction: nothing here outlives the run

    def __exit__(self, *error: object) -> None:
        self._db.close()

    def add(self, key: str, instruction: str, image: bytes, hashed: int) -> None:
        """Keep a pair. image: its bytes or, in all pairs, their hash; hashed: its `perceptual_hash`. Raises RowError
        where it stands already."""
        told, own = " ".join(instruction.split()).casefold().encode(), hashed.to_bytes(8, "big")
        exact = {_digest(b"key", key.encode()): TAKEN, _digest(b"pair", told, image): "duplicate pair"}
        names, number = list(exact), self.near_bits + 1
        for band in range(number):  # those of one instruction lie together in the table
            low, high = band * HASH_BITS // number, (band + 1) * HASH_BITS // number
            value = hashed >> low & (1 << high - low) - 1
            names.append(_digest(told) + bytes([band]) + value.to_bytes(8, "big"))
        query = f"SELECT name, hash, kept FROM seen WHERE name IN ({', '.join('?' * len(names))})"
        found = self._db.execute(query, names).fetchall()
        for name, reason in exact.items():
            if kept := [each for known, _, each in found if known == name]:
                raise RowError(reason, f"as pair {kept[0]}")
        differ = [(kept, (int.from_bytes(other) ^ hashed).bit_count()) for _, other, kept in found]
        if near := [(kept, bits) for kept, bits in differ if bits <= self.near_bits]:
            kept, bits = min(near)
            raise RowError("near duplicate", f"{bits} bits from pair {kept}")
        rows = [(name, b"" if name in exact else own, self.count) for name in names]
        self._db.executemany("INSERT OR IGNORE INTO seen VALUES (?, ?, ?)", rows)
        self.count += 1


def _digest(*parts: bytes) -> bytes:
    """128 bits of SHA-256."""
    return bytes.fromhex(fingerprint(*parts))[:16]


def perceptual_hash(rgb: np.ndarray) -> int:
    """64 bits (DCT) of an image, (H, W, 3) uint8."""
    return int(str(imagehash.phash(Image.fromarray(rgb))), 16)
