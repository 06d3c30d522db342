"""How far does each measure move with known damage? On photos with hand-drawn regions, with the models of `measures`.

    python -m tools.measure_response [--per-task 12] [--seed 5] [--out response.csv]

An edit is carried out cleanly and then damaged as a whole, more and more, in two ways: made anew (`regenerated`) and
misaligned (`shifted`). Both reach every region, so that every measure is meant to see them. What is shown is the median
over all prompts of the measure's distance from its own value for the clean edit."""

import json
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from cyclopts import App

from editjudge.core import images, params, records
from editjudge.core.files import work
from editjudge.core.main import guarded
from editjudge.core.settings import section
from editjudge.editors import procedural
from editjudge.engine import resume
from editjudge.engine.workers import spread
from editjudge.measures.annotation import batch, slot_settings, slots
from editjudge.measures.annotation.recipe import load_recipes
from editjudge.measures.annotation.slot_settings import SlotSetting
from editjudge.measures.names import DIRECTIONS
from editjudge.sources.builtin import scenes
from editjudge.sources.settings import RawPairs

KINDS = ("regenerated", "shifted")
STRENGTHS = [0.125, 0.25, 0.5, 1.0]  # of the damage; 1 is the strongest that the embedded editors do


@dataclass(frozen=True)
class Ladder:
    """The edits of one prompt. damages: known damage (mean ΔE) of each, 0 for the clean one, which comes first."""

    prompt: records.Row
    strengths: tuple[float, ...]
    damages: tuple[float, ...]
    edited: tuple[bytes, ...]


def climb(prompt: records.Row, strengths: list[float], seed: int) -> Ladder:
    """The clean edit of a prompt and its damaged forms, one for each kind and strength (above 0, at most 1)."""
    scene = procedural.carry_out(images.decode(prompt["image"]), procedural.parse_edit(prompt["edit"]))
    rungs = [(kind, strength) for kind in KINDS for strength in strengths]
    seeds = {kind: [seed, n, *prompt["key"].encode()] for n, kind in enumerate(KINDS)}
    made = [procedural.DAMAGES[kind](scene, strength, np.random.default_rng(seeds[kind])) for kind, strength in rungs]
    return Ladder(
        prompt,
        (0.0, *(strength for _, strength in rungs)),
        (0.0, *(procedural.damage_of(scene, image) for image in made)),
        tuple(images.encode_png(image) for image in (scene.clean, *made)),
    )


def respond(ladders: list[Ladder], measured: list[list[dict[str, Any]]]) -> tuple[pd.DataFrame, int]:
    """What each measure answered, and how many values are missing. measured: as batch.measure_all gives them.

    The table has a row for each area, measure, prompt, kind and strength of damage, with the known `damage` and the
    `response`, the distance from the clean edit's value."""
    found, missing = [], 0
    for ladder, metas in zip(ladders, measured, strict=True):
        clean, *others = ({(m["area"], m["measure"]): m["value"] for m in meta["measures"]} for meta in metas)
        for strength, damage, edit in zip(ladder.strengths[1:], ladder.damages[1:], others, strict=True):
            for name, value in clean.items():
                if value is None or edit.get(name) is None:
                    missing += 1
                else:
                    found.append((*name, strength, damage, edit[name] - value))
    return pd.DataFrame(found, columns=["area", "measure", "strength", "damage", "response"]), missing


def to_rows(responses: pd.DataFrame) -> list[records.Row]:
    """A row for each area, measure and strength, the clean edit (all 0) first.

    damage: median known damage (ΔE). response, low, high: median and quartiles of the distance from the clean edit's
    value. edits: how many."""
    rows = []
    for (area, measure), own in responses.groupby(["area", "measure"]):
        common = {"series": f"{measure}, {area}", "area": area, "measure": measure}
        edits = int((own["strength"] == own["strength"].iloc[0]).sum())
        rows.append(common | {"damage": 0.0, "response": 0.0, "low": 0.0, "high": 0.0, "edits": edits})
        for _, step in own.groupby("strength"):
            low, median, high = np.quantile(step["response"], (0.25, 0.5, 0.75)).tolist()
            shown = {"damage": float(np.median(step["damage"])), "response": median, "low": low, "high": high}
            rows.append(common | shown | {"edits": len(step)})
    return rows


def report(rows: list[records.Row], missing: int, failed: int) -> dict[str, Any]:
    """Which measures get worse with each step of damage, in the median."""
    series = records.grouped(rows, "area", "measure").items()
    steps = {name: np.diff([row["response"] * DIRECTIONS[name[1]] for row in its]) for name, its in series}
    wrong = sorted(name for name, each in steps.items() if not (each < 0).all())
    return {
        "measures": len(steps),
        "monotone": len(steps) - len(wrong),
        "failed": failed,
        "unscored": missing,
        "not_monotone": [{"area": area, "measure": name} for area, name in wrong],
    }


def main(*, per_task: int = 12, seed: int = 5, out: Path | None = None) -> None:
    """Prints which measures get worse with each step of damage.

    per_task: prompts of each task. out: a CSV file of each measure's response, a row a strength."""
    values = params.load()
    side = section(values, "raw_pairs", RawPairs).image_side
    models, recipes = section(values, "measures", SlotSetting), load_recipes(params.leaf(values, "tasks"))
    recipes = {task: recipe for task, recipe in recipes.items() if recipe.areas and task in scenes.EDITS}
    for recipe in recipes.values():
        slots.check(slot_settings.used(recipe, models), models)
    prompts = [prompt for task in recipes for prompt in scenes.make_pairs(task, "train", per_task, side, seed)]
    ladders = spread(partial(climb, strengths=STRENGTHS, seed=seed), prompts, "damaged edits")
    asked = []
    for ladder in ladders:
        boxes = tuple(tuple(region["box"]) for region in ladder.prompt["regions"])
        edits, recipe = tuple(batch.Altered(image) for image in ladder.edited), recipes[ladder.prompt["task"]]
        asked.append(batch.Original(ladder.prompt["image"], boxes, recipe, edits))
    with resume.RecordCache(work("measure_response.sqlite")) as cache:
        measured = list(batch.measure_all(asked, recipes.values(), models, cache, "measures of damaged edits"))
    responses, missing = respond(ladders, measured)
    rows = to_rows(responses)
    failed = sum(meta["status"] == "failed" for metas in measured for meta in metas)
    print(json.dumps(report(rows, missing, failed), indent=2))
    if out:
        records.write_csv(out, rows)


if __name__ == "__main__":
    with guarded():
        App(help=__doc__, default_command=main)()
