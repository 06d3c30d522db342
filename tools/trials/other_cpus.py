"""Where another CPU gives other bytes: the golden test's values under qemu, stage by stage.

Needs qemu-user (`apt-get install qemu-user`); `qemu-x86_64 -cpu help` lists the CPUs. Each takes a
quarter of an hour.

    python -m tools.trials.other_cpus [--cpu NAME ...] [STAGE ...]

Exit 0: all values are the committed ones. 1: some differ, or a CPU's run ended early.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[2]
CPUS = ("Haswell", "EPYC-Milan")  # the oldest Intel with AVX2, and an AMD without AVX-512


def run(cpu: str, golden: dict[str, str]) -> list[str]:
    """Tells each stage of the CPU's run as it ends; returns what is wrong, in the order of the graph."""
    # The interpreter itself: a virtual environment's link would make qemu look for its packages elsewhere.
    python, script = os.path.realpath(sys.executable), str(ROOT / "tests/helpers/golden.py")
    places = [str(ROOT / "src"), str(ROOT), sysconfig.get_paths()["purelib"]]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(places)}
    environment.pop("EDITJUDGE_PORTABLE", None)
    wrong, missing, start = [], list(golden), time.monotonic()
    command = ["qemu-x86_64", "-cpu", cpu, python, script, *golden]
    with (
        tempfile.TemporaryFile("w+") as errors,  # the CPU's own warnings and progress bars, told only where a run fails
        subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=errors, text=True) as child,
    ):
        for stage, value in (line.split() for line in child.stdout or () if line.split(" ")[0] in golden):
            missing.remove(stage)
            verdict = "equal" if value == golden[stage] else f"DIFFERS: {value}, not {golden[stage]}"
            if value != golden[stage]:
                wrong.append(f"other bytes of {stage}")
            print(f"{cpu:12}{stage:28}{time.monotonic() - start:7.0f} s   {verdict}", flush=True)
        if child.wait():
            errors.seek(0)
            print(*errors.readlines()[-20:], sep="")
    if child.returncode or missing:
        wrong.append(f"ended with exit code {child.returncode} before {missing[0] if missing else 'its end'}")
    return wrong


def main() -> None:
    golden = json.loads((ROOT / "tests/golden.json").read_text())
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cpu", action="append", help=f"may be given several times; by default {' and '.join(CPUS)}")
    parser.add_argument("stages", nargs="*", metavar="STAGE", help=f"all of {', '.join(golden)} by default")
    given = parser.parse_args()
    if unknown := set(given.stages) - set(golden):
        parser.error(f"no such stage: {', '.join(sorted(unknown))}")
    if shutil.which("qemu-x86_64") is None:
        sys.exit("other_cpus: qemu-x86_64 is not installed (apt-get install qemu-user)")
    golden = {stage: golden[stage] for stage in given.stages or golden}
    wrong = {cpu: run(cpu, golden) for cpu in given.cpu or CPUS}
    for cpu, stages in wrong.items():
        print(f"{cpu}: " + (", ".join(stages) if stages else f"all {len(golden)} equal"))
    sys.exit(any(wrong.values()))


if __name__ == "__main__":
    main()
