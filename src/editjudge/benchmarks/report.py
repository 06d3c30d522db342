"""What judges' verdicts on a reward benchmark say: accuracies, agreement, tuples, correlations, papers' figures.

A verdict is a row of `stages/verdicts.schema.json`, whoever gave it. It may come from a file of answers that a judge
has given already (JSON lines, CSV or Parquet; the judge is named after it). Its rows answer the benchmark's items by
`key`, with `winner` (Image A, Image B, Tie, Both good or Both bad) or with `score_a` and `score_b`, higher being
better; or they score single edits by `prompt`, `model` and `score`. An answer that is null, missing or "Failed" is
unscored."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from editjudge.benchmarks.preferences.item import VERDICTS, Item, exchanged
from editjudge.benchmarks.preferences.rated import RESPECTS
from editjudge.core import params, reading
from editjudge.core.keys import plain
from editjudge.core.records import Row
from editjudge.core.tables import RowError, TableError
from editjudge.core.winner import SIDES, WORTH, ahead
from editjudge.statistics import agreement, calibration, clustered, pointwise, psychometric

Rows = list[Row]
Kept = Sequence[tuple[Item, Row]]
ROUNDING = 1e-4  # of the probabilities in the verdicts
SAME = 1e-5  # two scores closer than this are a tie of EditReward-Compass
COMPASS = {"IA": "instruction awareness", "VC": "visual consistency", "VQ": "visual quality"}
FIGURES = params.load(Path(__file__).with_name("figures.yaml"))
SAID = ("answer", "forward", "backward", "winner", "p_a", "score_a", "score_b")


def summarised(
    form: str, items: Sequence[Item], verdicts: Mapping[str, Rows], epsilon: float = 0.0
) -> dict[str, list[dict[str, Any]]]:
    """judges: all that each judge's verdicts on the items say, the papers' own figures first; between_judges."""
    first = next(iter(verdicts.values()))
    truths, clusters = ([row[name] for row in first] for name in ("truth", "cluster"))
    answers = {judge: [row["winner"] for row in rows] for judge, rows in verdicts.items()}
    judged, told = [item for item in items if item.verdict is not None], list[dict[str, Any]]()
    for judge, rows in verdicts.items():
        found = judge_report(items, rows, epsilon)
        kept = list(zip(judged, rows, strict=True))
        told.append({"judge": judge, "published": published(form, found, kept), **found})
    return {"judges": told, "between_judges": [agreement.compare_judges(answers, truths, clusters)]}


def to_verdicts(judge: str, items: Sequence[Item], said: Mapping[str, Row]) -> Rows:
    """Rows of `stages/verdicts.schema.json`, one an item that people judged.

    said: of an item, by its key, what the other columns hold, as far as they are known: forward, backward, winner, p_a,
    score_a, score_b, reason. answer: in people's words; where it is not given, the winner, a scorer's Tie being Both
    good where the mean of its two scores is not below the median of all its scores here, whatever its scale, else Both
    bad. An item of which nothing is said has its own reason (`failed`)."""
    rows, scores = [], [score for row in said.values() for score in (row.get("score_a"), row.get("score_b"))]
    middle = median([score for score in scores if score is not None] or [0.0])
    for item in (item for item in items if item.verdict is not None):
        row: Row = {name: getattr(item, name) for name in ("key", "task", "cluster")} | dict.fromkeys(SAID)
        row |= {"judge": judge, "label": item.verdict, "truth": agreement.folded(str(item.verdict))}
        row |= {"reason": item.failed} | said.get(item.key, {})
        a, b, winner = row["score_a"], row["score_b"], row["winner"]
        if winner == "Tie" and None not in (a, b):
            winner = "Both good" if (a + b) / 2 >= middle else "Both bad"
        row["answer"] = row["answer"] or winner
        rows.append(row)
    return rows


def judge_report(items: Sequence[Item], rows: Rows, epsilon: float = 0.0) -> dict[str, Any]:
    """All that one judge's rows of `to_verdicts(items)` say; what a benchmark has no data for is None.

    four_way tells Both good and Both bad apart, as people did: only a scorer's Tie is either; that of a judge of pairs,
    who is not asked which, is wrong. labels: how often the judge was right where people said what; both labels of a tie
    ask for a Tie. one_order: accuracy of the first order's readable answers. both_right: in either order. transitivity:
    of the answers, where three edits of a prompt were compared."""
    kept = [item for item in items if item.verdict is not None]
    right = {label: [row["winner"] == row["truth"] for row in rows if row["label"] == label] for label in VERDICTS}
    exact, clusters = [row["answer"] == row["label"] for row in rows], [row["cluster"] for row in rows]
    compared = [
        (item.group, *item.models, row["winner"])
        for item, row in zip(kept, rows, strict=True)
        if item.group is not None and item.models is not None and item.size > 2
    ]
    bench, seen = probe_bench(kept)
    heard = [row for row in rows if row["forward"] is not None]
    first = [[row[name] for row in heard] for name in ("truth", "forward", "task", "cluster")]
    twice = [row["forward"] == row["truth"] == row["backward"] for row in rows]
    real = [row for item, row in zip(kept, rows, strict=True) if item.size > 1]
    return agreement.report(real or rows) | {  # the only edit of a prompt, on both sides, is no comparison
        "one_order": agreement.accuracy_report(*first) if heard else None,
        "both_right": agreement.share(twice, clusters) if any(row["backward"] for row in rows) else None,
        "calibration": calibration.report(*([row[name] for row in rows] for name in ("truth", "p_a", "cluster"))),
        "four_way": agreement.share(exact, clusters) if right["Both good"] or right["Both bad"] else None,
        "tie_calibrated": tie_calibrated(rows),
        "labels": [
            {"label": label, "n": len(each), "correct": sum(each), "accuracy": sum(each) / len(each)}
            for label, each in right.items()
            if each
        ],
        "strata": strata(kept, rows),
        "tuples": tuples(items, rows, epsilon),
        "tuples_by_evaluator": tuples_by_evaluator(items, rows),
        "transitivity": agreement.transitivity(*zip(*compared, strict=True)) if compared else None,
        "pointwise": correlation(kept, rows),
        "psychometric": None if bench is None else psychometric.report(bench, [rows[n]["winner"] for n in seen]),
    }


def strata(kept: Sequence[Item], rows: Rows) -> list[dict[str, Any]]:
    """Accuracy on each kind of item, an unscored one counting as wrong; empty where the benchmark has no kinds."""
    both = [(item.stratum, row["winner"] == row["truth"], item.cluster) for item, row in zip(kept, rows, strict=True)]
    own = {name: [told for kind, *told in both if kind == name] for name in sorted({kind for kind, *_ in both if kind})}
    return [{"stratum": name} | agreement.share(*zip(*each, strict=True)) for name, each in own.items()]


def published(form: str, report: Mapping[str, Any], kept: Kept = ()) -> Rows:
    """Figures that papers print: name, value, low, high, scored and n (None: not known). kept: the items that people
    judged, with their rows, of which only the newer forms' are taken."""
    given = [each for each in FIGURES.get(form, ()) if report.get(each.get("without")) is None]
    every = [(each["name"], report[each["of"]], each["key"]) for each in given]
    tuples, theirs = report["tuples"], report["tuples_by_evaluator"]
    of_tuples = [(theirs, "")] * bool(theirs) + [(tuples, ", every pair right" if theirs else "")] * bool(tuples)
    bench = "EditReward-Bench"
    if kept and kept[0][0].dimension == "visual_quality":  # GEditBench v2's pairs of it, without the ties
        bench += " visual quality"
    for found, how in of_tuples if form == "editreward" else ():
        sizes = [*((f"K={row['size']}", row) for row in found["per_size"]), ("all", found)]
        every += [(f"{bench} {name}{how}", row, "accuracy") for name, row in sizes]
    told = [figure(name, figures, key) for name, figures, key in every if figures is not None]
    more = {"compass": compass, "mmrb2": mmrb2} | {name: partial(rated, name) for name in RESPECTS}
    return told + (more[form](kept) if form in more else [])


def compass(kept: Kept) -> Rows:
    """The public script's shares, could it run: a tie is right where two scores are the same to SAME, a preference
    where the better edit's is higher. The paper's AVG is over all pairs, of which two thirds are of instruction
    awareness; the mean over dimensions is ours."""

    def winner(row: Row) -> Any:
        lead = _lead(row)
        return row["winner"] if lead is None else ahead(0.0 if abs(lead) < SAME else lead)

    heard = {row["task"] for _, row in kept if row["winner"] is not None}  # as EditReward's AVG, without consistency
    kept = [each for each in kept if each[1]["task"] in heard] or kept
    columns = zip(*((row["truth"], winner(row), row["task"], row["cluster"]) for _, row in kept), strict=True)
    found = agreement.accuracy_report(*columns)
    named = {"mean over pairs": found} | {COMPASS[task]: own for task, own in found["per_task"].items()}
    told = [figure(f"EditReward-Compass accuracy, {name}", own) for name, own in named.items()]
    return [*told, figure("EditReward-Compass accuracy, mean over dimensions", found, "mean_over_tasks")]


def mmrb2(kept: Kept) -> Rows:
    """Each order's answer counts by itself. The script leaves out what was not answered, which a judge that refuses the
    hard pairs gains by; ours counts it as wrong. Pairs with several images, which were not shown, are in neither."""
    shown = [row for _, row in kept]
    orders = ["forward", *(["backward"] if any(row["backward"] for row in shown) else [])]
    said = [(row[order], row["truth"], row["cluster"]) for row in shown for order in orders]
    named = {"": [each for each in said if each[0] is not None], ", unread ones wrong": said}
    shares = {how: ([a == b for a, b, _ in own], [photo for *_, photo in own]) for how, own in named.items() if own}
    name = "MMRB2 editing accuracy of each order, one image"
    return [figure(f"{name}{how}", agreement.share(*columns)) for how, columns in shares.items()]


def rated(form: str, kept: Kept) -> Rows:
    """How scores follow people's in each respect, over all edits whatever their prompt. FIRM-Bench: the mean error on a
    scale of 1 to 5, to which 0..1 is mapped, as its reward is. TIEdit: correlations, without a mapping before."""
    from scipy import stats  # here: it takes a second

    told, followed = Rows(), {"SRCC": stats.spearmanr, "KRCC": stats.kendalltau, "PLCC": stats.pearsonr}
    for respect in RESPECTS[form]:
        edits = {
            (item.group, model): (score, float(np.mean(ratings)), item.cluster)
            for item, row in kept if item.task == respect and item.models and item.ratings
            for model, ratings, score in zip(item.models, item.ratings, (row["score_a"], row["score_b"]), strict=True)
            if score is not None
        }  # fmt: skip
        given, people, clusters = (np.array([each[n] for each in edits.values()]) for n in range(3))
        if not edits or (form == "tiedit" and (len(edits) < 3 or not np.ptp(given) or not np.ptp(people))):
            continue
        if form == "firm":
            given = 1 + 4 * given if given.min() >= 0 and given.max() <= 1 else given
            found = {"FIRM-Bench MAE": clustered.mean(np.abs(given - people), clusters)}
            found = found if given.min() >= 1 and given.max() <= 5 else {}
        else:
            fits = {f"TIEdit {name}": partial(_of, statistic, given, people) for name, statistic in followed.items()}
            found = {name: clustered.refitted(statistic, clusters).within(-1, 1) for name, statistic in fits.items()}
        told += [figure(f"{name}, {respect}", vars(own) | {"n": len(edits)}, "value") for name, own in found.items()]
    return told


def _of(statistic: Any, given: np.ndarray, people: np.ndarray, rows: np.ndarray) -> float:
    return float(statistic(given[rows], people[rows])[0])


def figure(name: str, of: Mapping[str, Any], key: str = "accuracy") -> Row:
    ends = {end: of.get(f"{key}_{end}", of.get(end)) for end in ("low", "high")}
    return {"name": name, "value": of[key]} | ends | {count: of.get(count) for count in ("scored", "n")}


def tie_calibrated(rows: Rows) -> dict[str, Any] | None:
    """Accuracy with the judge's own margin for ties, for judges that give scores or probabilities."""
    if all(row["p_a"] is None and row["score_a"] is None for row in rows):
        return None
    return agreement.tie_calibrated([row["truth"] for row in rows], [_margin(row) for row in rows])


def _margin(row: Row) -> float | None:
    """How much the judge prefers A: its scores' difference; or its probability's, -1/2..1/2, where the winner says the
    side if the written one is 1/2."""
    if (lead := _lead(row)) is not None:
        return round(lead, pointwise.DIGITS)
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
    pairs = []
    for item, row in _in_tuples(items, rows):
        winner = row["winner"]
        if (lead := _lead(row)) is not None:
            lead = round(lead, pointwise.DIGITS)
            winner = ahead(0.0 if abs(lead) <= (epsilon if item.size == 2 else 0.0) else lead)
        pairs.append((row["truth"], winner, item.group, item.size, item.cluster))
    return agreement.tuple_accuracy(*zip(*pairs, strict=True)) | {"epsilon": epsilon} if pairs else None


def _in_tuples(items: Sequence[Item], rows: Rows) -> list[tuple[Item, Row]]:
    """The items that stand in tuples, with their rows; the row of one without people's verdict says nothing."""
    said, nothing = {row["key"]: row for row in rows}, dict.fromkeys((*SAID, "truth"))
    kept = [item for item in items if item.group is not None and item.ratings is None]
    return [(item, nothing if item.verdict is None else said[item.key]) for item in kept]


def tuples_by_evaluator(items: Sequence[Item], rows: Rows) -> dict[str, Any] | None:
    """`tuples` as EditReward-Bench's own evaluator counts them (EditReward/evaluate/eval_bench.py); None: no scores.

    Two edits that people tied are right where their scores are up to epsilon apart, which is chosen on the same pairs
    so that most pairs of two are right. Every other tuple is right where people's order is that of the scores, however
    close they are; equal ones are in the order of NumPy's argsort, the later mostly first, which differs by CPU."""
    by_group: dict[str, list[tuple[Item, Row]]] = {}
    for item, row in _in_tuples(items, rows):
        by_group.setdefault(str(item.group), []).append((item, row))
    if all(row["score_a"] is None for row in rows) or not by_group:
        return None
    twos = [row for own in by_group.values() for item, row in own if item.size == 2 and row["truth"]]
    leads = [row["truth"] for row in twos], [*map(_lead, twos)]
    epsilon = agreement.tie_calibrated(*leads)["threshold"] if twos else 0.0
    right: list[tuple[bool, bool, int, str]] = []
    for own in by_group.values():
        scores, wins = dict[str, Any](), Counter[str]()
        for item, row in own:
            a, b = item.models or "AB"
            scores |= {a: row["score_a"], b: row["score_b"]}
            wins.update({a: row["truth"] == "Image A", b: row["truth"] == "Image B"})
        (first, row), letters = own[0], sorted(scores)
        heard = None not in scores.values()
        if first.size == 2 and row["truth"] == "Tie":
            good = heard and abs(_lead(row) or 0.0) <= epsilon
        else:  # people's order is known if they decided all pairs, and no three of them in a circle
            known = heard and sorted(wins.values()) == list(range(first.size))
            order = [letters[n] for n in np.argsort([scores[model] for model in letters])[::-1]] if known else []
            good = known and order == sorted(wins, key=lambda model: -wins[model])
        right.append((good, heard, first.size, first.cluster))

    def of(*sizes: int) -> dict[str, Any]:
        kept = [each for each in right if each[2] in sizes]
        found = agreement.share([good for good, *_ in kept], [cluster for *_, cluster in kept])
        return found | {"unscored": sum(not heard for _, heard, *_ in kept)}

    every = sorted({size for _, _, size, _ in right})
    return of(*every) | {"epsilon": epsilon, "per_size": [{"size": size} | of(size) for size in every]}


def _lead(row: Row) -> float | None:
    a, b = row["score_a"], row["score_b"]
    return None if a is None or b is None else float(a - b)


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
        truths=[ahead(b - a) for _, a, b in chosen],
        kinds=["unknown" if item.models is None else item.models[int(b > a)] for item, a, b in chosen],
        clusters=[item.cluster for item, _, _ in chosen],
    ), seen


def answered(items: Sequence[Item], files: Sequence[Path]) -> dict[str, Rows]:
    """The verdicts of the judges of files of answers. Raises TableError that names file, row and field."""
    stems, verdicts = [file.stem for file in files], dict[str, Rows]()
    for file in files:
        judge, answers = file.stem if stems.count(file.stem) == 1 else str(file), read_answers(file, items)
        said = {item.key: answers.get(item.key, _said(None, None, None)) for item in items}
        verdicts[judge] = to_verdicts(judge, items, said)
        if all(row["winner"] is None for row in verdicts[judge]):
            raise TableError(f"{file}: no answer: each is null, missing or Failed")
    return verdicts


def read_answers(file: Path, items: Sequence[Item]) -> dict[str, Row]:
    """A file's answers by the items' keys. Raises TableError that names file, row and field."""
    keys = {item.key for item in items}
    edits = {(item.group, model) for item in items if item.models for model in item.models}
    better_first = all(item.verdict == SIDES[exchanged(item.key)] for item in items if item.verdict in SIDES)
    said: dict[Any, Any] = {}  # of an item by its key, or the score of an edit by its prompt and model
    for record in reading.read(reading.Table(path=str(file))):
        try:
            row = record.values
            name: Any = plain(str(row["key"])) if "key" in row else (str(row.get("prompt")), str(row.get("model")))
            possible, what = (keys, "key") if "key" in row else (edits, "fields prompt and model")
            value = _answer(row, name if better_first else None) if "key" in row else _number(row, "score")
            if name not in possible:
                raise RowError(f"{what}: the benchmark has no {name!r:.120}")
            if name in said:
                raise RowError(f"{what}: {name!r:.120} stands already in an earlier row")
            said[name] = value
        except RowError as error:
            raise TableError(f"{file}: row {record.number}: {error}") from error
    if any(isinstance(name, tuple) for name in said):
        for item in items:
            if item.models and item.group is not None:
                a, b = (said.get((item.group, model)) for model in item.models)
                said[item.key] = _said(None, a, b)
    if not said:
        raise TableError(f"{file}: no answers")
    return said


def _answer(row: Mapping[str, Any], key: str | None) -> Row:
    """key: where the benchmark is published better edit first."""
    if key and {"score_winner", "score_loser"} <= row.keys():
        better, other = _number(row, "score_winner"), _number(row, "score_loser")
        return _said(None, *((other, better) if exchanged(key) else (better, other)))
    if "winner" not in row and not {"score_a", "score_b"} <= row.keys():
        raise RowError("neither winner nor score_a and score_b")
    winner = _given(row, "winner")
    if winner is not None and winner not in VERDICTS:
        raise RowError(f"field winner: {winner!r:.40} is none of {', '.join(VERDICTS)}, Failed and null")
    return _said(winner, _number(row, "score_a"), _number(row, "score_b"))


def _said(answer: Any, a: float | None, b: float | None) -> Row:
    """One order was asked: an answer in people's words, or the scores of both sides."""
    given = {"answer": answer, "score_a": a, "score_b": b}
    if answer is None and a is not None and b is not None:
        answer = ahead(a - b)
    winner = None if answer is None else agreement.folded(answer)
    return given | {"forward": winner, "winner": winner, "reason": "no answer" if winner is None else None}


def _given(row: Mapping[str, Any], field: str) -> Any:
    value = row.get(field)
    return None if value in (None, "", "Failed") or value != value else value  # NaN: pandas' empty cell


def _number(row: Mapping[str, Any], field: str) -> float | None:
    if (value := _given(row, field)) is None:
        return None
    try:
        number = float(str(value))
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise RowError(f"field {field}: a number expected, not {value!r:.40}")
    return number
