"""Tiny random checkpoints of CLIP with both towers and of DINOv2, as folders of the published form."""

import json
from pathlib import Path

import torch
import transformers as hf

from helpers import tiny_models, tiny_pipelines

SIZES = tiny_models.SIZES


def clip_folder(folder: Path) -> Path:
    torch.manual_seed(0)
    tokenizer = tiny_pipelines.clip_tokenizer()
    text = SIZES | {"vocab_size": len(tokenizer), "eos_token_id": tokenizer.eos_token_id, "max_position_embeddings": 16}
    vision = SIZES | {"image_size": 64, "patch_size": 16}
    hf.CLIPModel(hf.CLIPConfig(text_config=text, vision_config=vision, projection_dim=24)).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    (folder / "preprocessor_config.json").write_text(json.dumps(tiny_models.CLIP_PROCESSOR))
    return folder


def dinov2_folder(folder: Path) -> Path:
    torch.manual_seed(0)
    sizes = {name: value for name, value in SIZES.items() if name != "intermediate_size"}
    hf.Dinov2Model(hf.Dinov2Config(**sizes, image_size=70, patch_size=14)).save_pretrained(folder)
    given = tiny_models.DINO_PROCESSOR | {"crop_size": {"height": 56, "width": 56}, "size": {"shortest_edge": 64}}
    (folder / "preprocessor_config.json").write_text(json.dumps(given))
    return folder
