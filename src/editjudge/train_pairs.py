"""Stage train_pairs: pairs of edits, the better one known by the measures, from the annotations of all tasks."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from editjudge import params, records, resume, tiers
from editjudge.measures.names import DIRECTIONS

Rows = list[records.Row]


@dataclass(frozen=True)
class Chosen:
    """A pair of candidates of one prompt, before its images are fetched."""

    prompt: str
    task: str
    pair: tiers.Pair
    damage: Mapping[str, float | None]  # model: known damage


def rules_of(thresholds: Mapping[str, Mapping[str, Any]]) -> tuple[tiers.AreaRule, ...]:
    """The rules of one task, from `train_pairs.thresholds.<task>` (area: primary, elite, failure, secondary)."""
    return tuple(
        tiers.AreaRule(
            area=area,
            primary=rule["primary"],
            direction=DIRECTIONS[rule["primary"]],
            elite=rule["elite"],
            failure=rule["failure"],
            secondary=tuple((name, DIRECTIONS[name]) for name in rule.get("secondary") or ()),
        )
        for area, rule in thresholds.items()
    )


def choose(annotations: Iterable[records.Row], setting: Mapping[str, Any], task: str) -> tuple[list[Chosen], Counter]:
    """The pairs of one task, and counts of what was left out and why.

    A candidate counts where it was measured and really edited: one that changed by less than `least_change` where the
    edit must show would teach the judge to prefer doing nothing. Stops after `prompts_per_task` prompts with a pair.
    """
    rules = rules_of(setting["thresholds"][task])
    by_prompt: dict[str, Rows] = {}
    for row in annotations:
        by_prompt.setdefault(row["key"], []).append(row)
    chosen: list[Chosen] = []
    counts: Counter = Counter(prompts=0, prompts_with_pair=0)
    for key, rows in by_prompt.items():
        if counts["prompts_with_pair"] >= setting["prompts_per_task"]:
            counts["prompts_beyond_cap"] += 1
            continue
        outcome = tiers.build_pairs(
            _candidates(rows, setting["least_change"], counts), rules, mode=setting["mode"], margin=setting["margin"]
        )
        _count(outcome, counts)
        damage = {row["model"]: row["damage"] for row in rows}
        chosen += [Chosen(key, task, pair, damage) for pair in outcome.pairs]
    return chosen, counts


def _candidates(rows: Rows, least_change: float, counts: Counter) -> list[tiers.Candidate]:
    edited = []
    for row in rows:
        if row["status"] == "failed":
            counts["candidates_failed"] += 1
        elif row["change"] < least_change:
            counts["candidates_unedited"] += 1
        else:
            values = {(m["area"], m["measure"]): m["value"] for m in row["measures"]}
            edited.append(tiers.Candidate(row["model"], values))
    return edited


def _count(outcome: tiers.Outcome, counts: Counter) -> None:
    counts["prompts"] += 1
    counts["candidates_unscored"] += len(outcome.unscored)
    counts["prompts_with_pair"] += bool(outcome.pairs)
    if outcome.reason is not None:
        counts[f"no_pair_{outcome.reason}"] += 1
    counts.update({f"dropped_{reason}": number for reason, number in outcome.dropped.items()})


def to_rows(
    chosen: list[Chosen], prompts: Mapping[str, records.Row], edits: Mapping[tuple[str, str], bytes], seed: int
) -> Rows:
    """Training pairs with their images; which edit is Image A is drawn for each pair by itself from the seed."""
    rows = []
    for item in chosen:
        winner, loser = item.pair.winner, item.pair.loser
        key = f"{item.prompt}.{winner}.{loser}"[:200]
        rng = np.random.default_rng([seed, *resume.fingerprint(key).encode()])
        a, b = (loser, winner) if rng.random() < 0.5 else (winner, loser)
        rows.append(
            {
                "key": key,
                "prompt": item.prompt,
                "task": item.task,
                "instruction": prompts[item.prompt]["instruction"],
                "source_image": prompts[item.prompt]["image"],
                "image_a": edits[a, item.prompt],
                "image_b": edits[b, item.prompt],
                "winner": "Image A" if a == winner else "Image B",
                "model_a": a,
                "model_b": b,
                "tiers": item.pair.tiers,
                "margin": round(item.pair.margin, 6),
                "damage_a": item.damage[a],
                "damage_b": item.damage[b],
            }
        )
    return rows


def truth(chosen: list[Chosen]) -> dict[str, Any]:
    """How many pairs name the truly less damaged side; equal damages make the pair wrong."""
    known = [(item.damage[item.pair.winner], item.damage[item.pair.loser]) for item in chosen]
    pairs = [(won, lost) for won, lost in known if won is not None and lost is not None]
    right = sum(won < lost for won, lost in pairs)
    return {
        "right": right,
        "wrong": sum(won > lost for won, lost in pairs),
        "equal": sum(won == lost for won, lost in pairs),
        "unknown": len(known) - len(pairs),
        "share_right": round(right / len(pairs), 4) if pairs else None,
    }


def report(per_task: Mapping[str, tuple[list[Chosen], Counter]]) -> dict[str, Any]:
    """metrics/train_pairs.json: pairs, how often they name the truth, by tier and task, and what gave none and why.

    Lists, which `dvc metrics` leaves out, hold the details.
    """
    everything = [item for chosen, _ in per_task.values() for item in chosen]
    total = sum((counts for _, counts in per_task.values()), Counter())
    tiers_of = Counter(item.pair.tiers for item in everything)
    return {
        "pairs": len(everything),
        "share_right": truth(everything)["share_right"],
        "prompts_without_pair": total["prompts"] - total["prompts_with_pair"],
        "known_truth": [truth(everything)],
        "per_tier": [{"tiers": name, "pairs": number} for name, number in sorted(tiers_of.items())],
        "per_task": [
            {"task": task, "pairs": len(chosen), "share_right": truth(chosen)["share_right"], **dict(counts)}
            for task, (chosen, counts) in per_task.items()
        ],
        "total": [dict(total)],
    }


def main() -> None:
    values = params.load()
    tasks, setting = list(params.leaf(values, "tasks")), params.leaf(values, "train_pairs")
    per_task = {
        task: choose(records.iterate(Path(f"data/annotations/{task}.parquet"), "annotations"), setting, task)
        for task in tasks
    }
    chosen = [item for pairs, _ in per_task.values() for item in pairs]
    pools = (row for task in tasks for row in records.iterate(Path(f"data/pools/{task}.parquet"), "pools"))
    wanted = {(m, item.prompt) for item in chosen for m in (item.pair.winner, item.pair.loser)}
    prompts = {row["key"]: row for row in pools}
    edits = {
        (model, row["key"]): row["image"]
        for model in sorted(params.leaf(values, "editors"))
        for row in records.iterate(Path(f"data/candidates/{model}.parquet"), "candidates")
        if (model, row["key"]) in wanted
    }
    records.write(Path("data/train_pairs.parquet"), to_rows(chosen, prompts, edits, setting["seed"]), "train_pairs")
    records.write_json(Path("metrics/train_pairs.json"), report(per_task))


if __name__ == "__main__":
    main()
