"""The whole small graph on a Ray cluster of pretended nodes, one core each: are its bytes those that are committed?

    python -m tools.trials.cluster [--nodes 3] [--strike]

--strike: a worker is killed and the last node is taken away while the first editor works. Exit 1: something differs.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil
import ray
import yaml
from ray.cluster_utils import Cluster

from tools import verify

ROOT = Path(__file__).parents[2]


def actors() -> list[psutil.Process]:
    return [each for each in psutil.Process().children(recursive=True) if each.name().startswith("ray::_Actor")]


def strike(cluster: Cluster, node: Any, folder: Path, graph: subprocess.Popen[bytes]) -> None:
    """Once an editor's workers are there."""
    while graph.poll() is None and not ((folder / "work/candidates").exists() and actors()):
        time.sleep(0.1)
    for each in actors()[:1]:
        each.kill()
    cluster.remove_node(node, allow_graceful=False)
    print(f"a worker was killed and a node was taken away, {len(ray.nodes())} were there", file=sys.stderr)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=3)
    parser.add_argument("--strike", action="store_true")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        verify.small_copy(ROOT, folder)
        os.environ["PYTHONPATH"] = str(folder / "src")  # of the nodes, too
        cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1}, connect=True)
        nodes = [cluster.add_node(num_cpus=1) for _ in range(given.nodes - 1)]
        cluster.wait_for_nodes()
        programs = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"  # stages are run as `python`
        environment = os.environ | {"EDITJUDGE_ENGINE": "ray", "RAY_ADDRESS": cluster.address, "PATH": programs}
        start = time.monotonic()
        graph = subprocess.Popen([sys.executable, ROOT / "tools/quick_dvc.py", "repro"], cwd=folder, env=environment)
        try:
            if given.strike:
                strike(cluster, nodes[-1], folder, graph)
            if graph.wait():
                return 1
        finally:
            graph.terminate()
            ray.shutdown()
            cluster.shutdown()
        lock = yaml.safe_load((folder / "dvc.lock").read_text())["stages"]
        text, same = verify.differences(json.loads((ROOT / verify.SMALL_RESULTS).read_text()), lock)
    print(f"{text}, in {time.monotonic() - start:.0f} s on {given.nodes} nodes")
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
