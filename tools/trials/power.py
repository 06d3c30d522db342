"""Simulated power cuts: `python -m tools.trials.faults --power 100`.

A run asks a judge behind an endpoint (of the tests, on loopback), keeps the paid answers and writes files in the ways
that stages do. power.c notes what each fsync has put on the disk, and ends the run before a random one, or at a random
moment. Then the folder becomes what a power cut may leave: of each file the content of its last fsync, of each folder
the names of its last one, the rest is gone; in every second trial a random part of the rest is there all the same, by
name and by block of 4,096 bytes. What counted as kept before, each answer and each file, must be there; a further run
must ask for nothing that was kept, and end with the same answers and bytes as one that nothing disturbed."""

import hashlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from editjudge.core import files, images, records
from editjudge.engine import resume, store
from editjudge.judges import opening
from editjudge.judges.protocol import Question

ROOT = Path(__file__).parents[2]
QUESTIONS, BATCHES, BLOCK = 24, 4, 4096
STORE = Path("work/judge/gpt.sqlite")
SERVER = ROOT / "tests/helpers/chat_server.py"


def picture(number: int) -> bytes:
    return images.encode_png(np.full((8, 8, 3), number, np.uint8))


def child(url: str, told: Path) -> None:
    """The run. What counts as kept is told in lines of a file that no power cut reaches."""
    handle = os.open(told, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    add = resume.RecordCache.add

    def tell(what: str, name: str, digest: str = "") -> None:
        os.write(handle, (json.dumps([what, name, digest]) + "\n").encode())

    def telling(self: resume.RecordCache, given: Any) -> None:
        given = list(given)
        add(self, given)
        for key, *_ in given:
            tell("answer", key)

    resume.RecordCache.add = telling  # type: ignore[method-assign]
    how = {"backend": "endpoint", "base_url": url, "model": "m", "rule": "probability", "max_in_flight": 4}
    asked = [Question(f"k{n}", f"q{n}", *(picture(3 * n + side) for side in range(3))) for n in range(QUESTIONS)]
    step = QUESTIONS // BATCHES
    with opening.open_judge("judges.gpt", how) as judge:
        for number in range(BATCHES):
            part = judge.compare(asked[number * step : (number + 1) * step])
            rows = [{"key": each.combined.key, "winner": each.combined.winner} for each in part]
            out = Path(f"data/verdicts/part-{number}.json")
            records.write_json(out, rows)
            tell("file", str(out), files.sha256(out))
            with records.csv_writer(Path("metrics/parts.csv"), ["key", "winner"]) as write:  # replaced each time
                for row in rows:
                    write(row)
            tell("file", "metrics/parts.csv", files.sha256(Path("metrics/parts.csv")))
            data = hashlib.sha256(str(number).encode()).digest() * 400
            shard = Path(f"work/embed/task/{number}.vectors")
            if files.kept(shard) is None:
                files.keep(shard, data)  # made anew after a power cut: it does not count as kept
            kept = store.keep(data * 8)
            tell("file", kept.path, kept.sha256)


def run(folder: Path, url: str, told: Path, more: dict[str, str]) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tools.trials.power", url, str(told)]
    env = os.environ | {"PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"} | more
    return subprocess.Popen(command, cwd=folder, env=env, stdout=-1, stderr=subprocess.STDOUT, text=True)


def name_of(path: Path) -> str:
    """As power.c names a file."""
    said = subprocess.run(["stat", "-c", "%i-%.9W", str(path)], capture_output=True, text=True, check=True).stdout
    return said.strip()


class Cut:
    """A folder as a power cut leaves it, made from what is there and from what fsyncs have noted."""

    def __init__(self, real: Path, shadow: Path, rng: random.Random | None) -> None:
        """rng: draws what of the rest is there; None: nothing of it."""
        self.real, self.shadow, self.rng = real, shadow, rng
        paths = [real, *real.rglob("*")]
        listed = subprocess.run(
            ["stat", "-c", "%i-%.9W", *map(str, paths)], capture_output=True, text=True, check=True
        ).stdout.split()
        self.by_name = dict(zip(listed, paths, strict=True))
        self.names = {path: name for name, path in self.by_name.items()}

    def lucky(self) -> bool:
        return self.rng is not None and self.rng.random() < 0.5

    def folder(self, name: str, out: Path) -> None:
        """Writes the folder with that name."""
        out.mkdir()
        noted = self.shadow / f"d{name}"
        entries = (
            dict(reversed(line.split(" ", 1)) for line in noted.read_text().splitlines()) if noted.exists() else {}
        )
        if (here := self.by_name.get(name)) is not None:
            now = {each.name: self.names[each] for each in here.iterdir()}
            for each in entries.keys() | now.keys():
                if entries.get(each) != now.get(each) and self.lucky():
                    entries.pop(each, None)
                    entries |= {each: now[each]} if each in now else {}
        for each, inode in sorted(entries.items()):
            here = self.by_name.get(inode)
            if (self.shadow / f"d{inode}").exists() or (here is not None and here.is_dir()):
                self.folder(inode, out / each)
            else:
                (out / each).write_bytes(self.content(inode, here))

    def content(self, inode: str, here: Path | None) -> bytes:
        noted = self.shadow / f"i{inode}"
        old = noted.read_bytes() if noted.exists() else b""
        new = here.read_bytes() if here is not None else old
        if self.rng is None or old == new:
            return old
        size = len(new) if self.lucky() else len(old)
        parts = [(new if self.lucky() else old)[at : at + BLOCK] for at in range(0, size, BLOCK)]
        blocks = [part.ljust(min(BLOCK, size - at * BLOCK), b"\0") for at, part in enumerate(parts)]
        return b"".join(blocks)[:size]


def asked(url: str) -> int:
    """How many requests were answered since it was asked the last time."""
    with urllib.request.urlopen(urllib.request.Request(url.replace("/v1", "/log"), method="POST")) as response:
        return sum(json.load(response)["answered"].values())


def results(folder: Path) -> dict[str, str]:
    """All files but the store and lock files, which are compared by what they say."""
    found = {str(file.relative_to(folder)): file for file in sorted(folder.rglob("*")) if file.is_file()}
    return {name: files.sha256(file) for name, file in found.items() if "sqlite" not in name and file.name != "lock"}


def answers(folder: Path) -> dict[str, Any]:
    """What was answered, without what it cost and when."""
    with resume.RecordCache(folder / STORE, paid=True) as cache:
        return {key: (meta["text"], meta["tokens"], data) for key, (meta, data) in cache.all()}


def shim(folder: Path) -> Path:
    """power.c, compiled into the folder."""
    made = folder / "power.so"
    source = str(Path(__file__).with_suffix(".c"))
    subprocess.run(["gcc", "-shared", "-fPIC", "-O1", "-o", str(made), source, "-ldl", "-lpthread"], check=True)
    return made


def attempt(
    place: Path, preload: Path, url: str, rng: random.Random, whole: tuple[Any, Any, dict[str, list[str]]]
) -> dict[str, Any]:
    """One power cut; `wrong` says what must not be."""
    real, shadow, told, after = (place / name for name in ("real", "shadow", "told", "after"))
    for folder in (real, shadow):
        folder.mkdir(parents=True)
    by_sync = rng.random() < 0.7
    more = {"LD_PRELOAD": str(preload), "POWER_SHADOW": str(shadow)}
    first = run(real, url, told, more | ({"POWER_CUT": str(rng.randrange(1, 110))} if by_sync else {}))
    if not by_sync:
        while not told.exists() and first.poll() is None:
            time.sleep(0.005)
        time.sleep(rng.uniform(0, 0.6))
        first.send_signal(signal.SIGKILL)
    said = first.communicate()[0]
    lines = [json.loads(line) for line in told.read_text().splitlines()] if told.exists() else []
    time.sleep(0.1)
    asked(url)
    Cut(real, shadow, rng if rng.random() < 0.5 else None).folder(name_of(real), after)
    wrong, counted = [], {key for what, key, _ in lines if what == "answer"}
    before = answers(after) if counted or (after / STORE).exists() else {}
    if lost := counted - before.keys():
        wrong.append(f"{len(lost)} of {len(counted)} paid answers lost")
    versions = whole[2]
    latest = {name: digest for what, name, digest in lines if what == "file"}
    for name, digest in latest.items():
        now = files.sha256(after / name) if (after / name).is_file() else ""
        if now not in versions[name][versions[name].index(digest) :]:  # that one, or one that was not told any more
            wrong.append(f"{name} lost, older or other bytes")
    second = run(after, url, place / "told again", {})
    said = second.communicate()[0]
    again = asked(url)
    if again != len(whole[0]) - len(before):
        wrong.append(f"{again} asked, {len(whole[0]) - len(before)} were missing")
    if second.returncode or "Traceback" in said:
        wrong.append(said[-1500:])
    elif answers(after) != whole[0] or results(after) != whole[1]:
        wrong.append(f"differ: {set(results(after).items()) ^ set(whole[1].items())}")
    shutil.rmtree(place)
    return {"kept": len(counted), "files": len(latest), "wrong": wrong, "again": again}


def main(count: int, seed: int) -> bool:
    """That many power cuts; whether nothing was lost and nothing silent."""
    server = subprocess.Popen([sys.executable, str(SERVER), '{"delay": 0.01}'], stdout=-1, text=True)
    assert server.stdout
    url = f"http://127.0.0.1:{int(server.stdout.readline())}/v1"
    ends: Counter[str] = Counter()
    try:
        with tempfile.TemporaryDirectory() as folder:
            place, preload = Path(folder), shim(Path(folder))
            (place / "whole").mkdir()
            undisturbed = run(place / "whole", url, place / "told", {})
            print(undisturbed.communicate()[0], end="")
            versions: dict[str, list[str]] = {}
            for what, name, digest in map(json.loads, (place / "told").read_text().splitlines()):
                versions.setdefault(name, []).extend([digest] * (what == "file"))
            whole = answers(place / "whole"), results(place / "whole"), versions
            asked(url)
            for number in range(count):
                rng = random.Random(f"power {seed} {number}")
                found = attempt(place / str(number), preload, url, rng, whole)
                ends.update(cuts=1, kept=found["kept"], files=found["files"], wrong=bool(found["wrong"]))
                ends["asked for again"] += found["again"]
                print(number, found, flush=True)
    finally:
        server.kill()
        server.wait()
    print(f"{ends['cuts']} power cuts: {dict(ends)}")
    return not ends["wrong"]


if __name__ == "__main__":
    child(sys.argv[1], Path(sys.argv[2]))
