"""Stage raw_pairs: the raw (image, instruction) pairs of one edit task, from the probe set's training photos."""

import argparse
from pathlib import Path

from editjudge import params, records
from editjudge.probe import scenes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--task", required=True)
    task = parser.parse_args().task
    values = params.load()
    count, side = params.positive(values, "raw_pairs.per_task"), params.positive(values, "raw_pairs.image_side")
    rows = scenes.make_pairs(task, "train", count, side, params.leaf(values, "raw_pairs.seed"))
    records.write(Path(f"data/raw_pairs/{task}.parquet"), rows, "raw_pairs")


if __name__ == "__main__":
    main()
