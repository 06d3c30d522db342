"""The published setting from raw pairs to the leaderboard on a CPU, with tiny random models in the published places.

    make rehearsal GPUS=8
    python tests/helpers/rehearsal.py FOLDER [--gpus 8] [--few]

FOLDER gets a copy of the repository with a cache of its own, in which first profiles/published.yaml runs, then what
profiles/paper.yaml has beside it, as profiles/rehearsal.yaml makes them small. A second call goes on where the first
one ended. Stages place their work and start all servers as on a machine with so many GPUs (`pretended`): small_vllm in
vLLM's place, and edit_server for the editing models behind an API. After each profile every record is looked at, since
production code makes failed records of errors and none may hide there, and so is where everything lay."""

import os

from editjudge.core import portable

# ruff: noqa: E402
portable.set_up()  # before NumPy, OpenCV and torch are loaded

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch reads it

import argparse
import contextlib
import itertools
import json
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pretended
import psutil
import tiny_hub
from clone import ROOT, Clone
from ruamel.yaml import YAML

from editjudge.models.serve.launch import Serving, ServingError, free_port
from tools import settings, verify

HOST, PORTS = "127.0.0.1", range(20_000, 32_000)  # below those that a system gives out
PROFILES, GPUS = ("published", "paper"), 8  # the second goes over the first; GPUs that they are for
ENTRIES = ("editors", "judges", "raters", "scorer_data", "train_scorer")  # of which `published` has not all
PHOTOS = ("photo_pool", "regions", "instructions")  # which `published` leaves as they are
ON_PAIRS = ("bagel",)  # editing models whose servers have two GPUs each
# Several can work in one repository, each at other stages.
DVC = (sys.executable, str(ROOT / "tools/quick_dvc.py"), "--wait-for-lock")
CPU_SETTINGS = portable.SETTINGS | portable.AVX512
KINDS = (("candidates", "editors"), ("annotate", "tasks"))  # stages by entries of sections
# For CI: tasks and editors by which every slot is used.
FEW_TASKS = ("material_alter", "object_extraction", "oref", "ps_human", "style_transfer")
FEW_TASKS += ("subject_remove", "text_editing")  # with which there are pairs to learn from
FEW_EDITORS = ("flux1_kontext_dev", "flux2_klein_4b", "step1x_edit_v1p2", "bagel")
UNSEEN = "the mask is empty"  # random weights see nothing in some edits
SERVERS = ("small_vllm.py", "edit_server.py", "editjudge.models.serve.server")
EDITS = "work/edits"  # what came to the editing models behind an API
ROWS, ARENA = 4, 6  # of each task and source; tasks of which the arena and the benchmarks have a prompt


class Rehearsal(Clone):
    """The copy in a folder."""

    def __init__(self, folder: Path, gpus: int = GPUS) -> None:
        """gpus: of the machine that is pretended."""
        self.folder, self.gpus, self.work = folder, gpus, folder / "work"
        self.hub, self.python = folder / "hub", Path(sys.executable)
        self.env = os.environ | {"DVC_NO_ANALYTICS": "true", "HF_HUB_OFFLINE": "1", "HF_HUB_CACHE": str(self.hub)}
        for name in ("PYTHONPATH", "PYTHONDONTWRITEBYTECODE", "HF_TOKEN", pretended.SEEN, *CPU_SETTINGS):
            self.env.pop(name, None)
        self.env |= {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "OMP_NUM_THREADS": "1"}
        # No bytes are compared, and code for the CPU edits in bfloat16 in a quarter of the time.
        self.env[portable.SWITCH] = "0"
        self.env |= {"EDITJUDGE_WORK": str(self.work), pretended.GPUS: str(gpus)}
        self.env[pretended.JOURNAL] = str(self.work / "places.jsonl")
        self.prepared = folder / "prepared.json"

    def values(self) -> dict[str, Any]:
        return YAML(typ="safe").load((self.folder / "params.yaml").read_text())

    @property
    def chosen(self) -> dict[str, Any]:
        """few; ports: that of the photographs' server, and the first of each editing model's; played: profiles."""
        return json.loads(self.prepared.read_text())

    def prepare(self, few: bool) -> None:
        """The copy, with the models and data of all profiles. AssertionError: it was prepared for other GPUs."""
        chosen = {"few": few, "gpus": self.gpus, "ports": free_ports(4, self.gpus), "played": []}
        if self.prepared.is_file():
            assert self.chosen["gpus"] == self.gpus, f"{self.folder} is a rehearsal with {self.chosen['gpus']} GPUs"
            return
        self.work.mkdir(parents=True, exist_ok=True)
        verify.working_copy(ROOT, self.folder)
        shutil.copy(pretended.__file__, self.folder / "src/sitecustomize.py")
        with (self.folder / ".git/info/exclude").open("a") as out:
            out.write(f"hub\n{self.prepared.name}\nsrc/sitecustomize.py\n")
        values = self.profiled(PROFILES[-1], few, chosen["ports"])
        tiny_hub.write_models(self.hub, self.folder, values)
        tiny_hub.write_sources(self.folder, values["tasks"], ROWS, f"http://{HOST}:{chosen['ports'][0]}")
        tiny_hub.write_ratings(self.folder, 2 * ROWS)
        tiny_hub.write_sequences(self.folder, 2 * ROWS)
        tiny_hub.write_benchmarks(self.hub, list(values["tasks"])[:ARENA])
        tiny_hub.write_suites(self.hub, self.folder)
        program = self.folder / Serving().program  # where `make vllm` lays vLLM's
        program.parent.mkdir(parents=True, exist_ok=True)
        small = f"PYTHONPATH={ROOT}/src exec {sys.executable} {ROOT}/tests/helpers/small_vllm.py"
        program.write_text(f'#!/bin/sh\nexport SEEN="${{{pretended.SEEN}-all}}"\n{small} "$@"\n')
        program.chmod(0o755)
        (self.folder / EDITS).mkdir(parents=True, exist_ok=True)
        self.prepared.write_text(json.dumps(chosen))

    def put(self, profile: str) -> None:
        """params.yaml and dvc.yaml have the profile, made small."""
        self.profiled(profile, self.chosen["few"], self.chosen["ports"])
        self.run("env", "PYTHONPATH=src", sys.executable, "-m", "tools.graph", "--write")

    def profiled(self, profile: str, few: bool, ports: list[int]) -> Any:
        """The copy's params.yaml, which is written."""
        text = YAML()
        values = text.load((ROOT / "params.yaml").read_text())
        with contextlib.chdir(self.folder):
            settings.apply(values, profile)
            *_, small = settings.patches("rehearsal")
        known = {name: {key: each for key, each in small[name].items() if key in values[name]} for name in ENTRIES}
        left_out = PHOTOS if profile != PROFILES[-1] else ()
        settings.merge(values, {name: each for name, each in {**small, **known}.items() if name not in left_out})
        reduce(values, few)
        values["serve"]["engine"] = "vllm"
        served = [name for name, entry in values["editors"].items() if entry["kind"] == "api"]
        for name, port in zip(sorted(served), ports[1:], strict=False):
            self.let_its_stage_serve(name, values["editors"][name], port)
        self.share_out(values)
        with (self.folder / "params.yaml").open("w") as out:
            text.dump(values, out)
        return values

    def let_its_stage_serve(self, name: str, entry: Any, port: int) -> None:
        """A program for an editing model behind an API, whose log says first which GPUs it sees."""
        told = json.dumps({"delay": 0.02, "journal": f"{EDITS}/{name}", "port": "PORT"})
        words = ["sh", "-c", f'echo "GPUs ${pretended.SEEN}"; exec "$@"', "sh", sys.executable]
        words += [f"{ROOT}/tests/helpers/edit_server.py", told.replace('"PORT"', "{port}")]
        gpus = min(1 + (name in ON_PAIRS), self.gpus)
        entry["base_url"] = f"http://{HOST}:{port}/v1"
        entry["server"] = {"command": words, "health": "/log", "gpus": gpus}

    def share_out(self, values: Any) -> None:
        """Where the pairs of a step cannot be shared out over the GPUs, as `editjudge check --machine` says, the next
        number that can."""
        for each in (values["train_judge"], *values["train_scorer"].values()):
            each["global_batch"] = -(-each["global_batch"] // self.gpus) * self.gpus

    def play(self, profile: str) -> None:
        """Runs the graph of a profile to its end. CalledProcessError."""
        self.put(profile)
        self.repro()
        self.prepared.write_text(json.dumps(self.chosen | {"played": sorted({*self.chosen["played"], profile})}))

    def edits(self, name: str) -> list[str]:
        """The instructions that came to the servers of an editing model behind an API, in their order."""
        return [json.loads(line) for line in (self.folder / EDITS / name).read_text().splitlines()]

    def asked(self) -> list[dict[str, Any]]:
        """What parsers, grounders, captioners and writers were asked, as small_vllm tells it."""
        return [each for each in self.told() if "role" in each]

    def told(self) -> list[dict[str, Any]]:
        """What vLLM's place told in its logs."""
        logs = [file.read_text() for file in sorted((self.work / "serve").glob("*.log"))]
        return [json.loads(line) for log in logs for line in log.splitlines() if line.startswith('{"')]

    def left(self) -> list[str]:
        """The servers of stages that still run."""
        here = [each for each in psutil.process_iter(["cwd", "cmdline"]) if each.info["cwd"] == str(self.folder)]
        words = [" ".join(each.info["cmdline"] or ()) for each in here]
        return [each for each in words if any(server in each for server in SERVERS)]

    @contextlib.contextmanager
    def photos(self) -> Iterator[None]:
        """The one server that no stage starts: that of Pico-Banana's photographs, somewhere else."""
        words = [sys.executable, "-m", "http.server", str(self.chosen["ports"][0]), "--bind", HOST]
        with subprocess.Popen(words, cwd=self.folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as serving:
            try:
                yield
            finally:
                serving.kill()

    def repro(self) -> None:
        """Most of it in two runs of DVC side by side. CalledProcessError."""
        values, made = self.values(), self.placed()
        judged = ["train_pairs", "train_judge", "merge_judge"]
        judged += [f"judge_benchmark@{name}" for name in values["benchmarks"]]
        rated = [f"rate@{name}" for name in values["suites"]]
        labels: dict[bool, list[str]] = {False: [], True: []}  # of edits
        for name, given in values["scorer_data"].items():
            labels[given["source"] == "adiee"].append(f"scorer_data@{name}")
        edits, said = ([each for each in made if each.startswith(kind)] for kind in ("candidates", "annotate"))
        said += [each for each in made if each.startswith("train_scorer")]
        self.dvc(["filter", "gedit_bench", *(["suite"] if values["suites"] else []), *labels[False]])
        for sides in ((edits[::2], edits[1::2]), (labels[True],), (said[::2], said[1::2]), (judged, rated)):
            self.dvc(*(["--single-item", *stages] for stages in sides if stages))
        self.dvc([])

    def placed(self) -> list[str]:
        """The stages that place more on GPUs than servers of chat models."""
        values = self.values()
        edits, said = ([f"{kind}@{name}" for name in values[of]] for kind, of in KINDS)
        return ["embed", *edits, *said, "train_judge", *(f"train_scorer@{name}" for name in values["train_scorer"])]

    def dvc(self, *commands: list[str]) -> None:
        """Runs `dvc repro` with each of the words, all at once. CalledProcessError."""
        running = [subprocess.Popen([*DVC, "repro", *words], cwd=self.folder, env=self.env) for words in commands]
        for process in running:
            process.wait()
        for process in running:
            if process.returncode:
                raise subprocess.CalledProcessError(process.returncode, "dvc")

    def faults(self) -> list[str]:
        """What is not as it must be after a run."""
        return [*self.in_pairs(), *self.in_annotations(), *self.in_the_rest(), *self.in_places(self.placed())]

    def in_places(self, stages: Iterable[str]) -> Iterator[str]:
        """What these stages had on other GPUs than they must."""
        values, journal = self.values(), (self.work / "places.jsonl").read_text().splitlines()
        lines = [json.loads(line) for line in journal]
        for stage in stages:
            own = [line for line in lines if line["stage"] == stage]
            kind, _, name = stage.partition("@")
            if kind.startswith("train"):
                setting = values[kind][name] if name else values[kind]
                yield from self.in_training(stage, setting["global_batch"], own)
                continue
            size, seen = 1, {line["sees"] for line in own}
            if kind == "candidates":
                entry = values["editors"][name]
                size = entry.get("gpus_per_worker", 1)
                if entry["kind"] == "api":
                    size, logs = entry["server"]["gpus"], (self.work / "serve").glob(f"{name}-*.log")
                    seen = {log.read_text().split("\n")[0].removeprefix("GPUs ") for log in logs}
            every = [",".join(map(str, range(at, at + size))) for at in range(0, self.gpus - size + 1, size)]
            if kind == "annotate" and values["tasks"][name] == "vlm_as_a_judge":  # which measures nothing
                every = []
            if seen != set(every) and (kind in dict(KINDS) or not seen <= set(every)):  # others may have fewer items
                yield f"{stage}: {sorted(seen)} of {self.gpus} GPUs, not {every}"
        copies = [each for each in self.told() if "copies" in each]
        if not copies or any(each != {"copies": self.gpus, "each": 1, "sees": "all"} for each in copies):
            yield f"vLLM: {copies}"

    def in_training(self, stage: str, pairs: int, lines: list[dict[str, Any]]) -> Iterator[str]:
        """A process on each GPU, all with the same share of a step's pairs."""
        launched = [(line["processes"], line["device"]) for line in lines if line["kind"] == "training"]
        shares = {line["rank"]: (line["each"], line["times"]) for line in lines if line["kind"] == "process"}
        if set(launched) != {(self.gpus, "cuda")} or set(shares) != set(map(str, range(self.gpus))):
            yield f"{stage}: {launched}, processes {sorted(shares)} on {self.gpus} GPUs"
        elif len(set(shares.values())) > 1 or self.gpus * shares["0"][0] * shares["0"][1] != pairs:
            yield f"{stage}: {shares} are not {pairs} pairs a step"

    def in_pairs(self) -> Iterator[str]:
        """In photographs, raw pairs and edits."""
        plain = {"photo_pool": int(self.values()["photo_pool"]["photos"] == "probe")}  # of ours, by its aesthetic score
        for stage in PHOTOS:
            found = self.json(f"metrics/{stage}.json")
            if not found["records"] or found["refused"] > plain.get(stage, 0):
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
            if unscored := [each for each in found["unscored_reasons"] if each["reason"] != UNSEEN]:
                yield f"annotate: {task}: unscored: {unscored}"

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


def free_ports(count: int, each: int) -> list[int]:
    """The first ports of blocks of so many that are free each."""
    found = list[int]()
    for first in itertools.islice(PORTS, os.getpid() % 1000, None, each):
        with contextlib.suppress(ServingError):
            found.append(min(free_port(HOST, port) for port in range(first, first + each)))
        if len(found) == count:
            break
    return found


def reduce(values: Any, few: bool) -> None:
    """Few tasks and editors, by which every slot is used all the same."""
    if not few:
        return
    for section, names in (("tasks", FEW_TASKS), ("editors", FEW_EDITORS)):
        for name in set(values[section]) - set(names):
            del values[section][name]
    if labels := values["scorer_data"].get("adiee"):
        for field, kept in (("tasks", FEW_TASKS), ("good", FEW_EDITORS), ("others", FEW_EDITORS)):
            labels[field] = [name for name in labels[field] if name in kept]
    for task in set(values["raw_pairs"]["sources"]) - set(FEW_TASKS):
        del values["raw_pairs"]["sources"][task]
    del values["benchmarks"]["editscore"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--gpus", type=int, default=GPUS, help="of the machine that is pretended")
    parser.add_argument("--few", action="store_true", help="few tasks and editors, as in CI")
    given = parser.parse_args()
    start, rehearsal = time.monotonic(), Rehearsal(given.folder.resolve(), given.gpus)
    rehearsal.prepare(given.few)
    print(f"rehearsal: {rehearsal.folder} is ready, {time.monotonic() - start:.0f} s", flush=True)
    for profile in PROFILES:
        if profile != PROFILES[-1] and profile in rehearsal.chosen["played"]:
            continue
        with rehearsal.photos():
            try:
                rehearsal.play(profile)
            except subprocess.CalledProcessError as error:
                sys.exit(error.returncode)
        if faults := rehearsal.faults():
            sys.exit("rehearsal: " + "\n".join(faults))
        seconds = time.monotonic() - start
        print(
            f"rehearsal: {profile} on {rehearsal.gpus} GPUs: every slot gave what it must, {seconds:.0f} s", flush=True
        )


if __name__ == "__main__":
    main()
