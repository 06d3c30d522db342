"""POST chat/completions with an image in the reply
(https://openrouter.ai/docs/features/multimodal/image-generation): OpenRouter and those that follow it."""

from typing import Any

from editjudge.editors.api.form import Answer, Asked, Form, body, image, json_reply
from editjudge.models.endpoint.client import Refused


def write(asked: Asked) -> bytes:
    shown = [{"type": "image_url", "image_url": {"url": url}} for url in asked.data_urls]
    messages = [{"role": "user", "content": [{"type": "text", "text": asked.prompt}, *shown]}]
    return body({"model": asked.model, "messages": messages, "modalities": ["image", "text"]}, asked.arguments)


def read(value: Any) -> Answer | None:
    [choice, *_] = value.get("choices") or [{}]
    message = choice.get("message") or {}
    for each in message.get("images") or []:
        return image(each["image_url"]["url"])
    words = [choice.get("error"), message.get("refusal"), message.get("content"), choice.get("native_finish_reason")]
    if told := " ".join(str(each) for each in words if each):
        raise Refused(200, f"no image: {told}")
    return None


FORM = Form(lambda model: "chat/completions", write, json_reply(read))
