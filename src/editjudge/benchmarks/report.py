"""What judges' verdicts on a reward benchmark say: accuracies, agreement, tuples, correlations, papers' figures.

A verdict is a row of `stages/verdicts.schema.json`, whoever gave it."""

from collections.abc import Mapping, Sequence
from typing import Any

from editjudge.benchmarks.preferences.item import VERDICTS, Item
from editjudge.core.records import Row
from editjudge.core.winner import WORTH, Winner
from editjudge.statistics import agreement, comparison, pointwise, psychometric

Rows = list[Row]
ROUNDING = 1e-4  # of the probabilities in the verdicts
MIDDLE = 5.0  # of a scorer's 0..10: from here on a Tie is Both good


def summarised(
    form: str, items: Sequence[Item], verdicts: Mapping[str, Rows], epsilon: float = 0.0
) -> dict[str, list[dict[str, Any]]]:
    """judges: all that each judge's verdicts on the items say, the papers' own figures first; between_judges."""
    reports = {judge: judge_report(items, rows, epsilon) for judge, rows in verdicts.items()}
    first = next(iter(verdicts.values()))
    truths, clusters = ([row[name] for row in first] for name in ("truth", "cluster"))
    answers = {judge: [row["winner"] for row in rows] for judge, rows in verdicts.items()}
    return {
        "judges": [{"judge": judge, "published": published(form, found), **found} for judge, found in reports.items()],
        "between_judges": [comparison.compare_judges(answers, truths, clusters)],
    }


def in_peoples_words(row: Row) -> str | None:
    """The winner, a scorer's Tie being Both good or Both bad by the two scores' mean."""
    if row["winner"] != "Tie" or row["score_a"] is None or row["score_b"] is None:
        return row["winner"]
    return "Both good" if (row["score_a"] + row["score_b"]) / 2 >= MIDDLE else "Both bad"


def judge_report(items: Sequence[Item], rows: Rows, epsilon: float = 0.0) -> dict[str, Any]:
    """All that one judge's rows of `to_verdicts(items)` say; what a benchmark has no data for is None."""
    kept = [item for item in items if item.verdict is not None]
    winners = [row["winner"] for row in rows]
    bench, seen = probe_bench(kept)
    return agreement.report(rows) | {
        "four_way": four_way(rows),
        "tie_calibrated": tie_calibrated(rows),
        "labels": per_label(rows),
        "tuples": tuples(items, rows, epsilon),
        "transitivity": circles(kept, winners),
        "pointwise": correlation(kept, rows),
        "psychometric": None if bench is None else psychometric.report(bench, [winners[n] for n in seen]),
    }


def published(form: str, report: Mapping[str, Any]) -> Rows:
    """The figures that the benchmark's papers print, by the papers' words: name, value, low and high."""
    accuracy, four, ties = report["accuracy"], report["four_way"], report["tie_calibrated"]
    points, tuples = report["pointwise"], report["tuples"]
    every: list[tuple[str, str, Mapping[str, Any] | None, str]] = [
        ("vcreward", "VCReward-Bench accuracy, mean over tasks", accuracy, "mean_over_tasks"),
        ("editscore", "EditScore-Bench accuracy, mean over tasks", accuracy, "mean_over_tasks"),
        ("genai", "GenAI-Bench accuracy, of four answers", four, "accuracy"),
        ("genai", "GenAI-Bench accuracy, of three answers", accuracy, "accuracy"),
        ("genai", "GenAI-Bench accuracy, ties calibrated", ties, "accuracy"),
        ("aurora", "AURORA-Bench accuracy", None if points else accuracy, "accuracy"),
        ("aurora", "AURORA-Bench accuracy, ties calibrated", None if points else ties, "accuracy"),
        ("aurora", "AURORA-Bench Spearman, mean over models", points, "aurora"),
        ("imagenhub", "ImagenHub Spearman, tanh of the mean over models", points, "imagenhub"),
        ("imagenhub", "ImagenHub Spearman, Fisher's mean over models", points, "spearman"),
        *(
            ("editreward", f"EditReward-Bench K={row['size']}", row, "accuracy")
            for row in (tuples or {}).get("per_size", [])
        ),
        ("editreward", "EditReward-Bench all", tuples, "accuracy"),
    ]
    return [
        {"name": name, "value": figures[key], **_ends(figures, "" if key == "accuracy" else f"{key}_")}
        for of, name, figures, key in every
        if of == form and figures is not None
    ]


def _ends(figures: Mapping[str, Any], prefix: str) -> dict[str, float | None]:
    return {end: figures.get(f"{prefix}{end}") for end in ("low", "high")}


def four_way(rows: Rows) -> dict[str, Any] | None:
    """Accuracy where Both good and Both bad are told apart, as people did; None where they did not.

    Only a scorer's Tie is either; that of a judge of pairs, who is not asked which, is wrong."""
    if not any(row["label"] in ("Both good", "Both bad") for row in rows):
        return None
    return agreement.share([row["answer"] == row["label"] for row in rows], [row["cluster"] for row in rows])


def per_label(rows: Rows) -> list[dict[str, Any]]:
    """How often the judge was right where people said what; both labels of a tie ask for a Tie."""
    right = {label: [row["winner"] == row["truth"] for row in rows if row["label"] == label] for label in VERDICTS}
    return [
        {"label": label, "n": len(each), "correct": sum(each), "accuracy": sum(each) / len(each)}
        for label, each in right.items()
        if each
    ]


def tie_calibrated(rows: Rows) -> dict[str, Any] | None:
    """Accuracy with the judge's own margin for ties, for judges that give scores or probabilities."""
    if all(row["p_a"] is None and row["score_a"] is None for row in rows):
        return None
    return agreement.tie_calibrated([row["truth"] for row in rows], [_margin(row) for row in rows])


def _margin(row: Row) -> float | None:
    """How much the judge prefers A: its scores' difference; or its probability's, -1/2..1/2, where the winner says the
    side if the written one is 1/2."""
    if row["score_a"] is not None and row["score_b"] is not None:
        return round(row["score_a"] - row["score_b"], pointwise.DIGITS)
    worth = _worth(row)
    if worth == 0.5:
        return (WORTH[row["winner"]] - 0.5) * ROUNDING
    return None if worth is None else round(worth - 0.5, pointwise.DIGITS)


def _worth(row: Row) -> float | None:
    """What A is worth to the judge, 0..1: its probability, or the winner; None without an answer."""
    if row["winner"] is None:
        return None
    return WORTH[row["winner"]] if row["p_a"] is None else row["p_a"]


def tuples(items: Sequence[Item], rows: Rows, epsilon: float) -> dict[str, Any] | None:
    """How many tuples are right, for benchmarks of tuples; an item without people's verdict makes its tuple wrong.

    A scorer's pair is ordered by its scores, and tied where they are equal, or, in a tuple of two, up to epsilon apart.
    """
    said = {row["key"]: row for row in rows}
    chosen = [
        (*_in_tuple(said.get(i.key) if i.verdict is not None else None, epsilon if i.size == 2 else 0.0), i)
        for i in items
        if i.group is not None and i.ratings is None
    ]
    if not chosen:
        return None
    truths, winners, its = zip(*chosen, strict=True)
    groups, sizes, clusters = zip(*((i.group, i.size, i.cluster) for i in its), strict=True)
    return agreement.tuple_accuracy(truths, winners, groups, sizes, clusters) | {"epsilon": epsilon}


def _in_tuple(row: Row | None, epsilon: float) -> tuple[Winner | None, Winner | None]:
    """The truth and the winner of a pair of a tuple; None and None without people's verdict."""
    if row is None:
        return None, None
    if row["score_a"] is None or row["score_b"] is None:
        return row["truth"], row["winner"]
    lead = round(row["score_a"] - row["score_b"], pointwise.DIGITS)
    return row["truth"], "Tie" if abs(lead) <= epsilon else "Image A" if lead > 0 else "Image B"


def circles(items: Sequence[Item], winners: Sequence[str | None]) -> dict[str, Any] | None:
    """How transitive the answers are, where three edits of a prompt were compared."""
    chosen = [
        (item.group, *item.models, winner)
        for item, winner in zip(items, winners, strict=True)
        if item.group is not None and item.models is not None and item.size > 2
    ]
    return agreement.transitivity(*zip(*chosen, strict=True)) if chosen else None


def correlation(items: Sequence[Item], rows: Rows) -> dict[str, Any] | None:
    """Rank correlation with people's ratings, for benchmarks that rate one edit at a time.

    A scorer's are its scores; what a judge of pairs prefers makes scores of single edits only within a prompt."""
    ratings, compared, photos, scores = {}, [], dict[str, str](), dict[pointwise.Edit, float | None]()
    for item, row in zip(items, rows, strict=True):
        if item.ratings is not None and item.models is not None and item.group is not None:
            ratings.update({(item.group, m): r for m, r in zip(item.models, item.ratings, strict=True)})
            compared.append((item.group, item.models, _worth(row)))
            photos[item.group] = item.cluster
            sides = zip(item.models, (row["score_a"], row["score_b"]), strict=True)
            scores.update({(item.group, m): score for m, score in sides if score is not None})
    if not compared:
        return None
    return pointwise.pointwise_report(scores or pointwise.edit_scores(*zip(*compared, strict=True)), ratings, photos)


def probe_bench(items: Sequence[Item]) -> tuple[psychometric.Bench | None, list[int]]:
    """The items whose two sides have different known damage, and which rows they are; None where there are none."""
    seen = [n for n, item in enumerate(items) if item.damages is not None and item.damages[0] != item.damages[1]]
    if not seen:
        return None, []
    chosen = [(items[n], *(items[n].damages or (0.0, 0.0))) for n in seen]
    return psychometric.Bench(
        gaps=[abs(a - b) for _, a, b in chosen],
        truths=["Image A" if a < b else "Image B" for _, a, b in chosen],
        kinds=["unknown" if item.models is None else item.models[int(b > a)] for item, a, b in chosen],
        clusters=[item.cluster for item, _, _ in chosen],
    ), seen
