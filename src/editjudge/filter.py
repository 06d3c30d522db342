"""Stage filter: keep the `filter.sample_num` most diverse raw pairs of a task (k-center greedy)."""

import argparse
from pathlib import Path

import numpy as np

from editjudge import params, records
from editjudge.coreset import STARTS, k_center_greedy


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--task", required=True)
    task = parser.parse_args().task
    values = params.load()
    wanted, start = params.positive(values, "filter.sample_num"), params.choice(values, "filter.start", STARTS)
    rng = np.random.default_rng(params.leaf(values, "filter.seed"))
    pairs = records.read(Path(f"data/raw_pairs/{task}.parquet"), "raw_pairs")
    if wanted > len(pairs):
        print(f"{task}: filter.sample_num is {wanted}, the pool has {len(pairs)}: all are kept")
    chosen = k_center_greedy(np.load(f"data/embeddings/{task}.npy"), wanted, start=start, rng=rng)
    records.write(Path(f"data/pools/{task}.parquet"), [pairs[i] for i in chosen.indices], "pools")
    report = {"records": len(chosen.indices), "pool": [len(pairs)], "covering_radius": [float(chosen.radii[-1])]}
    records.write_json(Path(f"metrics/filter/{task}.json"), report)


if __name__ == "__main__":
    main()
