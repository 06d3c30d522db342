"""Stage filter: keep the `filter.sample_num` most diverse raw pairs of a task (k-center greedy), and say how well they
cover the pool beside a choice by chance."""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from editjudge import params, records, schemas
from editjudge.coreset import STARTS, Coreset, k_center_greedy
from editjudge.coreset_coverage import Coverage, coverage, random_coverage
from editjudge.coreset_torch import products_for

POINTS = 200  # of a curve
AHEAD = 2  # the curves go on to so many times the rows kept, to show what more of them would bring


def settings(values: dict[str, Any]) -> dict[str, Any]:
    """The checked section `filter` of params.yaml. Raises ParamsError that names the key."""
    for key in ("sample_num", "random_draws"):
        params.positive(values, f"filter.{key}")
    params.choice(values, "filter.start", STARTS)
    for key in ("seed", "device"):
        params.leaf(values, f"filter.{key}")
    quotas = values["filter"].get("quotas") or {}
    wrong = [name for name, most in quotas.items() if not isinstance(most, int) or isinstance(most, bool) or most < 0]
    if wrong:
        raise params.ParamsError(f"params.yaml: filter.quotas.{wrong[0]} must be a whole number of at least 0")
    return values["filter"] | {"quotas": quotas}


def choose(embeddings: np.ndarray, sources: Sequence[str | None] | None, setting: dict[str, Any], task: str) -> Coreset:
    """The pool's rows in order of choice, on to AHEAD times `sample_num` of them (those kept come first)."""
    if setting["quotas"] and sources is None:
        raise params.ParamsError("filter.quotas needs the column source, which the raw pairs do not have")
    wanted, path = AHEAD * setting["sample_num"], setting.get("already_selected")
    return k_center_greedy(
        embeddings,
        wanted,
        start=setting["start"],
        rng=np.random.default_rng(setting["seed"]),
        already_selected=np.load(path.format(task=task), mmap_mode="r") if path else None,
        sources=sources,
        quotas=setting["quotas"],
        products=products_for(setting["device"], 2.0 * embeddings.size * wanted),
        what=f"choosing of {task}",
    )


def report(wanted: int, pool: int, kept: int, chosen: Coverage, by_chance: Coverage) -> dict[str, Any]:
    """The task's metrics: `lacking` is how many fewer than wanted are kept; cosine distances, 0..2, to those kept."""
    return {
        "pool": pool,
        "records": kept,
        "lacking": wanted - kept,
        "covering_radius": float(chosen.radii[kept - 1]),
        "mean_distance": float(chosen.means[kept - 1]),
        "random_covering_radius": float(by_chance.radii[kept - 1]),
        "random_mean_distance": float(by_chance.means[kept - 1]),
    }


def curve(chosen: Coverage, by_chance: Coverage) -> list[records.Row]:
    """Coverage by the number of centres, at no more than POINTS of them, evenly spread."""
    counts = np.unique(np.linspace(1, len(chosen.radii), POINTS).round().astype(int))
    return [
        {
            "centres": int(count),
            "radius": float(chosen.radii[count - 1]),
            "random_radius": float(by_chance.radii[count - 1]),
            "mean_distance": float(chosen.means[count - 1]),
            "random_mean_distance": float(by_chance.means[count - 1]),
        }
        for count in counts
    ]


def sources_of(path: Path, rows: int) -> list[str | None] | None:
    """Where each raw pair comes from; None where no pair says it. ContractError for another count of rows."""
    file = pq.ParquetFile(path)
    if file.metadata.num_rows != rows:
        raise schemas.ContractError(f"{path} has {file.metadata.num_rows} rows, its embeddings {rows}")
    if "source" not in file.schema_arrow.names:
        return None
    sources = file.read(columns=["source"])["source"].to_pylist()
    return sources if any(sources) else None


def picked(path: Path, indices: np.ndarray) -> list[records.Row]:
    """The raw pairs of these rows, in this order; the others are read past, a row group at a time."""
    wanted = {int(index): place for place, index in enumerate(indices)}
    found = {wanted[n]: row for n, row in enumerate(records.iterate(path, "raw_pairs")) if n in wanted}
    return [found[place] for place in range(len(indices))]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--task", required=True)
    task = parser.parse_args().task
    setting, pairs = settings(params.load()), Path(f"data/raw_pairs/{task}.parquet")
    embeddings = np.load(f"data/embeddings/{task}.npy", mmap_mode="r")
    order = choose(embeddings, sources_of(pairs, len(embeddings)), setting, task).indices
    kept = order[: setting["sample_num"]]
    if len(kept) < setting["sample_num"]:
        print(f"{task}: filter.sample_num is {setting['sample_num']}, the pool gives {len(kept)}: all are kept")
    rng = np.random.default_rng([setting["seed"], 1])
    chosen = coverage(embeddings, order)
    by_chance = random_coverage(embeddings, len(order), setting["random_draws"], rng, what=f"chance choices of {task}")
    records.write(Path(f"data/pools/{task}.parquet"), picked(pairs, kept), "pools")
    values = report(setting["sample_num"], len(embeddings), len(kept), chosen, by_chance)
    records.write_json(Path(f"metrics/filter/{task}.json"), values)
    records.write_csv(Path(f"plots/coverage/{task}.csv"), curve(chosen, by_chance))


if __name__ == "__main__":
    main()
