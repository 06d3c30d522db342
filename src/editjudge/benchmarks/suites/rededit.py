"""REDEdit-Bench (arXiv 2602.13344): 15 tasks in English and Chinese, with ImgEdit-Bench's arithmetic.

redbench_eval.py at the pinned commit cannot start (an undefined name); `published` is what it would compute, and
`capped` what its prompts ask for in words."""

from dataclasses import replace
from functools import partial

from editjudge.benchmarks.suites.imgedit import BASIC
from editjudge.benchmarks.suites.suite import Case, Others, read
from editjudge.core.reading import Record


def cases(record: Record, field: str) -> list[Case]:
    """{id, source, task, a_to_b_instructions, a_to_b_instructions_eng} in JSON lines."""
    task, image = record.choice("task", ENGLISH.types), record["source"]
    key = f"{task}-{record.identifier('id')}"
    return [Case(key, task, record.text(field), image, file=f"{task}/{key}")]


ENGLISH = read("rededit", partial(cases, field="a_to_b_instructions_eng"), *BASIC.boards, columns=BASIC.columns)
MODELS = {"Nano-Banana-Pro": 4.48, "FireRed": 4.33, "Qwen-Edit-2511": 4.18}
OTHERS = Others("gemini-3-flash", "FireRed", MODELS)
CHINESE = replace(ENGLISH, cases=partial(cases, field="a_to_b_instructions"), others=OTHERS)
