"""Stage scorer_data: what a scorer learns from, of the source that params.yaml names: edits with scores, or pairs.

A source is a function in SOURCES, and a class of settings of the same name in scorers/data_settings.py. It gives rows
of stages/scorer_data.schema.json one after the other. Images that stand in no file yet go to `images.add`, which
answers with the name and the SHA-256 that a row needs; others are named where they stand: `<Parquet file>/<key>`.
"""

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from editjudge.core import images, params, records, workers
from editjudge.core.main import stage
from editjudge.editors.procedural import edits as procedural
from editjudge.probe import scenes
from editjudge.scorers.data_settings import ProbeSource, read_source


class ImageFile:
    """The images of a data set, written once each to a Parquet file, under their SHA-256."""

    def __init__(self, path: Path, out: records.RowWriter) -> None:
        self.path, self.out, self.written = path, out, set[str]()

    def add(self, image: bytes) -> tuple[str, str]:
        """The image's name and SHA-256, as a row of scorer_data has them."""
        digest = hashlib.sha256(image).hexdigest()
        if digest not in self.written:
            self.out.add({"key": digest, "image": image})
            self.written.add(digest)
        return f"{self.path}/{digest}", digest


Source: TypeAlias = Callable[[Any, ImageFile], Iterator[records.Row]]

# The probe set: edits whose two dimensions are known, as each of them is chosen apart from the other.
FOLLOWING, QUALITY = "instruction_following", "visual_quality"
WAYS = ((True, False), (True, True), (False, True), (False, False))  # carried out?, damaged?
BEST, RANGE = 4.0, 3.0  # scores are in 1..4, as EditReward's are
WORST = 12.0  # mean ΔE at and above which an edit has the worst quality


def make_edits(prompt: records.Row, seed: int) -> list[tuple[bytes, dict[str, float]]]:
    """An edit of each of WAYS, with its true scores.

    What was carried out has the highest score of the first dimension, what was not the lowest; the second falls with
    the damage, mean ΔE outside of what was asked for, whose kind and strength are drawn for each edit.
    """
    rng = np.random.default_rng([seed, *prompt["key"].encode()])
    source = images.decode(prompt["image"])
    done = procedural.carry_out(source, procedural.parse_edit(prompt["edit"]))
    left = procedural.Scene(source, done.edit, done.mask, source, done.preserve)
    made = []
    for carried_out, damaged in WAYS:
        scene = done if carried_out else left
        image = scene.clean
        if damaged:
            kind = str(rng.choice(["leaky", "regenerated", "shifted"]))  # `box` would carry the edit out
            image = procedural.DAMAGES[kind](scene, float(rng.uniform(0.2, 1.0)), rng)
        damage = procedural.damage_of(scene, image)
        quality = BEST - RANGE * min(damage / WORST, 1.0)
        scores = {FOLLOWING: BEST if carried_out else BEST - RANGE, QUALITY: round(quality, 4)}
        made.append((images.encode_png(image), scores))
    return made


def probe(setting: ProbeSource, to: ImageFile) -> Iterator[records.Row]:
    """All pairs of each prompt's edits, from training photos to learn from and from held-out ones to test.

    The better edit as a whole is the one with the higher mean of its two scores.
    """
    for role, part, count in (("train", "train", setting.per_task), ("benchmark", "test", setting.test_per_task)):
        prompts = [p for t in setting.tasks for p in scenes.make_pairs(t, role, count, setting.side, setting.seed)]
        made = workers.spread(partial(make_edits, seed=setting.seed), prompts, f"edits of the probe set, {part}")
        for prompt, edits in zip(prompts, made, strict=True):
            yield from pairs_of(prompt, edits, part, to)


def pairs_of(
    prompt: records.Row, edits: Sequence[tuple[bytes, dict[str, float]]], part: str, to: ImageFile
) -> Iterator[records.Row]:
    """Every two edits of a prompt as a row."""
    source, source_sha256 = to.add(prompt["image"])
    named = [(to.add(image), scores, sum(scores.values()) / len(scores)) for image, scores in edits]
    rng = np.random.default_rng([*prompt["key"].encode()])
    for i in range(len(named)):
        for j in range(i):
            first, second = (i, j) if rng.random() < 0.5 else (j, i)
            ((edit_a, sha256_a), scores_a, overall_a) = named[first]
            ((edit_b, sha256_b), scores_b, overall_b) = named[second]
            yield {
                "key": f"{prompt['key']}.{first}.{second}",
                "part": part,
                "prompt": prompt["key"],
                "task": prompt["task"],
                "origin": prompt["origin"],
                "instruction": prompt["instruction"],
                "source": source,
                "source_sha256": source_sha256,
                "edit_a": edit_a,
                "sha256_a": sha256_a,
                "edit_b": edit_b,
                "sha256_b": sha256_b,
                "model_a": None,
                "model_b": None,
                "scores_a": listed(scores_a),
                "scores_b": listed(scores_b),
                "overall_a": overall_a,
                "overall_b": overall_b,
                "winner": winner(overall_a, overall_b),
                "rule": "known truth of the probe set",
            }


def listed(scores: Mapping[str, float]) -> list[dict[str, Any]]:
    """Scores by dimension as a row has them."""
    return [{"dimension": dimension, "score": score} for dimension, score in sorted(scores.items())]


def winner(a: float, b: float) -> str:
    return "Tie" if a == b else "Image A" if a > b else "Image B"


SOURCES: dict[str, Source] = {"probe": probe}


def report(rows: Iterable[records.Row]) -> dict[str, Any]:
    """How many rows there are of each part, task, winner and rule."""
    counts = {name: Counter[str]() for name in ("part", "task", "winner", "rule")}
    number = 0
    for row in rows:
        number += 1
        for name, counter in counts.items():
            counter[str(row[name])] += 1
    return {"rows": number} | {
        f"per_{name}": [{name: value, "rows": count} for value, count in sorted(counter.items())]
        for name, counter in counts.items()
    }


def run(name: str) -> None:
    setting = read_source(f"scorer_data.{name}", params.leaf(params.load(), "scorer_data")[name])
    rows, pictures = Path(f"data/scorer_data/{name}.parquet"), Path(f"data/scorer_images/{name}.parquet")
    with records.RowWriter(pictures, "scorer_images") as images_out, records.RowWriter(rows, "scorer_data") as out:
        for row in SOURCES[setting.source](setting, ImageFile(pictures, images_out)):
            out.add(row)
    records.write_details(Path(f"metrics/scorer_data/{name}.json"), report(records.iterate(rows, "scorer_data")))


if __name__ == "__main__":
    stage(__doc__, run, "name")
