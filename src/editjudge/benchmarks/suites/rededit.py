"""REDEdit-Bench (arXiv 2602.13344): 15 tasks in English and Chinese, with ImgEdit-Bench's arithmetic.

redbench_eval.py at the pinned commit cannot start (an undefined name); `published` is what it would compute, and
`capped` what its prompts ask for in words."""

from dataclasses import replace
from functools import partial

from editjudge.benchmarks.suites.imgedit import BASIC
from editjudge.benchmarks.suites.suite import Case, Others, call, layout
from editjudge.core.reading import Record

COMMIT = "456d010bd3f9bd727f1ab7fe60838caf6ee479e6"
URL = f"https://raw.githubusercontent.com/FireRedTeam/FireRed-Image-Edit/{COMMIT}/rededit_bench/prompts.json"
TASKS = (
    "add", "adjust", "background", "beauty", "color", "compose", "extract", "lowlevel", "motion", "portrait", "remove",
    "replace", "stylize", "text", "viewpoint",
)  # fmt: skip
NAMES = {  # of the first, the second and the third number of every task
    "adherence": "Prompt Compliance|Instruction Compliance|Text Instruction Compliance|Object Identity|Motion Fidelity"
    "|Style Fidelity|Identity Consistency",
    "quality": "Visual Naturalness|Visual Seamlessness|Mask Precision|Identity Preservation|Text Visual Quality"
    "|Content Preservation|Structural Stability",
    "preservation": "Physical & Detail Integrity|Physical & Detail Coherence|Physical & Detail Fidelity"
    "|Physical & Detail Consistency|Physical Consistency & Fine Detail|Physical Consistency|Visual Quality"
    "|Visual & Anatomical Coherence|Overall Edit Quality|Rendering Quality|Overall Realism & Image Quality",
}
ASKED = call(["{source}这是原图A", "{edited}这是编辑后的图B。请进行评估。", "{theirs:{type}}"], NAMES, (1, 5), 8192)


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
    published=layout(
        "FireRedTeam/FireRed-Image-Edit@456d010", {"theirs": URL}, {"<edit_prompt>": "{instruction}"},
        {"calls": {"rubric": ASKED}},
    ),
    temperature=0.1,
    others=Others("gemini-3-flash", "FireRed", {"Nano-Banana-Pro": 4.42, "FireRed": 4.26, "Qwen-Edit-2511": 4.23}),
    files="**/redbench.jsonl",
)  # fmt: skip
CHINESE = replace(
    ENGLISH,
    cases=partial(cases, field="a_to_b_instructions"),
    others=Others("gemini-3-flash", "FireRed", {"Nano-Banana-Pro": 4.48, "FireRed": 4.33, "Qwen-Edit-2511": 4.18}),
)
