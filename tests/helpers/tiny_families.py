"""Tiny random checkpoints of nine families of vision-language models, in the file layout of their hub repositories."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
import transformers as hf
from cases import yaml_beside
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers.models.gemma3.image_processing_pil_gemma3 import Gemma3ImageProcessorPil
from transformers.models.gemma4.image_processing_pil_gemma4 import Gemma4ImageProcessorPil
from transformers.models.glm4v.image_processing_pil_glm4v import Glm4vImageProcessorPil
from transformers.models.got_ocr2.image_processing_pil_got_ocr2 import GotOcr2ImageProcessorPil
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

from editjudge.models.chat.checkpoint import without_video

TABLE = yaml_beside(__file__)
TEXT, VISION, TOWER, ROPE, EXPERTS = (TABLE[name] for name in ("TEXT", "VISION", "TOWER", "ROPE", "EXPERTS"))
GREY, PIXELS, TURNS, QWEN, GLM = (TABLE[name] for name in ("GREY", "PIXELS", "TURNS", "QWEN", "GLM"))


class Family(NamedTuple):
    config: hf.PreTrainedConfig
    processor: hf.ProcessorMixin


def tokenizer(special: Sequence[str], **names: str) -> hf.PreTrainedTokenizerFast:
    """Bytes, and the special tokens: the first pads, the second ends a turn. names: what processors call some."""
    letters = {letter: n for n, letter in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    bpe = Tokenizer(models.BPE(vocab=letters, merges=[]))
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    known: dict[str, Any] = {"pad_token": special[0], "eos_token": special[1]}
    known |= {"additional_special_tokens": list(special[2:])} | ({"extra_special_tokens": names} if names else {})
    return hf.PreTrainedTokenizerFast(tokenizer_object=bpe, model_max_length=4096, **known)


def text(tokens: hf.PreTrainedTokenizerFast, **more: Any) -> dict[str, Any]:
    """Sizes of the language model."""
    known = {"vocab_size": len(tokens), "pad_token_id": tokens.pad_token_id, "eos_token_id": tokens.eos_token_id}
    return TEXT | known | {"bos_token_id": None, "tie_word_embeddings": False} | more


def qwen(kind: type, processor: type, patch: int, vision: Mapping[str, Any], **more: Any) -> Family:
    tokens = tokenizer(QWEN)
    names = {"image_token_id": "image_pad", "video_token_id": "video_pad"}
    names |= {"vision_start_token_id": "vision_start", "vision_end_token_id": "vision_end"}
    ids = {name: tokens.convert_tokens_to_ids(f"<|{token}|>") for name, token in names.items()}
    words = text(tokens, **{"rope_parameters": ROPE} | more)
    config = kind(text_config=words, vision_config=VISION | vision, tie_word_embeddings=False, **ids)
    images = Qwen2VLImageProcessorPil(size=PIXELS, patch_size=patch, merge_size=2, temporal_patch_size=2, **GREY)
    shown = TURNS.replace("IMAGE", "<|vision_start|><|image_pad|><|vision_end|>")
    return Family(config, without_video(processor)(images, tokens, chat_template=shown))


def qwen2_5_vl() -> Family:
    windows = {"patch_size": 14, "window_size": 56, "fullatt_block_indexes": [1]}
    return qwen(hf.Qwen2_5_VLConfig, hf.Qwen2_5_VLProcessor, 14, windows)


def qwen3(kind: type, deepstack: bool = True, **more: Any) -> Family:
    vision = {"num_position_embeddings": 16} | ({"deepstack_visual_indexes": [1]} if deepstack else {})
    return qwen(kind, hf.Qwen3VLProcessor, 16, vision, rope_parameters=ROPE | {"mrope_interleaved": True}, **more)


def qwen3_vl() -> Family:
    return qwen3(hf.Qwen3VLConfig)


def qwen3_vl_moe() -> Family:
    return qwen3(hf.Qwen3VLMoeConfig, **EXPERTS)


def qwen3_5(kind: type = hf.Qwen3_5Config, **more: Any) -> Family:
    """Three layers with a state, one with attention."""
    states = {"linear_key_head_dim": 16, "linear_value_head_dim": 16, "linear_num_key_heads": 2}
    states |= {"linear_num_value_heads": 2, "num_hidden_layers": 4}
    made = qwen3(kind, deepstack=False, **states, **more)
    made.config.text_config.rope_parameters["partial_rotary_factor"] = 1.0
    return made


def qwen3_5_moe() -> Family:
    return qwen3_5(hf.Qwen3_5MoeConfig, shared_expert_intermediate_size=32, **EXPERTS)


def glm4v() -> Family:
    tokens = tokenizer(GLM)
    names = {"image_token_id": "image", "video_token_id": "video", "image_start_token_id": "begin_of_image"}
    names |= {"image_end_token_id": "end_of_image", "video_start_token_id": "begin_of_video"}
    ids = {name: tokens.convert_tokens_to_ids(f"<|{token}|>") for name, token in names.items()}
    ids["video_end_token_id"] = tokens.convert_tokens_to_ids("<|end_of_video|>")
    rope = ROPE | {"partial_rotary_factor": 1.0}
    vision = VISION | {"patch_size": 14, "image_size": 56}
    config = hf.Glm4vConfig(text_config=text(tokens, rope_parameters=rope), vision_config=vision, **ids)
    size = {"shortest_edge": 64 * 64, "longest_edge": 2 * 96 * 64}  # of two frames
    images = Glm4vImageProcessorPil(size=size, patch_size=14, merge_size=2, temporal_patch_size=2, **GREY)
    turns = TURNS.replace("<|im_start|>{{ m.role }}", "<|{{ m.role }}|>").replace("<|im_end|>\n", "")
    turns = turns.replace("<|im_start|>", "<|").replace("assistant\n", "assistant|>\n")
    shown = turns.replace("IMAGE", "<|begin_of_image|><|image|><|end_of_image|>")
    return Family(config, without_video(hf.Glm4vProcessor)(images, tokens, chat_template=shown))


def internvl() -> Family:
    names = {"start_image_token": "<img>", "end_image_token": "</img>", "context_image_token": "<IMG_CONTEXT>"}
    names["video_token"] = "<video>"
    tokens = tokenizer((*QWEN[:3], *names.values()), **names)
    vision = TOWER | {"image_size": [56, 56], "patch_size": [14, 14]}
    words = {"model_type": "qwen2"} | text(tokens)
    image = tokens.convert_tokens_to_ids("<IMG_CONTEXT>")
    config = hf.InternVLConfig(text_config=words, vision_config=vision, image_token_id=image, image_seq_length=4)
    images = GotOcr2ImageProcessorPil(size={"height": 56, "width": 56}, crop_to_patches=True, max_patches=4, **GREY)
    shown = TURNS.replace("IMAGE", "<IMG_CONTEXT>\n")
    made = without_video(hf.InternVLProcessor)(images, tokens, image_seq_length=4, chat_template=shown)
    return Family(config, made)


def gemma(*layout: str, **names: str) -> tuple[hf.PreTrainedTokenizerFast, dict[str, Any], str]:
    """A tokenizer, sizes of a language model whose layers look near and far, and a template. layout: of an image."""
    tokens = tokenizer(("<pad>", "<end_of_turn>", "<start_of_turn>", "<bos>", *names.values()), **names)
    layers = {"layer_types": ["sliding_attention", "full_attention"], "sliding_window": 512}
    shown = "<bos>" + TURNS.replace("im_", "").replace("<|start|>assistant", "<|start|>model")
    shown = shown.replace("<|start|>", "<start_of_turn>").replace("<|end|>", "<end_of_turn>")
    return tokens, text(tokens, **layers), shown.replace("IMAGE", "".join(layout))


def gemma3() -> Family:
    names = {"boi_token": "<start_of_image>", "eoi_token": "<end_of_image>", "image_token": "<image_soft_token>"}
    tokens, words, shown = gemma("<start_of_image>", **names)
    keys = ("boi_token_index", "eoi_token_index", "image_token_index")
    ids = {key: tokens.convert_tokens_to_ids(token) for key, token in zip(keys, names.values(), strict=True)}
    words["query_pre_attn_scalar"] = 24
    vision = TOWER | {"image_size": 56, "patch_size": 14}
    config = hf.Gemma3Config(text_config=words, vision_config=vision, mm_tokens_per_image=4, **ids)
    images = Gemma3ImageProcessorPil(size={"height": 56, "width": 56}, **GREY)
    return Family(config, hf.Gemma3Processor(images, tokens, image_seq_length=4, chat_template=shown))


def gemma4() -> Family:
    """Its first layer's keys and values are the second's, and words have embeddings a layer."""
    names = {name: f"<|{name}>" for name in ("boi_token", "eoi_token", "image_token", "boa_token", "eoa_token")}
    tokens, words, shown = gemma("<|image_token>", **names)
    words |= {"hidden_size_per_layer_input": 8, "vocab_size_per_layer_input": len(tokens) + 1, "global_head_dim": 24}
    words["vocab_size"] = len(tokens) + 1  # the processor adds a token for videos
    ids = {f"{n}_token_id": tokens.convert_tokens_to_ids(f"<|{n}_token>") for n in ("boi", "eoi", "image", "boa")}
    vision = TOWER | {"head_dim": 24, "num_key_value_heads": 2, "patch_size": 8, "pooling_kernel_size": 2}
    config = hf.Gemma4Config(text_config=words, vision_config=vision, audio_config=None, **ids)
    images = Gemma4ImageProcessorPil(patch_size=8, pooling_kernel_size=2, max_soft_tokens=70)
    kind = without_video(hf.Gemma4Processor)
    return Family(config, kind(hf.Gemma4AudioFeatureExtractor(), images, tokens, None, chat_template=shown))


MADE = (qwen2_5_vl, qwen3_vl, qwen3_vl_moe, qwen3_5, qwen3_5_moe, glm4v, internvl, gemma3, gemma4)
FAMILIES = {made.__name__: made for made in MADE}


def save(name: str, folder: Path) -> Path:
    """A checkpoint of the family, its weights drawn with a seed, none of them a constant."""
    made = FAMILIES[name]()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        net: Any = hf.AutoModelForImageTextToText.from_config(made.config)
        with torch.no_grad():
            for weight in net.parameters():
                weight.add_(0.05 * torch.randn_like(weight))
    tokens = made.processor.tokenizer
    net.generation_config = hf.GenerationConfig(eos_token_id=tokens.eos_token_id, pad_token_id=tokens.pad_token_id)
    net.save_pretrained(folder, max_shard_size="200KB" if name == "qwen3_vl_moe" else "1GB")
    made.processor.save_pretrained(folder)
    if name != "gemma4":  # whose repositories have one file: those of others have another for the images' settings
        whole = json.loads((folder / "processor_config.json").read_text())
        images = whole.pop("image_processor") | {"processor_class": whole["processor_class"]}
        if name == "qwen2_5_vl":
            size = images.pop("size")
            images |= {"min_pixels": size["shortest_edge"], "max_pixels": size["longest_edge"]}
        elif name == "internvl":
            images["crop_to_patches"] = False  # its processor cuts all the same
        (folder / "preprocessor_config.json").write_text(json.dumps(images))
        (folder / "processor_config.json").unlink()
        if "image_seq_length" in whole:
            (folder / "processor_config.json").write_text(json.dumps(whole))
    return folder
