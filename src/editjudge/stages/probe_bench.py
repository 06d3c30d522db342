"""Stage probe_bench: preference pairs with known truth from held-out photos, in VCReward-Bench's published form."""

from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from editjudge.core import images, params, records
from editjudge.core.main import stage
from editjudge.core.settings import section
from editjudge.core.winner import SIDES
from editjudge.editors import procedural
from editjudge.engine import workers
from editjudge.sources.builtin import scenes
from editjudge.sources.settings import ProbeBenchSetting, RawPairs


def make_pair(prompt: records.Row, amounts: dict[str, float], least_gap: float, seed: int) -> records.Row | None:
    """Two edits of a prompt by editors drawn at random; None where no damages are `least_gap` (mean ΔE) apart."""
    rng = np.random.default_rng([seed, *prompt["key"].encode()])
    source, edit = images.decode(prompt["image"]), procedural.parse_edit(prompt["edit"])
    edits = {kind: procedural.edit_image(source, edit, kind, amounts[kind], rng) for kind in sorted(amounts)}
    pairs = [(a, b) for a in edits for b in edits if abs(edits[a][1] - edits[b][1]) >= least_gap]
    if not pairs:
        return None
    models = pairs[int(rng.integers(len(pairs)))]
    damages = [round(edits[model][1], 4) for model in models]
    return {name: prompt[name] for name in ("key", "task", "instruction")} | {
        "source_image": {"bytes": prompt["image"], "path": None},
        "edited_images": [{"bytes": images.encode_png(edits[m][0]), "path": None} for m in models],
        "winner": SIDES[int(damages[1] < damages[0])],
        "models": list(models),
        "damages": damages,
        "origin": prompt["origin"],
        "regions": prompt["regions"],
    }


def run() -> None:
    values = params.load()
    setting = section(values, "probe_bench", ProbeBenchSetting)
    side = section(values, "raw_pairs", RawPairs).image_side
    prompts = [
        prompt
        for task in params.leaf(values, "tasks")
        if task in scenes.EDITS  # others have raw pairs from elsewhere, and nothing with known damage
        for prompt in scenes.make_pairs(task, "benchmark", setting.per_task, side, setting.seed)
    ]
    amounts = {str(name): amount for name, amount in setting.amounts.items()}
    make = partial(make_pair, amounts=amounts, least_gap=setting.least_gap, seed=setting.seed)
    rows = [pair for pair in workers.spread(make, prompts, "benchmark pairs") if pair is not None]
    records.write(Path("data/probe_bench.parquet"), rows, "vcreward_bench")
    counts: dict[str, Any] = {"pairs": len(rows), "prompts_without_pair": len(prompts) - len(rows)}
    for name, field in (("task", "task"), ("photo", "origin")):
        each = sorted(Counter(row[field] for row in rows).items())
        counts[f"per_{name}"] = [{name: value, "pairs": number} for value, number in each]
    records.write_details(Path("metrics/probe_bench.json"), counts)


if __name__ == "__main__":
    stage(__doc__, run)
