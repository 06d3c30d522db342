"""Why two edits of a prompt are a training pair, or why not: plain rows, as the report's gallery shows them."""

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any

import numpy as np

from editjudge.core import records
from editjudge.core.keys import plain
from editjudge.core.records import Row
from editjudge.labels import tiers
from editjudge.measures.names import DIRECTIONS

Rows = Sequence[Row]
Column = tuple[str, str]  # an area and a measure
Made = Mapping[frozenset[str], Row]  # the training pairs of a prompt, by their two models


def columns_of(annotations: Rows) -> list[Column]:
    """The areas and measures of the annotations, in their order."""
    return list(dict.fromkeys((m["area"], m["measure"]) for row in annotations for m in row["measures"]))


def less_damaged(a: float | None, b: float | None) -> str | None:
    """The image with less known damage; None where one is not known or both are equal."""
    return None if a is None or b is None or a == b else "Image A" if a < b else "Image B"


def explained(
    annotations: Rows,
    verdicts: Rows,
    trained: Rows | None,
    rules: Sequence[tiers.AreaRule],
    setting: tiers.PairsSetting,
) -> dict[str, tuple[dict[str, Row], list[Row]]]:
    """Of each prompt of a task by key: its edits by model, and every two of them as a pair.

    verdicts: of VLM judges, where there are no rules. trained: the training pairs; None if they are not made yet."""
    made, judged = records.grouped(trained or (), "prompt"), records.grouped(verdicts, "key")
    columns, found = columns_of(annotations), {}
    for key, rows in records.grouped(annotations, "key").items():
        counted = tiers.edited(rows, setting.least_change, Counter())
        graded, counting = tiers.grade(counted, rules) if rules else ([], rules)
        edits = _edits(rows, columns, {each.model for each in counted}, graded, bool(rules))
        own = {frozenset((pair["model_a"], pair["model_b"])): pair for pair in made.get(key, ())}
        if rules:
            compared = tiers.compared(graded, counting, setting.mode, setting.margin)
            found[key] = edits, _by_measures(key, edits, compared, None if trained is None else own)
        else:
            found[key] = edits, [_by_judges(row, own) for row in judged.get(key, ())]
    return found


def _edits(
    rows: Rows, columns: Sequence[Column], counted: set[str], graded: Sequence[tiers.Graded], by_rules: bool
) -> dict[str, Row]:
    """The candidates of a prompt by model. counted: those that were measured and edited. tier: or what stands for it,
    "failed", "unedited" or "unscored". total: z over the areas. values, z: of each column; z over the candidates that
    count, higher being better. missing: why a column has no value."""
    grades = {each.candidate.model: each for each in graded}
    rows = sorted(rows, key=lambda row: row["model"])
    measured = {row["model"]: {(m["area"], m["measure"]): m for m in row["measures"]} for row in rows}
    edits = {}
    for row in rows:
        model, own = row["model"], measured[row["model"]]
        without = "unedited" if model not in counted else "unscored" if by_rules else None
        edits[model] = {
            "tier": grades[model].tier if model in grades else "failed" if row["status"] == "failed" else without,
            "total": grades[model].z if model in grades else None,
            "values": [own.get(column, {}).get("value") for column in columns],
            "z": [None] * len(columns),
            **{name: row[name] for name in ("change", "damage", "reason")},
            "missing": {n: own[c]["reason"] for n, c in enumerate(columns) if c in own and own[c]["value"] is None},
        }
    for n, (_, measure) in enumerate(columns):
        known = [edit for model, edit in edits.items() if model in counted and edit["values"][n] is not None]
        if not known:
            continue
        values = np.array([[edit["values"][n]] for edit in known], float)
        z, _ = tiers.z_scores(values * DIRECTIONS[measure])
        for edit, [value] in zip(known, z.tolist(), strict=True):
            edit["z"][n] = value
    return edits


def _by_measures(key: str, edits: Mapping[str, Row], compared: Any, made: Made | None) -> list[Row]:
    """Every two candidates, with the rule that made a pair of them or did not. compared: see `tiers.compared`."""
    found = {frozenset((two[0].candidate.model, two[1].candidate.model)): two for two in compared}
    pairs = []
    for a, b in combinations(edits, 2):
        two = frozenset((a, b))
        row: Row = {"key": plain(f"{key}.{a}.{b}"), "a": a, "b": b, "made": False, "winner": None}
        if two in found:
            better, worse, objection = found[two]
            if better.tier == worse.tier:
                row["tiers"] = f"both_{better.tier}"
            else:
                row["tiers"] = f"{better.tier}_over_{worse.tier}"
                row["winner"] = "Image A" if better.candidate.model == a else "Image B"
            row |= {"why": objection or ("stands" if made is None else "beyond_cap"), "margin": better.z - worse.z}
            row["made"] = made is None and objection is None
        else:
            states = (edits[a]["tier"], edits[b]["tier"])
            row["why"] = next(why for why in ("failed", "unedited", "unscored") if why in states)
        if made and two in made:
            pair = made[two]
            row |= {"key": pair["key"], "a": pair["model_a"], "b": pair["model_b"], "why": "made", "made": True}
            row |= {name: pair[name] for name in ("winner", "tiers")}
        pairs.append(row | {"truth": less_damaged(*(edits[row[side]]["damage"] for side in "ab"))})
    return pairs


def _by_judges(row: Row, made: Made) -> Row:
    """A pair that VLM judges compared."""
    a, b = row["model_a"], row["model_b"]
    pair = made.get(frozenset((a, b)))
    no_pair = "tie" if row["winner"] == "Tie" else "unedited_or_beyond_cap"
    why = no_pair if row["status"] == "done" else row["status"]
    return {
        "key": plain(f"{row['key']}.{a}.{b}") if pair is None else pair["key"],
        "a": a,
        "b": b,
        "made": pair is not None,
        "why": why if pair is None else "made",
        "winner": row["winner"],
        "judged": [each | {"dimension": row["dimension"]} for each in row["verdicts"]],
        "truth": less_damaged(row["damage_a"], row["damage_b"]),
    }
