"""Keys of records: `[A-Za-z0-9._-]{1,200}`."""

import hashlib
import re

FILE_NAME = re.compile(r"(?!\.+$)[A-Za-z0-9._-]{1,200}")  # a key or a model's name that can be a file's or a folder's


def place(text: str) -> float:
    """A number in 0..1 from the text's hash. Names below 0.1 are a tenth of all, whichever other names there are."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8]) / 2**64


def plain(text: str, longest: int = 200, kept: str = "A-Za-z0-9._-") -> str:
    """The text as a key or a part of one: unchanged if it has only `kept` characters and at most `longest` of them.

    A changed text ends with a hash, so that two texts never give the same key."""
    changed = re.sub(rf"[^{kept}]", "-", text)
    if changed == text and len(text) <= longest:
        return text
    return f"{changed[: longest - 9]}-{hashlib.sha256(text.encode(errors='surrogatepass')).hexdigest()[:8]}"
