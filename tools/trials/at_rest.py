"""Damages at rest: a kept file is damaged, its times stay, and what reads it is run. `python -m tools.trials.faults
--at-rest 500 [--stages 20] [--folder DIR]`.

On a small copy in which the graph has run. Kinds that it does not leave (features, downloads, objects of a cluster's
store, a training's checkpoints) are added. One file at a time is damaged, read and put back:

- under work/ by the reader of its kind, in process: it gives what was kept, or nothing, so that it is made anew;
- under data/, models/ and .dvc/cache by what `tools.verify --cache` runs, whose line must name the file, and what
  stands in data/ and models/ also by what each stage runs first, as DVC would start it.

--stages: so many damages, one of each kind in turn, are also followed by the whole stage under DVC. It must end as
before, to the byte, or be refused by the file's name; then the commands that are told are run, and it must end so.
SILENT is every other end."""

import contextlib
import io
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
import yaml
from safetensors.torch import load, save

from editjudge.core import code, files, params
from editjudge.core.errors import UserError
from editjudge.engine import resume, store
from editjudge.measures.annotation.slots import FeatureStore
from editjudge.training import runs
from tools import verify
from tools.trials.faults import OUT_OF_WAY, environment, statement

ANEW, REFUSED, SAME, SILENT = "anew", "named", "same content", "SILENT"
MENDED, NOT_MENDED = "named, and mended by what was told", "named, and not mended"
CACHE, RUNS = Path(".dvc/cache/files/md5"), Path(".dvc/cache/runs")


def flip(data: bytes, rng: random.Random, _: list[bytes]) -> bytes:
    place = rng.randrange(len(data))
    return data[:place] + bytes([data[place] ^ 1 << rng.randrange(8)]) + data[place + 1 :]


def zeros(data: bytes, rng: random.Random, _: list[bytes]) -> bytes:
    size = min(512, -(-len(data) // 2))
    place = rng.randrange(len(data) - size + 1)
    return data[:place] + bytes(size) + data[place + size :]


def another(data: bytes, rng: random.Random, others: list[bytes]) -> bytes:
    return rng.choice(others) if others else data


def older(data: bytes, rng: random.Random, _: list[bytes]) -> bytes:
    """A version of it that can be read as well as it can: rows, records or lines fewer, weights halved. What is named
    by its content, and has a hash, has none."""
    out = io.BytesIO()
    if data.startswith(b"SQLite"):
        with tempfile.NamedTemporaryFile() as file:
            Path(file.name).write_bytes(data)
            statement(Path(file.name), "DELETE FROM records WHERE rowid > (SELECT avg(rowid) FROM records)")
            statement(Path(file.name), "PRAGMA wal_checkpoint(TRUNCATE)")
            return Path(file.name).read_bytes()
    if data.startswith(b"PAR1"):
        table = pq.read_table(pa.BufferReader(data))
        pq.write_table(table.slice(0, max(len(table) - 1, 0)), out, compression="zstd")
        return out.getvalue()
    if data.startswith(b"\x93NUMPY"):
        np.save(out, np.load(io.BytesIO(data))[:-1])
        return out.getvalue()
    with contextlib.suppress(Exception):  # no weights
        return save({name: (each / 2).to(each.dtype) for name, each in load(data).items()})
    with contextlib.suppress(UnicodeDecodeError):
        lines = data.decode().splitlines(keepends=True)
        if len(lines) > 1:
            del lines[rng.randrange(len(lines))]
            return "".join(lines).encode()
    return data


Damage = Callable[[bytes, random.Random, list[bytes]], bytes]
DAMAGES: dict[str, Damage] = {
    "a flipped bit": flip,
    "cut": lambda data, rng, _: data[: rng.randrange(1, max(len(data), 2))],
    "emptied": lambda data, rng, _: b"",
    "zeros": zeros,
    "another file": another,
    "an older version": older,
}


def records_of(file: Path) -> dict[str, Any]:
    """Every record by its name, which is how a stage asks."""
    with resume.RecordCache(file) as cache:
        return {key: (meta, bytes(data) if data else data) for key, (meta, data) in cache.all()}


def sealed(file: Path) -> Any:
    return files.kept(file)


def features(file: Path) -> Any:
    found = FeatureStore(file.parent.parent, 1.0).get(file.stem)
    return None if found is None else [each.tobytes() for each in found]


def in_store(file: Path) -> Any:
    return bytes(store.Kept(file.name))


def checkpoint(file: Path) -> Any:
    """A training's reader, on a copy: it removes what is damaged."""
    folder = file.parent
    spare = folder.parent.with_name("spare") / folder.name
    shutil.rmtree(spare.parent, ignore_errors=True)
    shutil.copytree(folder, spare)
    runs.drop_damaged(spare.parent)
    return {each.name: each.read_bytes() for each in sorted(spare.iterdir())} if spare.exists() else None


@dataclass(frozen=True)
class Kind:
    """Files that one reader reads. pattern: where; stage: what reads them under DVC, if the graph has it."""

    pattern: str
    read: Callable[[Path], Any] | None = None
    stage: Callable[[Path], str | None] = lambda file: None


def stage_of(file: Path) -> str | None:
    """What asks a record cache."""
    top = file.parent.name
    known = {
        "annotate": f"annotate@{file.stem}",
        "candidates": f"candidates@{file.stem}",
        "judge": "judge_benchmark@probe",
    }
    return known.get(top)


KINDS = {
    "records": Kind("work/**/*.sqlite", records_of, lambda file: stage_of(file)),
    "vectors": Kind("work/embed/*/*.vectors", sealed, lambda file: "embed"),
    "features": Kind("work/features/*/*.features", features),
    "downloads": Kind("work/downloads/*", sealed),
    "a cluster's store": Kind("work/store/??/*", in_store),
    "checkpoints": Kind("work/train_judge/*/checkpoints/*/*", checkpoint),
    "a training's state": Kind("work/train_judge/*/*.json", sealed),
    "what code says": Kind("work/code.json", sealed),
    "tables in data/": Kind("data/**/*.parquet"),
    "vectors in data/": Kind("data/**/*.npy"),
    "texts in data/": Kind("data/**/*.[cj]s*[vnl]"),
    "weights in models/": Kind("models/**/*.safetensors"),
    "settings in models/": Kind("models/**/*.json"),
    "objects of DVC": Kind(f"{CACHE}/??/*"),
    "lists of DVC": Kind(f"{CACHE}/??/*.dir"),
    "DVC's run-cache": Kind(f"{RUNS}/??/*/*"),
}


def add_kinds(rng: random.Random) -> None:
    """Files of the kinds that the small graph does not leave, written by the code that writes them."""
    for number in range(4):
        name = f"{rng.getrandbits(256):064x}"
        FeatureStore(Path("work/features"), 1e9).put(name, [np.full((8, 8), number, np.float32)])
        files.keep(Path("work/downloads", f"{number:064x}"), b"\x89PNG\r\n\x1a\n" + rng.randbytes(3000))
        store.keep(rng.randbytes(70_000))
    for run in ("one", "two"):
        top = Path("work/train_judge", run)
        files.keep(top / "skipped.json", json.dumps([{"key": run, "reason": "broken"}]).encode())
        files.keep(top / "trained.json", json.dumps({"run": run, "steps": 4}).encode())
        for step in (1, 2):
            folder = top / "checkpoints" / f"checkpoint-{step}"
            folder.mkdir(parents=True, exist_ok=True)
            torch.save({"exp_avg": torch.randn(500)}, folder / "optimizer.pt")
            (folder / "adapter.safetensors").write_bytes(save({"a": torch.randn(500)}))
            (folder / "trainer_state.json").write_text(json.dumps({"step": step, "run": run}, indent=1))
            files.seal(folder)


def tracked_by_dvc(lock: dict[str, Any]) -> set[str]:
    found = set()
    for path in verify.results(lock) | dict.fromkeys(verify.hashes(lock["code"], "outs"), ""):
        place = Path(path)
        found |= {str(file) for file in place.rglob("*")} if place.is_dir() else {path}
    return found


def readers(lock: dict[str, Any], file: Path) -> list[str]:
    """The stages that have a file among their inputs, or in one."""
    around = {str(file), *map(str, file.parents)}
    return [name for name, stage in lock.items() if around & verify.hashes(stage, "deps").keys()]


@dataclass
class Trial:
    """A copy whose folder is the current one."""

    rng: random.Random
    lock: dict[str, Any]
    before: dict[Path, bytes]

    def write(self, file: Path, data: bytes) -> None:
        """As rot does: the size may change, the times do not."""
        was = file.stat()
        file.chmod(0o644)
        file.write_bytes(data)
        os.utime(file, ns=(was.st_atime_ns, was.st_mtime_ns))

    def damaged(self, files: list[Path], how: str) -> tuple[Path, bytes] | None:
        """One of the files, and what is to stand in it; None where that changes none of them."""
        for file in self.rng.sample(files, len(files)):
            own = self.before[file]
            like = [self.before[each] for each in files if each.suffix == file.suffix and self.before[each] != own]
            if (data := DAMAGES[how](own, self.rng, like)) != own:
                return file, data
        return None

    def restore(self, file: Path) -> None:
        for log in ("-wal", "-shm"):
            file.with_name(file.name + log).unlink(missing_ok=True)
        file.parent.mkdir(parents=True, exist_ok=True)
        if not file.exists():
            file.touch()
        self.write(file, self.before[file])

    def outcome(self, kind: Kind, file: Path) -> tuple[str, str]:
        """What becomes of the damaged file, and what was said."""
        said = io.StringIO()
        with contextlib.redirect_stderr(said), contextlib.redirect_stdout(said):
            end = self.by_reader(kind, file) if kind.read else self.by_verify(file)
        return end, said.getvalue()

    def by_reader(self, kind: Kind, file: Path) -> str:
        assert kind.read
        damaged = file.read_bytes()
        try:
            now = kind.read(file)
        except UserError as error:
            print(error)
            return REFUSED if str(file) in str(error) else SILENT
        self.restore(file)
        with contextlib.redirect_stderr(io.StringIO()):
            right = kind.read(file)
        if now == right:
            return SAME if damaged != self.before[file] else "no damage"
        if isinstance(now, dict) and isinstance(right, dict):  # a record that is not there is made anew
            return ANEW if now.items() <= right.items() or not now.keys() & right.keys() else SILENT
        return ANEW if now is None else SILENT

    def by_verify(self, file: Path) -> str:
        """As `python -m tools.verify --cache`, and as a stage under DVC that reads the file."""
        lines = verify.damages(self.lock, CACHE) if not file.is_relative_to(RUNS) else []
        if file.is_relative_to(".dvc"):
            lines += verify.other_damages(CACHE, RUNS, "\n".join(lines))
        print("\n".join(lines))
        outs = verify.hashes({"outs": [each for stage in self.lock.values() for each in stage["outs"]]}, "outs")
        names = [str(each) for each in (file, *file.parents) if each == file or str(each) in outs]
        if not any(name in line for line in lines for name in names):
            return SAME if file.is_relative_to(RUNS) and said_by(file) == said_by(self.before[file]) else SILENT
        for stage in readers(self.lock, file)[:1]:
            os.environ["DVC_STAGE"] = stage
            try:
                code.check_inputs()
            except UserError as error:
                print(error)
            else:
                print(f"{stage} reads it")
                return SILENT
            finally:
                del os.environ["DVC_STAGE"]
        return REFUSED

    def by_stage(self, kind: Kind, file: Path) -> str:
        """The stage that reads it, whole, or the program's check; then what these say is to be done, and them again."""
        stage = kind.stage(file) if kind.read else next(iter(readers(self.lock, file)), None)
        command = ["dvc", "repro", "-f", "-s", stage] if stage else [*PROGRAM, "verify", "--cache"]
        first = run(command)
        if not first.returncode:
            return ANEW if self.is_as_before() else SILENT
        lines = first.stdout + (run([*PROGRAM, "verify", "--cache"]).stdout if "verify --cache" in first.stdout else "")
        told = re.findall(r": (rm -r?f .*)", lines)
        told += [f"rm -f {name}*" for name in OUT_OF_WAY.findall(first.stdout)]
        for words in dict.fromkeys(told):
            run(["bash", "-c", words])
        second = run(command)
        if second.returncode or not self.is_as_before():
            print(first.stdout[-1500:], told, second.stdout[-1500:])
            return NOT_MENDED if file.name in first.stdout else SILENT
        return MENDED

    def is_as_before(self) -> bool:
        """Every output, on the disk and in dvc.lock."""
        lock = params.load(verify.LOCK)["stages"]
        return verify.results(lock) == verify.results(self.lock) and not verify.damages(lock, CACHE)


PROGRAM = [sys.executable, "-m", "editjudge"]


def run(command: list[str]) -> subprocess.CompletedProcess[str]:
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True, "check": False}
    return subprocess.run(command, env=environment() | {"PYTHONPATH": "src"}, **pipes)


def said_by(source: Path | bytes) -> Any:
    """What an entry of the run-cache says, but for sizes."""
    data = source.read_bytes() if isinstance(source, Path) else source
    try:
        found = yaml.safe_load(data)
        for each in [*found["deps"], *found["outs"]]:
            each.pop("size", None)
            each.pop("nfiles", None)
    except (yaml.YAMLError, LookupError, TypeError, AttributeError, ValueError):
        return data
    return found


def found_files(lock: dict[str, Any]) -> dict[str, list[Path]]:
    by_dvc = tracked_by_dvc(lock)
    found = {}
    for name, kind in KINDS.items():
        own = [file for file in sorted(Path().glob(kind.pattern)) if file.is_file() and file.stat().st_size]
        if kind.pattern.startswith(("data", "models")):
            own = [file for file in own if str(file) in by_dvc]
        if name == "objects of DVC":
            own = [file for file in own if file.suffix != ".dir"]
        found[name] = own
    return found


def tries(found: dict[str, list[Path]]) -> Iterator[tuple[str, str]]:
    """Every kind with every damage, in turn, where there are such files, for ever."""
    return cycle([(name, how) for how in DAMAGES for name in KINDS if found[name]])


def table(ends: dict[tuple[str, str], Counter[str]]) -> str:
    """By kind of file and damage: how many, and how they ended."""
    lines = [f"| kept file | {' | '.join(DAMAGES)} |", "|---" * (len(DAMAGES) + 1) + "|"]
    for name in KINDS:
        cells = []
        for how in DAMAGES:
            own = ends.get((name, how), Counter())
            cells.append("; ".join(f"{number} {end}" for end, number in own.most_common()) or "-")
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def is_of_the_graph(kind: Kind, own: list[Path]) -> bool:
    return not kind.read or any(map(kind.stage, own))


def main(count: int, stages: int, seed: int, folder: Path) -> bool:
    """Damages that many files of the copy, prints the table; whether none was silent."""
    os.chdir(folder)
    os.environ |= {"DVC_NO_ANALYTICS": "true"}
    rng = random.Random(f"at rest {seed}")
    add_kinds(rng)
    lock = params.load(verify.LOCK)["stages"]
    found = found_files(lock)
    trial = Trial(rng, lock, {file: file.read_bytes() for own in found.values() for file in own})
    ends: dict[tuple[str, str], Counter[str]] = {}
    wholes: Counter[str] = Counter()
    turns = tries(found)
    while sum(ends.values(), Counter()).total() < count:
        name, how = next(turns)
        if (chosen := trial.damaged(found[name], how)) is None:
            continue
        file, data = chosen
        trial.write(file, data)
        end, said = trial.outcome(KINDS[name], file)
        trial.restore(file)
        ends.setdefault((name, how), Counter())[end] += 1
        if end == SILENT:
            print(f"{file} {how}: SILENT: {said[-2000:]}", flush=True)
    samples = [
        (name, how) for name, own in found.items() for how in DAMAGES if own and is_of_the_graph(KINDS[name], own)
    ]
    rng.shuffle(samples)
    for name, how in samples[:stages]:
        own = [file for file in found[name] if not KINDS[name].read or KINDS[name].stage(file)]
        if (chosen := trial.damaged(own, how)) is None:
            continue
        file, data = chosen
        trial.write(file, data)
        end = trial.by_stage(KINDS[name], file)
        wholes[end] += 1
        print(f"whole: {file} {how}: {end}", flush=True)
        if name not in ("records", "vectors"):  # which the stage has written anew
            trial.restore(file)
    every = sum(ends.values(), Counter())
    print(f"\n{table(ends)}\n\n{every.total()} damages: {dict(every)}; whole stages {wholes.total()}: {dict(wholes)}")
    return not (every[SILENT] or wholes[SILENT] or wholes[NOT_MENDED])
