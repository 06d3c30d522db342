"""Editing models of a few thousand random weights, saved as real ones are published, so that diffusers loads them."""

import copy
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import diffusers
import torch
import transformers
from cases import yaml_beside
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
SIZES = yaml_beside(__file__)
TEXT = SIZES["text"]


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
    unet = diffusers.UNet2DConditionModel(**SIZES["pix2pix"])
    square = {"height": 32, "width": 32}
    config = transformers.CLIPConfig(vision_config=TEXT | SIZES["clip_vision"], projection_dim=16)
    parts: Parts = {"vae": kl_vae(4, 4), "text_encoder": clip_text(tokenizer), "tokenizer": tokenizer, "unet": unet}
    parts |= {"scheduler": diffusers.EulerAncestralDiscreteScheduler()}
    parts |= {"safety_checker": StableDiffusionSafetyChecker(config)}
    return parts | {"feature_extractor": transformers.CLIPImageProcessor(size={"shortest_edge": 32}, crop_size=square)}


def kontext() -> Parts:
    clip, transformer = clip_tokenizer(), diffusers.FluxTransformer2DModel(**SIZES["kontext"])
    parts: Parts = {"vae": kl_vae(5, 4), "text_encoder": clip_text(clip), "tokenizer": clip}
    return parts | {"text_encoder_2": t5(), "tokenizer_2": ByT5Tokenizer(), "transformer": transformer}


def t5() -> transformers.T5EncoderModel:
    return transformers.T5EncoderModel(transformers.T5Config(**SIZES["t5"]))


def sized(kind: str, tokenizer: Any, **more: int) -> Any:
    """What the configuration of a model of transformers is given. more: what else it needs."""
    given = copy.deepcopy(SIZES[kind])
    return given | {"text_config": given["text_config"] | {"vocab_size": len(tokenizer)}} | more


def qwen_ids(tokenizer: Qwen2Tokenizer) -> dict[str, int]:
    """Ids of the tokens around pictures."""
    names = {"image": "image_pad", "video": "video_pad", "vision_start": "vision_start", "vision_end": "vision_end"}
    return {f"{name}_token_id": tokenizer.convert_tokens_to_ids(f"<|{token}|>") for name, token in names.items()}


def qwen_vl(tokenizer: Qwen2Tokenizer) -> transformers.Qwen2_5_VLForConditionalGeneration:
    config = transformers.Qwen2_5_VLConfig(**sized("qwen2_5_vl", tokenizer, **qwen_ids(tokenizer)))
    return transformers.Qwen2_5_VLForConditionalGeneration(config)


def qwen_processor(tokenizer: Qwen2Tokenizer) -> Any:
    images = transformers.Qwen2VLImageProcessor(min_pixels=28 * 28, max_pixels=56 * 56)
    return STAND_INS["Qwen2VLProcessor"](images, tokenizer)


def qwen_edit() -> Parts:
    tokenizer = qwen_tokenizer()
    vae = diffusers.AutoencoderKLQwenImage(**SIZES["qwen_edit_vae"])
    transformer = diffusers.QwenImageTransformer2DModel(**SIZES["qwen_edit"])
    parts: Parts = {"vae": vae, "text_encoder": qwen_vl(tokenizer), "tokenizer": tokenizer}
    return parts | {"processor": qwen_processor(tokenizer), "transformer": transformer}


def longcat() -> Parts:
    tokenizer = qwen_tokenizer()
    transformer = diffusers.LongCatImageTransformer2DModel(**SIZES["longcat"])
    parts: Parts = {"vae": kl_vae(6, 16), "text_encoder": qwen_vl(tokenizer), "tokenizer": tokenizer}
    return parts | {"text_processor": qwen_processor(tokenizer), "transformer": transformer}


def flux2_parts(text_encoder: Any, tokenizer: Any) -> Parts:
    vae = diffusers.AutoencoderKLFlux2(**SIZES["flux2_vae"])
    transformer = diffusers.Flux2Transformer2DModel(**SIZES["flux2"])
    return {"vae": vae, "text_encoder": text_encoder, "tokenizer": tokenizer, "transformer": transformer}


def flux2() -> Parts:
    fast = qwen_tokenizer()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=fast.backend_tokenizer, pad_token="<|endoftext|>", chat_template=CHAT
    )
    config = transformers.Mistral3Config(**sized("mistral3", tokenizer))
    return flux2_parts(transformers.Mistral3ForConditionalGeneration(config), tokenizer)


def klein() -> Parts:
    tokenizer = qwen_tokenizer()
    config = transformers.Qwen3Config(**SIZES["qwen3"], vocab_size=len(tokenizer))
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
    pictures = transformers.GlmImageImageProcessor(**SIZES["glm_pictures"])
    image = tokenizer.convert_tokens_to_ids("<|image|>")
    config = transformers.GlmImageConfig(**sized("glm", tokenizer, image_token_id=image))
    transformer = diffusers.GlmImageTransformer2DModel(**SIZES["glm_transformer"])
    processor = transformers.GlmImageProcessor(pictures, tokenizer, chat_template=GLM_CHAT)
    parts: Parts = {"tokenizer": ByT5Tokenizer(), "processor": processor, "text_encoder": t5()}
    parts |= {"vision_language_encoder": transformers.GlmImageForConditionalGeneration(config)}
    return parts | {"vae": kl_vae(4, 4), "transformer": transformer}


def qwen3_vl(tokenizer: Qwen2Tokenizer) -> transformers.Qwen3VLForConditionalGeneration:
    config = transformers.Qwen3VLConfig(**sized("qwen3_vl", tokenizer, **qwen_ids(tokenizer)))
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
    transformer = getattr(diffusers, kind)(**SIZES["joy"])
    parts: Parts = {"vae": wan_vae(4, 3), "text_encoder": qwen3_vl(tokenizer), "tokenizer": tokenizer}
    return parts | {"processor": qwen3_processor(tokenizer), "transformer": transformer}


def qwen_2_1() -> Parts:
    tokenizer = qwen_tokenizer()
    vae = diffusers.AutoencoderKLQwenImage21(**SIZES["qwen_2_1_vae"])
    transformer = diffusers.QwenImage21Transformer2DModel(**SIZES["qwen_2_1"])
    parts: Parts = {"vae": vae, "text_encoder": qwen3_vl(tokenizer), "transformer": transformer}
    return parts | {"processor": qwen3_processor(tokenizer)}


def fibo() -> Parts:
    tokenizer = qwen_tokenizer()
    config = transformers.SmolLM3Config(**SIZES["smollm3"])
    transformer = diffusers.BriaFiboTransformer2DModel(**SIZES["fibo"])
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer.backend_tokenizer, pad_token="<|endoftext|>")
    parts: Parts = {"vae": wan_vae(4, 4), "text_encoder": transformers.SmolLM3ForCausalLM(config)}
    return parts | {"tokenizer": fast, "transformer": loud(transformer, 0.3)}


def chrono() -> Parts:
    vision = transformers.CLIPVisionConfig(**TEXT | {"num_hidden_layers": 2}, **SIZES["clip_vision"])
    square = {"height": 32, "width": 32}
    pictures = transformers.CLIPImageProcessor(size={"shortest_edge": 32}, crop_size=square)
    config = transformers.UMT5Config(**SIZES["t5"])
    transformer = diffusers.ChronoEditTransformer3DModel(**SIZES["chrono"])
    parts: Parts = {"vae": wan_vae(4, 3), "text_encoder": transformers.UMT5EncoderModel(config)}
    parts |= {"tokenizer": ByT5Tokenizer(), "image_encoder": transformers.CLIPVisionModel(vision)}
    return parts | {"image_processor": pictures, "transformer": loud(transformer, 0.3)}


def dreamlite() -> Parts:
    tokenizer = qwen_tokenizer()
    vae = diffusers.AutoencoderTiny(**SIZES["dreamlite_vae"])
    unet = diffusers.DreamLiteUNetModel(**SIZES["dreamlite"])
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
