"""How well a judge agrees with known winners and with other judges, and how far its answers depend on the order of the
images.

Winners are "Image A", "Image B" and "Tie"; None is an answer that could not be read. An answer is correct if it is the
true winner. A Tie is therefore wrong where the truth names an image, a named image is wrong where the truth is a Tie,
and so is an answer that could not be read: all stay in the denominator, and every report counts them. Where people said
"Both good" or "Both bad", the truth is a Tie (`folded`). `decided` is the accuracy over the questions whose truth names
an image; `tie_calibrated` lets the judge's own margin say what it calls a Tie."""

import functools
import math
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from itertools import combinations
from typing import Any, TypeAlias, cast

import numpy as np

from editjudge.core.winner import OTHER_SIDE, SIDES, SIGNS, WINNERS, WORTH, Winner
from editjudge.statistics import clustered

Winners: TypeAlias = Sequence[Winner | None]
ANSWERS: tuple[str, ...] = tuple(SIGNS)  # in order, for the ordinal alpha


def accuracy_report(
    truths: Sequence[Winner], winners: Winners, tasks: Sequence[str], clusters: Sequence[Any]
) -> dict[str, Any]:
    """Accuracy of `winners` against `truths`, one row a question, over all, a task, and as the mean over tasks.

    Returns n, scored, unparsed, ties (answered), correct, accuracy, low and high (95 %, of `clustered.share`: over
    whole clusters, None with one of them), clusters (how many), mean_over_tasks with mean_over_tasks_low and
    mean_over_tasks_high; per_task: {task: {n, correct, accuracy, low, high, scored, unparsed, ties}}, sorted by task;
    and decided: the same counts over the questions whose truth names an image, None where there is none.

    Raises ValueError for no rows, lengths that differ and a missing cluster."""
    rows = list(zip(truths, winners, tasks, clusters, strict=True))

    def accuracy(kept: Sequence[tuple]) -> dict[str, Any]:
        answers = Counter(winner for _, winner, *_ in kept)
        counts = {"scored": len(kept) - answers[None], "unparsed": answers[None], "ties": answers["Tie"]}
        return share([truth == winner for truth, winner, *_ in kept], [cluster for *_, cluster in kept]) | counts

    found, decided = accuracy(rows), [row for row in rows if row[0] != "Tie"]
    right = np.array([truth == winner for truth, winner, *_ in rows], float)
    mean = clustered.share_of(*clustered.mean_of_means(right, tasks, clusters), len(rows))
    return found | {
        "clusters": mean.clusters,
        "mean_over_tasks": mean.value,
        **mean.ends("mean_over_tasks_"),
        "per_task": {task: accuracy([row for row in rows if row[2] == task]) for task in sorted(set(tasks))},
        "decided": accuracy(decided) if decided else None,
    }


def position_bias(first: Winners, second: Winners, clusters: Sequence[Any]) -> dict[str, Any]:
    """How far answers depend on which image is shown first; one row a question that was asked twice.

    first: answers to (A, B). second: answers to the same question with the two images exchanged, as the judge gave
    them: "Image A" is then the image that the first order calls "Image B".

    Returns n; scored (both answers read), unscored, unscored_first, unscored_second; consistent and consistency, the
    number and share of scored questions whose two answers name the same image or are both Tie; both_first and
    both_second, the questions whose two answers name the same side; first_side_preference, the mean over the answers to
    scored questions of 1 for the side shown first, 1/2 for a Tie and 0 for the other, 0.5 without bias, and low and
    high, its 95 % interval over whole `clusters` (a question that is answered alike in both orders is 0.5 whatever is
    drawn, and makes it narrower); and p, that of no bias: the sign test with whole clusters, `clustered.sign_flip`.
    Shares are None where nothing was scored.

    Raises ValueError for lengths that differ and a missing cluster."""
    asked = list(zip(first, second, clusters, strict=True))
    read = [(a, b, cluster) for a, b, cluster in asked if a is not None and b is not None]
    scored, groups = [(a, b) for a, b, _ in read], [cluster for *_, cluster in read]
    consistent = sum(a == OTHER_SIDE[b] for a, b in scored)
    preferred = [(WORTH[a] + WORTH[b]) / 2 for a, b in scored]
    leaning = [value - 0.5 for value in preferred]
    found: dict[str, Any] = {"n": len(asked), "scored": len(scored), "unscored": len(asked) - len(scored)}
    found |= {"unscored_first": first.count(None), "unscored_second": second.count(None)}
    found |= {f"both_{name}": scored.count((side, side)) for name, side in zip(("first", "second"), SIDES, strict=True)}
    found |= {"consistent": consistent, **dict.fromkeys(("consistency", "first_side_preference", "low", "high", "p"))}
    if scored:
        mean = clustered.mean(preferred, groups, 0.5 + abs(float(np.mean(leaning)))).within(0, 1)
        found |= {"consistency": consistent / len(scored), "first_side_preference": mean.value, **mean.ends()}
        found["p"] = clustered.sign_flip(leaning, groups, np.random.default_rng(0))
    return found


def folded(verdict: str) -> Winner:
    """People's verdict as a winner: "Both good" and "Both bad" are a Tie. ValueError for any other word."""
    winner = {"Both good": "Tie", "Both bad": "Tie"}.get(verdict, verdict)
    if winner not in WINNERS:
        raise ValueError(f"the verdict is {verdict!r}, not one of {', '.join(WINNERS)}, Both good, Both bad")
    return cast(Winner, winner)


def tuple_accuracy(
    truths: Winners, winners: Winners, groups: Sequence[Any], sizes: Sequence[int], clusters: Sequence[Any]
) -> dict[str, Any]:
    """The share of tuples of which every pair is right; one row a pair, of the tuple `groups` with `sizes` edits.

    A pair without a readable answer makes its tuple wrong, and so does one without people's readable verdict (a truth
    of None). A tuple of K edits has K(K-1)/2 pairs; one of which the benchmark has fewer (it left ties out) counts by
    those it has, and as `incomplete`.

    Returns n, correct, accuracy, low and high (95 %, over whole clusters), unscored (tuples with an unread answer),
    incomplete, and per_size: a list of the same for each K, with `size`. Source: EditReward-Bench, arXiv 2509.26346,
    section 2.2. Raises ValueError for no rows, lengths that differ, and one tuple of two sizes."""
    tuples: dict[Any, list[tuple[Winner | None, Winner | None]]] = {}
    size_of, cluster_of = dict[Any, int](), dict(zip(groups, clusters, strict=True))
    for truth, winner, group, size in zip(truths, winners, groups, sizes, strict=True):
        if size_of.setdefault(group, size) != size:
            raise ValueError(f"tuple {group!r} has {size_of[group]} edits and {size}")
        tuples.setdefault(group, []).append((truth, winner))

    def of(*kept: int) -> dict[str, Any]:
        chosen = {group: pairs for group, pairs in tuples.items() if size_of[group] in kept}
        right = [all(truth is not None and truth == winner for truth, winner in pairs) for pairs in chosen.values()]
        return share(right, [cluster_of[group] for group in chosen]) | {
            "unscored": sum(any(winner is None for _, winner in pairs) for pairs in chosen.values()),
            "incomplete": sum(len(pairs) < math.comb(size_of[group], 2) for group, pairs in chosen.items()),
        }

    each = sorted(set(size_of.values()))
    return of(*each) | {"per_size": [{"size": size} | of(size) for size in each]}


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
    found = {"n": len(truths), "scored": len(values), "correct": int(correct[best])}
    return found | {"accuracy": float(correct[best] / len(truths)), "threshold": float(thresholds[best])}


def report(verdicts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Both reports of one judge's rows of `stages/verdicts.schema.json`: `accuracy` (of `winner`) and `position`.

    Raises ValueError as `accuracy_report` and `position_bias`."""
    names = ("task", "truth", "winner", "forward", "backward", "cluster")
    column = {name: [row[name] for row in verdicts] for name in names}
    orders = column["forward"], [OTHER_SIDE.get(winner) for winner in column["backward"]]
    return {
        "accuracy": accuracy_report(column["truth"], column["winner"], column["task"], column["cluster"]),
        "position": position_bias(*orders, column["cluster"]),
    }


def share(right: Sequence[bool], clusters: Sequence[Any]) -> dict[str, Any]:
    """n, correct, accuracy, and low and high (95 %, of `clustered.share`). Raises ValueError for no rows."""
    found = clustered.share(right, clusters)
    return {"n": len(right), "correct": sum(right), "accuracy": found.value, **found.ends()}


def transitivity(
    groups: Sequence[Hashable], firsts: Sequence[str], seconds: Sequence[str], winners: Sequence[Any]
) -> dict[str, Any]:
    """Circular triples among the answers; one row a comparison of edit `firsts` (A) with edit `seconds` (B).

    groups: within which edits were compared (a prompt, a tuple). winners: "Image A", "Image B", "Tie" or None.
    A triple is scored if its three comparisons were read. It is circular if each edit beats one and loses to one
    (Kendall and Babington Smith); it is inconsistent if no ranking with ties fits it: a circular one, and A = B, B = C
    with A over C. Chance gives circular triples a share of 1/4 where there are no ties. Lower is better.

    Returns groups (with a triple), triples, scored, unscored, circular, circular_share, inconsistent and
    inconsistent_share; shares (0..1, of the scored) are None where nothing was scored.
    Source: M. G. Kendall and B. Babington Smith, On the method of paired comparisons, Biometrika 31 (1940) 324-345.
    Raises ValueError for lengths that differ, an edit compared with itself and two answers on one pair."""
    answers: dict[Hashable, dict[tuple[str, str], int | None]] = {}
    for row, (group, a, b, winner) in enumerate(zip(groups, firsts, seconds, winners, strict=True)):
        known = answers.setdefault(group, {})
        if a == b or (a, b) in known:
            raise ValueError(f"row {row}: {a!r} and {b!r} of {group!r} were compared already, or are the same")
        known[a, b] = None if winner is None else SIGNS[winner]
        known[b, a] = None if winner is None else -SIGNS[winner]
    found = Counter[str]()
    for own in answers.values():
        edits = sorted({edit for pair in own for edit in pair})
        found["groups"] += len(edits) > 2
        for a, b, c in combinations(edits, 3):
            around = [sign for pair in ((a, b), (b, c), (c, a)) if (sign := own.get(pair)) is not None]
            scored = len(around) == 3
            found.update(("triples", "scored" if scored else "unscored"))
            found["circular"] += abs(sum(around)) == 3
            # A ranking fits if the signs around the triple are all zero or of both kinds: their numbers add up to zero.
            found["inconsistent"] += scored and any(around) and not min(around) < 0 < max(around)
    told: dict[str, Any] = {name: found[name] for name in ("groups", "triples", "scored", "unscored")}
    for name in ("circular", "inconsistent"):
        told |= {name: found[name], f"{name}_share": found[name] / found["scored"] if found["scored"] else None}
    return told


def cohen_kappa(first: Sequence[Any], second: Sequence[Any], clusters: Sequence[Any]) -> dict[str, Any]:
    """Agreement of two judges beyond chance, from -1 to 1, where 1 is full agreement and 0 that of chance.

    first, second: one answer a question, of any vocabulary; None is unread. kappa = (p_o - p_e) / (1 - p_e), over
    the questions that both answered; None where there is none, and where both gave one and the same answer throughout.

    Returns n, scored, unscored, observed (p_o), expected (p_e), kappa, and low and high: its 95 % t interval over whole
    `clusters` (n,), None with one of them, and where none of them moves it.
    Source: J. Cohen, A coefficient of agreement for nominal scales, Educ. Psychol. Meas. 20 (1960) 37-46.
    Raises ValueError for lengths that differ."""
    kept = [row for row, pair in enumerate(zip(first, second, strict=True)) if None not in pair]
    words = sorted({answer for row in kept for answer in (first[row], second[row])}, key=str) or [None]
    cells = np.zeros((len(kept), len(words), len(words)))
    for place, row in enumerate(kept):
        cells[place, words.index(first[row]), words.index(second[row])] = 1
    observed, expected, _ = (float(value) for value in _kappa(cells.sum(0)))
    found = _of_tables(lambda table: _kappa(table)[2], cells, [clusters[row] for row in kept])
    shares = {"observed": observed, "expected": expected, "kappa": found.value}
    counts = {"n": len(first), "scored": len(kept), "unscored": len(first) - len(kept)}
    return counts | {name: _or_none(value) for name, value in shares.items()} | found.ends()


def _of_tables(statistic: clustered.Statistic, tables: np.ndarray, clusters: Sequence[Any]) -> clustered.Estimate:
    """A statistic in -1..1 of tables (..., k, k), over the sum of one table a question, (n, k, k)."""
    n, k, _ = tables.shape
    by_cluster = clustered.sums(tables.reshape(n, k * k), clusters)
    return clustered.estimate(lambda sums: statistic(sums.reshape(*sums.shape[:-1], k, k)), by_cluster).within(-1, 1)


def _kappa(table: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """p_o, p_e and kappa of tables of counts (..., k, k); NaN where they are not defined."""
    with np.errstate(invalid="ignore", divide="ignore"):
        shares = table / table.sum(axis=(-2, -1), keepdims=True)
        observed = np.trace(shares, axis1=-2, axis2=-1)
        expected = (shares.sum(-1) * shares.sum(-2)).sum(-1)
        chance = np.where(expected < 1, expected, np.nan)
        return observed, expected, (observed - expected) / (1 - chance)


def krippendorff_alpha(
    ratings: Sequence[Sequence[Any]], values: Sequence[Any], clusters: Sequence[Any]
) -> dict[str, Any]:
    """Agreement of any number of judges, with missing answers: 1 is full agreement, 0 that of chance, below 0 worse.

    ratings: (judges, questions), None where there is no answer. values: the vocabulary in its order. Questions with
    fewer than two answers say nothing about agreement and are left out.

    Returns judges, n, scored (questions with two answers or more), unscored, answers (on those), and alpha (nominal)
    and ordinal with low, high, ordinal_low and ordinal_high: their 95 % t intervals over whole `clusters` (questions,),
    None as in `cohen_kappa`; alphas are None where nothing was scored or only one value occurs.
    Source: K. Krippendorff, Computing Krippendorff's alpha-reliability, 2011.
    Raises ValueError for ragged ratings."""
    counted = [[column.count(value) for value in values] for column in zip(*ratings, strict=True)]
    units = np.array(counted, float).reshape(-1, len(values))
    answered = units.sum(axis=1)
    paired, kept = units[answered >= 2], np.flatnonzero(answered >= 2).tolist()
    # Each question's pairs of answers, (scored, k, k): a question with m answers has m of them.
    pairs = paired[:, :, None] * paired[:, None] - paired[:, :, None] * np.eye(len(values))
    pairs = pairs / (paired.sum(axis=1)[:, None, None] - 1)
    groups = [clusters[row] for row in kept]
    found: dict[str, Any] = {"judges": len(ratings), "n": len(units), "scored": len(paired)}
    found |= {"unscored": len(units) - len(paired), "answers": int(paired.sum())}
    for name, prefix, ordinal in (("alpha", "", False), ("ordinal", "ordinal_", True)):
        each = _of_tables(functools.partial(_alpha, ordinal=ordinal), pairs, groups)
        found |= {name: _or_none(each.value), **each.ends(prefix)}
    return found


def _alpha(seen: np.ndarray, ordinal: bool) -> np.ndarray:
    """Alpha of coincidences (..., k, k) to (...); NaN where it is not defined."""
    margin = seen.sum(axis=-1)
    n = margin.sum(axis=-1)
    far = (1 - np.eye(seen.shape[-1])) * np.ones_like(seen)
    if ordinal:  # the answers that lie between, the ends counted half
        middle = margin.cumsum(axis=-1) - margin / 2
        far = (middle[..., :, None] - middle[..., None, :]) ** 2
    with np.errstate(invalid="ignore", divide="ignore"):
        chance = (margin[..., :, None] * margin[..., None, :] * far).sum(axis=(-2, -1)) / (n - 1)
        return 1 - (seen * far).sum(axis=(-2, -1)) / np.where(chance > 0, chance, np.nan)


def against_base(untrained: Sequence[bool], trained: Sequence[bool], clusters: Sequence[Any]) -> dict[str, Any]:
    """What a training brought on the same questions, one row each: `test` and `test_untrained`, `share` of the trained
    model and of its base, and `gain`, the first less the second. None where nothing was tested."""
    if not clusters:
        return dict.fromkeys(("test", "test_untrained", "gain"))
    tested = {"test": share(trained, clusters), "test_untrained": share(untrained, clusters)}
    return tested | {"gain": paired_difference(trained, untrained, clusters)}


def paired_difference(
    first_correct: Sequence[bool], second_correct: Sequence[bool], clusters: Sequence[Any]
) -> dict[str, Any]:
    """Whether two judges are right equally often on the same questions; one row a question, (n,) each.

    Returns n, both_right, first_only, second_only, both_wrong; difference of their accuracies (first less second,
    -1..1, above 0 where the first is better) with low and high (95 %, over whole clusters; `clustered.mean`), and p,
    two-sided, by exchanging the judges in whole clusters (`clustered.sign_flip`): with single questions the exact test
    of Q. McNemar, Psychometrika 12 (1947) 153-157, with 4 clusters at least 2 / 16. With one cluster the three are
    None. Raises ValueError for lengths that differ and a missing cluster."""
    one, two = np.asarray(first_correct, bool), np.asarray(second_correct, bool)
    gain = one.astype(float) - two
    found = clustered.mean(gain, clusters, 1 + abs(float(gain.mean())) if len(gain) else 1).within(-1, 1)
    cells = {"both_right": one & two, "first_only": one & ~two, "second_only": ~one & two, "both_wrong": ~one & ~two}
    counts = {"n": len(one)} | {name: int(rows.sum()) for name, rows in cells.items()}
    p = clustered.sign_flip(gain, clusters, np.random.default_rng(0))
    return {**counts, "difference": found.value, **found.ends(), "p": p}


def compare_judges(answers: Mapping[str, Winners], truths: Sequence[Winner], clusters: Sequence[Any]) -> dict[str, Any]:
    """Everything above over the judges of one benchmark, `answers` and `truths` in the same order of questions.

    Returns all: Krippendorff's alpha of all judges (alpha is nominal; `ordinal` has A, Tie, B in this order; None with
    one judge), and pairs: a list with first, second, kappa, difference (of the first's accuracy less the second's) and
    p_holm, its p adjusted by Holm for the number of pairs, of every two judges in order of their names."""
    pairs: list[dict[str, Any]] = []
    for first, second in combinations(sorted(answers), 2):
        right, other = ([t == a for t, a in zip(truths, answers[name], strict=True)] for name in (first, second))
        kappa = cohen_kappa(answers[first], answers[second], clusters)
        difference = paired_difference(right, other, clusters)
        pairs.append({"first": first, "second": second, "kappa": kappa, "difference": difference})
    adjusted = clustered.holm([pair["difference"]["p"] for pair in pairs])
    together = krippendorff_alpha(list(answers.values()), ANSWERS, clusters) if len(answers) > 1 else None
    return {"all": together, "pairs": [pair | {"p_holm": p} for pair, p in zip(pairs, adjusted, strict=True)]}


def _or_none(value: float) -> float | None:
    return value if np.isfinite(value) else None
