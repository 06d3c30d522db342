"""Stage train_pairs: pairs of edits, the better one known by measures or by VLM judges, from all tasks' annotations."""

import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pyarrow.parquet as pq

from editjudge.core import keys, params, records
from editjudge.core.main import stage
from editjudge.core.settings import section
from editjudge.engine import resume
from editjudge.labels import tiers
from editjudge.measures.annotation.recipe import load_recipes

Rows = list[records.Row]
Damages: TypeAlias = Mapping[str, float | None]  # known damage, by model
TRUTHS = ("right", "wrong", "equal", "unknown")


@dataclass(frozen=True)
class Chosen:
    """A pair of candidates of one prompt."""

    prompt: str
    pair: tiers.TrainingPair
    damage: Damages


def choose(
    annotations: Iterable[records.Row], setting: Mapping[str, Any], rules: Sequence[tiers.AreaRule]
) -> tuple[list[Chosen], Counter]:
    """The pairs of a task with measures, and counts of what was left out and why.

    A candidate counts where it was measured and really edited: one that changed by less than `least_change` where the
    edit must show would teach the judge to prefer doing nothing. Stops after `prompts_per_task` prompts with a pair."""

    def pairs_of(rows: Rows, counts: Counter) -> tuple[Sequence[tiers.TrainingPair], Damages]:
        candidates = tiers.edited(rows, setting["least_change"], counts)
        pairs, left_out = tiers.build_pairs(candidates, rules, mode=setting["mode"], margin=setting["margin"])
        counts.update(left_out)
        return pairs, {row["model"]: row["damage"] for row in rows}

    return _choose(annotations, pairs_of, setting["prompts_per_task"])


def choose_judged(verdicts: Rows, annotations: Rows, setting: Mapping[str, Any]) -> tuple[list[Chosen], Counter]:
    """The pairs of a task that VLM judges compared, and counts of what was left out and why.

    A Tie teaches nothing, a pair without a verdict is no pair, and one of its edits may have changed less than
    `least_change`, as the task's annotations say; see `choose`, also for the cap. Prompts of which no pair could be
    asked for want of edits are counted as where measures decide."""
    changes = {(row["key"], row["model"]): row["change"] for row in annotations}

    def pairs_of(rows: Rows, counts: Counter) -> tuple[Sequence[tiers.TrainingPair], Damages]:
        pairs = []
        for row in rows:
            models = (row["model_a"], row["model_b"])
            known = [change for model in models if (change := changes.get((row["key"], model))) is not None]
            if any(change < setting["least_change"] for change in known):
                counts["dropped_unedited"] += 1
            elif row["status"] != "done":
                counts[f"dropped_{row['status']}"] += 1
            elif row["winner"] == "Tie":
                counts["dropped_tie"] += 1
            else:
                winner, loser = models if row["winner"] == "Image A" else models[::-1]
                pairs.append(tiers.TrainingPair(winner, loser, tiers.JUDGED, None))
        return pairs, {row[f"model_{side}"]: row[f"damage_{side}"] for row in rows for side in "ab"}

    chosen, counts = _choose(verdicts, pairs_of, setting["prompts_per_task"])
    bare = {row["key"] for row in annotations} - {row["key"] for row in verdicts}
    failed = sum(row["status"] == "failed" for row in annotations)
    more = {"prompts": len(bare), "no_pair_fewer_than_two_candidates": len(bare), "candidates_failed": failed}
    counts.update({name: number for name, number in more.items() if number})
    return chosen, counts


def _choose(
    rows: Iterable[records.Row],
    pairs_of: Callable[[Rows, Counter], tuple[Sequence[tiers.TrainingPair], Damages]],
    most: int,
) -> tuple[list[Chosen], Counter]:
    """What `pairs_of` each prompt's rows, prompt by prompt in the rows' order, up to `most` prompts with a pair."""
    chosen: list[Chosen] = []
    counts: Counter = Counter(prompts=0, prompts_with_pair=0)
    for key, its in records.grouped(rows, "key").items():
        if counts["prompts_with_pair"] >= most:
            counts["prompts_beyond_cap"] += 1
            continue
        pairs, damages = pairs_of(its, counts)
        counts.update(prompts=1, prompts_with_pair=int(bool(pairs)))
        chosen += [Chosen(key, pair, {m: damages[m] for m in (pair.winner, pair.loser)}) for pair in pairs]
    return chosen, counts


def to_rows(
    chosen: Iterable[Chosen],
    instructions: Mapping[str, str],
    annotations: Rows,
    seed: int,
    more: Mapping[str, Rows] | None = None,
) -> Rows:
    """Training pairs of a task, A and B drawn from the seed.

    instructions: by prompt. annotations: of the task, with the images' SHA-256. more: {name, sha256} of the other
    pictures that a prompt's edits are made from."""
    rows, edits = [], {(row["key"], row["model"]): row for row in annotations}
    for item in chosen:
        pair, where = item.pair, item.prompt
        key = keys.plain(f"{where}.{pair.winner}.{pair.loser}")
        rng = np.random.default_rng([seed, *resume.fingerprint(key).encode()])
        a, b = (pair.loser, pair.winner) if rng.random() < 0.5 else (pair.winner, pair.loser)
        first, second = edits[where, a], edits[where, b]
        row: records.Row = {"key": key, "prompt": where, "task": first["task"], "instruction": instructions[where]}
        row |= {"winner": "Image A" if a == pair.winner else "Image B", "model_a": a, "model_b": b}
        row |= {"tiers": pair.tiers, "margin": None if pair.margin is None else round(pair.margin, 6)}
        row |= {"damage_a": item.damage[a], "damage_b": item.damage[b]}
        row |= {"source_sha256": first["source_sha256"]}
        row |= {"sha256_a": first["edit_sha256"], "sha256_b": second["edit_sha256"]}
        rows.append(row | ({"shown": more[where]} if more and where in more else {}))
    return rows


def in_pool(task: str) -> tuple[dict[str, str], dict[str, Rows]]:
    """The instructions of a task's prompts, and {name, sha256} of their sources behind the first, if there are any."""
    asked, more, file = dict[str, str](), dict[str, Rows](), Path(f"data/pools/{task}.parquet")
    columns = [name for name in ("key", "instruction", "shown") if name in pq.read_schema(file).names]
    for batch in pq.ParquetFile(file).iter_batches(records.ROW_GROUP, columns=columns):
        for row in batch.to_pylist():
            asked[row["key"]] = row["instruction"]
            if shown := records.references(row).items():
                more[row["key"]] = [{"name": name, "sha256": sha256(bytes(image)).hexdigest()} for name, image in shown]
    return asked, more


def truth(chosen: Iterable[Chosen]) -> Counter[str]:
    """How many pairs name the truly less damaged side; equal damages make the pair wrong."""
    counts = Counter[str]()
    for item in chosen:
        won, lost = item.damage[item.pair.winner], item.damage[item.pair.loser]
        if won is None or lost is None:
            counts["unknown"] += 1
        else:
            counts["right" if won < lost else "wrong" if won > lost else "equal"] += 1
    return counts


def share_right(counts: Counter[str]) -> float | None:
    """Of the pairs whose truth is known; None where there is none."""
    known = sum(counts[name] for name in TRUTHS[:3])
    return round(counts["right"] / known, 4) if known else None


def report(tallies: Mapping[str, tuple[Counter, Counter[str], Counter[str]]]) -> dict[str, Any]:
    """metrics/train_pairs.json; the details are lists, which `dvc metrics` leaves out.

    tallies: of each task the counts of `choose`, of `truth`, and of the pairs' tiers."""
    total, known, tiers_of = (sum((own[n] for own in tallies.values()), Counter[str]()) for n in range(3))
    share = share_right(known)
    return {
        "pairs": tiers_of.total(),
        "share_right": share,
        "prompts_without_pair": total["prompts"] - total["prompts_with_pair"],
        "known_truth": [{name: known[name] for name in TRUTHS} | {"share_right": share}],
        "per_tier": [{"tiers": name, "pairs": number} for name, number in sorted(tiers_of.items())],
        "per_task": [
            {"task": task, "pairs": its.total(), "share_right": share_right(own), **counts}
            for task, (counts, own, its) in tallies.items()
        ],
        "total": [dict(total)],
    }


def run() -> None:
    values, tallies = params.load(), {}
    setting = vars(section(values, "train_pairs", tiers.PairsSetting))
    recipes = load_recipes(params.leaf(values, "tasks"))
    # All rules, before a file of any task is read: they may be wrong.
    rules = {task: tiers.rules_in(values, recipe) for task, recipe in recipes.items() if recipe.judge is None}
    with records.row_writer(Path("data/train_pairs.parquet"), "train_pairs") as out:
        for task in recipes:
            annotations = records.read(Path(f"data/annotations/{task}.parquet"), "annotations")
            if task in rules:
                chosen, counts = choose(annotations, setting, rules[task])
            else:
                verdicts = records.read(Path(f"data/pair_verdicts/{task}.parquet"), "pair_verdicts")
                chosen, counts = choose_judged(verdicts, annotations, setting)
            tallies[task] = counts, truth(chosen), Counter(item.pair.tiers for item in chosen)
            asked, more = in_pool(task)
            for row in to_rows(chosen, asked, annotations, setting["seed"], more):
                out.add(row)
    records.write_details(Path("metrics/train_pairs.json"), report(tallies))
    if without := [task for task, (*_, its) in tallies.items() if not its]:
        print(f"train_pairs: no pair of {', '.join(without)}; metrics/train_pairs.json says why", file=sys.stderr)


if __name__ == "__main__":
    stage(__doc__, run)
