"""How the API of a provider is asked for one edit, and what it answers: a module of `editjudge.editors.api.forms` each.

A module has `FORM`. It is part of the names of the images that came by it, so that a change of one form asks no other
provider again."""

import base64
import re
from collections.abc import Callable, Mapping
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
    """One edit. image: PNG, JPEG or WebP; field: where it goes, `name` or, as a list of one, `name[]`; None: where the
    form has it; arguments: more fields, one inside another by a dot."""

    image: bytes
    prompt: str
    model: str
    arguments: Mapping[str, Any]
    field: str | None = None

    @property
    def media(self) -> str:
        """Such as image/png. EditFailed (bad_source): it is none of the three."""
        kind = next((kind for kind, magic in reply.KINDS.items() if self.image.startswith(magic)), None)
        if kind is None:
            raise EditFailed("bad_source", "not a PNG, JPEG or WebP image")
        return f"image/{kind}"

    @property
    def base64(self) -> str:
        return base64.b64encode(self.image).decode()

    @property
    def data_url(self) -> str:
        return f"data:{self.media};base64,{self.base64}"

    def placed(self, field: str) -> dict[str, Any]:
        """The image under its field, or else this one."""
        name = self.field or field
        return {name[:-2]: [self.data_url]} if name.endswith("[]") else {name: self.data_url}


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
