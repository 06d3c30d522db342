"""Stage embed: one unit-norm vector for each raw pair of a task."""

import argparse
from pathlib import Path

import numpy as np

from editjudge import embedders, images, params, records


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--task", required=True)
    task = parser.parse_args().task
    backend = embedders.BACKENDS[params.choice(params.load(), "embed.backend", embedders.BACKENDS)]
    pairs = records.read(Path(f"data/raw_pairs/{task}.parquet"), "raw_pairs")
    vectors = backend([images.decode(p["image"]) for p in pairs], [p["instruction"] for p in pairs])
    out = Path(f"data/embeddings/{task}.npy")
    out.parent.mkdir(parents=True, exist_ok=True)
    np.save(out, vectors)


if __name__ == "__main__":
    main()
