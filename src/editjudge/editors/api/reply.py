"""What an images/edits endpoint is sent and what it answers."""

import base64
import io
import re
from collections.abc import Mapping, Sequence
from typing import Any

import aiohttp
import orjson

from editjudge.editors.protocol import EditFailed
from editjudge.models.endpoint.client import QUOTED, Refused, TryFailed

KINDS = {"png": b"\x89PNG\r\n\x1a\n", "jpeg": b"\xff\xd8\xff", "webp": b"RIFF"}
# Words by which providers say that they will not make this edit, as opposed to a request that they cannot read.
POLICY = re.compile(
    r"moderation|content[_ ]?(policy|filter)|policy[_ ]?violation|safety|sensitive|nsfw|prohibited", re.IGNORECASE
)


def kind_of(image: bytes) -> str:
    """Such as png. EditFailed (bad_source): it is no PNG, JPEG or WebP."""
    kind = next((kind for kind, magic in KINDS.items() if image.startswith(magic)), None)
    if kind is None:
        raise EditFailed("bad_source", "not a PNG, JPEG or WebP image")
    return kind


def multipart(images: Sequence[bytes], prompt: str, model: str, arguments: Mapping[str, Any]) -> aiohttp.FormData:
    """A request for one edit, the images as they came: `image`, or several as `image[]`. EditFailed, see `kind_of`."""
    body = aiohttp.FormData()
    for kind, image in [(kind_of(each), each) for each in images]:
        name = "image[]" if len(images) > 1 else "image"
        body.add_field(name, io.BytesIO(image), filename=f"image.{kind}", content_type=f"image/{kind}")
    for name, value in {"prompt": prompt, "model": model, **arguments}.items():
        body.add_field(name, str(value).lower() if isinstance(value, bool) else str(value))
    return body


def read(raw: bytes) -> bytes | str:
    """The first image of an answer (JSON), or the address that it lies at.

    Raises Refused where an error stands in the image's place, TryFailed for anything else, such as a gateway's page."""
    try:
        [image, *_] = orjson.loads(raw)["data"]
        error, data, url = (image.get(name) for name in ("error", "b64_json", "url"))
        if error and not (data or url):
            raise Refused(200, orjson.dumps(error).decode())
        if isinstance(data, str) and data:
            return base64.b64decode(data.partition(",")[2] if data.startswith("data:") else data)
        if isinstance(url, str) and url:
            return url
    except (AttributeError, KeyError, TypeError, ValueError):
        pass
    raise TryFailed("malformed", f"no image in the answer: {raw[:QUOTED].decode(errors='replace')}")


def refusal(refused: Refused) -> EditFailed:
    """Why an edit was refused, in the provider's words: for what it shows (refused), or else (its status)."""
    told = refused.text
    try:  # the message and the code of an error in OpenAI's form
        error = orjson.loads(told)
        error = error.get("error", error)
        told = " ".join([str(error["message"]), *([f"({error['code']})"] if error.get("code") else [])])
    except (AttributeError, KeyError, TypeError, ValueError):
        pass
    if POLICY.search(refused.text):
        return EditFailed("refused", f"the provider refuses this edit: {told[:QUOTED]}")
    return EditFailed(str(refused.status), f"the endpoint refuses the request ({refused.status}): {told[:QUOTED]}")
