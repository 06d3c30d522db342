"""Stage measure_response: how far each measure moves with known damage, on photos with hand-drawn regions.

An edit is carried out cleanly and then damaged as a whole, more and more, in two ways: made anew (`regenerated`) and
misaligned (`shifted`). Both reach every region, so that every measure is meant to see them. What is shown is the median
over all prompts of the measure's distance from its own value for the clean edit.
"""

from collections import defaultdict
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from editjudge.core import images, params, records
from editjudge.core.files import work
from editjudge.core.main import stage
from editjudge.core.settings import section
from editjudge.editors import procedural
from editjudge.engine import resume
from editjudge.engine.workers import spread
from editjudge.measures.annotation import batch, slot_settings, slots
from editjudge.measures.annotation.recipe import Recipe, load_recipes
from editjudge.measures.annotation.slot_settings import SlotSetting
from editjudge.measures.names import DIRECTIONS
from editjudge.sources.builtin import scenes
from editjudge.sources.settings import MeasureResponseSetting, RawPairs

KINDS = ("regenerated", "shifted")


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


Responses = dict[tuple[str, str], dict[float, list[tuple[float, float]]]]
"""Area and measure: strength: (known damage, distance from the clean edit's value) of each prompt and kind."""


def respond(ladders: list[Ladder], measured: list[list[dict[str, Any]]]) -> tuple[Responses, int]:
    """What each measure answered, and how many values are missing. measured: as batch.measure_all gives them."""
    responses: Responses = defaultdict(lambda: defaultdict(list))
    missing = 0
    for ladder, metas in zip(ladders, measured, strict=True):
        values = [{(m["area"], m["measure"]): m["value"] for m in meta["measures"]} for meta in metas]
        for strength, damage, edit in zip(ladder.strengths[1:], ladder.damages[1:], values[1:], strict=True):
            for name, clean in values[0].items():
                if clean is None or edit.get(name) is None:
                    missing += 1
                else:
                    responses[name][strength].append((damage, edit[name] - clean))
    return responses, missing


def to_rows(responses: Responses) -> list[records.Row]:
    """plots/measure_response.csv: a row for each area, measure and strength, the clean edit (all 0) first.

    damage: median known damage (ΔE). response, low, high: median and quartiles of the distance from the clean edit's
    value. edits: how many.
    """
    rows = []
    for (area, measure), steps in sorted(responses.items()):
        common = {"series": f"{measure}, {area}", "area": area, "measure": measure}
        edits = len(next(iter(steps.values())))
        rows.append(common | {"damage": 0.0, "response": 0.0, "low": 0.0, "high": 0.0, "edits": edits})
        for _, found in sorted(steps.items()):
            damage, response = np.array(found).T
            low, median, high = np.quantile(response, (0.25, 0.5, 0.75)).tolist()
            shown = {"damage": float(np.median(damage)), "response": median, "low": low, "high": high}
            rows.append(common | shown | {"edits": len(found)})
    return rows


def report(rows: list[records.Row], missing: int, failed: int) -> dict[str, Any]:
    """metrics/measure_response.json: which measures get worse with each step of damage, in the median."""
    series: dict[tuple[str, str], list[float]] = defaultdict(list)
    for row in rows:
        series[row["area"], row["measure"]].append(row["response"] * DIRECTIONS[row["measure"]])
    falls = {name: bool(np.all(np.diff(values) < 0)) for name, values in series.items()}
    return {
        "measures": len(falls),
        "monotone": sum(falls.values()),
        "failed": failed,
        "unscored": missing,
        "not_monotone": [{"area": area, "measure": name} for (area, name), so in sorted(falls.items()) if not so],
    }


def measure(
    ladders: list[Ladder], recipes: dict[str, Recipe], setting: SlotSetting, cache: resume.RecordCache
) -> list[list[dict[str, Any]]]:
    asked = [
        batch.Original(
            ladder.prompt["image"],
            tuple(tuple(region["box"]) for region in ladder.prompt["regions"]),
            recipes[ladder.prompt["task"]],
            tuple(batch.Altered(image) for image in ladder.edited),
        )
        for ladder in ladders
    ]
    return batch.measure_all(asked, setting, cache, "measures of damaged edits")


def run() -> None:
    values = params.load()
    setting = section(values, "measure_response", MeasureResponseSetting)
    side = section(values, "raw_pairs", RawPairs).image_side
    tasks: dict[str, str] = params.leaf(values, "tasks")
    recipes = load_recipes(tasks)
    models = section(values, "measures", SlotSetting)
    measured_tasks = [task for task, recipe in recipes.items() if recipe.areas and task in scenes.EDITS]
    for task in measured_tasks:
        slots.check(slot_settings.used(recipes[task], models), models)
    count, seed = setting.per_task, setting.seed
    prompts = [prompt for task in measured_tasks for prompt in scenes.make_pairs(task, "train", count, side, seed)]
    ladders = spread(partial(climb, strengths=setting.strengths, seed=seed), prompts, "damaged edits")
    with resume.RecordCache(work("measure_response.sqlite")) as cache:
        measured = measure(ladders, recipes, models, cache)
        records.write_json(Path("metrics/resume/measure_response.json"), cache.counts())
    responses, missing = respond(ladders, measured)
    rows = to_rows(responses)
    failed = sum(meta["status"] == "failed" for metas in measured for meta in metas)
    records.write_csv(Path("plots/measure_response.csv"), rows)
    records.write_details(Path("metrics/measure_response.json"), report(rows, missing, failed))


if __name__ == "__main__":
    stage(__doc__, run)
