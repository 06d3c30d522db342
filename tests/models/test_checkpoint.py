"""A checkpoint is loaded with all of its weights, each finite and out of its own folder, or not at all."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from editjudge.core.errors import FileError
from editjudge.models.chat.checkpoint import load_model
from editjudge.models.weights.merge import read_base

WEIGHTS = "model.safetensors"
FINAL = "model.language_model.norm.weight"


def changed(base: Path, folder: Path, change: Callable[[dict[str, torch.Tensor]], Any]) -> Path:
    """A copy of a checkpoint with changed tensors."""
    shutil.copytree(base, folder)
    tensors = load_file(folder / WEIGHTS)
    change(tensors)
    save_file(tensors, folder / WEIGHTS, metadata={"format": "pt"})
    return folder


def halve(tensors: dict[str, torch.Tensor]) -> None:
    for name in sorted(tensors)[::2]:
        del tensors[name]


def test_tied_weights_are_not_missing(base_dir: Path) -> None:
    assert "lm_head.weight" not in load_file(base_dir / WEIGHTS)
    assert load_model(base_dir).lm_head.weight.isfinite().all()
    assert FINAL in read_base(base_dir).tensors


@pytest.mark.parametrize("load", [load_model, read_base])
def test_missing_weights_are_refused(load: Callable[[Path], Any], base_dir: Path, tmp_path: Path) -> None:
    half = changed(base_dir, tmp_path / "half", halve)
    with pytest.raises(FileError, match=r"half lacks \d\d weights of a Qwen3.?VL"):
        load(half)


def test_weights_of_another_shape_are_refused(base_dir: Path, tmp_path: Path) -> None:
    cut = changed(base_dir, tmp_path / "cut", lambda tensors: tensors.update({FINAL: tensors[FINAL][:3].clone()}))
    with pytest.raises(FileError, match=rf"lacks 1 weights .*{FINAL}"):
        load_model(cut)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_weights_that_are_not_finite_are_refused(value: float, base_dir: Path, tmp_path: Path) -> None:
    broken = changed(base_dir, tmp_path / "broken", lambda tensors: tensors[FINAL][-1:].fill_(value))
    with pytest.raises(FileError, match=rf"broken: {FINAL} holds values that are not finite"):
        load_model(broken, "bfloat16")


def test_files_out_of_the_folder_are_refused(base_dir: Path, tmp_path: Path) -> None:
    folder = tmp_path / "inner"
    shutil.copytree(base_dir, folder)
    (folder / WEIGHTS).rename(tmp_path / WEIGHTS)
    names = dict.fromkeys(load_file(tmp_path / WEIGHTS), f"../{WEIGHTS}")
    index = {"metadata": {}, "weight_map": names}
    (folder / f"{WEIGHTS}.index.json").write_text(json.dumps(index))
    with pytest.raises(FileError, match=r"names \.\./model\.safetensors, which is no file of the folder"):
        load_model(folder)


@pytest.mark.parametrize("name", ["config.json", WEIGHTS])
@pytest.mark.parametrize("content", [b"", b"[" * 100_000, b"[]", b"{}", bytes(200)], ids=lambda content: content[:2])
def test_broken_files_are_one_line(name: str, content: bytes, base_dir: Path, tmp_path: Path) -> None:
    shutil.copytree(base_dir, tmp_path / "broken")
    (tmp_path / "broken" / name).write_bytes(content)
    for load in (load_model, read_base):
        with pytest.raises(FileError, match="broken"):
            load(tmp_path / "broken")
