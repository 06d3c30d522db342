"""POST images/edits, multipart, as https://platform.openai.com/docs/api-reference/images/createEdit has it: OpenAI,
vLLM-Omni, SGLang, and gateways such as LiteLLM's proxy, which front others in this form."""

from editjudge.editors.api import reply
from editjudge.editors.api.form import Form

FORM = Form(
    lambda model: "images/edits",
    lambda asked: reply.multipart(asked.images, asked.prompt, asked.model, asked.arguments),
    reply.read,
)
