"""Stage gedit_bench: the arena's prompts, from held-out photos, in GEditBench v2's published form."""

from pathlib import Path

from editjudge import params, records
from editjudge.probe import scenes

COLUMNS = ("key", "task", "instruction", "origin", "regions", "edit")


def main() -> None:
    values = params.load()
    setting, side = params.leaf(values, "gedit_bench"), params.positive(values, "raw_pairs.image_side")
    rows = [
        {name: pair[name] for name in COLUMNS} | {"source_image": {"bytes": pair["image"], "path": None}}
        for task in params.leaf(values, "tasks")
        for pair in scenes.make_pairs(task, "benchmark", setting["per_task"], side, setting["seed"])
    ]
    records.write(Path("data/gedit_bench.parquet"), rows, "gedit_bench")


if __name__ == "__main__":
    main()
