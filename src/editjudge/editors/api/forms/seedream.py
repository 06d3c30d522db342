"""POST images/generations with `image` (https://docs.byteplus.com/en/docs/ModelArk/1541523): Seedream and SeedEdit, at
Volcengine's and BytePlus's Ark."""

from editjudge.editors.api import reply
from editjudge.editors.api.form import Asked, Form, body


def write(asked: Asked) -> bytes:
    values = {"model": asked.model, "prompt": asked.prompt, "response_format": "b64_json", "watermark": False}
    return body(values | asked.placed("image"), asked.arguments)


FORM = Form(lambda model: "images/generations", write, reply.read)
