"""How the API of a provider is asked for one edit, and what it answers: a module of `editjudge.editors.api.forms` each.

A module has `FORM`. It is part of the names of the images that came by it, so that a change of one form asks no other
provider again."""

import base64
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import orjson

from editjudge.editors.api import reply
from editjudge.editors.protocol import EditFailed
from editjudge.models.endpoint.client import QUOTED, Body, Later, Refused, TryFailed

# More words for an edit that a provider will not make, beside `reply.POLICY`.
MODERATED = re.compile(r"moderated|data_?inspection|\bflagged\b", re.IGNORECASE)
Answer: TypeAlias = bytes | str | Later
"""An image's bytes, the address that it lies at, or where to ask again."""


class Asked(NamedTuple):
    """One edit. images: of PNG, JPEG or WebP, the source first; field: where they go, `name` or, always as a list,
    `name[]`; None: where the form has them; arguments: more fields, one inside another by a dot."""

    images: Sequence[bytes]
    prompt: str
    model: str
    arguments: Mapping[str, Any]
    field: str | None = None

    @property
    def inline(self) -> list[tuple[str, str]]:
        """The media type, such as image/png, and base64 of each. EditFailed (bad_source): one is none of the three."""
        return [(f"image/{reply.kind_of(each)}", base64.b64encode(each).decode()) for each in self.images]

    @property
    def data_urls(self) -> list[str]:
        return [f"data:{media};base64,{data}" for media, data in self.inline]

    def placed(self, field: str) -> dict[str, Any]:
        """The images under their field, or else this one; a single one is a list only where the field is."""
        name, shown = self.field or field, self.data_urls
        listed = name.endswith("[]") or len(shown) > 1
        return {name.removesuffix("[]"): shown if listed else shown[0]}


class Form(NamedTuple):
    """path: of a model, behind the base address. write: the body of a request. read: of an answer, the first one or one
    to a question whether the work is done; raises Refused or TryFailed. header: the key's, with {} in its place."""

    path: Callable[[str], str]
    write: Callable[[Asked], Body]
    read: Callable[[bytes], Answer]
    header: tuple[str, str] = ("Authorization", "Bearer {}")


def body(values: dict[str, Any], arguments: Mapping[str, Any], inside: str = "") -> bytes:
    """JSON, the arguments in it. inside: where they go, by dots; "": beside the others."""
    for name, value in arguments.items():
        *path, last = [*filter(None, inside.split(".")), *name.split(".")]
        place = values
        for part in path:
            place = place.setdefault(part, {})
        place[last] = value
    return orjson.dumps(values)


def json_reply(read: Callable[[Any], Answer | None]) -> Callable[[bytes], Answer]:
    """A form's `read`, of one that finds the image in a parsed answer, and gives None where there is none. What a
    provider answers in words, or by an error in the image's place, has been paid for: it is a refusal, not another try.
    """

    def from_raw(raw: bytes) -> Answer:
        try:
            value = orjson.loads(raw)
            if found := read(value):
                return found
            error = value.get("error")
        except (AttributeError, IndexError, KeyError, TypeError, ValueError):
            error = None
        if error:
            raise Refused(200, orjson.dumps(error).decode())
        raise TryFailed("malformed", f"no image in the answer: {raw[:QUOTED].decode(errors='replace')}")

    return from_raw


def image(text: str) -> bytes | str:
    """An image that is a data URL; another address as it is. ValueError: broken base64."""
    return base64.b64decode(text.partition(",")[2]) if text.startswith("data:") else text


def refusal(refused: Refused) -> EditFailed:
    """As `reply.refusal`, by more providers' words."""
    failed = reply.refusal(refused)
    return EditFailed("refused", str(failed)) if MODERATED.search(refused.text) else failed
