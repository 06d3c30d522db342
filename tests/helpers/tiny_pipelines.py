"""Editing models of a few thousand random weights, saved as real ones are published, so that diffusers loads them."""

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import diffusers
import torch
import transformers
from diffusers.pipelines.stable_diffusion import StableDiffusionSafetyChecker
from peft import LoraConfig, get_peft_model_state_dict
from tiny_models import clip_tokenizer
from tokenizers import Tokenizer
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel
from transformers import ByT5Tokenizer, CLIPTokenizer, PreTrainedTokenizerFast, Qwen2Tokenizer

from editjudge.editors.diffusers.mends import STAND_INS

QWEN_TOKENS = ["<|im_start|>", "<|im_end|>", "<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>"]
CHAT = """{% for message in messages %}<|im_start|>\
{{ message.content if message.content is string else message.content[0].text }}<|im_end|>{% endfor %}"""
GLM_TOKENS = {"image_token": "<|image|>", "grid_bos_token": "<sop>", "grid_eos_token": "<eop>"}
GLM_CODES = 128  # of pictures; a token each, then those that begin and end a picture
GLM_CHAT = """{% for message in messages %}{% for part in message.content %}\
{{ part.text if part.type == "text" else "<|code_128|><|image|><|code_129|>" }}{% endfor %}{% endfor %}"""
Parts = dict[str, Any]  # components by name; a scheduler of flows where they have none
TEXT = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
FLUX = {"num_layers": 1, "num_single_layers": 1, "attention_head_dim": 16, "num_attention_heads": 2}


def save(name: str, folder: Path) -> Path:
    """The tiny model of the pipeline class `name` in `folder`, in the form of a published one."""
    torch.manual_seed(0)
    parts = {"scheduler": diffusers.FlowMatchEulerDiscreteScheduler()} | MODELS[name]()
    index = {"_class_name": name, "_diffusers_version": "0.42.1"}
    for part, component in parts.items():
        component.save_pretrained(folder / part)
        if hasattr(component, "image_processor") and hasattr(
            component, "tokenizer"
        ):  # torchvision asks for the video's
            video = component.image_processor.to_dict() | {"video_processor_type": "Qwen2VLVideoProcessor"}
            keep = ("size", "image_mean", "image_std", "patch_size", "merge_size", "temporal_patch_size")
            video = {key: video[key] for key in (*keep, "video_processor_type") if key in video}
            (folder / part / "video_preprocessor_config.json").write_text(json.dumps(video, default=dict))
        library = "diffusers" if type(component).__module__.startswith("diffusers") else "transformers"
        library = "stable_diffusion" if part == "safety_checker" else library
        index[part] = [library, type(component).__name__.removesuffix("Pil")]
    (folder / "model_index.json").write_text(json.dumps(index))
    return folder


def save_lora(name: str, model: Path, folder: Path, file: str) -> None:
    """A LoRA of random weights for the tiny model of this class."""
    kind = getattr(diffusers, name)
    transformer = kind.from_pretrained(model).transformer
    torch.manual_seed(1)
    transformer.add_adapter(LoraConfig(r=2, target_modules=["to_q", "to_k", "to_v"], init_lora_weights=False))
    kind.save_lora_weights(folder, transformer_lora_layers=get_peft_model_state_dict(transformer), weight_name=file)


def qwen_tokenizer() -> Qwen2Tokenizer:
    """A token a byte, but for the word " cup", and Qwen's special tokens."""
    words = [*sorted(ByteLevel.alphabet()), "cu", "cup", "\u0120cup", "<|endoftext|>"]
    merges = [("c", "u"), ("cu", "p"), ("\u0120", "cup")]
    tokenizer = Qwen2Tokenizer(vocab={word: i for i, word in enumerate(words)}, merges=merges)
    tokenizer.add_special_tokens({"additional_special_tokens": QWEN_TOKENS})
    tokenizer.chat_template = CHAT
    return tokenizer


def clip_text(tokenizer: CLIPTokenizer) -> transformers.CLIPTextModel:
    config = transformers.CLIPTextConfig(
        **TEXT, vocab_size=len(tokenizer), projection_dim=16, bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
    )  # fmt: skip
    return transformers.CLIPTextModel(config)


def kl_vae(blocks: int, latents: int) -> diffusers.AutoencoderKL:
    """A VAE that shrinks 2 ** (blocks - 1) times; more than a real one where the pipeline insists on large pictures.

    Convolutions at a megapixel take all the time, so that channels are few."""
    return diffusers.AutoencoderKL(
        block_out_channels=(2,) * blocks, down_block_types=("DownEncoderBlock2D",) * blocks,
        up_block_types=("UpDecoderBlock2D",) * blocks, layers_per_block=0, latent_channels=latents, norm_num_groups=1,
        sample_size=64, mid_block_add_attention=False, shift_factor=0.1, scaling_factor=0.4,
        latents_mean=[0.0] * latents, latents_std=[1.0] * latents,
    )  # fmt: skip


def pix2pix() -> Parts:
    tokenizer = clip_tokenizer()
    unet = diffusers.UNet2DConditionModel(
        block_out_channels=(4, 8), layers_per_block=1, sample_size=8, in_channels=8, out_channels=4,
        down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"), up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"),
        cross_attention_dim=16, attention_head_dim=2, norm_num_groups=2,
    )  # fmt: skip
    square = {"height": 32, "width": 32}
    config = transformers.CLIPConfig(vision_config=TEXT | {"image_size": 32, "patch_size": 16}, projection_dim=16)
    parts: Parts = {"vae": kl_vae(4, 4), "text_encoder": clip_text(tokenizer), "tokenizer": tokenizer, "unet": unet}
    parts |= {"scheduler": diffusers.EulerAncestralDiscreteScheduler()}
    parts |= {"safety_checker": StableDiffusionSafetyChecker(config)}
    return parts | {"feature_extractor": transformers.CLIPImageProcessor(size={"shortest_edge": 32}, crop_size=square)}


def kontext() -> Parts:
    clip, sizes = clip_tokenizer(), {"in_channels": 16, "joint_attention_dim": 16, "pooled_projection_dim": 16}
    transformer = diffusers.FluxTransformer2DModel(**FLUX, **sizes, axes_dims_rope=(4, 4, 8), guidance_embeds=True)
    parts: Parts = {"vae": kl_vae(5, 4), "text_encoder": clip_text(clip), "tokenizer": clip}
    return parts | {"text_encoder_2": t5(), "tokenizer_2": ByT5Tokenizer(), "transformer": transformer}


def t5() -> transformers.T5EncoderModel:
    config = transformers.T5Config(vocab_size=384, d_model=16, d_ff=16, d_kv=8, num_layers=1, num_heads=2)
    return transformers.T5EncoderModel(config)


def qwen_vl(tokenizer: Qwen2Tokenizer) -> transformers.Qwen2_5_VLForConditionalGeneration:
    ids = {name: tokenizer.convert_tokens_to_ids(f"<|{name}|>") for name in ("vision_start", "vision_end", "image_pad")}
    config = transformers.Qwen2_5_VLConfig(
        text_config={
            **TEXT, "vocab_size": len(tokenizer), "num_key_value_heads": 2,
            "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [1, 1, 2]}
        },
        vision_config={
            "depth": 1, "hidden_size": 16, "intermediate_size": 16, "num_heads": 2, "out_hidden_size": 16,
            "fullatt_block_indexes": [0]
        },
        image_token_id=ids["image_pad"], vision_start_token_id=ids["vision_start"],
        vision_end_token_id=ids["vision_end"], video_token_id=tokenizer.convert_tokens_to_ids("<|video_pad|>"),
    )  # fmt: skip
    return transformers.Qwen2_5_VLForConditionalGeneration(config)


def qwen_processor(tokenizer: Qwen2Tokenizer) -> Any:
    images = transformers.Qwen2VLImageProcessor(min_pixels=28 * 28, max_pixels=56 * 56)
    return STAND_INS["Qwen2VLProcessor"](images, tokenizer)


def qwen_edit() -> Parts:
    tokenizer = qwen_tokenizer()
    vae = diffusers.AutoencoderKLQwenImage(
        base_dim=3, z_dim=4, dim_mult=[1, 1, 1, 1, 1], num_res_blocks=0, attn_scales=[],
        temperal_downsample=[False, False, False, False], latents_mean=[0.0] * 4, latents_std=[1.0] * 4,
    )  # fmt: skip
    transformer = diffusers.QwenImageTransformer2DModel(
        in_channels=16, out_channels=4, num_layers=1, attention_head_dim=16, num_attention_heads=2,
        joint_attention_dim=16, axes_dims_rope=(8, 4, 4),
    )  # fmt: skip
    parts: Parts = {"vae": vae, "text_encoder": qwen_vl(tokenizer), "tokenizer": tokenizer}
    return parts | {"processor": qwen_processor(tokenizer), "transformer": transformer}


def longcat() -> Parts:
    tokenizer = qwen_tokenizer()
    sizes = {"in_channels": 64, "joint_attention_dim": 16, "pooled_projection_dim": 16}
    transformer = diffusers.LongCatImageTransformer2DModel(**FLUX, **sizes, axes_dims_rope=[8, 4, 4])
    parts: Parts = {"vae": kl_vae(6, 16), "text_encoder": qwen_vl(tokenizer), "tokenizer": tokenizer}
    return parts | {"text_processor": qwen_processor(tokenizer), "transformer": transformer}


def flux2_parts(text_encoder: Any, tokenizer: Any) -> Parts:
    vae = diffusers.AutoencoderKLFlux2(
        block_out_channels=(2,) * 4, down_block_types=("DownEncoderBlock2D",) * 4,
        up_block_types=("UpDecoderBlock2D",) * 4, layers_per_block=1, latent_channels=4, norm_num_groups=1,
        sample_size=64,
    )  # fmt: skip
    sizes = {"in_channels": 16, "joint_attention_dim": 48, "axes_dims_rope": (4, 4, 4, 4)}
    transformer = diffusers.Flux2Transformer2DModel(**sizes, **FLUX)
    return {"vae": vae, "text_encoder": text_encoder, "tokenizer": tokenizer, "transformer": transformer}


def flux2() -> Parts:
    fast = qwen_tokenizer()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=fast.backend_tokenizer, pad_token="<|endoftext|>", chat_template=CHAT
    )
    config = transformers.Mistral3Config(
        text_config={
            **TEXT, "model_type": "mistral", "vocab_size": len(tokenizer), "num_hidden_layers": 30,
            "num_key_value_heads": 2, "head_dim": 8
        },
        vision_config=TEXT | {"model_type": "pixtral", "image_size": 32, "patch_size": 16},
        image_token_index=1,
    )  # fmt: skip
    return flux2_parts(transformers.Mistral3ForConditionalGeneration(config), tokenizer)


def klein() -> Parts:
    tokenizer = qwen_tokenizer()
    sizes = TEXT | {"num_hidden_layers": 27, "num_key_value_heads": 2, "head_dim": 8}
    config = transformers.Qwen3Config(**sizes, vocab_size=len(tokenizer))
    return flux2_parts(transformers.Qwen3ForCausalLM(config), tokenizer)


def glm_tokenizer() -> PreTrainedTokenizerFast:
    words = [*(f"<|code_{i}|>" for i in range(GLM_CODES + 2)), *sorted(ByteLevel.alphabet()), *GLM_TOKENS.values()]
    tokenizer = Tokenizer(BPE({word: i for i, word in enumerate(words)}, []))
    tokenizer.pre_tokenizer = ByteLevel(add_prefix_space=False)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token="<|code_128|>", eos_token="<|code_129|>", pad_token="<|code_129|>",
        extra_special_tokens=GLM_TOKENS,
    )  # fmt: skip


def glm() -> Parts:
    tokenizer = glm_tokenizer()
    pictures = transformers.GlmImageImageProcessor(
        patch_size=16, merge_size=1, temporal_patch_size=1, min_pixels=64 * 64, max_pixels=256 * 256
    )
    config = transformers.GlmImageConfig(
        text_config={
            "vocab_size": len(tokenizer), "hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 1,
            "num_attention_heads": 2, "num_key_value_heads": 2, "vision_vocab_size": GLM_CODES,
            "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [4, 2, 2]},
            "pad_token_id": 0, "eos_token_id": None
        },
        vision_config={
            "depth": 1, "hidden_size": 32, "num_heads": 2, "image_size": 64, "patch_size": 16, "intermediate_size": 32
        },
        vq_config={"embed_dim": 32, "num_embeddings": GLM_CODES, "latent_channels": 32},
        image_token_id=tokenizer.convert_tokens_to_ids("<|image|>"), image_start_token_id=GLM_CODES,
        image_end_token_id=GLM_CODES + 1,
    )  # fmt: skip
    transformer = diffusers.GlmImageTransformer2DModel(
        patch_size=2, in_channels=4, out_channels=4, num_layers=1, attention_head_dim=8, num_attention_heads=2,
        text_embed_dim=16, time_embed_dim=16, condition_dim=8, prior_vq_quantizer_codebook_size=GLM_CODES,
    )  # fmt: skip
    processor = transformers.GlmImageProcessor(pictures, tokenizer, chat_template=GLM_CHAT)
    parts: Parts = {"tokenizer": ByT5Tokenizer(), "processor": processor, "text_encoder": t5()}
    parts |= {"vision_language_encoder": transformers.GlmImageForConditionalGeneration(config)}
    return parts | {"vae": kl_vae(4, 4), "transformer": transformer}


def qwen3_vl(tokenizer: Qwen2Tokenizer) -> transformers.Qwen3VLForConditionalGeneration:
    ids = {f"{name}_token_id": tokenizer.convert_tokens_to_ids(f"<|{token}|>") for name, token in (
        ("image", "image_pad"), ("video", "video_pad"), ("vision_start", "vision_start"), ("vision_end", "vision_end")
    )}  # fmt: skip
    rope = {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [2, 1, 1], "mrope_interleaved": True}
    config = transformers.Qwen3VLConfig(
        text_config={
            **TEXT, "vocab_size": len(tokenizer), "num_key_value_heads": 2, "head_dim": 8, "rope_parameters": rope
        },
        vision_config={
            "depth": 1, "hidden_size": 16, "intermediate_size": 16, "num_heads": 2, "out_hidden_size": 16,
            "num_position_embeddings": 16, "deepstack_visual_indexes": [0]
        },
        **ids,
    )  # fmt: skip
    return transformers.Qwen3VLForConditionalGeneration(config)


def qwen3_processor(tokenizer: Qwen2Tokenizer) -> Any:
    images = transformers.Qwen2VLImageProcessor(patch_size=16, min_pixels=32 * 32, max_pixels=512 * 512)
    return STAND_INS["Qwen3VLProcessor"](images, tokenizer, chat_template=CHAT)


def wan_vae(latents: int, shrinks: int) -> diffusers.AutoencoderKLWan:
    """A VAE that shrinks 2 ** shrinks times."""
    return diffusers.AutoencoderKLWan(
        base_dim=3, z_dim=latents, dim_mult=[1] * (shrinks + 1), num_res_blocks=0, attn_scales=[],
        temperal_downsample=[False] * (shrinks - 2) + [True, True], latents_mean=[0.0] * latents,
        latents_std=[1.0] * latents, scale_factor_spatial=2**shrinks,
    )  # fmt: skip


def loud(model: Any, noise: float) -> Any:
    """The model with larger weights, so that words and steps show in an image of 256 values."""
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(noise * torch.randn_like(weight))
    return model


def joy(kind: str = "JoyImageEditTransformer3DModel") -> Parts:
    tokenizer = qwen_tokenizer()
    transformer = getattr(diffusers, kind)(
        in_channels=4, out_channels=4, hidden_size=32, num_attention_heads=2, text_dim=16, num_layers=1,
        rope_dim_list=[4, 6, 6],
    )  # fmt: skip
    parts: Parts = {"vae": wan_vae(4, 3), "text_encoder": qwen3_vl(tokenizer), "tokenizer": tokenizer}
    return parts | {"processor": qwen3_processor(tokenizer), "transformer": transformer}


def qwen_2_1() -> Parts:
    tokenizer = qwen_tokenizer()
    vae = diffusers.AutoencoderKLQwenImage21(
        base_dim=4, decoder_base_dim=4, z_dim=4, dim_mult=[1] * 5, num_res_blocks=1, latents_mean=[0.0] * 4,
        latents_std=[1.0] * 4,
    )  # fmt: skip
    transformer = diffusers.QwenImage21Transformer2DModel(
        in_channels=4, out_channels=4, num_layers=1, attention_head_dim=16, num_attention_heads=2, context_in_dim=16,
        axes_dims_rope=(8, 4, 4),
    )  # fmt: skip
    parts: Parts = {"vae": vae, "text_encoder": qwen3_vl(tokenizer), "transformer": transformer}
    return parts | {"processor": qwen3_processor(tokenizer)}


def fibo() -> Parts:
    tokenizer = qwen_tokenizer()
    config = transformers.SmolLM3Config(**TEXT, vocab_size=128_001, num_key_value_heads=2, pad_token_id=0)
    transformer = diffusers.BriaFiboTransformer2DModel(
        **FLUX, in_channels=4, joint_attention_dim=32, text_encoder_dim=16, axes_dims_rope=[8, 4, 4]
    )
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer.backend_tokenizer, pad_token="<|endoftext|>")
    parts: Parts = {"vae": wan_vae(4, 4), "text_encoder": transformers.SmolLM3ForCausalLM(config)}
    return parts | {"tokenizer": fast, "transformer": loud(transformer, 0.3)}


def chrono() -> Parts:
    vision = transformers.CLIPVisionConfig(**TEXT | {"num_hidden_layers": 2}, image_size=32, patch_size=16)
    square = {"height": 32, "width": 32}
    pictures = transformers.CLIPImageProcessor(size={"shortest_edge": 32}, crop_size=square)
    config = transformers.UMT5Config(vocab_size=384, d_model=16, d_ff=16, d_kv=8, num_layers=1, num_heads=2)
    transformer = diffusers.ChronoEditTransformer3DModel(
        num_attention_heads=2, attention_head_dim=16, in_channels=12, out_channels=4, text_dim=16, freq_dim=16,
        ffn_dim=16, num_layers=1, image_dim=16, added_kv_proj_dim=32, rope_max_seq_len=64,
    )  # fmt: skip
    parts: Parts = {"vae": wan_vae(4, 3), "text_encoder": transformers.UMT5EncoderModel(config)}
    parts |= {"tokenizer": ByT5Tokenizer(), "image_encoder": transformers.CLIPVisionModel(vision)}
    return parts | {"image_processor": pictures, "transformer": loud(transformer, 0.3)}


def dreamlite() -> Parts:
    tokenizer = qwen_tokenizer()
    vae = diffusers.AutoencoderTiny(
        encoder_block_out_channels=(4,) * 4, decoder_block_out_channels=(4,) * 4, num_encoder_blocks=(1,) * 4,
        num_decoder_blocks=(1,) * 4,
    )  # fmt: skip
    unet = diffusers.DreamLiteUNetModel(
        block_out_channels=(8, 8, 8), layers_per_block=1, norm_num_groups=2, cross_attention_dim=16,
        attention_head_dim=4, use_linear_projection=True, addition_embed_type="time",
        addition_time_embed_dim=8, projection_class_embeddings_input_dim=16,
    )  # fmt: skip
    parts: Parts = {"vae": loud(vae, 0.3), "text_encoder": qwen3_vl(tokenizer), "tokenizer": tokenizer, "unet": unet}
    return parts | {"processor": qwen3_processor(tokenizer)}


MODELS: dict[str, Callable[[], Parts]] = {
    "StableDiffusionInstructPix2PixPipeline": pix2pix,
    "FluxKontextPipeline": kontext,
    "QwenImageEditPipeline": qwen_edit,
    "QwenImageEditPlusPipeline": qwen_edit,
    "Flux2Pipeline": flux2,
    "Flux2KleinPipeline": klein,
    "LongCatImageEditPipeline": longcat,
    "GlmImagePipeline": glm,
    "Flux2KleinKVPipeline": klein,
    "JoyImageEditPipeline": joy,
    "JoyImageEditPlusPipeline": partial(joy, "JoyImageEditPlusTransformer3DModel"),
    "QwenImage21Pipeline": qwen_2_1,
    "BriaFiboEditPipeline": fibo,
    "ChronoEditPipeline": chrono,
    "DreamLitePipeline": dreamlite,
}
