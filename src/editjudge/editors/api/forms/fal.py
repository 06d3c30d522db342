"""POST MODEL into the queue, then GET `status_url` and `response_url` (https://docs.fal.ai/model-endpoints/queue): fal.

Models name the field of the source otherwise: `image_field`, `image_urls[]` where they take several."""

from typing import Any

from editjudge.editors.api.form import Answer, Asked, Form, body, image, json_reply
from editjudge.models.endpoint.client import Later, Refused


def write(asked: Asked) -> bytes:
    return body({"prompt": asked.prompt, **asked.placed("image_url")}, asked.arguments)


def read(value: Any) -> Answer | None:
    if made := value.get("images") or ([value["image"]] if value.get("image") else None):
        return image(made[0]["url"])
    status = value.get("status")
    if status == "COMPLETED" and not value.get("error"):
        return Later(value["response_url"])
    if status in ("IN_QUEUE", "IN_PROGRESS"):
        return Later(value.get("status_url"))
    if told := value.get("error") or value.get("detail"):
        raise Refused(200, str(told))
    return None


FORM = Form(lambda model: model, write, json_reply(read), ("Authorization", "Key {}"))
