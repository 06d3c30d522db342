"""Stage annotate: the region measures of every candidate of one task.

A prompt's source is decoded and encoded once for all its candidates. A record whose inputs, recipe and code are as
they were is taken from work/; one that cannot be measured is a failed record with a reason.
"""

import argparse
from pathlib import Path
from typing import Any

from editjudge import params, records, resume
from editjudge.measures import batch
from editjudge.measures.recipe import Recipe, load_recipe

Rows = list[records.Row]


def annotate(prompts: Rows, candidates: Rows, recipe: Recipe, cache: resume.RecordCache) -> Rows:
    """One annotation a candidate: prompt by prompt in the pool's order, models in order of their names."""
    by_prompt: dict[str, Rows] = {p["key"]: [] for p in prompts}
    for row in sorted(candidates, key=lambda row: row["model"]):
        by_prompt[row["key"]].append(row)
    done = {p["key"]: [row for row in by_prompt[p["key"]] if row["status"] == "done"] for p in prompts}
    asked = [
        batch.Prompt(
            p["image"],
            tuple(tuple(region["box"]) for region in p["regions"]),
            recipe,
            tuple(row["image"] for row in done[p["key"]]),
        )
        for p in prompts
    ]
    taken = batch.measure_all(asked, cache, f"annotations of {recipe.task}")
    found = {
        (row["key"], row["model"]): meta
        for p, metas in zip(prompts, taken, strict=True)
        for row, meta in zip(done[p["key"]], metas, strict=True)
    }
    return [_annotation(row, found) for p in prompts for row in by_prompt[p["key"]]]


def _annotation(row: records.Row, found: dict[tuple[str, str], dict[str, Any]]) -> records.Row:
    meta = found.get((row["key"], row["model"])) or batch.failed(f"candidate: {row['reason']}")
    return {"key": row["key"], "task": row["task"], "model": row["model"], "damage": row["damage"]} | meta


def counts(rows: Rows) -> dict[str, Any]:
    """How many candidates were measured and failed, and how many values each measure has and lacks."""
    values: dict[tuple[str, str], list[float | None]] = {}
    for m in (m for row in rows for m in row["measures"]):
        values.setdefault((m["area"], m["measure"]), []).append(m["value"])
    return {
        "records": len(rows),
        "failed": sum(row["status"] == "failed" for row in rows),
        "measures": [
            {"area": area, "measure": name, "scored": len(v) - v.count(None), "unscored": v.count(None)}
            for (area, name), v in sorted(values.items())
        ],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--task", required=True)
    task = parser.parse_args().task
    values = params.load()
    files = [Path(f"data/candidates/{model}.parquet") for model in sorted(params.leaf(values, "editors"))]
    candidates = [row for f in files for row in records.iterate(f, "candidates") if row["task"] == task]
    recipe = load_recipe(Path(f"pipelines/{params.leaf(values, f'tasks.{task}')}/{task}.yaml"))
    prompts = records.read(Path(f"data/pools/{task}.parquet"), "pools")
    with resume.RecordCache(Path(f"work/annotate/{task}.sqlite")) as cache:
        rows = annotate(prompts, candidates, recipe, cache)
        records.write_json(Path(f"metrics/resume/annotate_{task}.json"), cache.counts())
    records.write(Path(f"data/annotations/{task}.parquet"), rows, "annotations")
    records.write_json(Path(f"metrics/annotate/{task}.json"), counts(rows))


if __name__ == "__main__":
    main()
