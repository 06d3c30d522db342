"""Asking an instruction parser or a grounder, with every reply kept in work/, so that none is asked for twice."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from editjudge.core import resume
from editjudge.endpoints.spending import Account, Usage
from editjudge.judges.chat import Tokens
from editjudge.judges.endpoint_judge import EndpointJudge, Task
from editjudge.judges.settings import EndpointSetting

CODE = (
    "editjudge.grounding.prompts",
    "editjudge.judges.chat",
    "editjudge.endpoints.pictures",
    "editjudge.endpoints.replies",
)


@dataclass(frozen=True)
class Inquiry:
    """One thing that is asked.

    key: a fingerprint of all that decides the reply. instruction: what the turn says. image: shown before it, encoded;
    None: none. read: of a reply what it says, as JSON, or None and the reason.
    """

    key: str
    instruction: str
    image: bytes | None
    read: Callable[[str], tuple[Any, str | None]]


@dataclass(frozen=True)
class Finding:
    """What came of an inquiry. value: None where there is none, and `reason` says why; reply: empty if none came."""

    key: str
    value: Any
    reply: str
    reason: str | None
    usage: Usage | None = None


class Form:
    """The form of asking (see chat.Form) of these inquiries."""

    def __init__(self, inquiries: Sequence[Inquiry]) -> None:
        self._read = {inquiry.key: inquiry.read for inquiry in inquiries}
        self._seen = any(inquiry.image is not None for inquiry in inquiries)

    def messages(self, instruction: str) -> list[dict]:
        image = [{"type": "image"}] if self._seen else []
        return [{"role": "user", "content": [*image, {"type": "text", "text": instruction}]}]

    def shown(self, inquiry: Inquiry) -> dict[str, bytes]:
        return {} if inquiry.image is None else {"image": inquiry.image}

    def answer(self, key: str, text: str, _tokens: Tokens, usage: Usage | None) -> Finding:
        value, reason = self._read[key](text)
        return Finding(key, value, text, reason, usage)

    def nothing(self, key: str, reason: str) -> Finding:
        return Finding(key, None, "", reason)


def ask_all(
    setting: EndpointSetting, inquiries: Sequence[Inquiry], cache: resume.RecordCache, account: Account
) -> dict[str, Finding]:
    """What came of each inquiry, by its key; equal ones are asked once. All show an image or none does.

    A reply that cannot be read is asked for again, sampled, up to `reply_tries` replies; then the inquiry has failed
    and is not asked in a later run either. One that the endpoint did not answer is asked again in the next run.
    EndpointError: the endpoint refuses key or model.
    """
    asked = {inquiry.key: inquiry for inquiry in inquiries}
    found, missing = _kept(list(asked.values()), setting.reply_tries, cache, account)

    def keep(task: Task) -> None:
        usage = None if task.answer.usage is None else vars(task.answer.usage)
        cache.put(task.name, vars(task.answer) | {"usage": usage, "replies": task.replies})

    if missing:
        form = Form(list(asked.values()))
        judge = EndpointJudge(setting, setting.base_url, setting.key(), account, form)
        found |= {finding.key: finding for finding in judge.answer_all(missing, keep)}
    return found


def _kept(
    inquiries: Sequence[Inquiry], tries: int, cache: resume.RecordCache, account: Account
) -> tuple[dict[str, Finding], list[Task]]:
    """What is known, by key, and what must be asked, with the replies that came before."""
    found: dict[str, Finding] = {}
    missing = []
    for inquiry in inquiries:
        record = cache.get(inquiry.key)
        task = Task(inquiry.key, inquiry)
        if record is not None:
            finding, replies = _restored(record[0])
            account.use(inquiry.key, finding.usage, finding.reason is None)
            task = replace(task, answer=finding, replies=replies)
            if finding.reason is None or replies >= tries:
                account.reused += 1
                found[inquiry.key] = finding
                continue
        missing.append(task)
    return found, missing


def _restored(record: Mapping[str, Any]) -> tuple[Finding, int]:
    usage = None if record["usage"] is None else Usage(**record["usage"])
    values = {name: value for name, value in record.items() if name != "replies"}
    return Finding(**values | {"usage": usage}), record["replies"]
