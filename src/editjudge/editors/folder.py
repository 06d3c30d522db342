"""Edits that were made elsewhere, as an editing model: its images are taken as they are, for pools and arena alike."""

from typing import Literal

from pydantic.dataclasses import dataclass

from editjudge.core.settings import FORBID, FileName, Text


@dataclass(frozen=True, kw_only=True, config=FORBID)
class FolderSetting:
    """path: a folder of images named by key, a gallery, or a table, see arena.given. model: its name there, where it
    has images of several.
    """

    kind: Literal["folder"] = "folder"
    path: FileName
    model: Text | None = None
