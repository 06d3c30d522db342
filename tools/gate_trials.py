"""What a judge or scorer must know before a model is trained against it: the right edit of a photograph ranks above
each cheat of gate_trials.yaml. docs/rewards.md says how it is asked.

Nothing but pixels and words can tell: all images are PNG, keys are numbers, and the order is random."""

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import yaml

from editjudge.core import images
from editjudge.core.records import Row
from editjudge.core.winner import OTHER_SIDE, SIDES, WORTH
from editjudge.judges import protocol
from editjudge.judges.protocol import BothOrders, Context, Dimension, Edit, Judge, Question, Scorer
from editjudge.statistics import agreement, calibration, clustered

SETTING: dict[str, Any] = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text())
CHEATS: list[str] = SETTING["cheats"]
MOVED, GROUP = ("as it is", "instruction", "source", "edited image"), "group"


@dataclass(frozen=True)
class KnownCase:
    """A photograph with two instructions of two tasks, each carried out without damage; `right` is examined. contexts:
    of both, for the judge by measures. group: better and worse edits of the first, or none."""

    photo: str
    right: Edit
    other: Edit
    contexts: tuple[Context | None, ...] = (None, None)
    group: tuple[Edit, ...] = ()


@dataclass(frozen=True)
class GateTrial:
    """right is to be ranked above wrong. side: 0 shows the right one as A, 1 as B. what: one of CHEATS; of MOVED, whose
    answers are compared with each other; or GROUP."""

    case: KnownCase
    what: str
    right: Edit
    wrong: Edit
    side: int

    @property
    def sides(self) -> tuple[Edit, Edit]:
        return (self.wrong, self.right) if self.side else (self.right, self.wrong)

    def question(self, key: str) -> Question:
        """For a judge: both sides have the instruction of the right one."""
        (a, b), of = self.sides, self.right
        context = self.case.contexts[of.task == self.case.other.task]
        return Question(key, of.instruction, of.source, a.edited, b.edited, context=context, task=of.task)


def doctored(case: KnownCase, stranger: bytes, n: int) -> list[bytes]:
    """The edited images that cheat, in the order of CHEATS. stranger: another photo. n: which kind of a cheat."""
    source, edit, other = (images.decode(bytes(o)) for o in (case.right.source, case.right.edited, case.other.edited))
    (height, width), far = edit.shape[:2], SETTING["shifts"][n % len(SETTING["shifts"])]
    move, size = np.array([[1.0, 0, far], [0, 1, far * (n % 2)]]), (width, height)
    noise, at = np.random.default_rng(n).normal(0, 25, edit.shape), (width // 20, height * 11 // 20)
    made = [
        source,
        cv2.warpAffine(source, move, size, borderMode=cv2.BORDER_REFLECT_101),
        cv2.resize(edit[height // 8 : -height // 8, width // 8 : -width // 8], size),
        cv2.GaussianBlur(edit, (0, 0), 3) if n % 2 else np.clip(edit + noise, 0, 255),
        cv2.resize(images.decode(stranger), size, interpolation=cv2.INTER_AREA),
        np.full_like(edit, 255 * (n % 2)),
        other,
        cv2.putText(edit.copy(), SETTING["text"], at, cv2.FONT_HERSHEY_SIMPLEX, width / 240, (255, 255, 255), 2),
        images.jpeg_roundtrip(edit, 10),
    ]
    return [images.encode_png(image.astype(np.uint8)) for image in made]


def trials(case: KnownCase, stranger: bytes, n: int, compares: bool) -> list[GateTrial]:
    """compares: for a judge, which takes one instruction a question. It must then follow another instruction to the
    other edit, and rank the source first where nothing is asked for that can be done."""
    right, other, absurd, orders = case.right, case.other, SETTING["absurd"], SETTING["orders"]
    nothing, worse = replace(right, instruction=absurd[n % len(absurd)]), SIDES[1 - n % 2] if compares else "this edit"
    told = replace(right, instruction=f"{right.instruction} {orders[n % len(orders)].format(worse=worse)}")
    misled, fooled = replace(other, edited=right.edited), replace(told, edited=right.source)
    of_words = [(right, misled), (right, nothing), (right, fooled)]
    if compares:
        of_words = [(other, misled), (replace(nothing, edited=right.source), nothing), (told, fooled)]
    pairs = [(right, replace(right, edited=image)) for image in doctored(case, stranger, n)]
    found = [*zip(CHEATS, [*pairs, *of_words], strict=False)]
    if case.group:
        elsewhere, black = pairs[4][1].edited, images.encode_png(np.zeros_like(images.decode(bytes(right.edited))))
        found += [(MOVED[0], pairs[6]), (MOVED[1], (misled, other)), (MOVED[3], (replace(right, edited=black), right))]
        found += [(MOVED[2], (replace(right, source=elsewhere), replace(pairs[6][1], source=elsewhere)))]
        found += [(GROUP, (edit, right)) for edit in case.group if not compares]
    return [GateTrial(case, what, *pair, side=n % 2) for what, pair in found]


def ask(judge: Judge | Scorer, tried: Sequence[GateTrial], about: Dimension, seed: int) -> list[BothOrders]:
    """One answer a trial, asked in a random order; a scorer scores each edit once."""
    rng = np.random.default_rng(seed)
    if isinstance(judge, Judge) and not judge.dimensions:
        order = rng.permutation(len(tried))
        said = judge.compare([tried[n].question(str(place)) for place, n in enumerate(order)], about)
        return [said[n] for n in np.argsort(order)]
    sides = [edit for trial in tried for edit in trial.sides]
    mixed = [sides[n] for n in rng.permutation(len(sides))]
    different = list(dict.fromkeys(mixed))
    scores = dict(zip(different, judge.score(different), strict=True))
    questions = [trial.question(str(n)) for n, trial in enumerate(tried)]
    return protocol.compare_by_scores(questions, [scores[edit] for edit in sides], 0.0, about)


def refiled(edit: Edit) -> Edit:
    """The same pixels in another file, of which a scorer that keeps its answers has none."""
    return replace(edit, edited=cv2.imencode(".png", images.decode(bytes(edit.edited))[..., ::-1])[1].tobytes())


def mean(values: np.ndarray) -> float | None:
    return float(values.mean()) if len(values) else None


def verdict(cheat: str, rights: np.ndarray, photos: np.ndarray) -> Row:
    """rights: 1, 0, or NaN for unscored. pass: the lower end of the share's 95 % interval over photos is above the bar,
    and few are unscored. fail: the upper end is below the bar. Else they are too few to tell."""
    read = ~np.isnan(rights)
    row: Row = {"cheat": cheat, "n": len(rights), "unscored": int((~read).sum()), "share": mean(rights[read])}
    row |= clustered.share(rights[read], photos[read]).ends() if read.any() else {"low": None, "high": None}
    passed = (row["low"] or 0) > SETTING["bar"] and row["unscored"] <= SETTING["most_unscored"] * len(rights)
    failed = row["high"] is not None and row["high"] < SETTING["bar"]
    return row | {"verdict": "pass" if passed else "fail" if failed else "too few to tell"}


def spread(numbers: np.ndarray) -> list[Row]:
    """Of groups of samples of one prompt, cut to each size: the shares of groups whose numbers are all the same, from
    which nothing is learnt, and of pairs that tie. Groups with an unscored sample are counted apart."""
    rows = list[Row]()
    for size in SETTING["groups"] if len(numbers) else ():
        cut = numbers.reshape(-1, size)
        read = cut[~np.isnan(cut).any(1)]
        tied = ((read[:, :, None] == read[:, None]).sum((1, 2)) - size) / (size * (size - 1))
        rows.append({"size": size, "groups": len(cut), "unscored": len(cut) - len(read)})
        rows[-1] |= {"zero_variance": mean(np.ptp(read, 1) == 0), "tied_pairs": mean(tied)}
    return rows


def examine(
    judge: Judge | Scorer, cases: Sequence[KnownCase], dimension: Dimension | None = None
) -> tuple[Row, list[GateTrial]]:
    """The figures, as docs/rewards.md explains them, and what it was wrong about. Neighbours in `cases` are of two
    photos. Of cases with a group it is also asked whether the answers move. dimension: left out, a scorer's overall
    score, and what judges are asked by default."""
    compares, began = isinstance(judge, Judge) and not judge.dimensions, time.monotonic()
    about = dimension or (protocol.CONSISTENCY if compares else "overall")
    strangers = [bytes(cases[n - 1].right.source) for n in range(len(cases))]
    tried = [t for n, case in enumerate(cases) for t in trials(case, strangers[n], n, compares)]
    answers = ask(judge, tried, about, seed=0)
    seconds = (time.monotonic() - began) / len(tried)
    what, photos = np.array([t.what for t in tried]), np.array([t.case.photo for t in tried])
    forward, back = ([o.winner for o in own] for own in zip(*((a.forward, a.backward) for a in answers), strict=True))
    won, side = np.array([a.combined.winner for a in answers], object), np.array([t.side for t in tried])
    rights = np.array([each and each == SIDES[n] for each, n in zip(won, side, strict=True)], float)
    rows = [verdict(cheat, rights[what == cheat], photos[what == cheat]) for cheat in CHEATS[:-1]]
    # a judge has been shown the sides exchanged; a scorer is asked once more, in another order and of other files
    places = np.flatnonzero(np.isin(what, CHEATS) if compares else what == CHEATS[0]).tolist()
    again = [OTHER_SIDE[back[n]] if back[n] else None for n in places]
    if not compares:
        anew = [replace(t, right=refiled(t.right), wrong=refiled(t.wrong)) for t in (tried[n] for n in places)]
        again = [a.combined.winner for a in ask(judge, anew, about, seed=1)]
    both = [(forward[n], other) for n, other in zip(places, again, strict=True)]
    follows = np.array([None if None in pair else pair[0] == pair[1] for pair in both], float)
    rows.append(verdict(CHEATS[-1], follows, photos[places]))
    # of the right edit: a scorer's number, or the probability that it wins
    scores, p_a = np.array([a.scores for a in answers], float), [a.combined.p_a for a in answers]
    likely = [WORTH[each] if each and p is None else p for p, each in zip(p_a, won, strict=True)]
    values = abs(np.array(likely, float) - side) if compares else scores[np.arange(len(side)), side]
    moved, unit = list[Row](), 1.0 if compares else float(np.nanstd(scores)) or 1.0
    for name in MOVED[1:]:
        far = abs(values[what == name] - values[what == MOVED[0]]) / unit
        read = ~np.isnan(far)
        ends = clustered.mean(far[read], photos[what == name][read]).ends() if read.any() else {}
        moved.append({"changed": name, "n": int(read.sum()), "moves": mean(far[read]), **ends})
    reasons = Counter(a.combined.reason for a in answers if a.combined.winner is None)
    known = [SIDES[side[n]] for n in places], [p_a[n] for n in places], photos[places].tolist()
    orders = [forward[n] for n in places], [back[n] for n in places]
    figures: Row = {
        "asked": "compares" if compares else "scores",
        "dimension": about,
        "passes": all(row["verdict"] == "pass" for row in rows),
        "cheats": [row | {"ties": int((won[what == row["cheat"]] == "Tie").sum())} for row in rows],
        "sensitivity": moved,
        "groups": spread(values[what == GROUP]),
        "position": agreement.position_bias(*orders, known[-1]) if compares else None,
        "calibration": calibration.report(*known),
        "pairs": len(tried),
        "unscored": reasons.total(),
        "reasons": [{"reason": reason, "pairs": pairs} for reason, pairs in reasons.most_common()],
        "seconds_per_pair": seconds,
    }
    return figures, [t for t, right in zip(tried, rights, strict=True) if right == 0 and t.what in CHEATS]
