"""Stage scorer_data: what a scorer learns from, of the source that params.yaml names: edits with scores, or pairs.

A source is a function in SOURCES, and a class of settings of the same name in labels/rows.py. It gives rows
of stages/scorer_data.schema.json one after the other. Images that stand in no file yet go to `images.add`, which
answers with the name and the SHA-256 that a row needs; others are named where they stand: `<Parquet file>/<key>`."""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from editjudge.core import images, params, records
from editjudge.core.main import stage
from editjudge.core.settings import section
from editjudge.core.winner import ahead
from editjudge.editors import procedural
from editjudge.engine import workers
from editjudge.labels import adiee, published, rows, scored, tiers
from editjudge.labels.rows import AnnotationsSource, ImageSink, LabelSource, ProbeSource
from editjudge.measures.annotation.recipe import load_recipe
from editjudge.sources.builtin import scenes

# The probe set: edits whose two dimensions are known, as each of them is chosen apart from the other.
FOLLOWING, QUALITY = "instruction_following", "visual_quality"
WAYS = ((True, False), (True, True), (False, True), (False, False))  # carried out?, damaged?
BEST, RANGE = 4.0, 3.0  # scores are in 1..4, as EditReward's are
WORST = 12.0  # mean ΔE at and above which an edit has the worst quality
RATED_BEST, RATED_RANGE = 5, 4  # ratings are whole numbers in 1..5, as ImgEdit's are
KNOWN = "known truth of the probe set"


def make_edits(prompt: records.Row, seed: int, rated: bool = False) -> list[tuple[bytes, dict[str, float]]]:
    """An edit of each of WAYS, with its true scores.

    What was carried out has the highest score of the first dimension, what was not the lowest; the second falls with
    the damage, mean ΔE outside of what was asked for, whose kind and strength are drawn for each edit. rated: whole
    numbers 1..5, adherence and preservation alike, and quality by the damage to the whole image, against the same edit
    without damage."""
    rng = np.random.default_rng([seed, *prompt["key"].encode()])
    source, made = images.decode(prompt["image"]), []
    done = procedural.carry_out(source, procedural.parse_edit(prompt["edit"]))
    left = procedural.Scene(source, done.edit, done.mask, source, done.preserve)
    for carried_out, damaged in WAYS:
        scene = done if carried_out else left
        image = scene.clean
        if damaged:
            kind = str(rng.choice(["leaky", "regenerated", "shifted"]))  # `box` would carry the edit out
            image = procedural.DAMAGES[kind](scene, float(rng.uniform(0.2, 1.0)), rng)
        if rated:
            scores = {"adherence": float(RATED_BEST if carried_out else RATED_BEST - RATED_RANGE)}
            everywhere = replace(scene, preserve=np.ones_like(scene.preserve))
            for name, seen in (("preservation", scene), ("quality", everywhere)):
                lost = min(procedural.damage_of(seen, image) / WORST, 1.0)
                scores[name] = float(math.floor(RATED_BEST - RATED_RANGE * lost + 0.5))
        else:
            quality = BEST - RANGE * min(procedural.damage_of(scene, image) / WORST, 1.0)
            scores = {FOLLOWING: BEST if carried_out else BEST - RANGE, QUALITY: round(quality, 4)}
        made.append((images.encode_png(image), scores))
    return made


def probe(setting: ProbeSource, to: ImageSink) -> Iterator[records.Row]:
    """All pairs of each prompt's edits (probe_ratings: the edits, one a row, with their ratings), from training photos
    to learn from and from held-out ones to test.

    The better edit as a whole is the one with the higher mean of its two scores."""
    make = partial(make_edits, seed=setting.seed, rated=setting.source == "probe_ratings")
    for role, part, count in (("train", "train", setting.per_task), ("benchmark", "test", setting.test_per_task)):
        prompts = [p for t in setting.tasks for p in scenes.make_pairs(t, role, count, setting.side, setting.seed)]
        made = workers.spread(make, prompts, f"edits of the probe set, {part}")
        for p, edits in zip(prompts, made, strict=True):
            common = (p["key"], p["task"], p["instruction"], to.add(p["image"]))
            more = {"origin": p["origin"], "part": part, "rule": KNOWN}
            if setting.source == "probe_ratings":
                for n, (image, scores) in enumerate(edits):
                    edit = rows.LabelledEdit(*to.add(image), scores=scores)
                    yield rows.row(f"{p['key']}.{n}", *common, edit, **more)
                continue
            overall = [sum(scores.values()) / len(scores) for _, scores in edits]
            both = zip(edits, overall, strict=True)
            shown = [rows.LabelledEdit(*to.add(image), None, scores, mean) for (image, scores), mean in both]
            rng = np.random.default_rng([*p["key"].encode()])
            for i, j in ((n, m) for n in range(len(shown)) for m in range(n)):
                a, b = (i, j) if rng.random() < 0.5 else (j, i)
                winner = ahead(overall[a] - overall[b])
                yield rows.row(f"{p['key']}.{a}.{b}", *common, shown[a], shown[b], winner=winner, **more)


def annotations(setting: AnnotationsSource, to: ImageSink) -> Iterator[records.Row]:
    """Pairs of the pipeline's annotations, by the rules of train_pairs. ParamsError: a task has no measures."""
    values = params.load()
    pairs = section(values, "train_pairs", tiers.PairsSetting)
    for task in setting.tasks:
        recipe = load_recipe(Path(f"pipelines/{params.leaf(values, f'tasks.{task}')}/{task}.yaml"))
        if recipe.judge is not None:
            raise params.ParamsError(f"scorer_data: {task} is judged by VLMs: it has no measures")
        rules = tiers.rules_in(values, recipe)
        pool = records.iterate(Path(f"data/pools/{task}.parquet"), "pools", "image")
        prompts = {row["key"]: row for row in pool}
        annotated = records.iterate(Path(f"data/annotations/{task}.parquet"), "annotations")
        yield from scored.rows(task, annotated, prompts, rules, pairs, setting.test_share, to.dropped)


SOURCES: dict[str, Callable[[Any, ImageSink], Iterator[records.Row]]] = {
    "probe": probe,
    "probe_ratings": probe,
    "ratings": published.ratings,
    "annotations": annotations,
    "editreward": published.preferences,
    "adiee": adiee.rows,
}
DROPPED = {"annotations": "edits", "adiee": "edits", "editreward": "samples", "ratings": "rows"}  # what each can drop


def report(found: Iterable[records.Row]) -> dict[str, Any]:
    """How many rows there are of each part, task, winner and rule."""
    names = ("part", "task", "winner", "rule")
    seen = [[str(row[name]) for name in names] for row in found]
    told: dict[str, Any] = {"rows": len(seen)}
    for n, name in enumerate(names):
        counts = sorted(Counter(row[n] for row in seen).items())
        told[f"per_{name}"] = [{name: value, "rows": count} for value, count in counts]
    return told


def run(name: str) -> None:
    setting = section(params.load(), f"scorer_data.{name}", LabelSource)
    table, pictures = Path(f"data/scorer_data/{name}.parquet"), Path(f"data/scorer_images/{name}.parquet")
    with records.row_writer(pictures, "scorer_images") as images_out, records.row_writer(table, "scorer_data") as out:
        to = ImageSink(pictures, images_out.add)
        for row in SOURCES[setting.source](setting, to):
            out.add(row)
    told = report(records.iterate(table, "scorer_data")) | to.report
    if unit := DROPPED.get(setting.source):
        told["dropped"] = [{"reason": reason, unit: count} for reason, count in sorted(to.dropped.items())]
    records.write_details(Path(f"metrics/scorer_data/{name}.json"), told)


if __name__ == "__main__":
    stage(__doc__, run, "name")
