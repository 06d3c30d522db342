"""Builds a tiny Qwen3-VL, about a million parameters, that is loaded like a published one.

Architecture, chat format, special tokens and image layout are Qwen3-VL's, so that training, merging and
inference run the same code on it as on an 8B checkpoint. `pretrain.py` trains it; the tests also use it
untrained.
"""

import copy
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import torch
import transformers
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import GenerationConfig, PreTrainedTokenizerFast, Qwen3VLConfig, Qwen3VLForConditionalGeneration
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil
from transformers.models.qwen3_vl.modeling_qwen3_vl import Qwen3VLTextAttention

from editjudge.core.winner import WINNERS
from editjudge.judges.styles import completion, style
from editjudge.models.chat.checkpoint import without_video
from tools.tiny_base.settings import TinySettings

PATCH, MERGE, FRAMES = 16, 2, 2
_SPECIAL = ("endoftext", "im_start", "im_end", "vision_start", "vision_end", "vision_pad", "image_pad", "video_pad")
SPECIAL_TOKENS = [f"<|{name}|>" for name in _SPECIAL]
CHAT_TEMPLATE = Path(__file__).with_name("chat_template.jinja").read_text()


def tokenizer(instructions: Sequence[str] = (), vocab_size: int = 768) -> PreTrainedTokenizerFast:
    """A byte-level BPE of at most vocab_size entries, learnt from prompt, replies and sample instructions.

    Any text can be written in it; words it has not seen take more tokens.
    """
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        min_frequency=2,
        special_tokens=SPECIAL_TOKENS,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    prompt = [part["text"] for part in style("pvc").messages("")[0]["content"] if part["type"] == "text"]
    fixed = [*prompt, *(completion(winner) for winner in WINNERS), "user\n", "assistant\n"]
    bpe.train_from_iterator([*fixed * 4, *instructions], trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=bpe,
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        additional_special_tokens=SPECIAL_TOKENS[1:],
        clean_up_tokenization_spaces=False,
        model_max_length=4096,
    )


def processor(tokens: PreTrainedTokenizerFast, image_size: int = 96) -> transformers.Qwen3VLProcessor:
    """Tokenizer and image processor as one; image_size is a multiple of 32."""
    image_processor = Qwen2VLImageProcessorPil(
        size={"shortest_edge": image_size**2, "longest_edge": image_size**2 * 3 // 2},
        patch_size=PATCH,
        merge_size=MERGE,
        temporal_patch_size=FRAMES,
        image_mean=[0.5, 0.5, 0.5],
        image_std=[0.5, 0.5, 0.5],
    )
    kind: Any = without_video(transformers.Qwen3VLProcessor)
    return kind(image_processor, tokens, chat_template=CHAT_TEMPLATE)


def config(tokens: PreTrainedTokenizerFast, settings: TinySettings) -> Qwen3VLConfig:
    """The Qwen3-VL configuration for these sizes; the rotary dimensions are shared out as evenly as in 8B."""
    vocabulary, head_dim = tokens.get_vocab(), settings.hidden_size // settings.text_heads
    section = head_dim // 6
    text = {
        "vocab_size": len(tokens),
        "hidden_size": settings.hidden_size,
        "intermediate_size": settings.text_intermediate,
        "num_hidden_layers": settings.text_layers,
        "num_attention_heads": settings.text_heads,
        "num_key_value_heads": settings.key_value_heads,
        "head_dim": head_dim,
        "max_position_embeddings": 4096,
        "initializer_range": settings.initializer_range,
        "pad_token_id": tokens.pad_token_id,
        "eos_token_id": tokens.eos_token_id,
        "bos_token_id": None,
        "tie_word_embeddings": True,
        "rope_parameters": {
            "rope_type": "default",
            "rope_theta": 10000.0,
            "mrope_section": [head_dim // 2 - 2 * section, section, section],
            "mrope_interleaved": True,
        },
    }
    vision = {
        "depth": settings.vision_layers,
        "hidden_size": settings.vision_hidden,
        "intermediate_size": settings.vision_intermediate,
        "num_heads": settings.vision_heads,
        "patch_size": PATCH,
        "spatial_merge_size": MERGE,
        "temporal_patch_size": FRAMES,
        "out_hidden_size": settings.hidden_size,
        "num_position_embeddings": (settings.image_size // PATCH) ** 2,
        "deepstack_visual_indexes": list(settings.deepstack),
        "initializer_range": settings.initializer_range,
    }
    return Qwen3VLConfig(
        text_config=text,
        vision_config=vision,
        image_token_id=vocabulary["<|image_pad|>"],
        video_token_id=vocabulary["<|video_pad|>"],
        vision_start_token_id=vocabulary["<|vision_start|>"],
        vision_end_token_id=vocabulary["<|vision_end|>"],
        tie_word_embeddings=True,
    )


def model(tokens: PreTrainedTokenizerFast, settings: TinySettings) -> Qwen3VLForConditionalGeneration:
    """The untrained model, float32 on the CPU; the same seed gives the same weights, whatever ran before."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(settings.seed)
        net = Qwen3VLForConditionalGeneration(config(tokens, settings))
        for layer in net.model.language_model.layers:
            mimetic(cast(Qwen3VLTextAttention, layer.self_attn), settings.mimetic)
    net.generation_config = GenerationConfig(
        eos_token_id=tokens.eos_token_id, pad_token_id=tokens.pad_token_id, do_sample=False
    )
    return net.eval()


@torch.no_grad()
def mimetic(attention: Qwen3VLTextAttention, strength: float) -> None:
    """Starts a layer's attention as one that looks for tokens like its own and subtracts what it finds.

    Queries start as keys do, and the output as minus `strength` times the transpose of the values (0: left as it is).
    Patches of an edit so find the same patches of the source, and what remains is their difference, which a judge
    needs and a small model takes long to find. After Trockman and Kolter, Mimetic Initialization of Self-Attention
    Layers, ICML 2023.
    """
    if not strength:
        return
    keys, values = attention.k_proj.weight, attention.v_proj.weight
    torch.nn.init.orthogonal_(keys)
    torch.nn.init.orthogonal_(values)

    def of_each_head(weight: torch.Tensor) -> torch.Tensor:
        heads = weight.unflatten(0, (-1, attention.head_dim))
        return heads.repeat_interleave(attention.num_key_value_groups, 0).flatten(0, 1)

    attention.q_proj.weight.copy_(of_each_head(keys))
    attention.o_proj.weight.copy_(-strength * of_each_head(values).T)


def save(
    net: Qwen3VLForConditionalGeneration,
    proc: transformers.Qwen3VLProcessor,
    out_dir: str | Path,
    dtype: torch.dtype = torch.float32,
) -> None:
    """Writes weights (safetensors, in `dtype`), configuration, tokenizer and processor into out_dir.

    The video part is written by hand, from the image part: a reader with torchvision asks for it.
    """
    out_dir = Path(out_dir)
    weights = copy.deepcopy(net)
    torch.nn.Module.to(weights, device="cpu", dtype=dtype)
    weights.save_pretrained(out_dir)
    proc.save_pretrained(out_dir)
    image = proc.to_dict()["image_processor"]
    video = {key: image[key] for key in ("size", "image_mean", "image_std", "patch_size", "merge_size")}
    video |= {"temporal_patch_size": FRAMES, "video_processor_type": "Qwen3VLVideoProcessor"}
    (out_dir / "video_preprocessor_config.json").write_text(json.dumps(video, indent=2, sort_keys=True) + "\n")
