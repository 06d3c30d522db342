"""Captions and instructions by a language model, behind an endpoint or in this process."""

from collections.abc import Callable, Sequence
from functools import partial
from itertools import groupby
from typing import Any

import cv2
import numpy as np

from editjudge.core import masks, records
from editjudge.core.lined_yaml import read_lined
from editjudge.core.prompts import PACKAGE, Prompt
from editjudge.models.chat.forms import Finding, Inquiry
from editjudge.models.endpoint.replies import UNMENDED, read_object
from editjudge.photos.edits import Choice, EditText, PlannedEdit, rough_size, scaled, sentence, where
from editjudge.sources.photo_records import Photo

Ask = Callable[[Sequence[Inquiry], dict[str, Any]], list[Finding]]
"""Inquiries of one form, and the JSON Schema of their replies, to what came of them."""

CAPTION, SINGLE, DIALOGUE = (f"photos/prompts/{name}.yaml" for name in ("caption", "instruction", "dialogue"))
TYPES: dict[str, str] = read_lined(PACKAGE / "photos/prompts/types.yaml", {}).value["types"]


def _text(most: int) -> dict[str, Any]:
    return {"type": "string", "pattern": r"\S", "maxLength": most}


def _object(properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


def _list(items: dict[str, Any], least: int, most: int) -> dict[str, Any]:
    return {"type": "array", "items": items, "minItems": least, "maxItems": most}


NOUN = {"type": "string", "pattern": r"^(?=.*\S)[^\x00-\x1f<>|{}.?]{1,60}$"}
SAID = _object(
    {"caption": _text(4000), "summary": _text(1000), "objects": _list(NOUN, 0, 40), "background": _list(NOUN, 0, 20)}
)
EDIT = _object({"object": _text(120), "instruction": _text(600)})
TURNS = {count: _object({"turns": _list(EDIT, count, count)}) for count in (2, 3)}


def caption(rows: Sequence[records.Row], ask: Ask) -> list[records.Row | str]:
    """Captions and nouns of the pool's rows, or the reasons why there are none."""
    text = Prompt.load(CAPTION).text("")
    inquiries = [Inquiry(row["key"], text, {"image": row["image"]}, _caption) for row in rows]
    return [_value("captioner", found) for found in ask(inquiries, SAID)]


def _value(role: str, found: Finding) -> Any:
    return found.value if found.value is not None else f"{role}: {found.reason}"


def _caption(reply: str) -> tuple[Any, str | None]:
    said, reason = read_object(reply, SAID, "objects", UNMENDED)
    if said is None:
        return None, reason
    nouns = {role: _once(said[name]) for role, name in (("object", "objects"), ("background", "background"))}
    if not any(nouns.values()):
        return None, "the reply names nothing"
    return {"cap": [sentence(said["caption"])], "tags": nouns | {"summary": sentence(said["summary"])}}, None


def _once(nouns: Sequence[str]) -> list[str]:
    return list(dict.fromkeys(sentence(noun).lower() for noun in nouns))


def write(edits: Sequence[PlannedEdit], ask: Ask) -> list[EditText | str]:
    """Instructions of edits; the turns of a dialogue, which stand side by side, in one question."""
    asked = [list(turns) for _, turns in groupby(edits, key=lambda edit: edit.dialogue or edit.key)]
    found: dict[str, EditText | str] = {}
    for count in (1, *TURNS):
        own = [turns for turns in asked if len(turns) == count]
        schema = EDIT if count == 1 else TURNS[count]
        inquiries = [Inquiry(turns[0].key, _question(turns), {}, partial(_turns, count)) for turns in own]
        for turns, said in zip(own, ask(inquiries, schema) if own else (), strict=True):
            value = _value("writer", said)
            for edit, each in zip(turns, [value] * count if isinstance(value, str) else value, strict=True):
                found[edit.key] = each if isinstance(each, str) else _written(edit, each)
    return [found[edit.key] for edit in edits]


def _question(turns: Sequence[PlannedEdit]) -> str:
    photo = turns[0].photo
    scene = photo.caption or "of " + ", ".join(
        dict.fromkeys(each.class_name for each in (*photo.object, *photo.background))
    )
    if len(turns) == 1:
        name, place = _names(turns[0].choice, photo), _place(turns[0].choice, photo)
        return Prompt.load(SINGLE).text(scene, criteria=_asks(turns[0].choice), names=name, coordinates=place)
    lines = (
        f"{edit.turn}. {_asks(edit.choice)}: {_names(edit.choice, photo)}, {_place(edit.choice, photo)}"
        for edit in turns
    )
    return Prompt.load(DIALOGUE).text(scene, criteria=str(len(turns)), names="\n".join(lines))


def _asks(choice: Choice) -> str:
    return TYPES[choice.task if choice.type == "adjust" else choice.type]


def _names(choice: Choice, photo: Photo) -> str:
    if choice.region is None:
        return "the whole photograph" if choice.spot is None else "a free place"
    several = photo.counts[choice.region.class_name]
    return f"the {choice.region.class_name}" + (f" (one of {several})" if several > 1 else "")


def _place(choice: Choice, photo: Photo) -> str:
    if choice.box is None:
        return "everywhere"
    place, size = (say(choice.box, photo.height, photo.width) for say in (where, rough_size))
    return f"{place} of the photograph, {size}"


def _turns(count: int, reply: str) -> tuple[Any, str | None]:
    schema, key = (EDIT, "instruction") if count == 1 else (TURNS[count], "turns")
    said, reason = read_object(reply, schema, key, UNMENDED)
    return (None, reason) if said is None else ([said] if count == 1 else said["turns"], None)


def _written(edit: PlannedEdit, said: dict[str, str]) -> EditText:
    choice, shown = edit.choice, edit.shown
    if choice.box is None:
        return EditText(sentence(said["instruction"]), [])
    label = sentence(said["object"]) if choice.region is None else choice.region.class_name
    found: records.Row = {"label": label, "box": list(scaled(choice.box, shown))}
    if choice.region is not None and choice.region.mask is not None:
        pixels = choice.region.pixels(edit.photo.height, edit.photo.width).astype(np.uint8)
        small = cv2.resize(pixels, shown.rgb.shape[1::-1], interpolation=cv2.INTER_NEAREST)
        found |= {"mask": masks.mask_png(small.astype(bool))} if small.any() else {}
    return EditText(sentence(said["instruction"]), [found])
