"""Tiny random checkpoints of the measures' models, in their true architectures, and resizing written out in numpy."""

import json
from pathlib import Path

import numpy as np
import torch
import transformers as hf
from cases import yaml_beside
from safetensors.torch import save_file
from tokenizers.pre_tokenizers import ByteLevel

TABLES = yaml_beside(__file__)
SIZES = TABLES["sizes"]
VISION = TABLES["vision"]
MEAN, STD = (TABLES["dinov3_processor"][f"image_{name}"] for name in ("mean", "std"))


def clip() -> hf.CLIPVisionModelWithProjection:
    """16 patches of 32, an embedding of 24."""
    return hf.CLIPVisionModelWithProjection(hf.CLIPVisionConfig(**VISION, projection_dim=24))


def dinov3() -> hf.DINOv3ViTModel:
    """16 patches of 32, three register tokens."""
    return hf.DINOv3ViTModel(hf.DINOv3ViTConfig(**VISION, num_register_tokens=3))


def sam2() -> hf.Sam2Model:
    """SAM 2 with an input of 128 x 128 and masks of 32 x 32."""
    trunk = hf.Sam2HieraDetConfig(**TABLES["sam2_trunk"])
    vision = hf.Sam2VisionConfig(backbone_config=trunk, **TABLES["sam2_vision"])
    prompts = hf.Sam2PromptEncoderConfig(**TABLES["sam2_prompts"])
    decoder = hf.Sam2MaskDecoderConfig(**TABLES["sam2_decoder"])
    return hf.Sam2Model(hf.Sam2Config(vision_config=vision, prompt_encoder_config=prompts, mask_decoder_config=decoder))


def sam2_video(model: hf.Sam2Model) -> hf.Sam2VideoModel:
    """The checkpoint's form with a memory of earlier frames, of the same image model's sizes."""
    parts = {name: getattr(model.config, name).to_dict() for name in ("prompt_encoder_config", "mask_decoder_config")}
    config = hf.Sam2VideoConfig(vision_config=model.config.vision_config, **parts, **TABLES["sam2_video"])
    return hf.Sam2VideoModel(config)


def depth() -> hf.DepthAnythingForDepthEstimation:
    """Depth Anything on a DINOv2 of 32 channels."""
    config = hf.DepthAnythingConfig(backbone_config=hf.Dinov2Config(**TABLES["depth_backbone"]), **TABLES["depth"])
    model = hf.DepthAnythingForDepthEstimation(config)
    torch.nn.init.constant_(model.head.conv3.bias, 2.0)  # else the last ReLU may leave nothing
    return model


def grounding_dino() -> hf.GroundingDinoForObjectDetection:
    """12 queries; 32 tokens of names."""
    swin, text = hf.SwinConfig(**TABLES["detector_swin"]), hf.BertConfig(vocab_size=1041, **SIZES)
    config = hf.GroundingDinoConfig(backbone_config=swin, text_config=text, **TABLES["detector"])
    return hf.GroundingDinoForObjectDetection(config)


def save_detector(folder: Path) -> Path:
    """A Grounding DINO with its tokenizer."""
    named = {number: word for word, number in TABLES["detector_words"].items()}
    hf.BertTokenizer(vocab={named.get(n, f"[unused{n}]"): n for n in range(1041)}).save_pretrained(folder)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return save(grounding_dino(), folder, TABLES["detector_processor"])


def save(model: hf.PreTrainedModel, folder: Path, processor: dict | None = None) -> Path:
    """The checkpoint of `model` in `folder`, its weights drawn anew so that none is a constant 0 or 1."""
    rng = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(torch.randn(weight.shape, generator=rng), alpha=0.1)
    model.save_pretrained(folder)
    if processor:
        (folder / "preprocessor_config.json").write_text(json.dumps(processor))
    return folder


SLOTS = {"clip": clip, "dinov3": dinov3, "segmenter": sam2, "depth": depth}


def write(slot: str, folder: Path) -> Path:
    """The checkpoint of a slot of the measures."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return save(SLOTS[slot](), folder, TABLES.get(f"{slot}_processor"))


def clip_tokenizer() -> hf.CLIPTokenizer:
    letters = sorted(ByteLevel.alphabet())
    words = [*letters, *(f"{letter}</w>" for letter in letters), "<|startoftext|>", "<|endoftext|>"]
    return hf.CLIPTokenizer(vocab={word: i for i, word in enumerate(words)}, merges=[], model_max_length=77)


def clip_folder(folder: Path) -> Path:
    torch.manual_seed(0)
    tokenizer = clip_tokenizer()
    text = SIZES | {"vocab_size": len(tokenizer), "eos_token_id": tokenizer.eos_token_id, "max_position_embeddings": 16}
    hf.CLIPModel(hf.CLIPConfig(text_config=text, vision_config=VISION, projection_dim=24)).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    (folder / "preprocessor_config.json").write_text(json.dumps(TABLES["clip_processor"]))
    return folder


def laion_head(file: Path) -> Path:
    """Layers of LAION's predictor: of 24, 8 and 1 values, with Dropout's number left out between them."""
    rng = torch.Generator().manual_seed(0)
    shapes = {"layers.0": (8, 24), "layers.2": (1, 8)}
    tensors = {f"{name}.weight": torch.randn(shape, generator=rng) for name, shape in shapes.items()}
    tensors |= {f"{name}.bias": torch.full(shape[:1], 5.0) for name, shape in shapes.items()}
    file.parent.mkdir(parents=True, exist_ok=True)
    save_file(tensors, file)
    return file


def dinov2_folder(folder: Path) -> Path:
    torch.manual_seed(0)
    sizes = {name: value for name, value in SIZES.items() if name != "intermediate_size"}
    hf.Dinov2Model(hf.Dinov2Config(**sizes, image_size=70, patch_size=14)).save_pretrained(folder)
    given = TABLES["dinov3_processor"] | {"crop_size": {"height": 56, "width": 56}, "size": {"shortest_edge": 64}}
    (folder / "preprocessor_config.json").write_text(json.dumps(given))
    return folder


def triangle(length: int, size: int, antialias: bool = True) -> np.ndarray:
    """Bilinear resizing of `length` values to `size` as a matrix, (size, length)."""
    step = length / size
    support = max(step, 1.0) if antialias else 1.0
    centres, places = (np.arange(size) + 0.5) * step, np.arange(length) + 0.5
    if not antialias:
        centres = centres.clip(0.5, length - 0.5)  # border values reach outwards
    weights = np.maximum(1 - abs(places - centres[:, None]) / support, 0)
    return weights / weights.sum(1, keepdims=True)


def bilinear(values: np.ndarray, height: int, width: int, antialias: bool = True) -> np.ndarray:
    """(H, W) or (H, W, c) to (height, width[, c]), float64."""
    rows, columns = triangle(values.shape[0], height, antialias), triangle(values.shape[1], width, antialias)
    return np.einsum("ih,hw...,jw->ij...", rows, values.astype(np.float64), columns, optimize=True)
