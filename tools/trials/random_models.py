"""Random weights of the measures' models in their true architectures, as checkpoints that the real code loads.

`python -m tools.trials.random_models work/random_models` writes clip (ViT-B/32), dinov3 (ViT-B/16), lpips.safetensors.
"""

import argparse
import json
import math
from pathlib import Path

import torch
from safetensors.torch import save_file
from transformers import CLIPVisionConfig, CLIPVisionModelWithProjection, DINOv3ViTConfig, DINOv3ViTModel

from editjudge.vision.lpips import LINEAR, TRUNK

# The parts of the published preprocessor_config.json that are read.
CLIP_PROCESSOR = {
    "image_mean": [0.48145466, 0.4578275, 0.40821073],
    "image_std": [0.26862954, 0.26130258, 0.27577711],
    "resample": 3,
}
IMAGENET_PROCESSOR = {"image_mean": [0.485, 0.456, 0.406], "image_std": [0.229, 0.224, 0.225], "resample": 2}


def write_clip(folder: Path, settings: CLIPVisionConfig | None = None, seed: int = 0) -> Path:
    """CLIP's vision tower with its projection: ViT-B/32 where no settings are given."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        CLIPVisionModelWithProjection(settings or CLIPVisionConfig()).save_pretrained(folder)
    (folder / "preprocessor_config.json").write_text(json.dumps(CLIP_PROCESSOR))
    return folder


def write_dinov3(folder: Path, settings: DINOv3ViTConfig | None = None, seed: int = 0) -> Path:
    """DINOv3: ViT-B/16 with four register tokens where no settings are given."""
    base = DINOv3ViTConfig(hidden_size=768, intermediate_size=3072, num_attention_heads=12, num_register_tokens=4)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        DINOv3ViTModel(settings or base).save_pretrained(folder)
    (folder / "preprocessor_config.json").write_text(json.dumps(IMAGENET_PROCESSOR))
    return folder


def write_lpips(file: Path, seed: int = 0) -> Path:
    """AlexNet's trunk (He's initialisation) and five linear layers, 0 or more as the published ones are."""
    rng = torch.Generator().manual_seed(seed)
    tensors = {}
    for name, shape in TRUNK.items():
        scale = math.sqrt(2 / math.prod(shape[1:])) if len(shape) > 1 else 0.05
        tensors[name] = scale * torch.randn(shape, generator=rng)
    tensors |= {name: torch.rand(shape, generator=rng) for name, shape in LINEAR.items()}
    file.parent.mkdir(parents=True, exist_ok=True)
    save_file(tensors, file)
    return file


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    write_clip(folder / "clip")
    write_dinov3(folder / "dinov3")
    write_lpips(folder / "lpips.safetensors")


if __name__ == "__main__":
    main()
