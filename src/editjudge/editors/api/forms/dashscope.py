"""POST services/aigc/multimodal-generation/generation: Qwen-Image-Edit at Alibaba Cloud
(https://www.alibabacloud.com/help/en/model-studio/qwen-image-edit). Arguments go into `parameters`."""

from typing import Any

from editjudge.editors.api.form import Answer, Asked, Form, body, image, json_reply


def write(asked: Asked) -> bytes:
    content = [*({"image": url} for url in asked.data_urls), {"text": asked.prompt}]
    messages = [{"role": "user", "content": content}]
    values = {"model": asked.model, "input": {"messages": messages}, "parameters": {"n": 1, "watermark": False}}
    return body(values, asked.arguments, "parameters")


def read(value: Any) -> Answer | None:
    content = value["output"]["choices"][0]["message"]["content"]
    return next((image(part["image"]) for part in content if part.get("image")), None)


FORM = Form(lambda model: "services/aigc/multimodal-generation/generation", write, json_reply(read))
