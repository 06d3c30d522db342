"""Tiny random checkpoints of CLIP with both towers and of DINOv2, as folders of the published form."""

import json
from pathlib import Path

import tiny_models
import tiny_pipelines
import torch
import transformers as hf
from safetensors.torch import save_file

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


def laion_head(file: Path, width: int = 24) -> Path:
    """Layers of LAION's predictor: of its width, 8 and 1, with Dropout's number left out between them."""
    rng = torch.Generator().manual_seed(0)
    shapes = {"layers.0": (8, width), "layers.2": (1, 8)}
    tensors = {f"{name}.weight": torch.randn(shape, generator=rng) for name, shape in shapes.items()}
    tensors |= {f"{name}.bias": torch.full(shape[:1], 5.0) for name, shape in shapes.items()}
    file.parent.mkdir(parents=True, exist_ok=True)
    save_file(tensors, file)
    return file


def owlv2_folder(folder: Path) -> Path:
    """An OWLv2 of 16 boxes, 64 x 64 pixels."""
    torch.manual_seed(0)
    tokenizer = tiny_pipelines.clip_tokenizer()
    ids = {name: getattr(tokenizer, name) for name in ("eos_token_id", "bos_token_id", "pad_token_id")}
    text = SIZES | ids | {"vocab_size": len(tokenizer), "max_position_embeddings": 16}
    vision = SIZES | {"image_size": 64, "patch_size": 16}
    config = hf.Owlv2Config(text_config=text, vision_config=vision, projection_dim=SIZES["hidden_size"])
    model = hf.Owlv2ForObjectDetection(config)
    for layer in (model.box_head.dense2, model.class_head.logit_scale, model.class_head.logit_shift):
        torch.nn.init.normal_(layer.weight, std=0.01)  # boxes near the centres of patches, no score of 0 or 1
    model.save_pretrained(folder)
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
