"""The tiny base is a Qwen3-VL like any other, small, and the same each time."""

import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import Qwen3VLProcessor

from editjudge.core.errors import FileError
from editjudge.core.params import ParamsError
from editjudge.core.settings import read
from editjudge.judges.prompt import WINNERS, completion, messages
from editjudge.models.chat.checkpoint import load_processor
from tools.tiny_base import tiny


def test_same_seed_same_bytes(tmp_path: Path):
    for name in ("one", "two"):
        torch.rand(3)  # moves the global state, which must not matter
        tokens = tiny.tokenizer(["Remove the cup"])
        settings = tiny.TinySettings(text_layers=1, vision_layers=2, seed=3)
        tiny.save(tiny.model(tokens, settings), tiny.processor(tokens), tmp_path / name)
    for path in (tmp_path / "one").iterdir():
        assert path.read_bytes() == (tmp_path / "two" / path.name).read_bytes(), path.name


def test_no_other_word_is_a_reply_that_is_trained():
    with pytest.raises(ValueError, match=r"winner must be one of .*, not 'Both good'"):
        completion("Both good")  # type: ignore[arg-type]


def test_default_size_is_small(tmp_path: Path):
    tokens = tiny.tokenizer()
    tiny.save(tiny.model(tokens, tiny.TinySettings()), tiny.processor(tokens), tmp_path)
    assert (tmp_path / "model.safetensors").stat().st_size < 5_000_000


def test_tokenizer_writes_anything_and_tells_the_winners_apart():
    tokens = tiny.tokenizer()
    for text in ("Ändere das Bild → 夜 🌙", "a\n\tb  c", *map(completion, WINNERS)):
        assert tokens.decode(tokens(text)["input_ids"]) == text
    a, b = (tokens(completion(side))["input_ids"] for side in ("Image A", "Image B"))
    assert sum(x != y for x, y in zip(a, b, strict=True)) == 1


@pytest.mark.parametrize(("size", "patches"), [(96, 36), (128, 64)])
def test_images_come_to_the_asked_size(size: int, patches: int):
    processor = tiny.processor(tiny.tokenizer(), size)
    image = np.zeros((3 * size, 3 * size, 3), dtype=np.uint8)
    text = processor.apply_chat_template(messages("x"), tokenize=False, add_generation_prompt=True)
    inputs = processor(images=[[image] * 3], text=[text], return_tensors="pt")
    assert inputs["pixel_values"].shape == (3 * patches, 2 * 3 * 16 * 16)
    tokens = tiny.tokenizer()
    net = tiny.model(tokens, tiny.TinySettings(image_size=size, text_layers=1))
    with torch.no_grad():
        assert torch.isfinite(net(**inputs).logits).all()


def test_image_size_must_fit_the_patches():
    with pytest.raises(ParamsError, match="image_size must be a multiple of 32"):
        read("sizes", tiny.TinySettings, {"image_size": 100})


def test_load_processor(base_dir: Path):
    processor = load_processor(base_dir)
    assert isinstance(processor, Qwen3VLProcessor)
    assert processor.image_processor.size["longest_edge"] == 64 * 96
    text = processor.apply_chat_template(messages("x"), tokenize=False, add_generation_prompt=True)
    assert text.count("<|vision_start|><|image_pad|><|vision_end|>") == 3
    assert text.endswith("<|im_end|>\n<|im_start|>assistant\n")


def test_load_processor_from_an_empty_folder(tmp_path: Path):
    with pytest.raises(FileError, match="has no processor that can be used"):
        load_processor(tmp_path)


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("processor_config.json", b"null"),
        ("processor_config.json", b"[" * 100_000),
        ("tokenizer.json", b'{"version": 5}'),
        ("tokenizer_config.json", b'{"tokenizer_class": {}}'),
        ("chat_template.jinja", b"{% for %}"),
    ],
)
def test_a_broken_processor_is_named(file: str, content: bytes, base_dir: Path, tmp_path: Path):
    shutil.copytree(base_dir, tmp_path / "broken", ignore=shutil.ignore_patterns("*.safetensors"))
    (tmp_path / "broken" / file).write_bytes(content)
    with pytest.raises(FileError, match="broken has no processor that can be used"):
        load_processor(tmp_path / "broken")
