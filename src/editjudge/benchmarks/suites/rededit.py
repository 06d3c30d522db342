"""REDEdit-Bench (arXiv 2602.13344): 15 tasks in English and Chinese, with ImgEdit-Bench's arithmetic.

redbench_eval.py at the pinned commit cannot start (an undefined name); `published` is what it would compute, and
`capped` what its prompts ask for in words."""

from dataclasses import replace
from functools import partial

from editjudge.benchmarks.suites.imgedit import BASIC
from editjudge.benchmarks.suites.suite import Case, Others, layout
from editjudge.core.reading import Record

TASKS = (
    "add", "adjust", "background", "beauty", "color", "compose", "extract", "lowlevel", "motion", "portrait", "remove",
    "replace", "stylize", "text", "viewpoint",
)  # fmt: skip


def cases(record: Record, field: str) -> list[Case]:
    """{id, source, task, a_to_b_instructions, a_to_b_instructions_eng} in JSON lines."""
    task, image = record.choice("task", TASKS), record["source"]
    key = f"{task}-{record.identifier('id')}"
    return [Case(key, task, record.text(field), image, file=f"{task}/{key}")]


ENGLISH = replace(
    BASIC,
    cases=partial(cases, field="a_to_b_instructions_eng"),
    rubrics=None,
    types=TASKS,
    published=layout("rededit"),
    temperature=0.1,
    others=Others("gemini-3-flash", "FireRed", {"Nano-Banana-Pro": 4.42, "FireRed": 4.26, "Qwen-Edit-2511": 4.23}),
    files="**/redbench.jsonl",
)
CHINESE = replace(
    ENGLISH,
    cases=partial(cases, field="a_to_b_instructions"),
    others=Others("gemini-3-flash", "FireRed", {"Nano-Banana-Pro": 4.48, "FireRed": 4.33, "Qwen-Edit-2511": 4.18}),
)
