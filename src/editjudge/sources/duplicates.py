"""Finds duplicate pairs: same key, same bytes, or nearly the same perceptual hash. Memory is bounded.

A pair is a duplicate where an earlier one has the same instruction, cases and white space aside, and the same image;
the same image with another instruction is a pair of its own. Two 64-bit hashes that differ in at most n bits are equal
in at least one of n + 1 bands of them, so only those with an equal band are compared (Norouzi, Punjani and Fleet 2012,
multi-index hashing). The index is in SQLite, on disk beyond its page cache. Kept pairs are numbered from 0.
"""

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Self

from editjudge.core.files import partial
from editjudge.core.tables import RowError
from editjudge.engine.resume import fingerprint

HASH_BITS = 64
CACHE_KIB = 65_536


class Seen:
    """The pairs that were kept, in a file beside `file` that no other run sees and that goes with this process."""

    def __init__(self, file: Path, near_bits: int) -> None:
        """near_bits: as `Filters.near_bits`."""
        file.parent.mkdir(parents=True, exist_ok=True)
        self.near_bits, self.count, own = near_bits, 0, partial(file)
        self._db = sqlite3.connect(own, isolation_level=None)
        for setting in ("journal_mode=OFF", "synchronous=OFF", f"cache_size=-{CACHE_KIB}", "locking_mode=EXCLUSIVE"):
            self._db.execute(f"PRAGMA {setting}")
        self._db.execute("CREATE TABLE seen (name BLOB PRIMARY KEY, kept INTEGER) WITHOUT ROWID")
        self._db.execute(
            "CREATE TABLE near (band BLOB, hash INTEGER, kept INTEGER, PRIMARY KEY (band, hash)) WITHOUT ROWID"
        )
        own.unlink()  # it lives on as long as it is open
        self._db.execute("BEGIN")  # one transaction without a journal: nothing here outlives the run

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._db.close()

    def add(self, key: str, instruction: str, image: bytes, hashed: int) -> None:
        """Keep a pair; `hashed` is its image's perceptual hash (uint64). Raises RowError where it stands already."""
        told = " ".join(instruction.split()).casefold().encode()
        names = {"duplicate key": _digest(b"key", key.encode()), "duplicate pair": _digest(b"pair", told, image)}
        for reason, name in names.items():
            found = self._db.execute("SELECT kept FROM seen WHERE name = ?", (name,)).fetchone()
            if found is not None:
                raise RowError(reason, f"as pair {found[0]}")
        bands = list(self._bands(told, hashed))
        found = self._db.execute(f"SELECT kept, hash FROM near WHERE band IN ({', '.join('?' * len(bands))})", bands)
        differ = [(kept, (other % 2**HASH_BITS ^ hashed).bit_count()) for kept, other in found]
        if near := [(kept, bits) for kept, bits in differ if bits <= self.near_bits]:
            kept, bits = min(near)
            raise RowError("near duplicate", f"{bits} bits from pair {kept}")
        self._db.executemany("INSERT INTO seen VALUES (?, ?)", [(name, self.count) for name in names.values()])
        rows = [(band, _signed(hashed), self.count) for band in bands]
        self._db.executemany("INSERT OR IGNORE INTO near VALUES (?, ?, ?)", rows)
        self.count += 1

    def _bands(self, told: bytes, hashed: int) -> Iterator[bytes]:
        """A name for each band of the hash; those of one instruction lie together in the table."""
        number, under = self.near_bits + 1, _digest(told)
        for band in range(number):
            low, high = band * HASH_BITS // number, (band + 1) * HASH_BITS // number
            value = hashed >> low & (1 << high - low) - 1
            yield under + bytes([band]) + value.to_bytes(8, "big")


def _signed(hashed: int) -> int:
    """SQLite's integers are signed."""
    return hashed - 2**HASH_BITS if hashed >= 2 ** (HASH_BITS - 1) else hashed


def _digest(*parts: bytes) -> bytes:
    """128 bits of SHA-256."""
    return bytes.fromhex(fingerprint(*parts))[:16]
