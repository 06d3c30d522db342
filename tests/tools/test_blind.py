"""`editjudge check --model`: weights that load and answer, and are dead all the same."""

import json
import shutil
from pathlib import Path

import lessons
import pytest
import tiny_families
import torch
from peft import LoraConfig, get_peft_model
from safetensors.torch import load_file, save_file

from editjudge.cli.main import main
from editjudge.models.chat.checkpoint import load_model

DEAD = ("merger.mlp.2.", "merger.linear_fc2.", "deepstack_merger_list.", "mm_input_projection_weight")
DEAD += ("parts.0.3.weight",)


def refused(folder: Path) -> str:
    """The line with which the program ends."""
    with pytest.raises(SystemExit) as end:
        main(["check", "--model", str(folder)])
    return str(end.value.code)


def deadened(folder: Path, copy: Path, file: str = "model.safetensors") -> Path:
    """The same with zeros in the last layer before the language model, or in the last one of a head."""
    shutil.copytree(folder, copy)
    tensors = load_file(copy / file)
    dead = [name for name in tensors if any(part in name for part in DEAD)]
    assert dead
    save_file({name: 0 * weight if name in dead else weight for name, weight in tensors.items()}, copy / file)
    return copy


@pytest.mark.parametrize("name", ["qwen2_5_vl", "gemma3", "scorer"])
def test_a_model_that_answers_black_images_alike_is_blind(name, base_dir, tmp_path, capsys) -> None:
    if name == "scorer":
        lessons.write_scorer(base_dir, tmp_path / "whole")
    else:
        tiny_families.save(name, tmp_path / "whole")
    main(["check", "--model", str(tmp_path / "whole")])
    assert capsys.readouterr().out.endswith("whole: it loads, and its answers depend on the images\n")
    line = refused(deadened(tmp_path / "whole", tmp_path / "blind"))
    assert line == f"check: {tmp_path}/blind is blind: it answers black images as it does others"


def test_a_constant_head_and_an_adapter_as_it_starts_are_dead(base_dir: Path, tmp_path: Path) -> None:
    lessons.write_scorer(base_dir, tmp_path / "scorer")
    file = deadened(tmp_path / "scorer", tmp_path / "head", "head.safetensors") / "head.safetensors"
    assert f"{file} is dead: its score of instruction_following is the same" in refused(tmp_path / "head")
    tensors = load_file(tmp_path / "scorer/head.safetensors")  # no state of a hundred reaches beyond -400
    save_file(tensors | {"parts.0.0.bias": torch.full_like(tensors["parts.0.0.bias"], -400)}, file)
    assert f"{file} is dead: its score of instruction_following is the same" in refused(tmp_path / "head")
    adapted = get_peft_model(load_model(base_dir), LoraConfig(r=2, target_modules=["q_proj"]))
    adapted.save_pretrained(str(tmp_path / "adapter"))
    settings = tmp_path / "adapter/adapter_config.json"
    settings.write_text(json.dumps(json.loads(settings.read_text()) | {"base_model_name_or_path": str(base_dir)}))
    assert "adapter_model.safetensors is dead: all of its lora_B are zero" in refused(tmp_path / "adapter")


def test_answers_that_are_no_numbers_are_dead(tmp_path: Path) -> None:
    """Finite weights whose products are not: nothing differs from NaN by less than anything."""
    folder = tiny_families.save("qwen3_vl", tmp_path / "whole")
    tensors = load_file(folder / "model.safetensors")
    tensors["lm_head.weight"] = torch.full_like(tensors["lm_head.weight"], 3e38)
    save_file(tensors, folder / "model.safetensors")
    assert refused(folder) == f"check: {folder} is dead: what it answers are no finite numbers"
