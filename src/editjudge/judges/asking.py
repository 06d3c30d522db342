"""Asking judges that stand in params.yaml, with every answer kept in work/, so that none is asked for twice."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from editjudge import resume
from editjudge.judges.measures_judge import Context, MeasuresJudge
from editjudge.judges.prompt import PROMPT_VERSION
from editjudge.judges.protocol import BothOrders, Judge, Question, Usage, Verdict, combine, swapped

CHUNK = 256  # questions between two writes to the cache
CODE = (
    "editjudge.judges.asking",
    "editjudge.judges.checkpoint",
    "editjudge.judges.measures_judge",
    "editjudge.judges.processor",
    "editjudge.judges.prompt",
    "editjudge.judges.transformers_judge",
)


def ask(
    setting: Mapping[str, Any],
    questions: Sequence[Question],
    contexts: Mapping[str, Context],
    cache: resume.RecordCache,
) -> list[BothOrders]:
    """The answers of the judge that `judges.<name>` describes, each question asked in both orders.

    `backend` is transformers (with `model`, `dtype`, `batch_size`) or measures. Raises ValueError for another one.
    """
    if setting["backend"] == "measures":
        verdicts = MeasuresJudge(contexts, cache).compare_many(_both(questions))
    elif setting["backend"] == "transformers":
        verdicts = _resumed(setting, _both(questions), cache)
    else:
        raise ValueError(f"unknown judge backend {setting['backend']!r}; known: measures, transformers")
    pairs = zip(verdicts[::2], verdicts[1::2], strict=True)
    return [BothOrders(f, b, combine(f, b, setting["rule"], setting["tie_margin"])) for f, b in pairs]


def _both(questions: Sequence[Question]) -> list[Question]:
    return [order for question in questions for order in (question, swapped(question))]


def _resumed(setting: Mapping[str, Any], questions: Sequence[Question], cache: resume.RecordCache) -> list[Verdict]:
    """The answers of a model in this process; only those that the cache has not are asked for."""
    identity = resume.fingerprint(
        resume.code_version(CODE), PROMPT_VERSION, weights_hash(Path(setting["model"])), setting["dtype"]
    )
    names = [resume.fingerprint(identity, q.instruction, q.source, q.a, q.b) for q in questions]
    found = {name: record[0] for name in names if (record := cache.get(name)) is not None}
    missing = [(name, q) for name, q in dict(zip(names, questions, strict=True)).items() if name not in found]
    if missing:
        judge = _load(setting)
        for start in range(0, len(missing), CHUNK):
            part = missing[start : start + CHUNK]
            for (name, _), verdict in zip(part, judge.compare_many([q for _, q in part]), strict=True):
                found[name] = asdict(verdict)
                cache.put(name, found[name])
    return [_verdict(found[name], q.key) for name, q in zip(names, questions, strict=True)]


def _verdict(record: Mapping[str, Any], key: str) -> Verdict:
    """A verdict as it was kept, for the question that has this key now."""
    usage = record["usage"]
    return Verdict(**(dict(record) | {"key": key, "usage": None if usage is None else Usage(**usage)}))


def _load(setting: Mapping[str, Any]) -> Judge:
    from editjudge.judges.checkpoint import load_model
    from editjudge.judges.processor import load_processor
    from editjudge.judges.transformers_judge import TransformersJudge

    model = load_model(setting["model"], setting["dtype"])
    return TransformersJudge(model, load_processor(setting["model"]), setting["batch_size"])


def weights_hash(model_dir: Path) -> str:
    """SHA-256 over all files of a checkpoint. Raises FileNotFoundError where there are none."""
    files = sorted(path for path in model_dir.rglob("*") if path.is_file())
    if not files:
        raise FileNotFoundError(f"no model in {model_dir}")
    digest = hashlib.sha256()
    for path in files:
        digest.update(str(path.relative_to(model_dir)).encode())
        with path.open("rb") as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()
