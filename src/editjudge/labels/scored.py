"""Scorer data of the pipeline's own annotations: pairs whose better edit is known, and what is known of each dimension.

Visual consistency is the global z of the tiers: how much better an edit preserved what it had to than its prompt's
other edits. Instruction following is known in one respect alone: an edit that changed less than
`train_pairs.least_change` where it must show did not follow, 0; one that did change may have, 1. Edits are compared as
in train_pairs. A pair that does not stand there has no winner, and none has one with an edit that did nothing, which
the measures would prefer. Edits made from several pictures are left out: a scorer looks at one."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import combinations, groupby
from typing import Any

from editjudge.core.keys import plain
from editjudge.core.records import Row, references
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
        if references(prompt):
            dropped["several_sources"] += len(known)
            continue
        candidates = tiers.edited(known.values(), setting.least_change, left)
        if failed := left["candidates_failed"]:
            dropped["candidates_failed"] += failed
        found, counting = tiers.grade(sorted(candidates, key=lambda each: each.model), rules)
        graded = {each.candidate.model: each for each in found}
        dropped["candidates_unscored"] += len(candidates) - len(graded)
        compared = tiers.compared(found, counting, setting.mode, setting.margin)
        pairs = {
            frozenset((one.candidate.model, two.candidate.model)): (one, two) for one, two, why in compared if not why
        }
        idle = {m for m, each in known.items() if each["status"] != "failed"} - {each.model for each in candidates}
        for a, b in combinations(sorted([*graded, *idle]), 2):
            if {a, b} <= idle:
                dropped["both_unedited"] += 1
                continue
            rule, winner = UNEDITED if {a, b} & idle else "no pair in train_pairs", None
            if pair := pairs.get(frozenset((a, b))):
                rule = f"{pair[0].tier} over {pair[1].tier}"
                winner = "Image A" if pair[0].candidate.model == a else "Image B"
            places = {model: f"data/candidates/{model}/{task}.parquet/{key}" for model in (a, b)}
            shown = (_edit(known[model], graded.get(model), place) for model, place in places.items())
            source = (f"data/pools/{task}.parquet/{key}", known[a]["source_sha256"])
            more: dict[str, Any] = {"origin": prompt["origin"], "part": part_of(key, test), "winner": winner}
            more["rule"] = RULE.format(rule)
            yield row(plain(f"{key}.{a}.{b}"), key, task, prompt["instruction"], source, *shown, **more)


def _edit(annotation: Row, graded: tiers.Graded | None, name: str) -> LabelledEdit:
    """name: of its image. graded: None for an edit that changed nothing."""
    scores = {FOLLOWING: 0.0} if graded is None else {FOLLOWING: 1.0, CONSISTENCY: round(graded.z, 6)}
    return LabelledEdit(name, annotation["edit_sha256"], annotation["model"], scores)
