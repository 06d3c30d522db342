"""Embedders of (image, instruction) pairs: rows of raw_pairs to one vector each.

The embedded one needs no download: MiniLM for the text, colours and gradients for the image. Each of MODELS takes the
settings and a torch device, loads its model and returns the function of the rows."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import cv2
import numpy as np
import pyarrow as pa
from PIL import Image

from editjudge.core import hub, images, tables
from editjudge.core.errors import FileError
from editjudge.core.records import Row
from editjudge.engine.workers import devices_of, engine
from editjudge.vision.encoders import HogEncoder

COLOUR_BINS = (4, 6, 6)  # of L, a, b

Embed = Callable[[list[Row]], np.ndarray]


def embedded(setting: dict[str, Any], device: str = "cpu") -> Embed:
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


def qwen3_vl(setting: dict[str, Any], device: str) -> Embed:
    """A sentence-transformers model folder with a Qwen3-VL, such as Qwen/Qwen3-VL-Embedding-8B: unit-norm rows,
    float32, (n, d), of image and instruction in one input.

    Raises ParamsError where there is no such model, FileError for another kind of model."""
    import torch
    import transformers
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.base.modules import transformer

    from editjudge.models.chat.checkpoint import by_products, load_processor, model_class, without_video

    folder = hub.find("embed.model", setting["model"], hub.CHECKPOINT, "Qwen/Qwen3-VL-Embedding-8B")
    if not (folder / "modules.json").is_file():
        said = "has no modules.json: not a sentence-transformers model"
        raise FileNotFoundError(f"embed.model: {setting['model']} {said}")
    model_class(folder)
    names = vars(transformer)
    theirs = names["AutoProcessor"]
    names["AutoProcessor"] = without_video(transformers.Qwen3VLProcessor)  # theirs needs torchvision
    try:
        options = {"dtype": getattr(torch, setting["model_dtype"]), "use_safetensors": True}
        model = SentenceTransformer(str(folder), device=device, local_files_only=True, model_kwargs=options)
    finally:
        names["AutoProcessor"] = theirs
    # Where torchvision is, too, images are resized by Pillow, as everywhere here; within the bounds that
    # sentence_bert_config.json may have.
    processor, shown = cast(Any, model[0]).processor, load_processor(folder).image_processor
    shown.size, processor.image_processor = processor.image_processor.size, shown
    by_products(model)
    how: dict[str, Any] = {"normalize_embeddings": True, "show_progress_bar": False}

    def embed(rows: list[Row]) -> np.ndarray:  # the library sorts them by length into batches: little is padded
        pairs = [{"image": Image.fromarray(decoded(row)), "text": row["instruction"]} for row in rows]
        return np.asarray(model.encode(pairs, batch_size=setting["batch_size"], **how), np.float32)

    return embed


def open_vectors(path: Path) -> np.ndarray:
    """The array of a .npy file as a memory map. Raises FileError that names the file where it is none or another."""
    if not path.is_file():
        raise FileError(f"{path} not found: run `dvc repro` or `dvc pull`")
    try:
        return np.lib.format.open_memmap(path, mode="r")
    except (ValueError, OSError) as error:
        raise FileError(f"{path}: not readable as .npy: {error}") from error


def precomputed(path: Path, rows: int) -> Embed:
    """Vectors from a file, (n, d): a Parquet file's by key, a .npy file's in the order of the pool of `rows` rows.

    Parquet: columns key and embedding (a list of floats), held in memory. .npy: (rows, d) floats, read as a memory map;
    the function that is returned then takes the pool's rows in their order.
    Raises FileError or TableError, which name the file and the row or key, for another form, a key that is missing or
    stands twice, vectors of different lengths, and values that are not finite."""
    if not path.is_file():
        raise FileError(f"embed.vectors: no file {path}")
    if path.suffix == ".parquet":
        return _by_key(path)
    found = open_vectors(path)
    if found.ndim != 2 or found.dtype.kind != "f" or not found.size:
        raise FileError(f"{path}: a matrix (N, d) of floats is expected, not {found.dtype} of shape {found.shape}")
    if len(found) != rows:
        raise FileError(f"{path} has {len(found)} rows, the pool {rows}")
    place = iter(range(rows))
    return lambda rows: found[[next(place) for _ in rows]]


def _by_key(path: Path) -> Embed:
    table = tables.opened(path, "key", "embedding").read(["key", "embedding"])
    kind = table.schema.field("embedding").type
    is_list = pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
    if not (is_list and pa.types.is_floating(kind.value_type)):
        said = f"of {kind.value_type}" if is_list else kind
        raise FileError(f"{path}: embedding must be a list of floats, not {said}")
    vectors = table.to_pandas().dropna(subset="embedding").set_index("key")["embedding"]  # null is as good as missing
    if not vectors.index.is_unique:
        raise FileError(f"{path}: key {vectors.index[vectors.index.duplicated(keep='last')][0]!r} stands twice")

    def embed(rows: list[Row]) -> np.ndarray:
        found = vectors.reindex([row["key"] for row in rows])
        if len(missing := found.index[found.isna()]):
            raise FileError(f"{path}: no embedding of key {missing[0]!r} ({len(missing)} of {len(rows)} rows)")
        for key, vector in found.items():
            if vector.shape != found.iloc[0].shape:
                raise FileError(f"{path}: key {key!r} has {len(vector)} values, others {len(found.iloc[0])}")
        return np.stack(found.tolist())

    return embed


def decoded(row: Row) -> np.ndarray:
    """The row's image, RGB, uint8, (H, W, 3). Raises ImageError that names the key."""
    try:
        return images.decode(row["image"])
    except images.ImageError as error:
        raise images.ImageError(f"raw pair {row['key']!r}: {error}") from error


def places(backend: str) -> list[str]:
    """Where workers with a backend's model run: on each GPU, or once on the CPU; on each core if it is embedded."""
    return ["cpu"] * engine().cpus() if backend == "embedded" else devices_of("embed.model", "auto")


MODELS: dict[str, Callable[[dict[str, Any], str], Embed]] = {"embedded": embedded, "qwen3_vl": qwen3_vl}
