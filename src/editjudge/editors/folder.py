"""Edits that were made elsewhere, as an editing model: its images are taken as they are, for pools and arena alike."""

from pydantic.dataclasses import dataclass

from editjudge.core.settings import FORBID, Text


@dataclass(frozen=True, config=FORBID)
class FolderSetting:
    """path: a folder of images named by key, a gallery, or a table, see arena.given. model: its name there, where it
    has images of several.
    """

    path: Text
    model: Text | None = None
