"""What a source of a scorer's data writes its images to, kept in memory."""

from hashlib import sha256
from typing import Any


class KeptImages:
    """Keeps what a source adds, by SHA-256, as stages.scorer_data.ImageFile names it."""

    def __init__(self) -> None:
        self.report: dict[str, Any] = {}
        self.added: dict[str, bytes] = {}

    def add(self, image: bytes) -> tuple[str, str]:
        digest = sha256(image).hexdigest()
        self.added[digest] = image
        return f"data/scorer_images/x.parquet/{digest}", digest
