"""What EditReward-Compass, MMRB2, FIRM-Bench and TIEdit print of a judge; ours that differ have names that say how."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from editjudge.benchmarks.preferences.item import Item
from editjudge.benchmarks.preferences.rated import RESPECTS
from editjudge.core.records import Row
from editjudge.core.winner import ahead
from editjudge.statistics import agreement, clustered

SAME = 1e-5  # two scores closer than this are a tie of EditReward-Compass
COMPASS = {"IA": "instruction awareness", "VC": "visual consistency", "VQ": "visual quality"}
Kept = Sequence[tuple[Item, Row]]


def figures(form: str, items: Sequence[Item], rows: Sequence[Row]) -> list[Row]:
    """As `report.published`: name, value, low and high; none of another form. rows: of the items that people judged."""
    kept = list(zip((item for item in items if item.verdict is not None), rows, strict=True))
    return FIGURES[form](kept) if form in FIGURES else []


def compass(kept: Kept) -> list[Row]:
    """The public script's shares, could it run: a tie is right where two scores are the same to SAME, a preference
    where the better edit's is higher. The paper's AVG is over all pairs, of which two thirds are of instruction
    awareness; the mean over dimensions is ours."""

    def winner(row: Row) -> Any:
        a, b = row["score_a"], row["score_b"]
        return row["winner"] if None in (a, b) else ahead(0.0 if abs(a - b) < SAME else a - b)

    columns = zip(*((row["truth"], winner(row), row["task"], row["cluster"]) for _, row in kept), strict=True)
    found = agreement.accuracy_report(*columns)
    named = {"mean over pairs": found} | {COMPASS[task]: own for task, own in found["per_task"].items()}
    told = [figure(f"EditReward-Compass accuracy, {name}", own) for name, own in named.items()]
    return [*told, figure("EditReward-Compass accuracy, mean over dimensions", found, "mean_over_tasks")]


def mmrb2(kept: Kept) -> list[Row]:
    """Each order's answer counts by itself. The script leaves out what was not answered, which a judge that refuses the
    hard pairs gains by; ours counts it as wrong. Pairs with several images, which were not shown, are in neither."""
    shown = [row for item, row in kept if item.failed is None]
    orders = ["forward", *(["backward"] if any(row["backward"] for row in shown) else [])]
    said = [(row[order], row["truth"], row["cluster"]) for row in shown for order in orders]
    named = {"": [each for each in said if each[0] is not None], ", unread ones wrong": said}
    shares = {how: ([a == b for a, b, _ in own], [photo for *_, photo in own]) for how, own in named.items() if own}
    name = "MMRB2 editing accuracy of each order, one image"
    return [figure(f"{name}{how}", agreement.share(*columns)) for how, columns in shares.items()]


def rated(form: str, kept: Kept) -> list[Row]:
    """How scores follow people's in each respect, over all edits whatever their prompt. FIRM-Bench: the mean error on a
    scale of 1 to 5, to which 0..1 is mapped, as its reward is. TIEdit: correlations, without a mapping before."""
    from scipy import stats  # here: it takes a second

    told, followed = list[Row](), {"SRCC": stats.spearmanr, "KRCC": stats.kendalltau, "PLCC": stats.pearsonr}
    for respect in RESPECTS[form]:
        edits = {
            (item.group, model): (score, float(np.mean(ratings)), item.cluster)
            for item, row in kept if item.task == respect and item.models and item.ratings
            for model, ratings, score in zip(item.models, item.ratings, (row["score_a"], row["score_b"]), strict=True)
            if score is not None
        }  # fmt: skip
        given, people, clusters = (np.array([each[n] for each in edits.values()]) for n in range(3))
        if len(edits) < 3 or not np.ptp(given) or not np.ptp(people):
            continue
        if form == "firm":
            given = 1 + 4 * given if given.min() >= 0 and given.max() <= 1 else given
            found = {"FIRM-Bench MAE": clustered.mean(np.abs(given - people), clusters)}
            found = found if given.min() >= 1 and given.max() <= 5 else {}
        else:
            fits = {f"TIEdit {name}": partial(_of, statistic, given, people) for name, statistic in followed.items()}
            found = {name: clustered.refitted(statistic, clusters) for name, statistic in fits.items()}
        told += [figure(f"{name}, {respect}", vars(own), "value") for name, own in found.items()]
    return told


def _of(statistic: Any, given: np.ndarray, people: np.ndarray, rows: np.ndarray) -> float:
    return float(statistic(given[rows], people[rows])[0])


def figure(name: str, of: Mapping[str, Any], key: str = "accuracy") -> Row:
    return {"name": name, "value": of[key]} | {end: of.get(f"{key}_{end}", of.get(end)) for end in ("low", "high")}


FIGURES: dict[str, Callable[[Kept], list[Row]]] = {form: partial(rated, form) for form in RESPECTS}
FIGURES |= {"compass": compass, "mmrb2": mmrb2}
