"""ADIEE's labels as scorer data: of the pipeline's pools and candidates, and of multi-turn sequences."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

from editjudge.core import images, reading, records
from editjudge.core.keys import plain
from editjudge.core.tables import RowError
from editjudge.judges.protocol import Edit, Score
from editjudge.judges.scorers.features import FeatureScorer
from editjudge.judges.settings import FeatureSetting
from editjudge.labels import adiee
from editjudge.labels.adiee import EditFeatures, Editors, Role
from editjudge.labels.data_settings import AdieeSource
from editjudge.labels.rows import ImageSink, LabelledEdit, part_of, pictures_of, row

DIMENSION = "overall_quality"
UNLABELLED = "no rule fits"


@dataclass(frozen=True)
class FeaturedEdit:
    """An image of a prompt, where it stands, and its features. damage: known truth; None where it is not known."""

    prompt: records.Row
    source: str
    name: str
    edit: Edit
    sample: EditFeatures
    damage: float | None


def rows(setting: AdieeSource, to: ImageSink) -> Iterator[records.Row]:
    """Rows of single edits; `to.report` says what was left out and why, and how well each rule fits known truth.

    Raises ContractError, ParamsError and TableError.
    """
    dropped, known = Counter[str](), list[tuple[str, float, float, float]]()
    found = list(_found(setting, dropped))
    below = adiee.thresholds((each.sample for each in found), setting.percentile)
    editors = Editors(setting.bad, setting.good, setting.least_clip_d)
    for each in found:
        rule = adiee.rule_of(each.sample, below, editors)
        if rule is None:
            dropped[UNLABELLED] += 1
            continue
        label = adiee.LABELS[rule]
        if each.damage is not None:
            known.append((rule, label, float(_edited(each.edit)), each.damage))
        yield _row(each, label, adiee.words(rule, editors), setting.test_share)
    if setting.sequences is not None:
        yield from sequences(setting, to, dropped)
    to.report |= {
        "thresholds": [{"clip_i": below.clip_i, "dino_i": below.dino_i, "percentile": setting.percentile}],
        "dropped": [{"reason": reason, "edits": count} for reason, count in sorted(dropped.items())],
        "agreement": list(adiee.agreement(known, setting.worst_damage)),
    }


def _row(each: FeaturedEdit, label: float, rule: str, test: float) -> records.Row:
    prompt, who = each.prompt, each.sample.editor or each.sample.role
    shown = LabelledEdit(each.name, _sum(each.edit.edited), each.sample.editor, {DIMENSION: label}, label)
    source, key = (each.source, _sum(each.edit.source)), prompt["key"]
    more: dict[str, Any] = {"origin": prompt["origin"], "part": part_of(key, test), "rule": rule}
    return row(plain(f"{key}.{who}"), key, prompt["task"], prompt["instruction"], source, shown, **more)


def _found(setting: AdieeSource, dropped: Counter[str]) -> Iterator[FeaturedEdit]:
    """The source and all edits of each prompt of the tasks, with their features."""
    kinds: Mapping[str, dict[str, Any]] = {
        "clip_d": {"model": setting.clip},
        "clip_i": {"model": setting.clip, "against": "truth"},
        "dino_i": {"model": setting.dino, "against": "truth"},
    }
    options = {"dtype": setting.dtype, "batch_size": setting.batch_size, "device": setting.device}
    scorers = {
        kind: FeatureScorer("scorer_data", FeatureSetting(kind=kind, **given, **options))  # type: ignore[arg-type]
        for kind, given in kinds.items()
    }
    for task in setting.tasks:
        for group in records.in_groups(_prompts(setting, task)):
            shown = [each for prompt in group for each in _images(setting, task, prompt, dropped)]
            answers = {kind: scorer.score([edit for *_, edit in shown]) for kind, scorer in scorers.items()}
            for n, (prompt, name, role, editor, damage, edit) in enumerate(shown):
                own = {kind: answer.overall for kind, all_ in answers.items() if isinstance(answer := all_[n], Score)}
                source = f"data/pools/{task}.parquet/{prompt['key']}"
                yield FeaturedEdit(prompt, source, name, edit, EditFeatures(role, editor, **own), damage)


def _prompts(setting: AdieeSource, task: str) -> Iterator[records.Row]:
    """The pool's rows, each with its candidates by editor."""
    candidates = {
        editor: {row["key"]: row for row in records.iterate(_file(editor, task), "candidates", "image")}
        for editor in setting.editors
    }
    for prompt in records.iterate(Path(f"data/pools/{task}.parquet"), "pools", "image"):
        own = {editor: rows[prompt["key"]] for editor, rows in candidates.items() if prompt["key"] in rows}
        yield prompt | {"candidates": own}


def _file(editor: str, task: str) -> Path:
    return Path(f"data/candidates/{editor}/{task}.parquet")


def _images(
    setting: AdieeSource, task: str, prompt: records.Row, dropped: Counter[str]
) -> Iterator[tuple[records.Row, str, Role, str | None, float | None, Edit]]:
    """The source as if it were an edit, and the edits: where each stands, what it is, and how it is looked at."""
    source, key = prompt["image"], prompt["key"]
    made = {editor: row["image"] for editor, row in prompt["candidates"].items()}
    truth = made.get(setting.truth)
    shown: list[tuple[str, Role, str | None, float | None, records.Image | None]] = [
        (f"data/pools/{task}.parquet/{key}", "input", None, None, source)
    ]
    for editor, image in made.items():
        role: Role = "truth" if editor == setting.truth else "edit"
        shown.append((f"{_file(editor, task)}/{key}", role, editor, prompt["candidates"][editor]["damage"], image))
    for name, role, editor, damage, image in shown:
        if image is None:
            dropped["the edit failed"] += 1
        else:
            yield prompt, name, role, editor, damage, Edit(prompt["instruction"], source, image, truth)


def _sum(image: records.Image) -> str:
    return sha256(bytes(image)).hexdigest()


def _edited(edit: Edit) -> bool:
    """Whether any pixel is another one than the source's; an edit that should change none is made, too."""
    source, *others = (
        images.decode(bytes(image)) for image in (edit.source, edit.edited, edit.truth) if image is not None
    )
    edited, truth = others[0], others[-1]
    return not np.array_equal(source, edited) or np.array_equal(source, truth)


def sequences(setting: AdieeSource, to: ImageSink, dropped: Counter[str]) -> Iterator[records.Row]:
    """Multi-turn sequences: for each, two of its images are drawn, and all its images scored against them.

    A record has `images` (n + 1, paths or bytes), `instructions` (n), and may have `key`. RowErrors are counted.
    """
    for record in reading.read(reading.Table(path=setting.sequences, images=setting.sequence_images)):
        try:
            key, turns, pictures = _sequence(record)
        except RowError as error:
            dropped[f"sequence: {error.reason}"] += 1
            continue
        rng = np.random.default_rng([setting.seed, *key.encode()])
        for number in range(setting.draws):
            first, last = adiee.draw(len(turns), rng)
            instruction, named = adiee.joined(turns[first:last]), [to.add(picture) for picture in pictures]
            prompt = plain(f"{key}.{number}")
            for k, (name, digest) in enumerate(named):
                label = adiee.sequence_score(k, first, last)
                shown = LabelledEdit(name, digest, None, {DIMENSION: label}, label)
                rule = f"sequence: {adiee.RULES['sequence']}"
                more: dict[str, Any] = {"origin": key, "part": part_of(key, setting.test_share), "rule": rule}
                yield row(plain(f"{prompt}.{k}"), prompt, "multi_turn", instruction, named[first], shown, **more)


def _sequence(record: reading.Record) -> tuple[str, Sequence[str], tuple[bytes, ...]]:
    """Key, instructions and images of a sequence. Raises RowError."""
    turns, shown = record.values.get("instructions"), record.values.get("images")
    if not isinstance(turns, list) or not turns or not all(isinstance(turn, str) and turn.strip() for turn in turns):
        raise RowError("no instructions")
    if not isinstance(shown, list) or len(shown) != len(turns) + 1:
        raise RowError("not one image more than instructions")
    pictures = pictures_of(record, *shown)
    key = record.values.get("key")
    return plain(str(key)) if key else record.key, turns, pictures
