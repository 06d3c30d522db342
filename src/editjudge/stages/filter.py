"""Stage filter: keep the `filter.sample_num` most diverse raw pairs of each task (k-center greedy), and say how well
they cover the pool beside a choice by chance."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.parquet as pq

from editjudge.core import params, records
from editjudge.core.errors import FileError
from editjudge.core.main import stage
from editjudge.core.settings import section
from editjudge.sources.selection.coreset import Coverage, coverage, k_center_greedy, random_coverage
from editjudge.sources.selection.embedders import open_vectors
from editjudge.sources.settings import FilterSetting

POINTS = 200  # of a curve
AHEAD = 2  # the curves go on to so many times the rows kept, to show what more of them would bring


def choose(
    embeddings: np.ndarray, sources: Sequence[str | None] | None, setting: FilterSetting, task: str
) -> np.ndarray:
    """The pool's rows in order of choice, on to AHEAD times `sample_num`, those kept first. ParamsError, FileError."""
    if setting.quotas and sources is None:
        raise params.ParamsError("filter.quotas needs the column source, which the raw pairs do not have")
    selected = None  # the vectors (m, d) to keep away from
    if setting.already_selected:
        try:
            selected = open_vectors(Path(setting.already_selected.replace("{task}", task)))
        except ValueError as error:
            raise params.ParamsError(f"filter.already_selected: {error}") from error
        if selected.ndim != 2:
            shape = selected.shape
            raise params.ParamsError(f"filter.already_selected must hold vectors (m, d), not an array of {shape}")
    wanted, quotas = AHEAD * setting.sample_num, dict(setting.quotas)
    how: dict[str, Any] = {"start": setting.start, "seed": setting.seed, "what": f"choosing of {task}"}
    try:
        return k_center_greedy(embeddings, wanted, already_selected=selected, sources=sources, quotas=quotas, **how)
    except ValueError as error:
        raise FileError(f"data/embeddings/{task}.npy: {error}") from error


def curve(task: str, chosen: Coverage, by_chance: Coverage) -> list[records.Row]:
    """The task's coverage by the number of centres, at no more than POINTS of them, evenly spread."""
    counts = np.unique(np.linspace(1, len(chosen.radii), POINTS).round().astype(int))
    covered = {"centres": counts, "radius": chosen.radii[counts - 1], "random_radius": by_chance.radii[counts - 1]}
    covered |= {"mean_distance": chosen.means[counts - 1], "random_mean_distance": by_chance.means[counts - 1]}
    rows: list[Any] = pd.DataFrame({"task": task, **covered}).to_dict("records")
    return rows


def keep(task: str, setting: FilterSetting) -> tuple[dict[str, Any], list[records.Row]]:
    """Writes the task's pool, and gives its metrics and its `curve`. Raises ValueError.

    lacking: how many fewer than wanted are kept; the others are cosine distances, 0..2, to those kept."""
    pairs = Path(f"data/raw_pairs/{task}.parquet")
    embeddings = open_vectors(Path(f"data/embeddings/{task}.npy"))
    if embeddings.ndim != 2:
        raise FileError(f"data/embeddings/{task}.npy: a matrix (N, d) is expected, not of shape {embeddings.shape}")
    next(records.iterate(pairs, "raw_pairs"), None)  # ContractError for another file
    file = pq.ParquetFile(pairs)
    if (count := file.metadata.num_rows) != len(embeddings):
        raise records.ContractError(f"{pairs} has {count} rows, its embeddings {len(embeddings)}")
    sources = file.read(columns=["source"])["source"].to_pylist() if "source" in file.schema_arrow.names else []
    order = choose(embeddings, sources if any(sources) else None, setting, task)
    kept = order[: setting.sample_num]
    if len(kept) < setting.sample_num:
        less = "under filter.quotas" if setting.quotas else "in all"
        print(f"{task}: filter.sample_num is {setting.sample_num}, the pool gives {len(kept)} {less}: they are kept")
    rng = np.random.default_rng([setting.seed, 1])
    chosen = coverage(embeddings, order)
    by_chance = random_coverage(embeddings, len(order), setting.random_draws, rng, what=f"chance choices of {task}")
    wanted = set(kept.tolist())  # the others are read past, a row group at a time
    found = {n: row for n, row in enumerate(records.iterate(pairs, "raw_pairs")) if n in wanted}
    records.write(Path(f"data/pools/{task}.parquet"), [found[index] for index in kept.tolist()], "pools")
    pool, lacking, last = len(embeddings), setting.sample_num - len(kept), len(kept) - 1
    metrics: dict[str, Any] = {"pool": pool, "records": len(kept), "lacking": lacking}
    for role, covered in (("", chosen), ("random_", by_chance)):
        metrics[f"{role}covering_radius"] = float(covered.radii[last])
        metrics[f"{role}mean_distance"] = float(covered.means[last])
    return metrics, curve(task, chosen, by_chance)


def run() -> None:
    values = params.load()
    setting = section(values, "filter", FilterSetting)
    kept = {task: keep(task, setting) for task in params.leaf(values, "tasks")}
    records.write_details(Path("metrics/filter.json"), {task: counts for task, (counts, _) in kept.items()})
    records.write_csv(Path("plots/coverage.csv"), [row for _, rows in kept.values() for row in rows])


if __name__ == "__main__":
    stage(__doc__, run)
