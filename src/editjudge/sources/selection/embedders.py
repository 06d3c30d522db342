"""Embedders of (image, instruction) pairs: rows of raw_pairs to one vector each.

The embedded one needs no download: MiniLM for the text, colours and gradients for the image. Each of MODELS is a
function of the settings that returns the function of the rows, so that a model is loaded once, and a missing one is an
error before any work.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from editjudge.core import images
from editjudge.core.errors import FileError
from editjudge.core.records import Row
from editjudge.sources.selection.vectors import open_vectors
from editjudge.vision.encoders import HogEncoder

COLOUR_BINS = (4, 6, 6)  # of L, a, b

Embed = Callable[[list[Row]], np.ndarray]


def embedded(setting: dict[str, Any]) -> Embed:
    """Unit-norm rows, float32, (n, d): the text's and the image's embedding, each unit-norm and of equal weight."""
    from editjudge.vision.minilm import MiniLM

    text = MiniLM()

    def embed(rows: list[Row]) -> np.ndarray:
        descriptors = np.stack([image_descriptor(decoded(row)) for row in rows])
        words = text.embed([row["instruction"] for row in rows])
        return (np.concatenate([words, descriptors], 1) / np.sqrt(2)).astype(np.float32)

    return embed


def image_descriptor(rgb: np.ndarray) -> np.ndarray:
    """Colour histogram in CIELAB and coarse gradients of RGB, uint8, (H, W, 3): unit-norm, float64, (d,)."""
    lab = images.to_lab(cv2.resize(rgb, (64, 64), interpolation=cv2.INTER_AREA)).reshape(-1, 3)
    colours, _ = np.histogramdd(lab, COLOUR_BINS, range=((0, 100), (-80, 80), (-80, 80)))
    colours = np.sqrt(colours.reshape(-1) / len(lab))  # unit norm: the Hellinger map of a histogram
    vector = np.concatenate([colours, HogEncoder().embedding(rgb)])
    return vector / np.linalg.norm(vector)


def qwen3_vl(setting: dict[str, Any]) -> Embed:
    """Qwen3-VL-Embedding on every GPU there is: unit-norm rows, float32, (n, d). See `embedders_qwen`."""
    from editjudge.sources.selection.embedders_qwen import Qwen3VLEmbedder

    model = Qwen3VLEmbedder(setting["model"], setting["model_dtype"], setting["batch_size"])
    return lambda rows: model.embed([decoded(row) for row in rows], [row["instruction"] for row in rows])


def precomputed(path: Path, rows: int) -> Embed:
    """Vectors from a file, (n, d): a Parquet file's by key, a .npy file's in the order of the pool of `rows` rows.

    Parquet: columns key and embedding (a list of floats), held in memory. .npy: (rows, d) floats, read as a memory map;
    the function that is returned then takes the pool's rows in their order.
    Raises FileError, which names the file and the row or key, for another form, a key that is missing or stands twice,
    vectors of different lengths, and values that are not finite.
    """
    if not path.is_file():
        raise FileError(f"embed.vectors: no file {path}")
    return _by_key(path) if path.suffix == ".parquet" else _in_order(path, rows)


def _in_order(path: Path, rows: int) -> Embed:
    vectors = open_vectors(path)
    if vectors.ndim != 2 or vectors.dtype.kind != "f" or not vectors.size:
        raise FileError(f"{path}: a matrix (N, d) of floats is expected, not {vectors.dtype} of shape {vectors.shape}")
    if len(vectors) != rows:
        raise FileError(f"{path} has {len(vectors)} rows, the pool {rows}")
    place = 0

    def embed(rows: list[Row]) -> np.ndarray:
        nonlocal place
        found, place = np.asarray(vectors[place : place + len(rows)]), place + len(rows)
        return found

    return embed


def _by_key(path: Path) -> Embed:
    try:
        table = pq.read_table(path)
    except (pa.ArrowInvalid, OSError) as error:
        raise FileError(f"{path}: not readable as Parquet: {error}") from error
    if not {"key", "embedding"} <= set(table.column_names):
        raise FileError(f"{path}: the columns key and embedding are expected, not {', '.join(table.column_names)}")
    kind = table.schema.field("embedding").type
    if not (pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)):
        raise FileError(f"{path}: embedding must be a list of floats, not {kind}")
    if not pa.types.is_floating(kind.value_type):
        raise FileError(f"{path}: embedding must be a list of floats, not of {kind.value_type}")
    table = table.filter(table["embedding"].is_valid())  # what is null is as good as missing
    keys, vectors = table["key"].to_pylist(), table["embedding"].combine_chunks()
    place = {key: n for n, key in enumerate(keys)}
    if len(place) < len(keys):
        raise FileError(f"{path}: key {next(k for n, k in enumerate(keys) if place[k] != n)!r} stands twice")

    def embed(rows: list[Row]) -> np.ndarray:
        missing = [row["key"] for row in rows if row["key"] not in place]
        if missing:
            raise FileError(f"{path}: no embedding of key {missing[0]!r} ({len(missing)} of {len(rows)} rows)")
        found = [np.asarray(vectors[place[row["key"]]].values) for row in rows]
        for row, vector in zip(rows, found, strict=True):
            if vector.shape != found[0].shape:
                raise FileError(f"{path}: key {row['key']!r} has {len(vector)} values, others {len(found[0])}")
        return np.stack(found)

    return embed


def decoded(row: Row) -> np.ndarray:
    """The row's image, RGB, uint8, (H, W, 3). Raises ImageError that names the key."""
    try:
        return images.decode(row["image"])
    except images.ImageError as error:
        raise images.ImageError(f"raw pair {row['key']!r}: {error}") from error


MODELS: dict[str, Callable[[dict[str, Any]], Embed]] = {"embedded": embedded, "qwen3_vl": qwen3_vl}
