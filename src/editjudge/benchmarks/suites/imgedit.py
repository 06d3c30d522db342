"""ImgEdit-Bench (arXiv 2505.20275): single edits in nine types, the UGE suite, dialogues of two or three turns; edits
of our photos are scored as its basic suite.

Scores are those of the public scripts (step1_get_avgscore.py, step2_typescore.py and UGE/get_average_score.py at commit
c14480a): as published, and with the published cap applied. The cap (no other dimension above instruction adherence;
UGE: at most 3 where unedited areas changed) is only asked for in words there, and the published examples break it."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from editjudge.benchmarks.suites.suite import Case, Scores, SuiteBoard, columns_of, figures_of, read
from editjudge.core.keys import plain
from editjudge.core.reading import Record
from editjudge.core.records import Row
from editjudge.judges.rubrics import capped

# The types of edits, as the public file names them; `adjust` is the paper's "alter".
TYPES = ("add", "adjust", "replace", "remove", "background", "style", "action", "extract", "compose")
TURNS = ("turn1", "turn2", "turn3")  # the third may be missing
KINDS = ("content_memory", "content_understanding", "version_backtracking")  # of dialogues, a file each
ENDINGS = (".jpg", ".png", ".jpeg", ".webp")
MULTI = "multi_turn"  # the task of a dialogue, and its kind where the file says none
CHANGED_MOST = 3  # of UGE where unedited areas changed


def keyed_cases(record: Record, kind: str | None = None) -> list[Case]:
    """`{id, prompt, edit_type}` by key, id being the photo's path; of one kind without edit_type."""
    image, kind = record.text("id"), kind or record.choice("edit_type", TYPES)
    return [Case(record.identifier("key"), kind, record.text("prompt"), image, image)]


def dialogue_cases(record: Record) -> list[Case]:
    """`{id, turn1, turn2, turn3}`, id being the photo's name, with or without its ending, and turn3 if there is one.

    By key in a JSON object, whose file is named after the dialogues' kind: `content_memory-1` is dialogue 1 of that
    file, and several may be of one photo. A line of JSON lines is the one dialogue of its photo, of no kind."""
    name = record.identifier("id")
    ending = next((each for each in ("", *ENDINGS) if (record.images / f"{name}{each}").is_file()), "")
    words = [record.text(turn) for turn in TURNS if turn != TURNS[-1] or record.get(turn) is not None]
    file = Path(record.name).name
    dialogue = Path(name).stem if Path(name).suffix in ENDINGS else name
    if record.get("key") is not None:
        dialogue = f"{file}-{record.identifier('key')}"
    kind = next((kind for kind in KINDS if kind in re.sub(r"\W+", "_", file.lower())), MULTI)
    dialogue, image = plain(dialogue, 190), f"{name}{ending}"
    case = partial(Case, type=kind, image=image, origin=name, dialogue=dialogue, task=MULTI)
    return [case(f"{dialogue}.{turn}", instruction=text, turn=turn) for turn, text in enumerate(words, 1)]


def photo_cases(record: Record) -> list[Case]:
    """Rows of stages/photo_edits.schema.json that nothing learns from: single edits, and of a dialogue the first turn.
    A later turn ("make it blue") says nothing without those before it, which no rubric shows."""
    if record["split"] != "test" or (record.get("turn") or 1) > 1:
        return []
    about = {name: record.get(name) for name in ("dialogue", "turn", "task", "regions", "edit")}
    key, kind, instruction, origin = map(record.text, ("key", "type", "instruction", "origin"))
    return [Case(key, kind, instruction, record.get("image"), origin, **about)]


def basic_figures(scores: Scores) -> Scores:
    """The dimensions, and as score their mean, rounded to 2 as published."""
    return {"score": round(sum(scores.values()) / len(scores), 2), **scores}


def uge_capped(scores: Scores) -> Scores | None:
    """At most 3 where unedited areas changed; None where that matters and the judge did not say."""
    if scores["score"] <= CHANGED_MOST or scores.get("flag") == 0:
        return {"score": scores["score"]}
    return None if scores.get("flag") is None else {"score": CHANGED_MOST}


def columns(boards: Sequence[Mapping[str, Any]]) -> Row:
    """The published score first, then the capped one, the dimensions and the types."""
    own, cap = (figures_of(board) for board in boards)
    row = columns_of("score", own["score"]) | {"spread": own["score"]["spread"]} | columns_of("capped", cap["score"])
    row |= {name: figure["mean"] for name, figure in own.items() if name != "score"}
    return row | {each["type"]: each["figures"][0]["mean"] for each in boards[0]["types"]}


BOARDS = (
    SuiteBoard({"scores": "published"}, basic_figures),
    SuiteBoard({"scores": "capped"}, lambda scores: basic_figures(capped(scores))),
)
UGE_BOARDS = (
    SuiteBoard({"scores": "published"}, lambda scores: {"score": scores["score"]}),
    SuiteBoard({"scores": "capped"}, uge_capped),
)
BASIC = read("imgedit_basic", keyed_cases, *BOARDS, columns=columns)
UGE = read("imgedit_uge", partial(keyed_cases, kind="uge"), *UGE_BOARDS, columns=columns)
MULTI_TURN = replace(BASIC, cases=dialogue_cases, rubrics=None, published=None, others=None, types=KINDS)
NONE = "no photograph is for suites: raise instructions.test_share"
PHOTOS = replace(BASIC, cases=photo_cases, others=None, files=None, empty=NONE)
