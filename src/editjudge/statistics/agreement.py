"""How well a judge agrees with known winners, and how far its answers depend on the order of the images.

Winners are "Image A", "Image B" and "Tie"; None is an answer that could not be read. An answer is correct if it is the
true winner. A Tie is therefore wrong where the truth names an image, a named image is wrong where the truth is a Tie,
and so is an answer that could not be read: all stay in the denominator, and every report counts them. Where people said
"Both good" or "Both bad", the truth is a Tie (`folded`). `decided` is the accuracy over the questions whose truth names
an image; `tie_calibrated` lets the judge's own margin say what it calls a Tie."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias, cast

import numpy as np

from editjudge.core.winner import OTHER_SIDE, SIGNS, WINNERS, WORTH, Winner
from editjudge.statistics import clustered

Pair: TypeAlias = tuple[Winner | None, Winner | None]  # the truth and the winner


def accuracy_report(
    truths: Sequence[Winner], winners: Sequence[Winner | None], tasks: Sequence[str], clusters: Sequence[Any]
) -> dict[str, Any]:
    """Accuracy of `winners` against `truths`, one row a question, over all, a task, and as the mean over tasks.

    Returns n, scored, unparsed, ties (answered), correct, accuracy, low and high (95 %, of `clustered.share`: over
    whole clusters, None with one of them), clusters (how many), mean_over_tasks with mean_over_tasks_low and
    mean_over_tasks_high; per_task: {task: {n, correct, accuracy, low, high, scored, unparsed, ties}}, sorted by task;
    and decided: the same counts over the questions whose truth names an image, None where there is none.

    Raises ValueError for no rows, lengths that differ and a missing cluster."""
    pairs = list(zip(truths, winners, strict=True))
    rows: dict[str, list[int]] = {task: [] for task in sorted(set(tasks))}
    for row, (task, _) in enumerate(zip(tasks, pairs, strict=True)):
        rows[task].append(row)
    decided = [row for row, (truth, _) in enumerate(pairs) if truth != "Tie"]
    per_task = {task: _accuracy(pairs, clusters, its) for task, its in rows.items()}
    mean = _mean_over_tasks(pairs, tasks, clusters)
    return _accuracy(pairs, clusters, range(len(pairs))) | {
        "clusters": mean.clusters,
        "mean_over_tasks": mean.value,
        **mean.ends("mean_over_tasks_"),
        "per_task": per_task,
        "decided": _accuracy(pairs, clusters, decided) if decided else None,
    }


def position_bias(
    first_order_winners: Sequence[Winner | None],
    second_order_winners: Sequence[Winner | None],
    clusters: Sequence[Any],
) -> dict[str, Any]:
    """How far answers depend on which image is shown first; one row a question that was asked twice.

    first_order_winners: answers to (A, B). second_order_winners: answers to the same question with the two images
    exchanged, as the judge gave them: "Image A" is then the image that the first order calls "Image B". Answers that
    were already turned back into the first order's terms go through `exchanged` before.

    Returns n; scored (both answers read), unscored, unscored_first, unscored_second; consistent and consistency, the
    number and share of scored questions whose two answers name the same image or are both Tie; both_first and
    both_second, the questions whose two answers name the same side; first_side_preference, the mean over the answers to
    scored questions of 1 for the side shown first, 1/2 for a Tie and 0 for the other, 0.5 without bias, and low and
    high, its 95 % interval over whole `clusters` (a question that is answered alike in both orders is 0.5 whatever is
    drawn, and makes it narrower); and p, that of no bias: the sign test with whole clusters, `clustered.sign_flip`.
    Shares are None where nothing was scored.

    Raises ValueError for lengths that differ and a missing cluster."""
    asked = list(zip(first_order_winners, second_order_winners, clusters, strict=True))
    scored = [(first, second) for first, second, _ in asked if first is not None and second is not None]
    groups = [cluster for first, second, cluster in asked if first is not None and second is not None]
    consistent = sum(first == exchanged(second) for first, second in scored)
    preferred = [(WORTH[first] + WORTH[second]) / 2 for first, second in scored]
    leaning = [value - 0.5 for value in preferred]
    found = clustered.mean(preferred, groups, 0.5 + abs(float(np.mean(leaning)))).within(0, 1) if scored else None
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
        "first_side_preference": found.value if found else None,
        "low": found.low if found else None,
        "high": found.high if found else None,
        "p": clustered.sign_flip(leaning, groups, np.random.default_rng(0)) if scored else None,
    }


def folded(verdict: str) -> Winner:
    """People's verdict as a winner: "Both good" and "Both bad" are a Tie. ValueError for any other word."""
    winner = {"Both good": "Tie", "Both bad": "Tie"}.get(verdict, verdict)
    if winner not in WINNERS:
        raise ValueError(f"the verdict is {verdict!r}, not one of {', '.join(WINNERS)}, Both good, Both bad")
    return cast(Winner, winner)


def tuple_accuracy(
    truths: Sequence[Winner | None],
    winners: Sequence[Winner | None],
    groups: Sequence[Any],
    sizes: Sequence[int],
    clusters: Sequence[Any],
) -> dict[str, Any]:
    """The share of tuples of which every pair is right; one row a pair, of the tuple `groups` with `sizes` edits.

    A pair without a readable answer makes its tuple wrong, and so does one without people's readable verdict (a truth
    of None). A tuple of K edits has K(K-1)/2 pairs; one of which the
    benchmark has fewer (it left ties out) counts by those it has, and as `incomplete`.

    Returns n, correct, accuracy, low and high (95 %, over whole clusters), unscored (tuples with an unread answer),
    incomplete, and per_size: a list of the same for each K, with `size`. Source: EditReward-Bench, arXiv 2509.26346,
    section 2.2. Raises ValueError for no rows, lengths that differ, and one tuple of two sizes."""
    tuples: dict[Any, list[Pair]] = {}
    size_of: dict[Any, int] = {}
    cluster_of = dict(zip(groups, clusters, strict=True))
    for truth, winner, group, size in zip(truths, winners, groups, sizes, strict=True):
        if size_of.setdefault(group, size) != size:
            raise ValueError(f"tuple {group!r} has {size_of[group]} edits and {size}")
        tuples.setdefault(group, []).append((truth, winner))
    rows = [(size_of[group], pairs, cluster_of[group]) for group, pairs in tuples.items()]
    per_size = [
        {"size": size} | _tuples([row for row in rows if row[0] == size]) for size in sorted(set(size_of.values()))
    ]
    return _tuples(rows) | {"per_size": per_size}


def _tuples(rows: Sequence[tuple[int, Sequence[Pair], Any]]) -> dict[str, Any]:
    right = [all(truth is not None and truth == winner for truth, winner in pairs) for _, pairs, _ in rows]
    return share(right, [cluster for *_, cluster in rows]) | {
        "unscored": sum(any(winner is None for _, winner in pairs) for _, pairs, _ in rows),
        "incomplete": sum(len(pairs) < size * (size - 1) // 2 for size, pairs, _ in rows),
    }


def tie_calibrated(truths: Sequence[Winner], margins: Sequence[float | None]) -> dict[str, Any]:
    """The best accuracy that calling every |margin| up to some threshold a Tie can give, and that threshold.

    margins: how much the judge prefers A, any unit, A over B where above 0 (a difference of scores, or P(A) - 1/2);
    None is unread and wrong. The threshold (0 or more) is chosen on the same questions, so the accuracy is optimistic;
    it is the usual figure of GenAI-Bench and AURORA-Bench for judges that give scores and never say Tie.

    Returns n, scored, correct, accuracy and threshold. Source: D. Deutsch, G. Foster and M. Freitag, Ties matter,
    EMNLP 2023, arXiv 2305.14324. Raises ValueError for lengths that differ and margins that are not finite."""
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


def report(verdicts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Both reports of one judge's rows of `stages/verdicts.schema.json`: `accuracy` (of `winner`) and `position`.

    Raises ValueError as `accuracy_report` and `position_bias`."""
    names = ("task", "truth", "winner", "forward", "backward", "cluster")
    column = {name: [row[name] for row in verdicts] for name in names}
    orders = column["forward"], [exchanged(winner) for winner in column["backward"]]
    return {
        "accuracy": accuracy_report(column["truth"], column["winner"], column["task"], column["cluster"]),
        "position": position_bias(*orders, column["cluster"]),
    }


def share(right: Sequence[bool], clusters: Sequence[Any]) -> dict[str, Any]:
    """n, correct, accuracy, and low and high (95 %, of `clustered.share`). Raises ValueError for no rows."""
    found = clustered.share(right, clusters)
    return {"n": len(right), "correct": sum(right), "accuracy": found.value, **found.ends()}


def _accuracy(pairs: Sequence[Pair], clusters: Sequence[Any], rows: Sequence[int]) -> dict[str, Any]:
    answers = Counter(pairs[row][1] for row in rows)
    return share([pairs[row][0] == pairs[row][1] for row in rows], [clusters[row] for row in rows]) | {
        "scored": len(rows) - answers[None],
        "unparsed": answers[None],
        "ties": answers["Tie"],
    }


def _mean_over_tasks(pairs: Sequence[Pair], tasks: Sequence[str], clusters: Sequence[Any]) -> clustered.Estimate:
    """The mean of the tasks' accuracies; where a cluster is left out, of those that are left."""
    names, place = np.unique(np.asarray(tasks), return_inverse=True)
    of_task = np.eye(len(names))[place]  # (n, tasks)
    right = np.array([truth == winner for truth, winner in pairs], float)
    by_cluster = clustered.sums(np.hstack([of_task * right[:, None], of_task]), clusters)

    def mean(sums: np.ndarray) -> np.ndarray:
        correct, sizes = np.split(sums, 2, axis=-1)
        shares = np.divide(correct, sizes, out=np.full_like(correct, np.nan), where=sizes > 0)
        return np.nanmean(shares, axis=-1)

    return clustered.share_of(mean, by_cluster, len(right))
