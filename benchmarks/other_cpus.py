"""Where another CPU gives other bytes: the golden test's values under qemu, stage by stage.

Needs qemu-user (`apt-get install qemu-user`). `python benchmarks/other_cpus.py [CPU ...]`; `qemu-x86_64 -cpu help`
lists them.
"""

import json
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

ROOT = Path(__file__).parents[1]
CPUS = ("Haswell", "EPYC-Milan")  # the oldest Intel with AVX2, and an AMD without AVX-512


def differences(cpu: str, golden: dict[str, str]) -> list[str]:
    """The stages whose value on the CPU is another, or that it did not reach."""
    script = ROOT / "tests/helpers/golden.py"
    # The interpreter itself: a virtual environment's link would make qemu look for its packages elsewhere.
    command = ["qemu-x86_64", "-cpu", cpu, os.path.realpath(sys.executable), str(script)]
    places = [str(ROOT / "src"), sysconfig.get_paths()["purelib"]]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(places)}
    done = subprocess.run(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True, check=False)
    found = dict(line.split() for line in done.stdout.splitlines() if line.split(" ")[0] in golden)
    return [stage for stage, value in golden.items() if found.get(stage) != value]


def main() -> None:
    if shutil.which("qemu-x86_64") is None:
        sys.exit("other_cpus: qemu-x86_64 is not installed")
    golden = json.loads((ROOT / "tests/golden.json").read_text())
    other = {cpu: differences(cpu, golden) for cpu in sys.argv[1:] or CPUS}
    for cpu, stages in other.items():
        print(f"{cpu}: " + (f"other bytes of {', '.join(stages)}" if stages else f"all {len(golden)} equal"))
    sys.exit(any(other.values()))


if __name__ == "__main__":
    main()
