"""Captions by a language model, and the writers of instructions: a language model, or the probe set's templates."""

import json
import re
from collections.abc import Callable, Sequence
from functools import partial
from itertools import groupby
from typing import Any

import cv2
import numpy as np

from editjudge.core import masks, records, regions
from editjudge.core.params import read_lined
from editjudge.core.prompts import PACKAGE, Prompt
from editjudge.models.chat.forms import Finding, Inquiry
from editjudge.models.endpoint.replies import UNMENDED, read_object
from editjudge.photos.edits import TEST, Choice, EditText, PlannedEdit, rough_size, where
from editjudge.sources.builtin import photos, scenes
from editjudge.sources.photo_records import Photo, PhotoRegion

Ask = Callable[[Sequence[Inquiry], dict[str, Any]], list[Finding]]
"""Inquiries of one form, and the JSON Schema of their replies, to what came of them."""

CAPTION, SINGLE, DIALOGUE = (f"photos/prompts/{name}.yaml" for name in ("caption", "instruction", "dialogue"))
TYPES: dict[str, str] = read_lined(PACKAGE / "photos/prompts/types.yaml").value["types"]
REPLIES = read_lined(PACKAGE / "photos/prompts/replies.yaml").value  # their JSON Schemas
SAID, TURNS = REPLIES["caption"], {1: REPLIES["edit"], 2: REPLIES["two"], 3: REPLIES["three"]}
LEAST_SIDE = 4  # pixels of a region that an edit by a template can be seen in
TOLERANCE = 0.5  # pixels by which a polygon may leave its mask's outline


def _sentence(text: Any) -> str:
    """A text on one line, without spaces around it."""
    return " ".join(str(text).split())


def caption(rows: Sequence[records.Row], ask: Ask) -> list[records.Row | str]:
    """Captions and nouns of the pool's rows, or the reasons why there are none."""
    text = Prompt.load(CAPTION).text("")
    found = ask([Inquiry(row["key"], text, {"image": row["image"]}, _caption) for row in rows], SAID)
    return [each.value if each.value is not None else f"captioner: {each.reason}" for each in found]


def _caption(reply: str) -> tuple[Any, str | None]:
    said, reason = read_object(reply, SAID, "objects", UNMENDED)
    if said is None:
        return None, reason
    names = {"object": said["objects"], "background": said["background"]}
    nouns = {role: list(dict.fromkeys(_sentence(noun).lower() for noun in each)) for role, each in names.items()}
    if not any(nouns.values()):
        return None, "the reply names nothing"
    return {"cap": [_sentence(said["caption"])], "tags": nouns | {"summary": _sentence(said["summary"])}}, None


def write(edits: Sequence[PlannedEdit], ask: Ask) -> list[EditText | str]:
    """Instructions of edits; the turns of a dialogue, which stand side by side, in one question."""
    asked = [list(turns) for _, turns in groupby(edits, key=lambda edit: edit.dialogue or edit.key)]
    written: dict[str, EditText | str] = {}
    for count, schema in TURNS.items():
        own = [turns for turns in asked if len(turns) == count]
        inquiries = [Inquiry(turns[0].key, _question(turns), {}, partial(_turns, count)) for turns in own]
        for turns, found in zip(own, ask(inquiries, schema) if own else (), strict=True):
            for n, edit in enumerate(turns):
                reason = f"writer: {found.reason}"
                written[edit.key] = reason if found.value is None else _edit_text(edit, found.value[n])
    return [written[edit.key] for edit in edits]


def _question(turns: Sequence[PlannedEdit]) -> str:
    photo = turns[0].photo
    nouns = ", ".join(dict.fromkeys(each.class_name for each in (*photo.object, *photo.background)))
    scene = photo.caption or f"of {nouns}"
    told = [_told(edit.choice, photo) for edit in turns]
    if len(turns) == 1:
        [(asks, name, place)] = told
        return Prompt.load(SINGLE).text(scene, criteria=asks, names=name, coordinates=place)
    lines = (f"{edit.turn}. {asks}: {name}, {place}" for edit, (asks, name, place) in zip(turns, told, strict=True))
    return Prompt.load(DIALOGUE).text(scene, criteria=str(len(turns)), names="\n".join(lines))


def _told(choice: Choice, photo: Photo) -> tuple[str, str, str]:
    """What a writer is told: the edit, what it is about, and where that is."""
    asks = TYPES[choice.task if choice.type == "adjust" else choice.type]
    name = "the whole photograph" if choice.spot is None else "a free place"
    if choice.region is not None:
        several = photo.counts[choice.region.class_name]
        name = f"the {choice.region.class_name}" + (f" (one of {several})" if several > 1 else "")
    if choice.box is None:
        return asks, name, "everywhere"
    place, size = (say(choice.box, photo.height, photo.width) for say in (where, rough_size))
    return asks, name, f"{place} of the photograph, {size}"


def _turns(count: int, reply: str) -> tuple[Any, str | None]:
    said, reason = read_object(reply, TURNS[count], "instruction" if count == 1 else "turns", UNMENDED)
    return (None, reason) if said is None else ([said] if count == 1 else said["turns"], None)


def _edit_text(edit: PlannedEdit, said: dict[str, str]) -> EditText:
    choice, shown, instruction = edit.choice, edit.shown, _sentence(said["instruction"])
    if choice.box is None:
        return EditText(instruction, [])
    label = _sentence(said["object"]) if choice.region is None else choice.region.class_name
    box = regions.clip_box([side * shown.scale for side in choice.box], *shown.rgb.shape[:2])
    found: records.Row = {"label": label, "box": list(box)}
    if choice.region is not None and choice.region.mask is not None:
        pixels = choice.region.pixels(edit.photo.height, edit.photo.width).astype(np.uint8)
        small = cv2.resize(pixels, shown.rgb.shape[1::-1], interpolation=cv2.INTER_NEAREST)
        found |= {"mask": masks.mask_png(small.astype(bool))} if small.any() else {}
    return EditText(instruction, [found])


def fill_templates(edits: Sequence[PlannedEdit], seed: int) -> list[EditText | str]:
    """The probe set's sentences and procedural edits. Objects that are added come from its photos of the same split."""
    return [_filled(edit, np.random.default_rng([seed, *edit.key.encode()])) for edit in edits]


def _filled(edit: PlannedEdit, rng: np.random.Generator) -> EditText | str:
    choice, photo = edit.choice, edit.photo
    crop = scenes.Crop(edit.shown.rgb, edit.shown.scale, 0, 0)
    role = "benchmark" if edit.split == TEST else "train"
    name = photo.path if photo.path in photos.ROLES[role] else ""
    if choice.spot is not None:
        place = where(choice.spot, photo.height, photo.width)
        subject: photos.Place | photos.Region = photos.Place("spot", place, choice.spot)
    else:
        assert choice.region is not None
        found = _drawn(choice.region, photo, choice.type == "background")
        x0, y0, x1, y1 = found.box if found else (0.0,) * 4
        if found is None or min(x1 - x0, y1 - y0) * edit.shown.scale < LEAST_SIDE:
            return "the region is too small to be edited"
        subject = found
    instruction, made, objects = scenes.edit_of(choice.task, crop, subject, role, name, rng)
    return EditText(re.sub(r"\ba (?=[aeiou])", "an ", instruction), objects, json.dumps(made, sort_keys=True))


def _drawn(region: PhotoRegion, photo: Photo, behind: bool) -> photos.Region | None:
    """A region as one that is drawn, by the outline of its largest part, the first of those as large. Of a background
    what stands before it: that is what its edits are told. None where it has no area."""
    mask = region.pixels(photo.height, photo.width)
    parts, _ = cv2.findContours(
        (~mask if behind else mask).astype(np.uint8), cv2.RETR_EXTERNAL, cv2.CHAIN_APPROX_SIMPLE
    )
    sizes = [cv2.contourArea(part) for part in parts]
    if max(sizes, default=0) <= 0:
        return None
    points = cv2.approxPolyDP(parts[int(np.argmax(sizes))], TOLERANCE, True)[:, 0].tolist()
    noun = _before(mask, photo) if behind else region.class_name
    several = photo.counts[noun] > 1
    phrase = f"the {noun} {where(region.bbox, photo.height, photo.width)}" if several and not behind else f"the {noun}"
    return photos.Region(region.class_name, phrase, noun, [[float(x), float(y)] for x, y in points], ())


def _before(background: np.ndarray, photo: Photo) -> str:
    """The object that fills most of what is no background; the first of those that fill as much."""
    shares = []
    for each in photo.object:
        mask = each.pixels(photo.height, photo.width)
        shares.append(int((mask & ~background).sum()) - int((mask & background).sum()))
    return photo.object[int(np.argmax(shares))].class_name if shares and max(shares) > 0 else "main subject"
