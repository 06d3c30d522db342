"""ADIEE's labels (Chen et al. 2025): 0, 0.5 or 1 for an edit, without people, each with its rule in words.

The rules are asked in the order of RULES, and the first that fits decides. Where none fits, there is no label. `rows`
makes scorer data of them: of the pipeline's pools and candidates, and of multi-turn sequences."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal, TypeAlias

import cv2
import numpy as np

from editjudge.core import images, params, reading, records
from editjudge.core.keys import plain
from editjudge.core.tables import RowError
from editjudge.judges.protocol import Edit, Score
from editjudge.judges.scorers.features import FeatureScorer
from editjudge.judges.settings import FeatureSetting
from editjudge.labels.rows import AdieeSource, ImageSink, LabelledEdit, added, part_of, row

Role: TypeAlias = Literal["truth", "input", "edit"]
Limits: TypeAlias = tuple[float | None, float | None]
"""What CLIP-I and DINO-I to the true edit must both be below. None: no source has one, and the rule is silent."""
RULES: Mapping[str, tuple[float, str]] = params.load(Path(__file__).parent / "rules/adiee.yaml")
SEQUENCE = "sequence: so many of the turns asked for are done: 0 before, their share between, 1 at the end, 0.5 beyond"
DIMENSION = "overall_quality"


@dataclass(frozen=True)
class EditFeatures:
    """An image that may be an edit. clip_d, clip_i, dino_i: -1..1, the last two to the true edit; None: not known."""

    role: Role
    editor: str | None
    clip_d: float | None = None
    clip_i: float | None = None
    dino_i: float | None = None


def thresholds(inputs: Iterable[EditFeatures], percentile: float) -> Limits:
    """The percentiles (0..100, interpolated) of the sources' own likeness to their true edits."""
    likeness = np.array([(each.clip_i, each.dino_i) for each in inputs if each.role == "input"], float).reshape(-1, 2)
    known = (column[~np.isnan(column)] for column in likeness.T)
    clip, dino = (float(np.percentile(values, percentile)) if len(values) else None for values in known)
    return clip, dino


def rule_of(sample: EditFeatures, below: Limits, setting: AdieeSource) -> str | None:
    """The first rule that fits; None where none does."""
    if sample.role != "edit":
        return sample.role
    if sample.editor in setting.bad:
        return "bad_editor"
    if sample.clip_d is not None and sample.clip_d < 0:
        return "clip_d_negative"
    likeness = zip((sample.clip_i, sample.dino_i), below, strict=True)
    if all(value is not None and limit is not None and value < limit for value, limit in likeness):
        return "unlike_truth"
    if sample.editor in setting.good and sample.clip_d is not None:
        return "good_editor" if sample.clip_d >= setting.least_clip_d else "good_editor_unsure"
    return None


def augmented(rgb: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """An image, (H, W, 3) uint8, mirrored one time in two, its inner 0.7 to 1 of each side, 0.8 to 1.2 times as light.

    The paper wants augmented sources (section 1) and does not say which: these ways are ours."""
    sides = np.array(rgb.shape[:2])
    kept = np.maximum(1, np.rint(sides * rng.uniform(0.7, 1.0, 2))).astype(int)
    (y, x), step = rng.integers(sides - kept + 1), -1 if rng.random() < 0.5 else 1
    part = cv2.resize(np.ascontiguousarray(rgb[y : y + kept[0], x : x + kept[1]][:, ::step]), rgb.shape[1::-1])
    return np.rint(part * rng.uniform(0.8, 1.2)).clip(0, 255).astype(np.uint8)


def sequence_score(k: int, first: int, last: int) -> float:
    """How much of turns first + 1 .. last image k of a multi-turn sequence has done, image `first` being the input.

    0 for k <= first, (k - first) / (last - first) between, 1 at last, 0.5 beyond, where more was done than was asked.
    """
    if not 0 <= first < last:
        raise ValueError(f"0 <= first < last expected, not {first} and {last}")
    return 0.5 if k > last else max(k - first, 0) / (last - first)


def joined(instructions: Sequence[str]) -> str:
    """Several instructions as one, each ending as a sentence does."""
    return " ".join(text if text.rstrip()[-1:] in ".!?" else f"{text.rstrip()}." for text in instructions)


def rows(setting: AdieeSource, to: ImageSink) -> Iterator[records.Row]:
    """Rows of single edits; `to` counts what was left out and why.

    Raises ContractError, ParamsError and TableError."""
    found = list(_found(setting, to.dropped))
    below = thresholds((sample for *_, sample in found), setting.percentile)
    for prompt, name, edit, sample in found:
        rule, key, task = rule_of(sample, below, setting), prompt["key"], prompt["task"]
        if rule is None:
            to.dropped["no rule fits"] += 1
            continue
        source, edited = (sha256(bytes(image)).hexdigest() for image in (edit.source, edit.edited))
        more: dict[str, Any] = {"origin": prompt["origin"], "part": part_of(key, setting.test_share)}
        more |= {"source": (f"data/pools/{task}.parquet/{key}", source), "instruction": edit.instruction}
        labelled = {rule: (name, edited)}
        if rule == "input" and setting.augmented:
            rng = np.random.default_rng([setting.seed, *key.encode()])
            labelled["augmented"] = to.add(images.encode_png(augmented(images.decode(bytes(edit.source)), rng)))
        for rule, image in labelled.items():
            label, told = RULES[rule]
            more["rule"] = f"{rule}: {told.format(least=f'{setting.least_clip_d:g}')}"
            shown = LabelledEdit(*image, sample.editor, {DIMENSION: label}, label)
            yield row(plain(f"{key}.{sample.editor or rule}"), key, task, a=shown, **more)
    if setting.sequences is not None:
        yield from sequences(setting, to)
    to.report["thresholds"] = [{"clip_i": below[0], "dino_i": below[1], "percentile": setting.percentile}]


def _found(setting: AdieeSource, dropped: Counter[str]) -> Iterator[tuple[records.Row, str, Edit, EditFeatures]]:
    """The source and all edits of each prompt of the tasks: the prompt, where the image stands, it and its features."""
    options: dict[str, Any] = {name: getattr(setting, name) for name in ("dtype", "batch_size", "device")}
    kinds = [FeatureSetting(kind="clip_d", model=setting.clip, **options)]
    if setting.truth is not None:
        kinds.append(FeatureSetting(kind="clip_i", model=setting.clip, against="truth", **options))
        kinds.append(FeatureSetting(kind="dino_i", model=setting.dino, against="truth", **options))
    scorers = {each.kind: FeatureScorer("scorer_data", each) for each in kinds}
    for task in setting.tasks:
        pool, candidates = Path(f"data/pools/{task}.parquet"), dict[str, dict[str, records.Row]]()
        for editor in setting.editors:
            edits = records.iterate(Path(f"data/candidates/{editor}/{task}.parquet"), "candidates", "image")
            candidates[editor] = {each["key"]: each for each in edits}
        for prompts in records.in_groups(records.iterate(pool, "pools", "image")):
            shown = list[tuple[records.Row, str, Edit, EditFeatures]]()
            for prompt in prompts:
                key, source, asked = prompt["key"], prompt["image"], prompt["instruction"]
                made = {editor: edits[key] for editor, edits in candidates.items() if key in edits}
                if records.references(prompt):  # a scorer looks at one
                    dropped["several source images"] += len(made)
                    continue
                truth = made[setting.truth]["image"] if setting.truth in made else None
                own = Edit(asked, source, source, truth)
                shown.append((prompt, f"{pool}/{key}", own, EditFeatures("input", None)))
                for editor, candidate in made.items():
                    if (image := candidate["image"]) is None:
                        dropped["the edit failed"] += 1
                        continue
                    sample = EditFeatures("truth" if editor == setting.truth else "edit", editor)
                    name = f"data/candidates/{editor}/{task}.parquet/{key}"
                    shown.append((prompt, name, Edit(asked, source, image, truth), sample))
            answers = {kind: scorer.score([edit for _, _, edit, _ in shown]) for kind, scorer in scorers.items()}
            for n, (*image, sample) in enumerate(shown):
                said = ((kind, all_[n]) for kind, all_ in answers.items())
                values: dict[str, Any] = {kind: one.overall for kind, one in said if isinstance(one, Score)}
                yield *image, replace(sample, **values)


def sequences(setting: AdieeSource, to: ImageSink) -> Iterator[records.Row]:
    """Multi-turn sequences: for each, two of its images are drawn, and all its images scored against them.

    A record has `images` (n + 1, paths or bytes), `instructions` (n), and may have `key`. RowErrors are counted."""
    for record in reading.read(reading.Table(path=setting.sequences, images=setting.sequence_images)):
        with to.counting("sequence: "):
            yield from _sequence(setting, to, record)


def _sequence(setting: AdieeSource, to: ImageSink, record: reading.Record) -> Iterator[records.Row]:
    key, turns, shown = record.get("key"), record.get("instructions"), record.get("images")
    key = plain(str(key)) if key else record.key
    if not (isinstance(turns, list) and turns and all(isinstance(each, str) and each.strip() for each in turns)):
        raise RowError("no instructions")
    if not isinstance(shown, list) or len(shown) != len(turns) + 1:
        raise RowError("not one image more than instructions")
    named = added(to, record, *shown)
    rng = np.random.default_rng([setting.seed, *key.encode()])
    for number in range(setting.draws):
        first, last = sorted(rng.choice(len(turns) + 1, 2, replace=False).tolist())  # each two as likely
        prompt = plain(f"{key}.{number}")
        more: dict[str, Any] = {"origin": key, "part": part_of(key, setting.test_share), "source": named[first]}
        more |= {"rule": SEQUENCE, "instruction": joined(turns[first:last])}
        for k, (name, digest) in enumerate(named):
            label = sequence_score(k, first, last)
            shown = LabelledEdit(name, digest, None, {DIMENSION: label}, label)
            yield row(plain(f"{prompt}.{k}"), prompt, "multi_turn", a=shown, **more)
