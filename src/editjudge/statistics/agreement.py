"""How well a judge agrees with known winners, and how far its answers depend on the order of the images.

Winners are "Image A", "Image B" and "Tie"; None is an answer that could not be read. An answer is correct if it is the
true winner. A Tie is therefore wrong where the truth names an image, a named image is wrong where the truth is a Tie,
and so is an answer that could not be read: all stay in the denominator, and every report counts them. Where people said
"Both good" or "Both bad", the truth is a Tie (`folded`). `decided` is the accuracy over the questions whose truth names
an image; `tie_calibrated` lets the judge's own margin say what it calls a Tie.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias, cast

import numpy as np

from editjudge.core.winner import OTHER_SIDE, SIGNS, WINNERS, WORTH, Winner
from editjudge.statistics.clustered import wilson_interval

Pair: TypeAlias = tuple[Winner | None, Winner | None]  # the truth and the winner
_BLOCK = 4_000_000  # numbers in the largest temporary array of a bootstrap


def interval(values: Sequence[float] | np.ndarray) -> tuple[float, float]:
    """The 95 % percentile interval of what resamples gave."""
    low, high = np.quantile(values, (0.025, 0.975))
    return float(low), float(high)


def resampled_means(
    values: Sequence[float] | np.ndarray,
    clusters: Sequence[Any] | np.ndarray,
    rng: np.random.Generator,
    n_resamples: int = 1000,
) -> np.ndarray:
    """Means of `values` (n,) over n_resamples resamples of whole clusters (n,), float64, (n_resamples,).

    Rows of one cluster (one photo, one prompt) stand or fall together; a mean is a sum over a count, so that clusters
    of different sizes keep their weight. Independent of the rows' order. Raises ValueError as `resampled_sums`.
    """
    columns = np.column_stack([np.asarray(values, float), np.ones(len(values))])
    sums = resampled_sums(columns, clusters, rng, n_resamples)
    return sums[:, 0] / sums[:, 1]


def resampled_sums(
    values: np.ndarray, clusters: Sequence[Any] | np.ndarray, rng: np.random.Generator, n_resamples: int = 1000
) -> np.ndarray:
    """Column sums of `values` (n, k) over n_resamples resamples of whole clusters (n,), float64, (n_resamples, k).

    Raises ValueError for lengths that differ and a missing cluster.
    """
    if len(values) != len(clusters):
        raise ValueError(f"{len(values)} answers and {len(clusters)} clusters")
    missing = [row for row, cluster in enumerate(clusters) if cluster is None or cluster != cluster]
    if missing:
        raise ValueError(f"row {missing[0]} has no cluster ({len(missing)} such rows)")
    names, place = np.unique(np.asarray(clusters), return_inverse=True)
    columns = [np.bincount(place, weights=column) for column in np.asarray(values, float).T]
    sums = np.empty((n_resamples, len(columns)))
    chunk = max(1, _BLOCK // len(names))
    for begin in range(0, n_resamples, chunk):
        drawn = rng.integers(len(names), size=(min(chunk, n_resamples - begin), len(names)))
        for k, column in enumerate(columns):
            sums[begin : begin + chunk, k] = column[drawn].sum(axis=1)
    return sums


def accuracy_report(
    truths: Sequence[Winner],
    winners: Sequence[Winner | None],
    tasks: Sequence[str],
    clusters: Sequence[Any],
    rng: np.random.Generator,
) -> dict[str, Any]:
    """Accuracy of `winners` against `truths`, one row a question, over all, a task, and as the mean over tasks.

    Returns n, scored, unparsed, ties (answered), correct, accuracy, low and high (Wilson, 95 %), clusters (how many),
    clustered_low and clustered_high (of `resampled_means`; None with one cluster), mean_over_tasks with
    mean_over_tasks_low and mean_over_tasks_high (from resampled clusters too; None with one), and per_task: {task: {n,
    scored, unparsed, ties, correct, accuracy, low, high}}, sorted by task; and decided: the same counts over the
    questions whose truth names an image, None where there is none.

    Raises ValueError for no rows, lengths that differ and a missing cluster.
    """
    pairs = list(zip(truths, winners, strict=True))
    rows: dict[str, list[Pair]] = {task: [] for task in sorted(set(tasks))}
    for task, pair in zip(tasks, pairs, strict=True):
        rows[task].append(pair)
    total, per_task = _accuracy(pairs), {task: _accuracy(its) for task, its in rows.items()}
    correct = [truth == winner for truth, winner in pairs]
    decided = [pair for pair in pairs if pair[0] != "Tie"]
    n_clusters = len(set(clusters))
    low, high, task_low, task_high = None, None, None, None
    if n_clusters > 1:
        low, high = interval(resampled_means(correct, clusters, rng))
        task_low, task_high = _mean_over_tasks_interval(correct, tasks, clusters, rng)
    return total | {
        "clusters": n_clusters,
        "clustered_low": low,
        "clustered_high": high,
        "mean_over_tasks": sum(task["accuracy"] for task in per_task.values()) / len(per_task),
        "mean_over_tasks_low": task_low,
        "mean_over_tasks_high": task_high,
        "per_task": per_task,
        "decided": _accuracy(decided) if decided else None,
    }


def position_bias(
    first_order_winners: Sequence[Winner | None], second_order_winners: Sequence[Winner | None]
) -> dict[str, Any]:
    """How far answers depend on which image is shown first; one row a question that was asked twice.

    first_order_winners: answers to (A, B). second_order_winners: answers to the same question with the two images
    exchanged, as the judge gave them: "Image A" is then the image that the first order calls "Image B". Answers that
    were already turned back into the first order's terms go through `exchanged` before.

    Returns n; scored (both answers read), unscored, unscored_first, unscored_second; consistent and consistency, the
    number and share of scored questions whose two answers name the same image or are both Tie; both_first and
    both_second, the questions whose two answers name the same side; first_side_preference, the mean over the answers to
    scored questions of 1 for the side shown first, 1/2 for a Tie and 0 for the other, 0.5 without bias, and low and
    high, its 95 % Wilson interval with the number of scored questions as n (the two answers to a question are
    not independent, so that twice as many would be too sure). Shares are None where nothing was scored.

    Raises ValueError for lengths that differ.
    """
    asked = list(zip(first_order_winners, second_order_winners, strict=True))
    scored = [(first, second) for first, second in asked if first is not None and second is not None]
    consistent = sum(first == exchanged(second) for first, second in scored)
    preferred = sum(WORTH[first] + WORTH[second] for first, second in scored) / 2
    low, high = wilson_interval(preferred, len(scored)) if scored else (None, None)
    return {
        "n": len(asked),
        "scored": len(scored),
        "unscored": len(asked) - len(scored),
        "unscored_first": first_order_winners.count(None),
        "unscored_second": second_order_winners.count(None),
        "both_first": scored.count(("Image A", "Image A")),
        "both_second": scored.count(("Image B", "Image B")),
        "consistent": consistent,
        "consistency": consistent / len(scored) if scored else None,
        "first_side_preference": preferred / len(scored) if scored else None,
        "low": low,
        "high": high,
    }


def folded(verdict: str) -> Winner:
    """People's verdict as a winner: "Both good" and "Both bad" are a Tie. ValueError for any other word."""
    winner = {"Both good": "Tie", "Both bad": "Tie"}.get(verdict, verdict)
    if winner not in WINNERS:
        raise ValueError(f"the verdict is {verdict!r}, not one of {', '.join(WINNERS)}, Both good, Both bad")
    return cast(Winner, winner)


def tuple_accuracy(
    truths: Sequence[Winner | None], winners: Sequence[Winner | None], groups: Sequence[Any], sizes: Sequence[int]
) -> dict[str, Any]:
    """The share of tuples of which every pair is right; one row a pair, of the tuple `groups` with `sizes` edits.

    A pair without a readable answer makes its tuple wrong, and so does one without people's readable verdict (a truth
    of None). A tuple of K edits has K(K-1)/2 pairs; one of which the
    benchmark has fewer (it left ties out) counts by those it has, and as `incomplete`.

    Returns n, correct, accuracy, low and high (Wilson, 95 %), unscored (tuples with an unread answer), incomplete, and
    per_size: a list of the same for each K, with `size`. Source: EditReward-Bench, arXiv 2509.26346, section 2.2.
    Raises ValueError for no rows, lengths that differ, and one tuple of two sizes.
    """
    tuples: dict[Any, list[Pair]] = {}
    size_of: dict[Any, int] = {}
    for truth, winner, group, size in zip(truths, winners, groups, sizes, strict=True):
        if size_of.setdefault(group, size) != size:
            raise ValueError(f"tuple {group!r} has {size_of[group]} edits and {size}")
        tuples.setdefault(group, []).append((truth, winner))
    rows = [(size_of[group], pairs) for group, pairs in tuples.items()]
    per_size = [
        {"size": size} | _tuples([row for row in rows if row[0] == size]) for size in sorted(set(size_of.values()))
    ]
    return _tuples(rows) | {"per_size": per_size}


def _tuples(rows: Sequence[tuple[int, Sequence[Pair]]]) -> dict[str, Any]:
    correct = sum(all(truth is not None and truth == winner for truth, winner in pairs) for _, pairs in rows)
    return _share(correct, len(rows)) | {
        "unscored": sum(any(winner is None for _, winner in pairs) for _, pairs in rows),
        "incomplete": sum(len(pairs) < size * (size - 1) // 2 for size, pairs in rows),
    }


def tie_calibrated(truths: Sequence[Winner], margins: Sequence[float | None]) -> dict[str, Any]:
    """The best accuracy that calling every |margin| up to some threshold a Tie can give, and that threshold.

    margins: how much the judge prefers A, any unit, A over B where above 0 (a difference of scores, or P(A) - 1/2);
    None is unread and wrong. The threshold (0 or more) is chosen on the same questions, so the accuracy is optimistic;
    it is the usual figure of GenAI-Bench and AURORA-Bench for judges that give scores and never say Tie.

    Returns n, scored, correct, accuracy and threshold. Source: D. Deutsch, G. Foster and M. Freitag, Ties matter,
    EMNLP 2023, arXiv 2305.14324. Raises ValueError for lengths that differ and margins that are not finite.
    """
    read = [(SIGNS[t], m) for t, m in zip(truths, margins, strict=True) if m is not None]
    signs, values = np.array(read, float).reshape(-1, 2).T
    if not np.isfinite(values).all():
        raise ValueError("a margin is not finite")
    order = np.argsort(np.abs(values), kind="stable")
    signs, values = signs[order], values[order]
    thresholds = np.unique(np.append(np.abs(values), 0.0))
    tied = np.searchsorted(np.abs(values), thresholds, side="right")  # (thresholds,) how many each one calls a Tie
    ties = np.append(0, np.cumsum(signs == 0))[tied]
    sided = np.append(0, np.cumsum((np.sign(values) == signs) & (signs != 0)))
    correct = ties + sided[-1] - sided[tied]
    best = int(correct.argmax())
    return {
        "n": len(truths),
        "scored": len(values),
        "correct": int(correct[best]),
        "accuracy": float(correct[best] / len(truths)),
        "threshold": float(thresholds[best]),
    }


def exchanged(winner: Winner | None) -> Winner | None:
    """The winner in the terms of the question with A and B exchanged."""
    return None if winner is None else OTHER_SIDE[winner]


def report(verdicts: Sequence[Mapping[str, Any]], clusters: Sequence[Any]) -> dict[str, Any]:
    """Both reports of one judge's rows of `stages/verdicts.schema.json`: `accuracy` (of `winner`) and `position`.

    clusters: what is resampled together for the clustered interval, one a row.
    Raises ValueError as `accuracy_report` and `position_bias`.
    """
    column = {name: [row[name] for row in verdicts] for name in ("task", "truth", "winner", "forward", "backward")}
    rng = np.random.default_rng(0)
    return {
        "accuracy": accuracy_report(column["truth"], column["winner"], column["task"], clusters, rng),
        "position": position_bias(column["forward"], [exchanged(winner) for winner in column["backward"]]),
    }


def _accuracy(rows: Sequence[Pair]) -> dict[str, Any]:
    correct = sum(truth == winner for truth, winner in rows)
    answers = Counter(winner for _, winner in rows)
    return _share(correct, len(rows)) | {
        "scored": len(rows) - answers[None],
        "unparsed": answers[None],
        "ties": answers["Tie"],
    }


def _share(correct: int, n: int) -> dict[str, Any]:
    low, high = wilson_interval(correct, n)
    return {"n": n, "correct": correct, "accuracy": correct / n, "low": low, "high": high}


def _mean_over_tasks_interval(
    correct: Sequence[bool], tasks: Sequence[str], clusters: Sequence[Any], rng: np.random.Generator
) -> tuple[float, float]:
    """95 % interval of the mean of the tasks' accuracies; a task that a resample has no row of is left out of it."""
    names, place = np.unique(np.asarray(tasks), return_inverse=True)
    of_task = np.eye(len(names))[place]  # (n, tasks)
    sums = resampled_sums(np.hstack([of_task * np.asarray(correct, float)[:, None], of_task]), clusters, rng)
    right, sizes = np.hsplit(sums, 2)
    shares = np.divide(right, sizes, out=np.full_like(right, np.nan), where=sizes > 0)
    return interval(np.nanmean(shares, axis=1))
