"""The paper's profile from raw pairs to the leaderboard on a CPU, with tiny random models in the published places.

    make rehearsal
    python tests/helpers/rehearsal.py FOLDER [--few]

FOLDER gets a copy of the repository with a cache of its own. A second call goes on where the first one ended. Stages
start all servers, as with GPUs: small_vllm in vLLM's place, and edit_server for the editing models behind an API. At
the end every record is looked at: production code makes failed records of errors, and none may hide there."""

import os

from editjudge.core import portable

# ruff: noqa: E402
portable.set_up()  # before NumPy, OpenCV and torch are loaded

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch reads it

import argparse
import contextlib
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import tiny_hub
from clone import ROOT, Clone
from ruamel.yaml import YAML

from editjudge.models.serve.launch import Serving, free_port
from tools import settings, verify

HOST = "127.0.0.1"
# Several can work in one repository, each at other stages.
DVC = (sys.executable, str(ROOT / "tools/quick_dvc.py"), "--wait-for-lock")
CPU_SETTINGS = portable.SETTINGS | portable.AVX512
# For CI: tasks and editors by which every slot is used.
FEW_TASKS = ("material_alter", "oref", "ps_human", "style_transfer")
FEW_EDITORS = ("flux1_kontext_dev", "flux2_klein_4b", "step1x_edit_v1p2", "bagel")
SERVERS = ("small_vllm.py", "edit_server.py", "editjudge.models.serve.server")
EDITS = "work/edits"  # what came to the editing models behind an API
ROWS, ARENA = 4, 6  # of each task and source; tasks of which the arena and the benchmarks have a prompt


class Rehearsal(Clone):
    """The copy in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.hub, self.python = folder / "hub", Path(sys.executable)
        self.env = os.environ | {"DVC_NO_ANALYTICS": "true", "HF_HUB_OFFLINE": "1", "HF_HUB_CACHE": str(self.hub)}
        for name in ("PYTHONPATH", "PYTHONDONTWRITEBYTECODE", "EDITJUDGE_WORK", "HF_TOKEN", *CPU_SETTINGS):
            self.env.pop(name, None)
        self.env |= {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "OMP_NUM_THREADS": "1"}
        # No bytes are compared, and code for the CPU edits in bfloat16 in a quarter of the time.
        self.env[portable.SWITCH] = "0"

    def values(self) -> dict[str, Any]:
        return YAML(typ="safe").load((self.folder / "params.yaml").read_text())

    def prepare(self, few: bool) -> None:
        """The copy with the profile, its models and its data."""
        done = self.folder / "prepared.json"
        if done.is_file():
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        verify.working_copy(ROOT, self.folder)
        for name in ("hub", done.name):
            with (self.folder / ".git/info/exclude").open("a") as out:
                out.write(f"{name}\n")
        photos = free_port(HOST, 0)
        file, text = self.folder / "params.yaml", YAML()
        values = text.load(file.read_text())
        with contextlib.chdir(self.folder):
            settings.apply(values, "rehearsal")
        reduce(values, few)
        self.let_stages_start(values)
        with file.open("w") as out:
            text.dump(values, out)
        self.run("env", "PYTHONPATH=src", sys.executable, "-m", "tools.graph", "--write")
        values = self.values()
        tiny_hub.write_models(self.hub, self.folder, values)
        tiny_hub.write_sources(self.folder, values["tasks"], ROWS, f"http://{HOST}:{photos}")
        tiny_hub.write_ratings(self.folder, 2 * ROWS)
        tiny_hub.write_sequences(self.folder, 2 * ROWS)
        tiny_hub.write_benchmarks(self.hub, list(values["tasks"])[:ARENA])
        tiny_hub.write_suites(self.hub, self.folder)
        done.write_text(json.dumps(photos))

    def let_stages_start(self, values: Any) -> None:
        """A program where `make vllm` lays vLLM's, and one for each editing model behind an API."""
        program, edits = self.folder / Serving().program, self.folder / EDITS
        program.parent.mkdir(parents=True)
        edits.mkdir(parents=True)
        small = f"PYTHONPATH={ROOT}/src exec {sys.executable} {ROOT}/tests/helpers/small_vllm.py"
        program.write_text(f'#!/bin/sh\n{small} "$@"\n')
        program.chmod(0o755)
        values["serve"]["engine"] = "vllm"
        for name, entry in values["editors"].items():
            if entry["kind"] == "api":
                told = json.dumps({"delay": 0.02, "journal": f"{EDITS}/{name}", "port": "PORT"})
                words = [sys.executable, f"{ROOT}/tests/helpers/edit_server.py", told.replace('"PORT"', "{port}")]
                entry["base_url"] = f"http://{HOST}:{free_port(HOST, 0)}/v1"
                entry["server"] = {"command": words, "health": "/log"}

    def edits(self, name: str) -> list[str]:
        """The instructions that came to the servers of an editing model behind an API, in their order."""
        return [json.loads(line) for line in (self.folder / EDITS / name).read_text().splitlines()]

    def asked(self) -> list[dict[str, Any]]:
        """What parsers, grounders, captioners and writers were asked, as small_vllm tells it."""
        logs = [file.read_text() for file in sorted((self.folder / "work/serve").glob("*.log"))]
        return [json.loads(line) for log in logs for line in log.splitlines() if line.startswith('{"role"')]

    def left(self) -> list[str]:
        """The servers of stages that still run."""
        here = [each for each in psutil.process_iter(["cwd", "cmdline"]) if each.info["cwd"] == str(self.folder)]
        words = [" ".join(each.info["cmdline"] or ()) for each in here]
        return [each for each in words if any(server in each for server in SERVERS)]

    @contextlib.contextmanager
    def photos(self) -> Iterator[None]:
        """The one server that no stage starts: that of Pico-Banana's photographs, somewhere else."""
        words = [sys.executable, "-m", "http.server", (self.folder / "prepared.json").read_text(), "--bind", HOST]
        with subprocess.Popen(words, cwd=self.folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as serving:
            try:
                yield
            finally:
                serving.kill()

    def repro(self) -> None:
        """The whole graph, most of it in two runs of DVC side by side, a core each. CalledProcessError."""
        values = self.values()
        edits = [f"candidates@{name}" for name in values["editors"]]
        said = [f"annotate@{task}" for task in values["tasks"]]
        said += [f"train_scorer@{name}" for name in values["train_scorer"]]
        judged = ["train_pairs", "train_judge", "merge_judge"]
        judged += [f"judge_benchmark@{name}" for name in values["benchmarks"]]
        rated = [f"rate@{name}" for name in values["suites"]]
        labels: dict[bool, list[str]] = {False: [], True: []}  # of edits
        for name, given in values["scorer_data"].items():
            labels[given["source"] == "adiee"].append(f"scorer_data@{name}")
        self.dvc(["repro", "filter", "gedit_bench", "suite", *labels[False]])
        for sides in ((edits[::2], edits[1::2]), (labels[True],), (said[::2], said[1::2]), (judged, rated)):
            self.dvc(*(["repro", "--single-item", *stages] for stages in sides))
        self.dvc(["repro"])

    def dvc(self, *commands: list[str]) -> None:
        """Runs DVC with each of the commands, all at once. CalledProcessError."""
        running = [subprocess.Popen([*DVC, *command], cwd=self.folder, env=self.env) for command in commands]
        for process in running:
            process.wait()
        for process in running:
            if process.returncode:
                raise subprocess.CalledProcessError(process.returncode, "dvc")

    def faults(self) -> list[str]:
        """What is not as it must be after a run."""
        return [*self.in_pairs(), *self.in_annotations(), *self.in_the_rest()]

    def in_pairs(self) -> Iterator[str]:
        """In photographs, raw pairs and edits."""
        for stage in ("photo_pool", "regions", "instructions"):
            found = self.json(f"metrics/{stage}.json")
            if not found["records"] or found["refused"]:
                yield f"{stage}: {found}"
        for task in self.values()["tasks"]:
            for source in self.json(f"metrics/raw_pairs/{task}.json")["sources"]:
                twice = sum(row["rows"] for row in source["reasons"] if row["reason"] == "duplicate pair")
                if not source["kept"] or source["refused"] > twice:  # a dialogue's first turn may be a single edit, too
                    yield f"raw_pairs: {task}: {source}"
        made = {model: self.json(f"metrics/candidates/{model}.json") for model in self.values()["editors"]}
        yield from (f"candidates: {model}: {row}" for model, row in made.items() if row["failed"])

    def in_annotations(self) -> Iterator[str]:
        values: dict[str, int] = {}
        for task in self.values()["tasks"]:
            found = self.json(f"metrics/annotate/{task}.json")
            for field in ("failed", "not_configured", "pairs_failed", "pairs_unasked"):
                if found.get(field):
                    yield f"annotate: {task}: {field}: {found[field]}; {found.get('reasons')}"
            for row in found["measures"]:
                values[row["measure"]] = values.get(row["measure"], 0) + row["scored"]
                if not row["scored"]:
                    yield f"annotate: {task}: {row['area']} {row['measure']} has no value: {found['unscored_reasons']}"
            if found["unscored_reasons"]:
                yield f"annotate: {task}: unscored: {found['unscored_reasons']}"

    def in_the_rest(self) -> Iterator[str]:
        pairs, trained = self.json("metrics/train_pairs.json"), self.json("metrics/train_judge.json")
        if not pairs["pairs"]:
            yield f"train_pairs: {pairs}"
        if trained["loss"] is None or trained["details"][0]["skipped"]:
            yield f"train_judge: {trained}"
        for name in self.values()["train_scorer"]:
            scorer = self.json(f"metrics/train_scorer/{name}.json")
            if scorer["loss"] is None or not scorer["agreement"][-1]["test"]:
                yield f"train_scorer: {name}: {scorer}"
        for name in self.values()["benchmarks"]:
            found = self.json(f"metrics/benchmarks/{name}.json")
            for judge in found["judges"]:
                if judge["accuracy"]["n"] != found["benchmark"][0]["items"] or judge["accuracy"]["unparsed"]:
                    yield f"judge_benchmark: {name}: {judge}"
        for name in self.values()["suites"]:
            yield from self.in_suite(name)
        arena = self.json("metrics/compare_models.json")
        if not arena["records"] or arena["failed"] or arena["pairs_without_image"] != [0]:
            yield f"compare_models: {arena}"

    def in_suite(self, name: str) -> Iterator[str]:
        """Every case has an edit of every model, and every edit a rating, read or with the reason why it is not."""
        found, cases = self.json(f"metrics/suites/{name}.json"), self.json(f"metrics/suite_cases/{name}.json")
        if not cases["records"] or cases["refused"]:
            yield f"suite: {name}: {cases}"
        for model in self.values()["editors"]:
            for told in self.json(f"metrics/suite_candidates/{model}.json")["suites"]:
                if told["suite"] == name and (told["failed"] or told["records"] != cases["records"]):
                    yield f"suite: {name}: {model}: {told}"
        for rater in found["raters"]:
            for model in rater["models"]:
                lacking = any("no edit" in each["reason"] for each in model["reasons"])
                if model["ratings"] != cases["records"] or lacking:
                    yield f"suite: {name}: {rater['rater']}: {model}"
        if not (found["raters"] or found["people"]):
            yield f"suite: {name}: nobody said anything"


def reduce(values: Any, few: bool) -> None:
    """Few tasks and editors, by which every slot is used all the same."""
    if not few:
        return
    for section, names in (("tasks", FEW_TASKS), ("editors", FEW_EDITORS)):
        for name in set(values[section]) - set(names):
            del values[section][name]
    labels = values["scorer_data"]["adiee"]
    for field, kept in (("tasks", FEW_TASKS), ("good", FEW_EDITORS), ("others", FEW_EDITORS)):
        labels[field] = [name for name in labels[field] if name in kept]
    for task in set(values["raw_pairs"]["sources"]) - set(FEW_TASKS):
        del values["raw_pairs"]["sources"][task]
    del values["benchmarks"]["editscore"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--few", action="store_true", help="few tasks and editors, as in CI")
    given = parser.parse_args()
    start, rehearsal = time.monotonic(), Rehearsal(given.folder.resolve())
    rehearsal.prepare(given.few)
    print(f"rehearsal: {rehearsal.folder} is ready, {time.monotonic() - start:.0f} s", flush=True)
    with rehearsal.photos():
        try:
            rehearsal.repro()
        except subprocess.CalledProcessError as error:
            sys.exit(error.returncode)
    faults = rehearsal.faults()
    if faults:
        sys.exit("rehearsal: " + "\n".join(faults))
    print(f"rehearsal: every slot gave what it must, {time.monotonic() - start:.0f} s")


if __name__ == "__main__":
    main()
