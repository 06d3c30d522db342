"""Results as self-contained files, for the hub or another program.

    python -m editjudge.commands.export pairs --out pairs.parquet    data/train_pairs.parquet with the images inside

`pairs` are in VCReward-Bench's published form, which `datasets.load_dataset("parquet", ...)` loads with its images.
"""

import argparse
import json
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from editjudge.core import records
from editjudge.core.files import replacing
from editjudge.core.main import guarded
from editjudge.core.progress import progress
from editjudge.core.schemas import ContractError
from editjudge.pairs.pictures import Pictures, file_of, names_of

PAIRS = Path("data/train_pairs.parquet")
MOST_BYTES = 2_000_000_000  # of row groups that are kept: the pairs of a prompt need one of each model
TEXTS = ("key", "prompt", "task", "instruction", "winner", "tiers")
IMAGE = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
FEATURES = {
    **{name: {"dtype": "string", "_type": "Value"} for name in (*TEXTS, "origin")},
    "source_image": {"_type": "Image"},
    "edited_images": {"feature": {"_type": "Image"}, "_type": "List"},
    "models": {"feature": {"dtype": "string", "_type": "Value"}, "_type": "List"},
    "damages": {"feature": {"dtype": "float64", "_type": "Value"}, "_type": "List"},
    "margin": {"dtype": "float64", "_type": "Value"},
}
FORM = pa.schema(
    [
        *((name, pa.string()) for name in (*TEXTS, "origin")),
        ("source_image", IMAGE),
        ("edited_images", pa.list_(IMAGE)),
        ("models", pa.list_(pa.string())),
        ("damages", pa.list_(pa.float64())),
        ("margin", pa.float64()),
    ],
    metadata={"huggingface": json.dumps({"info": {"features": FEATURES}})},
)


def with_images(pairs: list[records.Row]) -> Iterator[records.Row]:
    """The pairs in the published form. damages are [null, null] unless both are known. ContractError: no image."""
    pictures = Pictures((name for pair in pairs for name in names_of(pair)), MOST_BYTES)
    origins = {
        (task, row["key"]): row["origin"]
        for task in {pair["task"] for pair in pairs}
        for row in pq.read_table(f"data/pools/{task}.parquet", columns=["key", "origin"]).to_pylist()
    }
    for pair in progress(pairs, len(pairs), "pairs"):
        shown = []
        for name in names_of(pair):
            if not (data := pictures(name)):
                raise ContractError(f"{file_of(name)}: no image of {pair['prompt']}, for the pair {pair['key']}")
            shown.append({"bytes": data, "path": None})
        damages = [pair["damage_a"], pair["damage_b"]]
        yield {
            **{name: pair[name] for name in (*TEXTS, "margin")},
            "origin": origins[pair["task"], pair["prompt"]],  # the cluster of its intervals
            "source_image": shown[0],
            "edited_images": shown[1:],
            "models": [pair["model_a"], pair["model_b"]],
            "damages": damages if None not in damages else [None, None],
        }


def export_pairs(out: Path) -> None:
    """Writes the pairs, a row group in memory at a time, through a temporary name."""
    rows = with_images(records.read(PAIRS, "train_pairs"))
    with replacing(out) as partial, pq.ParquetWriter(partial, FORM, compression="zstd") as file:
        for group in records.in_groups(rows):
            file.write_table(pa.Table.from_pylist(group, schema=FORM))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["pairs"])
    parser.add_argument("--out", type=Path, required=True, metavar="FILE", help="Parquet; replaced if it is there")
    options = parser.parse_args()
    guarded("export", export_pairs, options.out)


if __name__ == "__main__":
    main()
