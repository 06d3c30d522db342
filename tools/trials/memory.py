"""Peak memory of four stages at the paper's size, on synthetic rows: train_pairs, annotate, train_judge's preparation
and compare_models.

Annotated are 18 tasks of 1,500 prompts and 13 editors; 180,180 of these candidates have images (770 prompts a task),
128,000 pairs are trained on, and 1,200 prompts of the arena are compared. Images are JPEGs of 96 x 96 pixels, filled up
with comments: to 8 KB, where real ones have a megabyte, so that all fit on 6 GB of disk; to 150 KB in the task that
annotate is measured on, and to 100 KB in the arena, so that to hold them all would show. The stages' own code runs on
files. Their record caches say of everything that it is known, so that no model runs: it is the handling of the data
that is measured. Processes that a stage starts are not counted.

    python -m tools.trials.memory [--share 1.0] [--folder FOLDER] [STAGE ...]

Prints the peak resident memory of each stage's process. Exit 1: one is above 4 GB.
"""

import argparse
import hashlib
import itertools
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from editjudge.core import portable

# ruff: noqa: E402
portable.set_up()  # before NumPy, OpenCV and torch are loaded

# isort: split
import cv2
import numpy as np
from ruamel.yaml import YAML

from editjudge.core import params, records
from editjudge.engine import resume
from editjudge.measures.annotation import slot_settings
from editjudge.measures.annotation.recipe import Recipe, load_recipe
from editjudge.measures.annotation.slot_settings import SlotSetting
from editjudge.stages import annotate, compare_models, train_judge, train_pairs

ROOT = Path(__file__).parents[2]
LIMIT = 4.0  # GB
PROMPTS, WITH_IMAGES, ARENA, PAIRS = 1_500, 770, 1_200, 128_000
EDITORS = [f"editor_{n:02}" for n in range(13)]
SMALL, LARGE, SHOWN = 8_000, 150_000, 100_000  # bytes of an image: of the task that is annotated, of the arena
LARGE_TASK = "color_alter"
OTHERS = {"oref": "object_centric", "subject_replace": "object_centric", "text_editing": "object_centric"}
OTHERS |= dict.fromkeys(("cref", "motion_change", "ps_human"), "human_centric")
OTHERS |= dict.fromkeys(("camera_motion", "enhancement", "sref", "style_transfer"), "vlm_as_a_judge")
STAGES = ("train_pairs", "annotate", "train_judge", "compare_models")


class Images:
    """JPEGs of any number of bytes, no two alike."""

    def __init__(self) -> None:
        self.rng = np.random.default_rng(0)
        ok, data = cv2.imencode(".jpg", self.rng.integers(0, 256, (96, 96, 3), dtype=np.uint8))
        assert ok
        self.body = data.tobytes()[2:]

    def __call__(self, size: int) -> bytes:
        missing = size - len(self.body) - 2
        parts = [b"\xff\xfe" + (len(own) + 2).to_bytes(2, "big") + own for own in self._comments(missing)]
        return b"\xff\xd8" + b"".join(parts) + self.body

    def _comments(self, missing: int) -> Iterator[bytes]:
        while missing > 0:
            yield self.rng.bytes(min(missing, 65_000))
            missing -= 65_000


class Files:
    """Writes what the stages read, a share of the paper's rows, in the folder that is current."""

    def __init__(self, share: float) -> None:
        self.image, self.rng = Images(), np.random.default_rng(1)
        self.prompts, self.with_images = max(2, round(PROMPTS * share)), max(2, round(WITH_IMAGES * share))
        self.arena, self.pairs = max(2, round(ARENA * share)), max(2, round(PAIRS * share))
        self.tasks: dict[str, str] = params.leaf(params.load(), "tasks")
        self.sums: dict[tuple[str, str, str], str] = {}  # task, prompt, model or "": SHA-256

    def write(self, stage: str) -> None:
        """What one stage reads, where it is not yet there."""
        if stage == "annotate":
            self.shown([LARGE_TASK])
        elif stage == "train_pairs":
            for task, pipeline in self.tasks.items():
                recipe = load_recipe(Path(f"pipelines/{pipeline}/{task}.yaml"))
                self.pool(task)
                records.write(Path(f"data/annotations/{task}.parquet"), self.annotations(task, recipe), "annotations")
                verdicts = self.verdicts(task) if recipe.judge else ()
                records.write(Path(f"data/pair_verdicts/{task}.parquet"), verdicts, "pair_verdicts")
        elif stage == "train_judge":
            self.shown(self.tasks)
            records.write(Path("data/given_pairs.parquet"), self.training(), "train_pairs")
        else:
            self.gallery()

    def shown(self, tasks: Iterable[str]) -> None:
        for task in tasks:
            self.pool(task)
            for model in EDITORS:
                if not Path(f"data/candidates/{model}/{task}.parquet").is_file():
                    self.candidates(task, model)

    def pool(self, task: str) -> None:
        if Path(f"data/pools/{task}.parquet").is_file():
            return
        region = {"label": "cup", "box": [10, 10, 60, 60], "mask": None}
        fixed = {"task": task, "edit": None, "origin": "synthetic", "source": "synthetic", "regions": [region]}
        with records.row_writer(Path(f"data/pools/{task}.parquet"), "pools") as out:
            for n in range(self.prompts):
                image = self.image(SMALL)
                self.sums[task, key(task, n), ""] = hashlib.sha256(image).hexdigest()
                words = f"Change the colour of cup number {n} to green, and leave everything else as it is."
                out.add({"key": key(task, n), "image": image, "instruction": words, **fixed})

    def candidates(self, task: str, model: str) -> None:
        size = LARGE if task == LARGE_TASK else SMALL
        with records.row_writer(Path(f"data/candidates/{model}/{task}.parquet"), "candidates") as out:
            for n in range(self.with_images):
                image = self.image(size)
                self.sums[task, key(task, n), model] = hashlib.sha256(image).hexdigest()
                out.add(candidate(key(task, n), task, model, image))

    def annotations(self, task: str, recipe: Recipe) -> Iterator[records.Row]:
        areas = slot_settings.configured(recipe, SlotSetting()).areas
        measures = [(area, name) for area, names in areas for name in names]
        for n, model in itertools.product(range(self.prompts), EDITORS):
            values = self.rng.random(len(measures)).round(6).tolist()
            taken = [
                {"area": area, "measure": name, "value": value, "reason": None}
                for (area, name), value in zip(measures, values, strict=True)
            ]
            yield {"key": key(task, n), "task": task, "model": model, "damage": None, **META, "measures": taken} | {
                "source_sha256": "5" * 64,
                "edit_sha256": "e" * 64,
            }

    def verdicts(self, task: str) -> Iterator[records.Row]:
        said = {
            "judge": "judge",
            "forward": "Image A",
            "backward": "Image A",
            "winner": "Image A",
            "p_a": 0.9,
            "reason": None,
        }
        fixed = {"task": task, "dimension": "visual_consistency", "damage_a": None, "damage_b": None, "status": "done"}
        fixed |= {"winner": "Image A", "p_a": 0.9, "reason": None, "verdicts": [said]}
        pairs = list(itertools.combinations(EDITORS, 2))[:6]
        for n, (a, b) in itertools.product(range(self.prompts), pairs):
            yield {"key": key(task, n), "model_a": a, "model_b": b, **fixed}

    def gallery(self) -> None:
        words = {"task": LARGE_TASK, "instruction": "Change the colour of the cup to green."}
        with records.row_writer(Path("data/gedit_bench.parquet"), "gedit_bench") as out:
            for n in range(self.arena):
                out.add({"key": key("arena", n), "source_image": {"bytes": self.image(SHOWN), "path": None}, **words})
        for model in EDITORS:
            with records.row_writer(Path(f"data/gallery/{model}.parquet"), "candidates") as out:
                for n in range(self.arena):
                    out.add(candidate(key("arena", n), LARGE_TASK, model, self.image(SHOWN)))

    def training(self) -> Iterator[records.Row]:
        """Pairs as the paper has them: keys, a label, and the sums of images."""
        pairs = itertools.combinations(EDITORS, 2)
        every = itertools.product(pairs, range(self.with_images), self.tasks)
        fixed = {"winner": "Image A", "tiers": "elite_over_failure", "margin": 1.0, "damage_a": None, "damage_b": None}
        fixed |= {"instruction": "Change the colour of the cup to green, and leave everything else as it is."}
        for (a, b), n, task in itertools.islice(every, self.pairs):
            prompt = key(task, n)
            sums = (self.sums[task, prompt, model] for model in ("", a, b))
            named = dict(zip(("source_sha256", "sha256_a", "sha256_b"), sums, strict=True))
            yield {
                "key": f"{prompt}.{a}.{b}",
                "prompt": prompt,
                "task": task,
                "model_a": a,
                "model_b": b,
                **named,
                **fixed,
            }


META: dict[str, Any] = {"status": "done", "reason": None, "change": 20.0, "edited_area_ratio": 0.2}


def key(task: str, n: int) -> str:
    return f"{task}_{n:05}"


def candidate(name: str, task: str, model: str, image: bytes) -> records.Row:
    done = {"image": image, "damage": None, "status": "done", "reason": None}
    return {"key": name, "task": task, "model": model, **done}


def settings() -> dict[str, Any]:
    """The project's, with 18 tasks, 13 editors and one judge, whose weights are the tiny base's."""
    values = params.load(ROOT / "params.yaml")
    values["tasks"] |= OTHERS
    values["editors"] = {name: {"kind": "folder", "path": "none"} for name in EDITORS}
    judge = values["judges"]["base"] | {"arena": True}
    return values | {"judges": {"judge": judge}}


def known(reply: dict[str, Any]) -> None:
    """The record caches know this of everything."""
    resume.RecordCache.get = resume.RecordCache.look = lambda *_: (dict(reply), None)  # type: ignore[method-assign]


def run_annotate() -> None:
    setting, recipe = SlotSetting(), load_recipe(Path(f"pipelines/object_centric/{LARGE_TASK}.yaml"))
    areas = slot_settings.configured(recipe, setting).areas
    taken = [{"area": a, "measure": name, "value": 0.5, "reason": None} for a, names in areas for name in names]
    known(META | {"measures": taken})
    annotate.run(LARGE_TASK)


def run_train_judge() -> None:
    """What it does before the first step: reads the pairs, looks at all their images, and finds the images' places."""
    from editjudge.training import lesson, runs

    job = replace(train_judge.job(), table=Path("data/given_pairs.parquet"))
    pairs = job.read_rows()
    runs.list_skipped(job, pairs, Path("work/train_judge/run"))
    samples = job.samples(pairs)
    runs.stored_images(name for sample in samples for name in (sample.source, sample.a, sample.b))
    lesson.dataset(samples)


def run_compare_models() -> None:
    usage = {"requests": 1, "tokens_in": 1_000, "tokens_out": 8, "images": 3}
    known({"text": '{"winner": "Image A"}', "tokens": [], "usage": usage})
    compare_models.run()


RUNS: dict[str, Callable[[], None]] = {
    "train_pairs": train_pairs.run,
    "annotate": run_annotate,
    "train_judge": run_train_judge,
    "compare_models": run_compare_models,
}


def child(stage: str) -> None:
    """In a process of its own: the stage, and then its peak in bytes."""
    RUNS[stage]()
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)


def measure(stage: str, folder: Path) -> float:
    """Peak GB of a stage's process."""
    command = [sys.executable, str(Path(__file__).resolve()), "--child", stage]
    paths = os.pathsep.join(filter(None, (str(ROOT / "src"), os.environ.get("PYTHONPATH"))))
    done = subprocess.run(
        command, cwd=folder, env=os.environ | {"PYTHONPATH": paths}, stdout=subprocess.PIPE, text=True, check=False
    )
    if done.returncode:
        sys.exit(f"memory: {stage} ended with exit code {done.returncode}")
    return int(done.stdout.split()[-1]) / 1e9


def prepare(folder: Path) -> None:
    for name in ("pipelines", "stages", "models", "src"):
        (folder / name).symlink_to(ROOT / name)
    with (folder / "params.yaml").open("w") as out:
        YAML().dump(settings(), out)
    os.chdir(folder)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--share", type=float, default=1.0, help="of the paper's rows")
    parser.add_argument(
        "--folder", type=Path, help="where the files lie while it runs, 6 GB; a temporary one by default"
    )
    parser.add_argument("--child", choices=STAGES, help=argparse.SUPPRESS)
    parser.add_argument("stages", nargs="*", metavar="STAGE", help=f"all of {', '.join(STAGES)} by default")
    given = parser.parse_args()
    if given.child:
        child(given.child)
        return
    if unknown := set(given.stages) - set(STAGES):
        parser.error(f"no such stage: {', '.join(sorted(unknown))}")
    with tempfile.TemporaryDirectory(prefix="memory_", dir=given.folder) as name:
        prepare(Path(name))
        files, peaks = Files(given.share), {}
        for stage in given.stages or STAGES:
            files.write(stage)
            start = time.monotonic()
            peaks[stage] = measure(stage, Path(name))
            print(f"{stage:16}{peaks[stage]:7.2f} GB   {time.monotonic() - start:5.0f} s", flush=True)
        os.chdir(ROOT)
    sys.exit(max(peaks.values()) > LIMIT)


if __name__ == "__main__":
    main()
