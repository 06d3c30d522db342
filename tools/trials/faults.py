"""Faults in the graph on its small setting, each followed by `dvc repro`: is the end what it was, to the byte?

python -m tools.trials.faults [--count 100] [--first 0] [--seed 0] [--folder DIR] [--out FILE]

A fault hits a stage that DVC runs: SIGKILL or SIGTERM to the stage, a worker of it, dvc or the whole group; a worker
that hangs (SIGSTOP) until the user ends the run; a disk that fills up; work/ removed or its files damaged; and files
with times of 1970 or 2037. Afterwards nothing may run on, what `editjudge check` or a stage's line asks for is done,
and `dvc repro` must give the same hashes of all files in dvc.lock without a traceback. --folder: a small copy that has
run and is committed. --first: the number of the first fault, so that several folders can share the hundred.
"""

import argparse
import json
import os
import random
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil
import yaml

from tools import verify

ROOT = Path(__file__).parents[2]
# With the record cache that it has in work/, which is removed before a signal, so that it has something to do.
TARGETS = {
    "candidates@box": "candidates/box.sqlite",
    "candidates@leaky": "candidates/leaky.sqlite",
    "annotate@background_change": "annotate/background_change.sqlite",
    "annotate@color_alter": "annotate/color_alter.sqlite",
    "embed": "embed",
    "raw_pairs@color_alter": "",
    "filter": "",
    "train_pairs": "",
}
CACHED = [target for target, cache in TARGETS.items() if cache.endswith(".sqlite")]
ENDS = {"kill": signal.SIGKILL, "term": signal.SIGTERM}
WHOM = ("stage", "worker", "dvc", "group")
LIMIT = 300.0  # seconds of a run
OUT_OF_WAY = re.compile(r"(\S+\.sqlite): damaged \(.*\): move it away")


@dataclass
class Run:
    """`dvc repro` of one target in a folder, to be disturbed."""

    folder: Path
    target: str
    rng: random.Random
    said: str = ""

    @property
    def cache(self) -> Path:
        return self.folder / "work" / TARGETS[self.target]

    def start(self, *before: str) -> psutil.Popen:
        """before: words of a command that runs it."""
        command = [*before, "dvc", "repro", "-f", "-s", self.target]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        return psutil.Popen(command, cwd=self.folder, env=environment(), start_new_session=True, **pipes)

    def whole(self, *before: str) -> None:
        self.said += self.start(*before).communicate(timeout=LIMIT)[0]

    def forget(self) -> None:
        """What work/ has of the target."""
        if TARGETS[self.target]:
            for path in self.cache.parent.glob(f"{self.cache.name}*"):
                shutil.rmtree(path) if path.is_dir() else path.unlink()

    def find(self, dvc: psutil.Popen, whom: str) -> psutil.Process | None:
        """A process of the run, once it is there; None where the run ends without one."""
        while dvc.poll() is None:
            try:
                below = dvc.children(recursive=True)
                stages = [each for each in below if "editjudge.stages" in (line := each.cmdline()) or ran(line)]
                # Not Python's resource tracker, which does no work: after its kill Python prints KeyErrors of its own.
                workers = [each for stage in stages[-1:] for each in stage.children(recursive=True)]
                workers = [each for each in workers if "resource_tracker" not in " ".join(each.cmdline())]
                if found := {"stage": stages, "worker": workers, "dvc": [dvc], "group": stages}[whom]:
                    return found[-1]
            except psutil.NoSuchProcess:
                continue
            time.sleep(0.01)
        return None


def ran(line: list[str]) -> bool:
    return any(word.startswith("editjudge.stages.") for word in line)


def environment() -> dict[str, str]:
    env = os.environ | {"DVC_NO_ANALYTICS": "true", "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    return {name: value for name, value in env.items() if name != "PYTHONPATH"}  # dvc.yaml says where the code is


def signalled(run: Run, whom: str, how: str) -> None:
    """A signal at a random moment of the stage's work."""
    run.forget()
    dvc = run.start()
    process = run.find(dvc, whom)
    time.sleep(run.rng.uniform(0, 2.5))
    with suppress(ProcessLookupError, psutil.NoSuchProcess):  # it had ended before
        os.killpg(dvc.pid, ENDS[how]) if whom == "group" else process and process.send_signal(ENDS[how])
    run.said += dvc.communicate(timeout=LIMIT)[0]


def hang(run: Run) -> None:
    """A worker stops; its user waits a while and ends the run."""
    run.forget()
    dvc = run.start()
    worker = run.find(dvc, "worker")
    if worker is not None:
        worker.suspend()
        time.sleep(1.0)
        os.killpg(dvc.pid, signal.SIGTERM)
        time.sleep(1.0)
        worker.is_running() and worker.resume()
    run.said += dvc.communicate(timeout=LIMIT)[0]


def full_disk(run: Run, folder: str, kilobytes: int) -> None:
    """A small disk of its own lies over a folder while the target runs."""
    run.forget()
    mount = f'mount -t tmpfs -o size={kilobytes}k none {folder} && exec "$@"'
    run.whole("unshare", "-rm", "sh", "-c", mount, "sh")


def damaged(run: Run, how: str) -> None:
    """The target's file in work/ is damaged, and it runs again."""
    if not has_records(run.cache):  # an earlier fault came between the file and its table
        run.whole()
    DAMAGES[how](run.cache, run.rng)
    run.whole()


def has_records(cache: Path) -> bool:
    try:
        with closing(sqlite3.connect(f"file:{cache}?mode=ro", uri=True)) as connection:
            return bool(connection.execute("SELECT count(*) FROM records").fetchone()[0])
    except sqlite3.DatabaseError:  # none is there, or an earlier fault has damaged it
        return False


def cut(file: Path, rng: random.Random) -> None:
    os.truncate(file, rng.randrange(file.stat().st_size))


def overwritten(file: Path, rng: random.Random, first: int = 0, count: int = 100) -> None:
    with file.open("r+b") as out:
        out.seek(first)
        out.write(rng.randbytes(count))


def statement(file: Path, text: str) -> None:
    with sqlite3.connect(file) as connection:
        connection.execute(text)
    connection.close()


DAMAGES: dict[str, Callable[[Path, random.Random], None]] = {
    "cut": cut,
    "empty": lambda file, _: os.truncate(file, 0),
    "header": overwritten,
    "bytes": lambda file, rng: overwritten(file, rng, rng.randrange(100, file.stat().st_size), 4000),
    "noise": lambda file, rng: file.write_bytes(rng.randbytes(50_000)),
    "null": lambda file, _: statement(file, "UPDATE records SET data = NULL"),
    "one byte": lambda file, _: statement(file, "UPDATE records SET data = x'00'"),
    "another record": lambda file, _: statement(file, "UPDATE records SET meta = (SELECT min(meta) FROM records)"),
    "no table": lambda file, _: statement(file, "DROP TABLE records"),
    "log": lambda file, rng: file.with_name(f"{file.name}-wal").write_bytes(rng.randbytes(5000)),
}


def removed(run: Run) -> None:
    shutil.rmtree(run.folder / "work")
    run.whole()


def clock(run: Run, year: int) -> None:
    """All files have the times of another year, as after a jump of the clock."""
    seconds = (year - 1970) * 365.25 * 86400
    for path in [*run.folder.glob("src/**/*"), *run.folder.glob("data/**/*"), *run.folder.glob("work/**/*")]:
        os.utime(path, (seconds, seconds))
    run.whole()


FAULTS: dict[str, tuple[list[str], Callable[[Run], None]]] = {
    **{
        f"{how} {whom}": (
            CACHED if whom == "worker" else list(TARGETS),
            lambda run, w=whom, h=how: signalled(run, w, h),
        )
        for whom in WHOM
        for how in ENDS
    },
    "hang": (CACHED, hang),
    "full work": (CACHED, lambda run: full_disk(run, "work", 100)),
    "full data": (CACHED[2:], lambda run: full_disk(run, "data/annotations", 4)),
    **{f"damaged: {how}": (CACHED, lambda run, h=how: damaged(run, h)) for how in DAMAGES},
    "removed": (["train_pairs"], removed),
    "clock 1970": (["filter"], lambda run: clock(run, 1970)),
    "clock 2037": (["filter"], lambda run: clock(run, 2037)),
}


def results(folder: Path) -> dict[str, str]:
    return verify.results(yaml.safe_load((folder / "dvc.lock").read_text())["stages"])


def left_over(folder: Path) -> list[int]:
    """Processes that still work in the folder, ten seconds after."""
    deadline = time.monotonic() + 10
    while (found := [each.pid for each in psutil.process_iter(["cwd"]) if each.info["cwd"] == str(folder)]) and (
        time.monotonic() < deadline
    ):
        time.sleep(0.1)
    return found


def obey(folder: Path, said: str) -> str:
    """Does what the lines ask for; what they said. The lock is restored, a damaged file moved away."""
    told = ""
    if subprocess.run(["git", "diff", "--quiet", "dvc.lock"], cwd=folder, check=False).returncode:
        check, env = [sys.executable, "-m", "editjudge", "check"], environment() | {"PYTHONPATH": "src"}
        lines = subprocess.run(check, cwd=folder, env=env, capture_output=True, text=True, check=False)
        told = lines.stdout + lines.stderr
    if "git restore dvc.lock" in told:
        subprocess.run(["git", "restore", "dvc.lock"], cwd=folder, check=True)
    for name in OUT_OF_WAY.findall(said):
        for path in (folder / name).parent.glob(f"{Path(name).name}*"):
            path.unlink()
    return told


def repro(folder: Path) -> str:
    """`dvc repro` of the graph, twice where a line asks for something first; what it said."""
    said = ""
    for _ in range(2):
        done = subprocess.run(
            ["dvc", "repro"], cwd=folder, env=environment(), capture_output=True, text=True, check=False, timeout=LIMIT
        )
        said += done.stdout + done.stderr
        if done.returncode == 0:
            break
        obey(folder, said)
    return said


def attempt(folder: Path, name: str, target: str, seed: int) -> list[str]:
    """One fault; what is wrong afterwards, nothing if it was survived. The folder's dvc.lock is as git has it."""
    before, run = results(folder), Run(folder, target, random.Random(seed))
    FAULTS[name][1](run)
    wrong = [f"processes go on: {pids}"] if (pids := left_over(folder)) else []
    run.said += obey(folder, run.said)
    run.said += repro(folder)
    now = results(folder)
    if differ := [path for path in {**before, **now} if before.get(path) != now.get(path)]:
        wrong.append(f"differ: {', '.join(differ)}")
    if "Traceback" in run.said:
        wrong.append(f"a traceback: {run.said[run.said.index('Traceback') :][:3000]}")
    return wrong


def small(folder: Path) -> Path:
    """A small copy of the repository in which the graph has run, committed."""
    folder.mkdir(parents=True, exist_ok=True)
    verify.small_copy(ROOT, folder)
    subprocess.run(["dvc", "repro"], cwd=folder, env=environment(), check=True, stdout=subprocess.DEVNULL)
    commit(folder)
    return folder


def commit(folder: Path) -> None:
    name = ["-c", "user.name=t", "-c", "user.email=t"]
    subprocess.run(["git", "add", "-A"], cwd=folder, check=True)
    subprocess.run(["git", *name, "commit", "-qm", "state", "--allow-empty"], cwd=folder, check=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--out", type=Path, default=Path("faults.json"))
    parser.add_argument("--at-rest", type=int, metavar="N", help="damages of kept files instead, see at_rest.py")
    parser.add_argument("--stages", type=int, default=20, help="with --at-rest: so many are followed by a whole stage")
    parser.add_argument("--power", type=int, metavar="N", help="power cuts instead, see power.py")
    given = parser.parse_args()
    if given.power:
        from tools.trials import power

        sys.exit(not power.main(given.power, given.seed))
    with tempfile.TemporaryDirectory() as place:
        folder = given.folder.resolve() if given.folder else small(Path(place, "copy"))
        if given.at_rest:
            from tools.trials import at_rest

            sys.exit(not at_rest.main(given.at_rest, given.stages, given.seed, folder))
        tried: list[dict] = []
        for number in range(given.first, given.first + given.count):
            rng = random.Random(f"{given.seed} {number}")
            name = list(FAULTS)[number % len(FAULTS)]
            target = rng.choice(FAULTS[name][0])
            start = time.monotonic()
            wrong = attempt(folder, name, target, number)
            seconds = round(time.monotonic() - start, 1)
            tried.append({"fault": name, "target": target, "wrong": wrong, "seconds": seconds})
            given.out.write_text(json.dumps(tried, indent=1) + "\n")
            print(number, name, target, wrong or "survived", seconds, flush=True)
        print(f"{sum(not each['wrong'] for each in tried)} of {len(tried)} faults survived")


if __name__ == "__main__":
    main()
