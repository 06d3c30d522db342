"""Tiny random checkpoints of the measures' models, in their true architectures, and resizing written out in numpy."""

import json
from pathlib import Path

import numpy as np
import torch
import transformers as hf
from safetensors.torch import save_file
from tokenizers.pre_tokenizers import ByteLevel

CLIP_MEAN, CLIP_STD = [0.48145466, 0.4578275, 0.40821073], [0.26862954, 0.26130258, 0.27577711]
MEAN, STD = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]
# As published beside the weights, the sizes apart.
DINO_PROCESSOR = {"do_normalize": True, "do_rescale": True, "do_resize": True, "image_mean": MEAN, "image_std": STD}
DINO_PROCESSOR |= {"image_processor_type": "DINOv3ViTImageProcessorFast", "resample": 2}
DINO_PROCESSOR |= {"rescale_factor": 0.00392156862745098, "size": {"height": 64, "width": 64}}
CLIP_PROCESSOR = {"crop_size": 64, "do_center_crop": True, "do_normalize": True, "do_resize": True, "resample": 3}
CLIP_PROCESSOR |= {"feature_extractor_type": "CLIPFeatureExtractor", "size": 64}
CLIP_PROCESSOR |= {"image_mean": CLIP_MEAN, "image_std": CLIP_STD}
DEPTH_PROCESSOR = DINO_PROCESSOR | {"do_pad": False, "image_processor_type": "DPTImageProcessor", "resample": 3}
DEPTH_PROCESSOR |= {"ensure_multiple_of": 14, "keep_aspect_ratio": True, "size_divisor": None}
DEPTH_PROCESSOR |= {"size": {"height": 70, "width": 70}}
SIZES = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2}
VISION = SIZES | {"image_size": 64, "patch_size": 16}


def clip() -> hf.CLIPVisionModelWithProjection:
    """16 patches of 32, an embedding of 24."""
    return hf.CLIPVisionModelWithProjection(hf.CLIPVisionConfig(**VISION, projection_dim=24))


def dinov3() -> hf.DINOv3ViTModel:
    """16 patches of 32, three register tokens."""
    return hf.DINOv3ViTModel(hf.DINOv3ViTConfig(**VISION, num_register_tokens=3))


def sam2() -> hf.Sam2Model:
    """SAM 2 with an input of 128 x 128 and masks of 32 x 32."""
    trunk = hf.Sam2HieraDetConfig(
        hidden_size=12, image_size=[128, 128], blocks_per_stage=[1, 1, 2, 1], embed_dim_per_stage=[12, 24, 48, 96],
        num_attention_heads_per_stage=[1, 2, 4, 8], window_size_per_stage=[8, 4, 4, 2], global_attention_blocks=[3],
        window_positional_embedding_background_size=[2, 2],
    )  # fmt: skip
    vision = hf.Sam2VisionConfig(
        backbone_config=trunk, backbone_channel_list=[96, 48, 24, 12], fpn_hidden_size=32,
        backbone_feature_sizes=[[32, 32], [16, 16], [8, 8]],
    )  # fmt: skip
    prompts = hf.Sam2PromptEncoderConfig(hidden_size=32, image_size=128, patch_size=16, mask_input_channels=4)
    decoder = hf.Sam2MaskDecoderConfig(
        hidden_size=32, mlp_dim=32, num_hidden_layers=1, num_attention_heads=2, iou_head_hidden_dim=32,
        dynamic_multimask_via_stability=False,  # else the one mask may be the best of the three, as with the other call
    )  # fmt: skip
    return hf.Sam2Model(hf.Sam2Config(vision_config=vision, prompt_encoder_config=prompts, mask_decoder_config=decoder))


def sam2_video(model: hf.Sam2Model) -> hf.Sam2VideoModel:
    """The checkpoint's form with a memory of earlier frames, of the same image model's sizes."""
    parts = {name: getattr(model.config, name).to_dict() for name in ("prompt_encoder_config", "mask_decoder_config")}
    sizes = {
        "memory_attention_hidden_size": 32, "memory_attention_feed_forward_hidden_size": 32,
        "memory_attention_num_layers": 1, "memory_attention_rope_feat_sizes": [8, 8], "memory_encoder_hidden_size": 32,
        "memory_encoder_output_channels": 8, "mask_downsampler_embed_dim": 32, "memory_fuser_embed_dim": 32,
        "memory_fuser_intermediate_dim": 32,
    }  # fmt: skip
    config = hf.Sam2VideoConfig(vision_config=model.config.vision_config, **parts, image_size=128, **sizes)
    return hf.Sam2VideoModel(config)


def depth() -> hf.DepthAnythingForDepthEstimation:
    """Depth Anything on a DINOv2 of 32 channels."""
    backbone = hf.Dinov2Config(
        hidden_size=32, num_hidden_layers=4, num_attention_heads=2, mlp_ratio=2, image_size=70, patch_size=14,
        out_indices=[1, 2, 3, 4], reshape_hidden_states=False,
    )  # fmt: skip
    config = hf.DepthAnythingConfig(
        backbone_config=backbone, patch_size=14, reassemble_hidden_size=32, neck_hidden_sizes=[8, 8, 8, 8],
        fusion_hidden_size=8, head_hidden_size=4,
    )  # fmt: skip
    model = hf.DepthAnythingForDepthEstimation(config)
    torch.nn.init.constant_(model.head.conv3.bias, 2.0)  # else the last ReLU may leave nothing
    return model


WORDS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "red", "blue", "green", "yellow", "square", "cup", "the", "main")
WORDS += ("person", "object", "man")
BERT_IDS = [0, 100, 101, 102, 103, *range(1030, 1041)]  # as in BERT, whose full stop (1012) is written into the class
DETECTOR_PROCESSOR = {"image_processor_type": "GroundingDinoImageProcessor", "image_mean": MEAN, "image_std": STD}
DETECTOR_PROCESSOR |= {"size": {"shortest_edge": 64, "longest_edge": 96}, "resample": 2, "do_pad": True}


def grounding_dino() -> hf.GroundingDinoForObjectDetection:
    """12 queries; 32 tokens of names."""
    swin = hf.SwinConfig(
        image_size=64, patch_size=4, embed_dim=12, depths=[1] * 4, num_heads=[1, 2, 2, 4], window_size=4,
        out_indices=[2, 3, 4],
    )  # fmt: skip
    text = hf.BertConfig(vocab_size=1041, **SIZES)
    config = hf.GroundingDinoConfig(
        backbone_config=swin, text_config=text, num_queries=12, encoder_layers=1, decoder_layers=2, encoder_ffn_dim=32,
        decoder_ffn_dim=32, encoder_attention_heads=2, decoder_attention_heads=2, d_model=32, max_text_len=32,
    )  # fmt: skip
    return hf.GroundingDinoForObjectDetection(config)


def save_detector(folder: Path) -> Path:
    """A Grounding DINO with its tokenizer."""
    named = dict(zip(BERT_IDS, WORDS, strict=True)) | {1012: ".", 1029: "?"}
    hf.BertTokenizer(vocab={named.get(n, f"[unused{n}]"): n for n in range(1041)}).save_pretrained(folder)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return save(grounding_dino(), folder, DETECTOR_PROCESSOR)


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


SLOTS = {"clip": (clip, CLIP_PROCESSOR), "dinov3": (dinov3, DINO_PROCESSOR), "segmenter": (sam2, None)}
SLOTS |= {"depth": (depth, DEPTH_PROCESSOR)}


def write(slot: str, folder: Path) -> Path:
    """The checkpoint of a slot of the measures."""
    make, processor = SLOTS[slot]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return save(make(), folder, processor)


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
    (folder / "preprocessor_config.json").write_text(json.dumps(CLIP_PROCESSOR))
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
    given = DINO_PROCESSOR | {"crop_size": {"height": 56, "width": 56}, "size": {"shortest_edge": 64}}
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
    return np.einsum("ih,hw...,jw->ij...", rows, values.astype(np.float64), columns)
