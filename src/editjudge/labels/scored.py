"""Scorer data of the pipeline's own annotations: pairs whose better edit is known, and what is known of each dimension.

Visual consistency is the global z of the tiers: how much better an edit preserved what it had to than its prompt's
other edits. Instruction following is known in one respect alone: an edit that changed less than
`train_pairs.least_change` where it must show did not follow, 0; one that did change may have, 1. Edits are compared as
in train_pairs. A pair that does not stand there has no winner, and none has one with an edit that did nothing, which
the measures would prefer.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import combinations, groupby
from typing import Any

from editjudge.core.keys import plain
from editjudge.core.records import Row
from editjudge.labels import tiers
from editjudge.labels.rows import LabelledEdit, part_of, row

CONSISTENCY, FOLLOWING = "visual_consistency", "instruction_following"
RULE = "measures of the pipeline: {}"
UNEDITED = "one edit changed nothing where it must show"


def rows(
    task: str,
    annotations: Iterable[Row],
    prompts: Mapping[str, Row],
    rules: Sequence[tiers.AreaRule],
    setting: Mapping[str, Any],
    test: float,
    dropped: Counter[str],
) -> Iterator[Row]:
    """Rows of a task's pairs. prompts: of its pool, by key; setting: `train_pairs`; dropped: counts of what is none.

    annotations: in the order of their prompts.
    """
    for key, own in groupby(annotations, lambda each: each["key"]):
        known, prompt = {each["model"]: each for each in own}, prompts[key]
        left = Counter[str]()
        candidates = tiers.edited(known.values(), setting["least_change"], left)
        dropped.update({name: count for name, count in left.items() if name == "candidates_failed"})
        scored, counting = tiers.counted(sorted(candidates, key=lambda each: each.model), rules)
        graded = {each.candidate.model: each for each in tiers.grade(scored, counting)}
        compared = tiers.compared(list(graded.values()), counting, setting["mode"], setting["margin"])
        winners = {
            frozenset((better.candidate.model, worse.candidate.model)): better.candidate.model
            for better, worse, objection in compared
            if objection is None
        }
        idle = {m for m, each in known.items() if each["status"] != "failed" and m not in {c.model for c in candidates}}
        dropped["candidates_unscored"] += len(candidates) - len(graded)
        for a, b in combinations(sorted([*graded, *idle]), 2):
            if a in idle and b in idle:
                dropped["both_unedited"] += 1
                continue
            shown = [_shown(task, known[m], graded.get(m)) for m in (a, b)]
            winner, rule = winners.get(frozenset((a, b))), UNEDITED
            if not {a, b} & idle:
                better, worse = (graded[m].tier for m in ((a, b) if winner != b else (b, a)))
                rule = f"{better} over {worse}" if winner else "no pair in train_pairs"
            source = (f"data/pools/{task}.parquet/{key}", known[a]["source_sha256"])
            more: dict[str, Any] = {"origin": prompt["origin"], "part": part_of(key, test), "rule": RULE.format(rule)}
            more["winner"] = {a: "Image A", b: "Image B", None: None}[winner]
            yield row(plain(f"{key}.{a}.{b}"), key, task, prompt["instruction"], source, *shown, **more)


def _shown(task: str, annotation: Row, graded: tiers.Graded | None) -> LabelledEdit:
    """An edit with what is known of it; one without a grade has changed nothing."""
    scores = {FOLLOWING: float(graded is not None)} | ({} if graded is None else {CONSISTENCY: round(graded.z, 6)})
    model = annotation["model"]
    return LabelledEdit(
        f"data/candidates/{model}/{task}.parquet/{annotation['key']}", annotation["edit_sha256"], model, scores
    )
