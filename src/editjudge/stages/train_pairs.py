"""Stage train_pairs: pairs of edits, the better one known by measures or by VLM judges, from all tasks' annotations."""

import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self, TypeAlias

import numpy as np
import pyarrow.parquet as pq

from editjudge.core import keys, params, records
from editjudge.core.main import stage
from editjudge.core.settings import read, section
from editjudge.engine import resume
from editjudge.labels import rules as tier_rules
from editjudge.labels import tiers
from editjudge.measures.annotation import slot_settings
from editjudge.measures.annotation.recipe import Recipe, load_recipe
from editjudge.measures.annotation.slot_settings import SlotSetting

Rows = list[records.Row]
Damages: TypeAlias = Mapping[tuple[str, str], float | None]  # by prompt and model
Sums: TypeAlias = Mapping[tuple[str, str, str], tuple[str, str]]
TRUTHS = ("right", "wrong", "equal", "unknown")


@dataclass(frozen=True)
class Chosen:
    """A pair of candidates of one prompt."""

    prompt: str
    task: str
    pair: tiers.TrainingPair
    damage: Mapping[str, float | None]  # model: known damage


def choose(
    annotations: Iterable[records.Row], setting: Mapping[str, Any], task: str, rules: Sequence[tiers.AreaRule]
) -> tuple[list[Chosen], Counter]:
    """The pairs of a task with measures, and counts of what was left out and why.

    A candidate counts where it was measured and really edited: one that changed by less than `least_change` where the
    edit must show would teach the judge to prefer doing nothing. Stops after `prompts_per_task` prompts with a pair.
    """

    def pairs_of(rows: Rows, counts: Counter) -> Sequence[tiers.TrainingPair]:
        candidates = tiers.edited(rows, setting["least_change"], counts)
        outcome = tiers.build_pairs(candidates, rules, mode=setting["mode"], margin=setting["margin"])
        counts["prompts"] += 1
        counts["candidates_unscored"] += len(outcome.unscored)
        counts["prompts_with_pair"] += bool(outcome.pairs)
        if outcome.reason is not None:
            counts[f"no_pair_{outcome.reason}"] += 1
        counts.update({f"dropped_{reason}": number for reason, number in outcome.dropped.items()})
        return outcome.pairs

    annotations = list(annotations)
    damages = {(row["key"], row["model"]): row["damage"] for row in annotations}
    return _choose(annotations, pairs_of, damages, setting["prompts_per_task"], task)


def choose_judged(
    verdicts: Iterable[records.Row], annotations: Iterable[records.Row], setting: Mapping[str, Any], task: str
) -> tuple[list[Chosen], Counter]:
    """The pairs of a task that VLM judges compared, and counts of what was left out and why.

    A Tie teaches nothing, a pair without a verdict is no pair, and one of its edits may have changed less than
    `least_change`, as the task's annotations say; see `choose`, also for the cap.
    """
    annotations, verdicts = list(annotations), list(verdicts)
    changes = {(row["key"], row["model"]): row["change"] for row in annotations}

    def pairs_of(rows: Rows, counts: Counter) -> Sequence[tiers.TrainingPair]:
        counts["prompts"] += 1
        pairs = [pair for row in rows if (pair := _judged(row, changes, setting["least_change"], counts))]
        counts["prompts_with_pair"] += bool(pairs)
        return pairs

    sides = [(row, side) for row in verdicts for side in "ab"]
    damages = {(row["key"], row[f"model_{side}"]): row[f"damage_{side}"] for row, side in sides}
    chosen, counts = _choose(verdicts, pairs_of, damages, setting["prompts_per_task"], task)
    _count_uncompared(verdicts, annotations, counts)
    return chosen, counts


def _count_uncompared(verdicts: Rows, annotations: Rows, counts: Counter) -> None:
    """Prompts of which no pair could be asked for want of edits, as they are counted where measures decide."""
    bare = {row["key"] for row in annotations} - {row["key"] for row in verdicts}
    failed = sum(row["status"] == "failed" for row in annotations)
    more = {"prompts": len(bare), "no_pair_fewer_than_two_candidates": len(bare), "candidates_failed": failed}
    counts.update({name: number for name, number in more.items() if number})


def _choose(
    rows: Rows,
    pairs_of: Callable[[Rows, Counter], Sequence[tiers.TrainingPair]],
    damages: Damages,
    most: int,
    task: str,
) -> tuple[list[Chosen], Counter]:
    """What `pairs_of` each prompt's rows, prompt by prompt in the rows' order, up to `most` prompts with a pair."""
    chosen: list[Chosen] = []
    counts: Counter = Counter(prompts=0, prompts_with_pair=0)
    for key, its in records.grouped(rows, "key").items():
        if counts["prompts_with_pair"] >= most:
            counts["prompts_beyond_cap"] += 1
            continue
        for pair in pairs_of(its, counts):
            damage = {model: damages[key, model] for model in (pair.winner, pair.loser)}
            chosen.append(Chosen(key, task, pair, damage))
    return chosen, counts


def _judged(
    row: records.Row, changes: Mapping[tuple[str, str], float | None], least_change: float, counts: Counter
) -> tiers.TrainingPair | None:
    """The pair of a verdict; None, counted, where there is none."""
    models = (row["model_a"], row["model_b"])
    known = [change for model in models if (change := changes.get((row["key"], model))) is not None]
    if any(change < least_change for change in known):
        counts["dropped_unedited"] += 1
    elif row["status"] != "done":
        counts[f"dropped_{row['status']}"] += 1
    elif row["winner"] == "Tie":
        counts["dropped_tie"] += 1
    else:
        winner, loser = models if row["winner"] == "Image A" else models[::-1]
        return tiers.TrainingPair(winner, loser, tiers.JUDGED, None)
    return None


def to_rows(chosen: list[Chosen], instructions: Mapping[tuple[str, str], str], sums: Sums, seed: int) -> Rows:
    """Training pairs, A and B drawn from the seed. instructions: by task and prompt; sums: also by model."""
    rows = []
    for item in chosen:
        winner, loser = item.pair.winner, item.pair.loser
        key = keys.plain(f"{item.prompt}.{winner}.{loser}")
        rng = np.random.default_rng([seed, *resume.fingerprint(key).encode()])
        a, b = (loser, winner) if rng.random() < 0.5 else (winner, loser)
        rows.append(
            {
                "key": key,
                "prompt": item.prompt,
                "task": item.task,
                "instruction": instructions[item.task, item.prompt],
                "winner": "Image A" if a == winner else "Image B",
                "model_a": a,
                "model_b": b,
                "tiers": item.pair.tiers,
                "margin": None if item.pair.margin is None else round(item.pair.margin, 6),
                "damage_a": item.damage[a],
                "damage_b": item.damage[b],
                "source_sha256": sums[item.task, item.prompt, a][0],
                "sha256_a": sums[item.task, item.prompt, a][1],
                "sha256_b": sums[item.task, item.prompt, b][1],
            }
        )
    return rows


def truth(chosen: Sequence[Chosen]) -> dict[str, Any]:
    """How many pairs name the truly less damaged side; equal damages make the pair wrong."""
    counts = Counter[str]()
    for item in chosen:
        won, lost = item.damage[item.pair.winner], item.damage[item.pair.loser]
        if won is None or lost is None:
            counts["unknown"] += 1
        else:
            counts["right" if won < lost else "wrong" if won > lost else "equal"] += 1
    return with_share(counts)


def with_share(counts: Mapping[str, int]) -> dict[str, Any]:
    known = sum(counts[name] for name in TRUTHS[:3])
    share = round(counts["right"] / known, 4) if known else None
    return {name: counts[name] for name in TRUTHS} | {"share_right": share}


@dataclass(frozen=True)
class Tally:
    """What metrics say of a task's pairs."""

    counts: Counter
    truth: Mapping[str, Any]
    tiers: Counter

    @classmethod
    def of(cls, chosen: Sequence[Chosen], counts: Counter) -> Self:
        return cls(counts, truth(chosen), Counter(item.pair.tiers for item in chosen))

    @property
    def pairs(self) -> int:
        return self.tiers.total()


def report(tallies: Mapping[str, Tally]) -> dict[str, Any]:
    """metrics/train_pairs.json; the details are lists, which `dvc metrics` leaves out."""
    each = list(tallies.values())
    total = sum((own.counts for own in each), Counter[str]())
    tiers_of = sum((own.tiers for own in each), Counter[str]())
    known = with_share({name: sum(own.truth[name] for own in each) for name in TRUTHS})
    return {
        "pairs": tiers_of.total(),
        "share_right": known["share_right"],
        "prompts_without_pair": total["prompts"] - total["prompts_with_pair"],
        "known_truth": [known],
        "per_tier": [{"tiers": name, "pairs": number} for name, number in sorted(tiers_of.items())],
        "per_task": [
            {"task": task, "pairs": tally.pairs, "share_right": tally.truth["share_right"], **dict(tally.counts)}
            for task, tally in tallies.items()
        ],
        "total": [dict(total)],
    }


def choose_all(
    recipes: Mapping[str, Recipe], setting: Mapping[str, Any], missing: Mapping[str, str]
) -> Iterator[tuple[str, list[Chosen], Counter]]:
    """Every task with its pairs, from its files, one after the other. missing: unconfigured measures, and why.

    Raises ParamsError, before any file is read.
    """
    setting = vars(read("train_pairs", tier_rules.PairsSetting, setting))
    rules = {
        task: tier_rules.read_rules(recipe, setting["thresholds"], missing)
        for task, recipe in recipes.items()
        if recipe.judge is None
    }
    return ((task, *_choose_of(task, rules.get(task), setting)) for task in recipes)


def _choose_of(
    task: str, rules: Sequence[tiers.AreaRule] | None, setting: Mapping[str, Any]
) -> tuple[list[Chosen], Counter]:
    annotations = records.iterate(Path(f"data/annotations/{task}.parquet"), "annotations")
    if rules is not None:
        return choose(annotations, setting, task, rules)
    verdicts = records.iterate(Path(f"data/pair_verdicts/{task}.parquet"), "pair_verdicts")
    return choose_judged(verdicts, annotations, setting, task)


def rows_of(task: str, chosen: list[Chosen], seed: int) -> Rows:
    """The training pairs of a task, with what its files say of prompts and images."""
    pool = pq.read_table(f"data/pools/{task}.parquet", columns=["key", "instruction"]).to_pylist()
    columns = ["key", "model", "source_sha256", "edit_sha256"]
    images = pq.read_table(f"data/annotations/{task}.parquet", columns=columns).to_pylist()
    sums = {(task, row["key"], row["model"]): (row["source_sha256"], row["edit_sha256"]) for row in images}
    return to_rows(chosen, {(task, row["key"]): row["instruction"] for row in pool}, sums, seed)


def run() -> None:
    values = params.load()
    tasks, setting = params.leaf(values, "tasks"), params.leaf(values, "train_pairs")
    recipes = {task: load_recipe(Path(f"pipelines/{folder}/{task}.yaml")) for task, folder in tasks.items()}
    models = section(values, "measures", SlotSetting)
    every, tallies = choose_all(recipes, setting, slot_settings.unconfigured(models)), {}
    with records.RowWriter(Path("data/train_pairs.parquet"), "train_pairs") as out:
        for task, chosen, counts in every:
            tallies[task] = Tally.of(chosen, counts)
            for row in rows_of(task, chosen, setting["seed"]):
                out.add(row)
    records.write_details(Path("metrics/train_pairs.json"), report(tallies))
    without = [task for task, tally in tallies.items() if not tally.pairs]
    if without:
        print(f"train_pairs: no pair of {', '.join(without)}; metrics/train_pairs.json says why", file=sys.stderr)


if __name__ == "__main__":
    stage(__doc__, run)
