"""ADIEE's labels (Chen et al. 2025): 0, 0.5 or 1 for an edit, without people, each with its rule in words.

The rules are asked in the order of RULES, and the first that fits decides. Where none fits, there is no label.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np

Role: TypeAlias = Literal["truth", "input", "edit"]
RULES: Mapping[str, str] = {
    "truth": "it is the true edit: 1",
    "input": "it is the source itself: 0",
    "bad_editor": "all edits of its editor are taken for bad: 0",
    "clip_d_negative": "CLIP-D below 0, away from what was asked for: 0",
    "unlike_truth": "CLIP-I and DINO-I to the true edit both below those of the sources: 0",
    "good_editor_unsure": "an editor taken for good, CLIP-D below {least}: 0.5",
    "good_editor": "an editor taken for good, CLIP-D {least} or above: 1",
    "sequence": "so many of the turns asked for are done: 0 before, their share between, 1 at the end, 0.5 beyond",
}
LABELS = {
    "truth": 1.0, "input": 0.0, "bad_editor": 0.0, "clip_d_negative": 0.0, "unlike_truth": 0.0,
    "good_editor_unsure": 0.5, "good_editor": 1.0,
}  # fmt: skip


@dataclass(frozen=True)
class EditFeatures:
    """An image that may be an edit. clip_d, clip_i, dino_i: -1..1, the last two to the true edit; None: not known."""

    role: Role
    editor: str | None
    clip_d: float | None = None
    clip_i: float | None = None
    dino_i: float | None = None


@dataclass(frozen=True)
class LikenessLimits:
    """What CLIP-I and DINO-I to the true edit must both be below. None: no source has one, and the rule is silent."""

    clip_i: float | None
    dino_i: float | None


@dataclass(frozen=True)
class Editors:
    """Editors whose edits are all taken for bad, and those taken for good where CLIP-D is at least `least`."""

    bad: Collection[str]
    good: Collection[str]
    least: float


def thresholds(inputs: Iterable[EditFeatures], percentile: float) -> LikenessLimits:
    """The percentiles (0..100, interpolated) of the sources' own likeness to their true edits."""
    known = [sample for sample in inputs if sample.role == "input"]
    found: list[float | None] = []
    for values in ([s.clip_i for s in known], [s.dino_i for s in known]):
        given = [value for value in values if value is not None]
        found.append(float(np.percentile(given, percentile)) if given else None)
    return LikenessLimits(*found)


def rule_of(sample: EditFeatures, below: LikenessLimits, editors: Editors) -> str | None:
    """The first rule that fits; None where none does."""
    if sample.role != "edit":
        return sample.role
    if sample.editor in editors.bad:
        return "bad_editor"
    if sample.clip_d is not None and sample.clip_d < 0:
        return "clip_d_negative"
    if _below(sample.clip_i, below.clip_i) and _below(sample.dino_i, below.dino_i):
        return "unlike_truth"
    if sample.editor in editors.good and sample.clip_d is not None:
        return "good_editor" if sample.clip_d >= editors.least else "good_editor_unsure"
    return None


def _below(value: float | None, limit: float | None) -> bool:
    return value is not None and limit is not None and value < limit


def words(rule: str, editors: Editors) -> str:
    """The rule as a row says it."""
    return f"{rule}: {RULES[rule].format(least=f'{editors.least:g}')}"


def sequence_score(k: int, first: int, last: int) -> float:
    """How much of turns first + 1 .. last image k of a multi-turn sequence has done, image `first` being the input.

    0 for k <= first, (k - first) / (last - first) between, 1 at last, 0.5 beyond, where more was done than was asked.
    """
    if not 0 <= first < last:
        raise ValueError(f"0 <= first < last expected, not {first} and {last}")
    return 0.5 if k > last else max(k - first, 0) / (last - first)


def draw(turns: int, rng: np.random.Generator) -> tuple[int, int]:
    """Two images first < last of 0..turns, each two as likely."""
    first, last = sorted(rng.choice(turns + 1, 2, replace=False).tolist())
    return first, last


def joined(instructions: Sequence[str]) -> str:
    """Several instructions as one, each ending as a sentence does."""
    return " ".join(text if text.rstrip()[-1:] in ".!?" else f"{text.rstrip()}." for text in instructions)


def agreement(labelled: Iterable[tuple[str, float, float, float]], worst: float) -> Iterator[dict[str, float | str]]:
    """For each rule, how well its labels fit known truth.

    labelled: rule, label, 1 or 0 for whether the edit was carried out, and its damage (mean ΔE). An edit is truly good
    where it was carried out with damage below `worst`. agreed: of labels 0 those of edits that are not, of labels 1
    those of edits that are; 0.5 says neither, so its share of good edits stands alone. Rules in the order of RULES.
    """
    groups: dict[str, list[tuple[float, float, float]]] = defaultdict(list)
    for rule, label, done, damage in labelled:
        groups[rule].append((label, done, damage))
    for rule in (rule for rule in RULES if rule in groups):
        labels, done, damage = np.array(groups[rule]).T
        good = (done == 1) & (damage < worst)
        row: dict[str, float | str] = {"rule": rule, "edits": len(labels), "label": float(labels.mean())}
        row |= {"carried_out": float(done.mean()), "damage": float(damage.mean()), "good": float(good.mean())}
        sure = labels != 0.5
        if sure.any():
            row["agreed"] = float((good == (labels == 1))[sure].mean())
        yield row
