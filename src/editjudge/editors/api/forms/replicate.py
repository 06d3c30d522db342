"""POST models/OWNER/NAME/predictions, or predictions of OWNER/NAME:VERSION, then GET `urls.get`
(https://replicate.com/docs/reference/http): Replicate. Arguments go into `input`.

Models name the field of the source otherwise: `image_field`, `image_input[]` where they take several."""

from typing import Any

from editjudge.editors.api.form import Answer, Asked, Form, body, image, json_reply
from editjudge.models.endpoint.client import Later, Refused


def path(model: str) -> str:
    return "predictions" if ":" in model else f"models/{model}/predictions"


def write(asked: Asked) -> bytes:
    values = {"input": {"prompt": asked.prompt, **asked.placed("input_image")}}
    version = {"version": asked.model} if ":" in asked.model else {}
    return body(values | version, asked.arguments, "input")


def read(value: Any) -> Answer | None:
    status, made = value["status"], value.get("output")
    if status == "succeeded" and made:
        return image(made if isinstance(made, str) else made[0])
    if status in ("starting", "processing"):
        return Later(value["urls"]["get"])
    raise Refused(200, f"{status}: {value.get('error') or 'no image'}")


FORM = Form(path, write, json_reply(read))
