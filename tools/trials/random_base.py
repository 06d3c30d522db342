"""A random checkpoint of Qwen3-VL-8B's shape, file by file: `python -m tools.trials.random_base FOLDER --layers 12`.

The whole of it has 17.5 GB in bfloat16, and each layer less 386 MB less; memory holds one block of values. Weights are
normal with deviation 0.02 and repeat after 16 million values, norms are 1 and biases 0. Tokenizer and processor are the
tiny base's, but for the size of the images: what a benchmark asks of them is only that they work.
"""

import argparse
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from safetensors.torch import save_file
from transformers import Qwen3VLConfig, Qwen3VLForConditionalGeneration

from editjudge.models.weights.merge import StoredTensor, header_of, read_header
from tools.tiny_base import tiny

SHARD = 5_000_000_000  # bytes, as published checkpoints are split
POOL = 1 << 24  # different values
TARGETS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")


@dataclass(frozen=True)
class Shape:
    """Sizes of a Qwen3-VL; the defaults are those of 8B. pixels: the most of an image that the model sees."""

    hidden: int = 4096
    intermediate: int = 12288
    layers: int = 36
    heads: int = 32
    key_value_heads: int = 8
    head_dim: int = 128
    vocabulary: int = 151936
    vision_hidden: int = 1152
    vision_intermediate: int = 4304
    vision_layers: int = 27
    vision_heads: int = 16
    positions: int = 48**2
    deepstack: tuple[int, ...] = (8, 16, 24)
    pixels: int = 1280 * 32**2
    mrope: tuple[int, int, int] = (24, 20, 20)


SHAPES = {
    "8b": Shape(),
    "tiny": Shape(64, 128, 2, 4, 2, 16, 512, 64, 128, 2, 4, 6**2, (0,), 96**2, (4, 2, 2)),
}


def config(shape: Shape, tokens: tiny.PreTrainedTokenizerFast) -> Qwen3VLConfig:
    """The configuration of a Qwen3-VL of this shape, for the tiny base's tokens; its embeddings are not tied."""
    plain = tiny.config(tokens, tiny.TinySettings()).to_dict()
    plain["tie_word_embeddings"] = plain["text_config"]["tie_word_embeddings"] = False
    plain["text_config"] |= {
        "vocab_size": shape.vocabulary,
        "hidden_size": shape.hidden,
        "intermediate_size": shape.intermediate,
        "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.key_value_heads,
        "head_dim": shape.head_dim,
        "max_position_embeddings": 262144,
        "initializer_range": 0.02,
    }
    plain["text_config"]["rope_parameters"] |= {"rope_theta": 5e6, "mrope_section": list(shape.mrope)}
    plain["vision_config"] |= {
        "depth": shape.vision_layers,
        "hidden_size": shape.vision_hidden,
        "intermediate_size": shape.vision_intermediate,
        "num_heads": shape.vision_heads,
        "out_hidden_size": shape.hidden,
        "num_position_embeddings": shape.positions,
        "deepstack_visual_indexes": list(shape.deepstack),
        "initializer_range": 0.02,
    }
    return Qwen3VLConfig(**{**plain, "dtype": "bfloat16", "architectures": ["Qwen3VLForConditionalGeneration"]})


def sizes(settings: Qwen3VLConfig) -> dict[str, tuple[int, ...]]:
    """The shape of every weight by its name on disk."""
    with torch.device("meta"):
        net = Qwen3VLForConditionalGeneration(settings)
    return {name: tuple(weight.shape) for name, weight in net.state_dict().items()}


def shards(shapes: Mapping[str, tuple[int, ...]]) -> list[dict[str, StoredTensor]]:
    """The weights in files of at most `SHARD` bytes, each where it is to lie after its file's header."""
    files: list[dict[str, StoredTensor]] = [{}]
    at = 0
    for name, shape in shapes.items():
        size = 2 * torch.Size(shape).numel()
        if at + size > SHARD and files[-1]:
            files.append({})
            at = 0
        files[-1][name] = StoredTensor(Path(), "BF16", shape, at, size)
        at += size
    return files


def values(name: str, tensor: StoredTensor, pool: torch.Tensor, start: int) -> Iterator[memoryview]:
    """The bytes of a weight, in parts."""
    if name.endswith(".bias") or len(tensor.shape) == 1:
        pool, start = torch.full((tensor.size // 2,), float(not name.endswith(".bias")), dtype=torch.bfloat16), 0
    data, left = pool.view(torch.uint8).numpy().data, tensor.size
    at = 2 * start
    while left:
        part = data[at : at + left]
        yield part
        left, at = left - len(part), 0


def write(folder: Path, shape: Shape, seed: int = 0) -> None:
    """Writes the checkpoint into `folder`, which must not be there."""
    tokens = tiny.tokenizer()
    processor = tiny.processor(tokens)
    processor.image_processor.size = {"shortest_edge": 32**2, "longest_edge": shape.pixels}
    tiny.save(tiny.model(tokens, tiny.TinySettings()), processor, folder)
    (folder / "model.safetensors").unlink()
    settings = config(shape, tokens)
    settings.save_pretrained(folder)
    rng = torch.Generator().manual_seed(seed)
    pool = (0.02 * torch.randn(POOL, generator=rng)).bfloat16()
    files = shards(sizes(settings))
    weight_map = {}
    for k, tensors in enumerate(files, 1):
        name = f"model-{k:05}-of-{len(files):05}.safetensors"
        with (folder / name).open("wb") as out:
            out.write(header_of({}, tensors, None))
            for weight, tensor in tensors.items():
                start = int(torch.randint(POOL, (), generator=rng))
                out.writelines(values(weight, tensor, pool, start))
        weight_map |= dict.fromkeys(tensors, name)
    total = sum(tensor.size for tensors in files for tensor in tensors.values())
    index = {"metadata": {"total_size": total}, "weight_map": weight_map}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index, indent=2) + "\n")


def write_adapter(folder: Path, base: Path, rank: int = 64, alpha: int = 128, seed: int = 0) -> None:
    """A random adapter for `base` on all linear layers of its language model, as peft saves one (float32)."""
    rng, tensors = torch.Generator().manual_seed(seed), {}
    for file in sorted(base.glob("*.safetensors")):
        for name, tensor in read_header(file)[1].items():
            module = name.removesuffix(".weight")
            if ".language_model." in name and module.endswith(TARGETS):
                for part, size in (("A", (rank, tensor.columns)), ("B", (tensor.rows, rank))):
                    key = f"base_model.model.{module}.lora_{part}.weight"
                    tensors[key] = 0.02 * torch.randn(size, generator=rng)
    folder.mkdir(parents=True)
    save_file(tensors, folder / "adapter_model.safetensors")
    settings = {"peft_type": "LORA", "r": rank, "lora_alpha": alpha, "target_modules": list(TARGETS)}
    (folder / "adapter_config.json").write_text(json.dumps(settings, indent=2, sort_keys=True) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--shape", choices=sorted(SHAPES), default="8b")
    parser.add_argument("--layers", type=int, help="of the language model; 36 in 8B")
    parser.add_argument("--vocabulary", type=int, help="151936 in 8B")
    parser.add_argument("--adapter", type=Path, help="also write a random adapter of rank 64 there")
    arguments = parser.parse_args()
    cut = {name: value for name in ("layers", "vocabulary") if (value := getattr(arguments, name)) is not None}
    write(arguments.folder, replace(SHAPES[arguments.shape], **cut))
    if arguments.adapter:
        write_adapter(arguments.adapter, arguments.folder)


if __name__ == "__main__":
    main()
