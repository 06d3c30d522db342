"""KRIS-Bench (arXiv 2505.16707): edits that need knowledge, in 20 categories, some of three photos or with the right
answer.

Its scripts give every case its numbers and no overall figure: `score`, the mean over cases of the mean of a case's
dimensions, is ours. Defects of metrics_*.py at the pinned commit, whose questions `kris` sends: they read fields that
the data lack, so that the judge sees an empty instruction and explanation; and anomaly_correction and
viewpoint_change, looked for under other names, are asked without the explanation and the right answer. `kris_mended`
asks with all."""

import re
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

from editjudge.benchmarks.suites.suite import Case, Scores, Suite, SuiteBoard, call, layout, percent
from editjudge.core.keys import plain
from editjudge.core.reading import Record

COMMIT = "7f7a944b0363e1ce1f23e4d09eabf008cd5e949b"
URL = f"https://raw.githubusercontent.com/mercurystraw/Kris_Bench/{COMMIT}/utils/prompts.py"
UNREAD = ("{instruct}", "{explanation}")
KNOWLEDGE = (
    "abstract_reasoning", "biology", "chemistry", "geography", "humanities", "mathematics", "medicine", "physics",
    "practical_knowledge", "rule-based_reasoning",
)  # fmt: skip
KINDS = {"anomaly_correction": "anomaly", "viewpoint_change": "view", "multi-element_composition": "multi"}
KINDS |= dict.fromkeys(KNOWLEDGE, "knowledge")  # the others are common
DIMENSIONS = ("consistency", "instruction", "quality", "knowledge")
PAIR = ("This is the original image:{source}", "This is the edited image:{edited}")
SOURCES = ("{source}", "{source_2}", "{source_3}")


def frames(asked: int) -> list[str]:
    """Four of a sequence, of which one is the edit."""
    known = [f"Frame {n} (Reference):" for n in range(1, 5) if n != asked]
    shown = [words + image for words, image in zip(known, SOURCES, strict=True)]
    return [*shown[: asked - 1], f"Frame {asked} (Generated):{{edited}}", *shown[asked - 1 :]]


def asked(mended: bool) -> dict[str, Any]:
    several = [f"Reference Image {n}:{each}" for n, each in enumerate(SOURCES, 1)] + ["Predicted Image:{edited}"]
    kinds = {  # the texts of consistency and instruction, and the images
        "common": ("consist", "instruction_following", PAIR),
        "anomaly": ("consist", "abnormal_" * mended + "instruction_following", PAIR),
        "view": ("consist", "view_" * mended + "instruction_following", PAIR),
        "knowledge": ("consist", "dual_evaluation", PAIR),
        "multi": ("consist_multi", "instruction_multi", several),
        **{f"frame_{n}": ("consist_temporal", "instruction_temporal", frames(n)) for n in range(1, 5)},
    }
    calls: dict[str, Any] = {}
    for kind, (consistency, instruction, shown) in kinds.items():
        alone = PAIR[1] if shown == PAIR else "This is the image to evaluate:{edited}"
        truth = ["This is the ground truth image:{truth}"] * (mended and kind == "view")
        about = {"consistency": (consistency, shown), "quality": ("quality", [alone])}
        about["instruction+knowledge" if kind == "knowledge" else "instruction"] = instruction, [*shown, *truth]
        for keys, (text, parts) in about.items():
            names = {key: f"{key} score" for key in keys.split("+")}
            calls.setdefault(kind, {})[keys] = call([f"{{theirs:prompt_{text}}}", *parts], names, (1, 5), 1000)
    marks = {"{{": "{", "}}": "}"} | ({"{instruct}": "{instruction}"} if mended else dict.fromkeys(UNREAD, ""))
    return layout("mercurystraw/Kris_Bench@7f7a944", {"theirs": URL}, marks, {"kinds": calls})


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
    own = {key: percent(value, (1, 5)) for key, value in scores.items()}
    return {"score": fmean(own.values()), **own}


KRIS = Suite(
    cases,
    span=(0.0, 100.0),
    figures=("score", *DIMENSIONS),
    boards=(SuiteBoard({"scores": "published"}, figures),),
    published=asked(mended=False),
    files="**/annotation.json",
)
MENDED = replace(KRIS, boards=(SuiteBoard({"scores": "mended"}, figures),), published=asked(mended=True))
