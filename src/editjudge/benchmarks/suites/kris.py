"""KRIS-Bench (arXiv 2505.16707): edits that need knowledge, in 20 categories, some of three photos or with the right
answer.

Its scripts give every case its numbers and no overall figure: `score`, the mean over cases of the mean of a case's
dimensions, is ours. Defects of metrics_*.py at the pinned commit, whose questions `kris` sends: they read fields that
the data lack, so that the judge sees an empty instruction and explanation; and anomaly_correction and
viewpoint_change, looked for under other names, are asked without the explanation and the right answer. `kris_mended`
asks with all."""

import re
from pathlib import Path

from editjudge.benchmarks.suites.suite import Case, Scores, SuiteBoard, mean_first, percent, read
from editjudge.core.keys import plain
from editjudge.core.reading import Record

KNOWLEDGE = (
    "abstract_reasoning", "biology", "chemistry", "geography", "humanities", "mathematics", "medicine", "physics",
    "practical_knowledge", "rule-based_reasoning",
)  # fmt: skip
KINDS = {"anomaly_correction": "anomaly", "viewpoint_change": "view", "multi-element_composition": "multi"}
KINDS |= dict.fromkeys(KNOWLEDGE, "knowledge")  # the others are common


def cases(record: Record) -> list[Case]:
    """{ori_img (one or three), gt_img, ins_en, explain_en} by key in <category>/annotation.json, images beside it."""
    number, shown, category = record.identifier("key"), record["ori_img"], Path(record.file).parent.name
    image, *more = shown if isinstance(shown, list) and shown else [shown]
    images = {f"source_{n}": each for n, each in enumerate(more, 2)}
    kind = KINDS.get(category, "common")
    if category == "temporal_prediction":
        known = {found[1] for name in (image, *more) if (found := re.search(r"\d+-(\d+)", str(name)))}
        kind = f"frame_{min({*'1234'} - known, default='1')}"
    images |= {"truth": record["gt_img"]} if kind == "view" else {}
    texts = {"kind": kind, "explanation": str(record.get("explain_en") or ""), "N": kind[-1]}
    key, file = plain(f"{category}-{number}"), f"{category}/{number}"
    return [Case(key, category, record.text("ins_en"), image, file=file, images=images, texts=texts)]


def figures(scores: Scores) -> Scores:
    """In percent: the mean of the dimensions, and each."""
    return mean_first({key: percent(value, (1, 5)) for key, value in scores.items()})


KRIS = read("kris", cases, SuiteBoard({"scores": "published"}, figures))
MENDED = read("kris", cases, SuiteBoard({"scores": "mended"}, figures), mended=True)
