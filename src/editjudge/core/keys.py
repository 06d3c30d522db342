"""Keys of records: `[A-Za-z0-9._-]{1,200}`."""

import hashlib
import re

FILE_NAME = re.compile(r"(?!\.+$)[A-Za-z0-9._-]{1,200}")  # a key or a model's name that can be a file's or a folder's


def place(text: str) -> float:
    """The text's place from 0 to 1, by its hash: a share of names is those below it, whatever other names there are."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8]) / 2**64


def plain(text: str, longest: int = 200, kept: str = "A-Za-z0-9._-") -> str:
    """The text as a key, or a part of one: as it is where its characters are all kept and no more than `longest`.

    What had to be changed carries a hash, so that no two texts fall together.
    """
    changed = re.sub(rf"[^{kept}]", "-", text)
    if changed == text and len(text) <= longest:
        return text
    return f"{changed[: longest - 9]}-{hashlib.sha256(text.encode(errors='surrogatepass')).hexdigest()[:8]}"
