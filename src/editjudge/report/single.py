"""The page of one pair: what judges and measures say of two edits, without the graph."""

from collections.abc import Mapping, Sequence
from typing import Any

from editjudge.judges.protocol import BothOrders, Question
from editjudge.measures.names import DIRECTIONS
from editjudge.report import gallery, page
from editjudge.report.pictures import Pictures

SIDE = 2048  # pixels of the long side from which images are made smaller


def one_pair(
    question: Question,
    answers: Mapping[str, BothOrders],
    measured: Mapping[str, tuple[float | None, float | None]],
    boxes: Sequence[Sequence[int]] = (),
    names: tuple[str, str] = ("a", "b"),
) -> str:
    """The page, with the images inside of it.

    answers: by judge. measured: the values of A and B by `area.measure`. names: of the two edits.
    """
    pictures, judges = Pictures(None, SIDE), list[str]()
    images = [pictures.add(bytes(each)) for each in (question.source, question.a, question.b)]
    sides = names if names[0] != names[1] else (f"{names[0]} (A)", f"{names[1]} (B)")
    edits: dict[str, dict[str, Any]] = {
        name: {"image": image, "values": [gallery.brief(values[side]) for values in measured.values()]}
        for side, (name, image) in enumerate(zip(sides, images[1:], strict=True))
    }
    said = [gallery.judged({"judge": judge} | answer.columns(), judges) for judge, answer in answers.items()]
    pair: dict[str, Any] = {"key": question.key, "a": sides[0], "b": sides[1], "judged": said}
    pair |= dict.fromkeys(("truth", "winner", "why"))
    prompt = gallery.Prompt("", "", question.key, edits, [pair], question.instruction, images[0], boxes)
    measures = [dict(zip(("area", "measure"), _parts(name), strict=True)) for name in measured]
    task = {"measures": [each | {"direction": DIRECTIONS[each["measure"]]} for each in measures], "rules": []}
    data = {"tasks": {"": task}, "judges": judges, "prompts": [prompt.row()], "images": pictures.rows}
    return page.render("Two edits, compared", data, charts=False)


def _parts(name: str) -> tuple[str, str]:
    area, _, measure = name.rpartition(".")
    return area, measure
