"""POST models/MODEL:generateContent (https://ai.google.dev/gemini-api/docs/image-generation): Nano Banana, Google.

Arguments go into `generationConfig`, such as imageConfig.imageSize: 2K."""

import base64
from typing import Any

from editjudge.editors.api.form import Answer, Asked, Form, body, json_reply
from editjudge.models.endpoint.client import Refused


def write(asked: Asked) -> bytes:
    shown = [{"inline_data": {"mime_type": media, "data": data}} for media, data in asked.inline]
    values = {"contents": [{"role": "user", "parts": [*shown, {"text": asked.prompt}]}]}
    return body(values | {"generationConfig": {"responseModalities": ["IMAGE"]}}, asked.arguments, "generationConfig")


def read(value: Any) -> Answer | None:
    [candidate, *_] = value.get("candidates") or [{}]
    parts = (candidate.get("content") or {}).get("parts") or []
    for part in parts:
        if (held := part.get("inlineData") or part.get("inline_data")) and not part.get("thought"):
            return base64.b64decode(held["data"])
    feedback = value.get("promptFeedback") or {}
    told = [feedback.get("blockReason"), candidate.get("finishReason"), candidate.get("finishMessage")]
    if words := " ".join(str(each) for each in [*told, *(part.get("text") for part in parts)] if each):
        raise Refused(200, f"no image: {words}")
    return None


FORM = Form(lambda model: f"models/{model}:generateContent", write, json_reply(read), ("x-goog-api-key", "{}"))
