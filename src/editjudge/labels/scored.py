"""Scorer data of the pipeline's own annotations: pairs whose better edit is known, and what is known of each dimension.

Visual consistency is the global z of the tiers: how much better an edit preserved what it had to than its prompt's
other edits. Instruction following is known in one respect alone: an edit that changed less than
`train_pairs.least_change` where it must show did not follow, 0; one that did change may have, 1. Edits are compared as
in train_pairs. A pair that does not stand there has no winner, and none has one with an edit that did nothing, which
the measures would prefer."""

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
    setting: tiers.PairsSetting,
    test: float,
    dropped: Counter[str],
) -> Iterator[Row]:
    """Rows of a task's pairs. prompts: of its pool, by key; setting: `train_pairs`; dropped: counts of what is none.

    annotations: in the order of their prompts."""
    for key, own in groupby(annotations, lambda each: each["key"]):
        known, prompt, left = {each["model"]: each for each in own}, prompts[key], Counter[str]()
        candidates = tiers.edited(known.values(), setting.least_change, left)
        if failed := left["candidates_failed"]:
            dropped["candidates_failed"] += failed
        found, counting = tiers.grade(sorted(candidates, key=lambda each: each.model), rules)
        graded = {each.candidate.model: each for each in found}
        dropped["candidates_unscored"] += len(candidates) - len(graded)
        winners = {
            frozenset((better.candidate.model, worse.candidate.model)): better.candidate.model
            for better, worse, objection in tiers.compared(found, counting, setting.mode, setting.margin)
            if objection is None
        }
        idle = {m for m, each in known.items() if each["status"] != "failed"} - {each.model for each in candidates}
        for a, b in combinations(sorted([*graded, *idle]), 2):
            if a in idle and b in idle:
                dropped["both_unedited"] += 1
                continue
            winner, rule = winners.get(frozenset((a, b))), UNEDITED
            if not {a, b} & idle:
                better, worse = (graded[m].tier for m in ((a, b) if winner != b else (b, a)))
                rule = f"{better} over {worse}" if winner else "no pair in train_pairs"
            shown = []
            for model in (a, b):
                scores = {FOLLOWING: float(model in graded)}
                if model in graded:
                    scores[CONSISTENCY] = round(graded[model].z, 6)
                place = f"data/candidates/{model}/{task}.parquet/{key}"
                shown.append(LabelledEdit(place, known[model]["edit_sha256"], model, scores))
            source = (f"data/pools/{task}.parquet/{key}", known[a]["source_sha256"])
            more: dict[str, Any] = {"origin": prompt["origin"], "part": part_of(key, test), "rule": RULE.format(rule)}
            more["winner"] = {a: "Image A", b: "Image B", None: None}[winner]
            yield row(plain(f"{key}.{a}.{b}"), key, task, prompt["instruction"], source, *shown, **more)
