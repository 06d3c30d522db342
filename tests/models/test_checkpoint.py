"""A checkpoint is loaded with all of its weights, each finite and out of its own folder, or not at all."""

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


def halve(tensors: dict[str, torch.Tensor]) -> None:
    for name in sorted(tensors)[::2]:
        del tensors[name]


REFUSED: list[tuple[Callable[[Path], Any], Callable[[dict[str, torch.Tensor]], Any], str]] = [
    (load_model, halve, r"broken lacks \d\d weights of a Qwen3.?VL"),
    (read_base, halve, r"broken lacks \d\d weights of a Qwen3.?VL"),
    (load_model, lambda tensors: tensors.update({FINAL: tensors[FINAL][:3].clone()}), rf"lacks 1 weights .*{FINAL}"),
    *(
        (lambda folder: load_model(folder, "bfloat16"), lambda tensors, value=value: tensors[FINAL][-1:].fill_(value),
         rf"broken: {FINAL} holds values that are not finite")
        for value in (float("nan"), float("inf"), -float("inf"))
    ),
]  # fmt: skip


@pytest.mark.parametrize(("load", "change", "words"), REFUSED)
def test_weights_that_are_missing_of_another_shape_or_not_finite_are_refused(load, change, words, base_dir, tmp_path):
    broken = shutil.copytree(base_dir, tmp_path / "broken")
    change(tensors := load_file(broken / WEIGHTS))
    save_file(tensors, broken / WEIGHTS, metadata={"format": "pt"})
    with pytest.raises(FileError, match=words):
        load(broken)


def test_tied_weights_are_not_missing(base_dir: Path) -> None:
    assert "lm_head.weight" not in load_file(base_dir / WEIGHTS)
    assert load_model(base_dir).lm_head.weight.isfinite().all()
    assert FINAL in read_base(base_dir).tensors


@pytest.mark.parametrize("name", ["config.json", WEIGHTS])
@pytest.mark.parametrize("content", [b"", b"[" * 100_000, b"[]", b"{}", bytes(200)], ids=lambda content: content[:2])
def test_broken_files_are_one_line(name: str, content: bytes, base_dir: Path, tmp_path: Path) -> None:
    shutil.copytree(base_dir, tmp_path / "broken")
    (tmp_path / "broken" / name).write_bytes(content)
    for load in (load_model, read_base):
        with pytest.raises(FileError, match="broken"):
            load(tmp_path / "broken")
