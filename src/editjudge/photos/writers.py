"""Captions by a language model, and the writers of instructions: a language model, or the probe set's templates."""

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
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
from editjudge.photos.edits import KINDS, TEST, Choice, EditText, PlannedEdit, rough_size, where
from editjudge.sources.builtin import operations, photos, scenes
from editjudge.sources.photo_records import Photo

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
    return Prompt.load(DIALOGUE).text(scene, criteria=KINDS[turns[0].kind]["asks"], names="\n".join(lines))


def _told(choice: Choice, photo: Photo) -> tuple[str, str, str]:
    """What a writer is told: the edit, what it is about, and where that is."""
    asks = TYPES[choice.task if choice.type == "adjust" else choice.type]
    if choice.parts:
        both = [_told(part, photo) for part in choice.parts]
        return asks, "; ".join(f"{what}: {name}, {place}" for what, name, place in both), "as told"
    name = "what the first turn adds" if choice.spot else "the whole photograph"
    name = "a free place" if choice.type == "add" else name
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
    found = list[records.Row]()
    for each in (part for part in choice.parts or (choice,) if part.box is not None):
        label = _sentence(said["object"]) if each.region is None else each.region.class_name
        box = regions.clip_box([side * shown.scale for side in each.box or ()], *shown.rgb.shape[:2])
        found.append({"label": label, "box": list(box)})
        if each.region is not None and each.region.mask is not None:
            pixels = each.region.pixels(edit.photo.height, edit.photo.width).astype(np.uint8)
            small = cv2.resize(pixels, shown.rgb.shape[1::-1], interpolation=cv2.INTER_NEAREST)
            found[-1] |= {"mask": masks.mask_png(small.astype(bool))} if small.any() else {}
    return EditText(instruction, found)


def fill_templates(edits: Sequence[PlannedEdit], seed: int) -> list[EditText | str]:
    """The probe set's sentences and procedural edits. Objects that are added come from its photos of the same split."""
    found = list[EditText | str]()
    for name, turns in groupby(edits, key=lambda edit: edit.dialogue or edit.key):
        found += _filled(list(turns), np.random.default_rng([seed, *name.encode()]))
    return found


def _filled(turns: Sequence[PlannedEdit], rng: np.random.Generator) -> Sequence[EditText | str]:
    """A single edit, or a dialogue: of one material for its objects, or all about what the first turn adds."""
    shown, role = turns[0].shown, "benchmark" if turns[0].split == TEST else "train"
    name = turns[0].photo.path if turns[0].photo.path in photos.ROLES[role] else ""
    crop, found, material = scenes.Crop(shown.rgb, shown.scale, 0, 0), list[EditText](), ""
    added: photos.Region | None = None
    for n, edit in enumerate(turns):
        if (subject := added or _subject(edit, crop.scale)) is None or (n and edit.choice.spot and not added):
            return ["the region is too small to be edited"] * len(turns)
        text, made, objects = scenes.edit_of(edit.choice.task, crop, subject, role, name, rng)
        if edit.dialogue and made["operation"] == "change_material":
            material = made["material"] = material or made["material"]
        if edit.dialogue and made["operation"] == "add":
            donor = operations.donor(made["donor"], made["donor_region"])
            mask = operations.added_mask(shown.rgb.shape[:2], made["box"], donor[1])
            crop = scenes.Crop(operations.add(shown.rgb, made["box"], *donor), 1.0, 0, 0)
            added = _region("it", objects[0]["label"], mask)
        elif added and made["operation"] == "recolour":
            crop = replace(crop, pixels=operations.recolour(crop.pixels, mask, made["colour"]))
        if edit.dialogue:
            text = KINDS[edit.kind]["said"][n].format(instruction=text, chosen=material, phrase=subject.phrase)
        found.append(EditText(re.sub(r"\ba (?=[aeiou])", "an ", text), objects, json.dumps(made, sort_keys=True)))
    return found


def _subject(edit: PlannedEdit, scale: float) -> Any:
    """What an edit is about, a region or a place; of a background what stands before it: that is what its edits are
    told. None where it is too small."""
    choice, photo = edit.choice, edit.photo
    if choice.spot is not None:
        return photos.Place("spot", where(choice.spot, photo.height, photo.width), choice.spot)
    assert choice.region is not None
    mask, noun = choice.region.pixels(photo.height, photo.width), choice.region.class_name
    phrase = f"the {noun}"
    if choice.type == "background":
        phrase, noun, mask = f"the {(before := _before(mask, photo))}", before, ~mask
    elif photo.counts[noun] > 1:
        phrase += f" {where(choice.region.bbox, photo.height, photo.width)}"
    found = _region(phrase, noun, mask)
    x0, y0, x1, y1 = found.box if found else (0.0,) * 4
    return None if min(x1 - x0, y1 - y0) * scale < LEAST_SIDE else found


def _region(phrase: str, noun: str, mask: np.ndarray) -> photos.Region | None:
    """A region as one that is drawn, by the outline of its largest part, the first of those as large. None where it has
    no area."""
    parts, _ = cv2.findContours(mask.astype(np.uint8), cv2.RETR_EXTERNAL, cv2.CHAIN_APPROX_SIMPLE)
    sizes = [cv2.contourArea(part) for part in parts]
    if max(sizes, default=0) <= 0:
        return None
    points = cv2.approxPolyDP(parts[int(np.argmax(sizes))], TOLERANCE, True)[:, 0].tolist()
    return photos.Region(noun, phrase, noun, [[float(x), float(y)] for x, y in points], ())


def _before(background: np.ndarray, photo: Photo) -> str:
    """The object that fills most of what is no background; the first of those that fill as much."""
    shares = []
    for each in photo.object:
        mask = each.pixels(photo.height, photo.width)
        shares.append(int((mask & ~background).sum()) - int((mask & background).sum()))
    return photo.object[int(np.argmax(shares))].class_name if shares and max(shares) > 0 else "main subject"
