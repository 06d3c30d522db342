"""POST MODEL, then GET `polling_url` (https://docs.bfl.ai/api-reference): FLUX at Black Forest Labs."""

from typing import Any

from editjudge.editors.api.form import Answer, Asked, Form, body, image, json_reply
from editjudge.models.endpoint.client import Later, Refused

WAITING = ("Pending", "Processing", "Queued")


def write(asked: Asked) -> bytes:
    name = asked.field or "input_image"
    shown = {f"{name}_{n}" if n > 1 else name: data for n, (_, data) in enumerate(asked.inline, 1)}
    return body({"prompt": asked.prompt, **shown}, asked.arguments)


def read(value: Any) -> Answer | None:
    status = value.get("status")
    if status == "Ready":
        return image(value["result"]["sample"])
    if status is None or status in WAITING:
        return Later(value["polling_url"] if status is None else None)
    raise Refused(200, f"{status}: {value.get('details') or value.get('result') or ''}")


FORM = Form(lambda model: model, write, json_reply(read), ("x-key", "{}"))
