"""Small suites in their published forms, and galleries of edits of them."""

import json
from pathlib import Path
from typing import Any

from pictures import picture

from editjudge.benchmarks.suites.forms import SuiteSetting, cases
from editjudge.benchmarks.suites.imgedit import TYPES
from editjudge.core.records import Row
from editjudge.core.settings import read


def basic(folder: Path, count: int = 9) -> Path:
    """ImgEdit-Bench's basic form: `count` cases of its types in turn, two of each photo, keys 1, 2, ..."""
    rows = {}
    for n in range(count):
        (folder / "photos").mkdir(parents=True, exist_ok=True)
        (folder / f"photos/{n // 2}.jpg").write_bytes(picture(n // 2, "JPEG"))
        rows[str(n + 1)] = {"id": f"photos/{n // 2}.jpg", "prompt": f"edit {n + 1}", "edit_type": TYPES[n % len(TYPES)]}
    file = folder / "basic_edit.json"
    file.write_text(json.dumps(rows))
    return file


def multi_turn(folder: Path, count: int = 2) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    lines = []
    for n in range(count):
        (folder / f"d{n}.png").write_bytes(picture(n))
        lines.append(json.dumps({"id": f"d{n}", **{f"turn{k}": f"turn {k} of d{n}" for k in (1, 2, 3)}}))
    file = folder / "multi_turn.jsonl"
    file.write_text("\n".join(lines))
    return file


def kinds_of_dialogues(folder: Path) -> None:
    """ImgEdit-Bench's multi-turn suite as it is published: a file a kind, dialogues by key, of two or three turns."""
    folder.mkdir(parents=True, exist_ok=True)
    for n in (7, 8):
        (folder / f"{n}.png").write_bytes(picture(n))
    three = {f"turn{k}": f"turn {k}" for k in (1, 2, 3)}
    two = {"id": "7.png", "turn1": "first", "turn2": "second"}
    files = {"content_memory": {"1": {"id": "7.png"} | three, "2": two}}
    files |= {"Content-Understanding": {"1": {"id": "7.png"} | three}}
    files |= {"version_backtracking": {"1": {"id": "8"} | three}}
    for name, dialogues in files.items():
        (folder / f"{name}.json").write_text(json.dumps(dialogues))


def gedit(folder: Path, tasks: tuple[str, ...] = ("ps_human", "subject-add"), each: int = 2) -> Path:
    """GEdit-Bench v1's table: of each task and language `each`, the first of them in the intersection."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = [
        {"key": f"{task}{n}", "task_type": task, "instruction_language": language,
         "instruction": f"{task} {n} {language}", "input_image": {"bytes": picture(n), "path": None},
         "input_image_raw": {"bytes": picture(n + 50), "path": None},
         "Intersection_exist": n == 0}
        for task in tasks for n in range(each) for language in ("en", "cn")
    ]  # fmt: skip
    folder.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(rows), folder / "train.parquet")
    return folder / "train.parquet"


def load(form: str, file: Path, **fields: Any) -> list[Row]:
    """The suite's rows."""
    setting = read("suites.x", SuiteSetting, {"form": form, "path": str(file), **fields})
    return list(cases("x", setting))


def gallery(folder: Path, rows: list[Row], seed: int = 100) -> Path:
    """An edit of each case, under its published name."""
    for n, row in enumerate(rows):
        file = folder / f"{row['file']}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(picture(seed + n))
    return folder


def reply(adherence: int, quality: int, preservation: int) -> str:
    """What a rater of ImgEdit's rubrics says."""
    names = ("Instruction Adherence", "Editing Quality", "Detail Preservation")
    numbers = (adherence, quality, preservation)
    return "\n".join(["Brief reasoning: so", *(f"{name}: {n}" for name, n in zip(names, numbers, strict=True))])


def rating(key: str, scores: Any, type_: str = "add", **fields: Any) -> dict[str, Any]:
    """A row of stages/ratings.schema.json."""
    listed = None if scores is None else [{"dimension": d, "score": float(s)} for d, s in scores.items()]
    row = {"key": key, "type": type_, "origin": f"photo {key}", "model": "m", "rater": "r", "judge": "j", "run": 0}
    row |= {"language": None, "intersection": None, "asked": None, "reply": "x"}
    return row | {"scores": listed, "reason": "broken" if listed is None else None} | fields
