"""EditReward as it is published (TIGER-AI-Lab, MIT), made a scorer's folder that answers as the published code does.

What is published is one file of weights that holds the heads too. All else lies elsewhere: the configuration and the
processor in the base's repository; the rubrics, the kind of head and how two heads become one score in the code's,
which is read here and never run. The folder has what that code does: a look at the edit for each dimension, the token
inside the user's turn, images resized by PIL, and positions in the chat as of a text, without an image's grid."""

import ast
import re
from itertools import chain
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from transformers import AutoTokenizer

from editjudge.core import params
from editjudge.core.errors import FileError
from editjudge.core.files import whole
from editjudge.judges.scorers.checkpoint import HEAD, CheckpointScorer, Description, write_description
from editjudge.models.chat.checkpoint import load_processor, model_class

CODE, COMMIT = "https://github.com/TIGER-AI-Lab/EditReward", "edb027edde6080b8a9521ef8e87049b3797f8374"
TEXTS = ("dataset/prompts.py", "dataset/data_collator_qwen_edit.py")
RUBRICS = {"instruction_following": "INSTRUCTION_EDIT_FOLLOWING", "visual_quality": "INSTRUCTION_EDIT_QUALITY"}
CLOSING, TOKEN = "prompt_with_special_token", "<|Reward|>"
KINDS = {"ranknet_multi_head": False, "ranknet_share_head": True}  # whether all dimensions share a head
NEEDED = {"output_dim": 2, "use_special_tokens": True, "rm_head_kwargs": None, "lora_enable": False}
PIXELS = 256 * 28 * 28  # of both images; the code does not follow the sizes in its settings
# What torch and pickle raise on a file of other bytes.
WRONG = (EOFError, ValueError, TypeError, LookupError, AttributeError, AssertionError, OverflowError, UnpicklingError)
BROKEN = (*WRONG, OSError, RuntimeError, MemoryError, SafetensorError)
HEADS = re.compile(r"rm_heads?\.(?:head_(\d)\.)?(\d.+)")


def import_editreward(checkpoint: Path, base: Path, code: Path, config: str, out: Path) -> None:
    """Writes a published checkpoint as a scorer's folder, whole and checked, or nothing.

    checkpoint: the folder of model.pth or model.safetensors, and maybe of tokenizer/. base: that of the model that it
    was trained from. code: a clone of CODE. config: the name of its settings there.

    FileError, ParamsError: a file is missing, or they do not fit together."""
    texts = texts_of(code / "EditReward")
    settings = params.load(code / "EditReward/config" / f"{config}.yaml")
    kind, pooling = settings.get("rm_head_type"), settings.get("pooling_strategy")
    wrong = [name for name, value in NEEDED.items() if settings.get(name) != value]
    if kind not in KINDS or pooling not in ("min", "mean", "sum") or wrong:
        raise FileError(f"{config}: {', '.join(wrong) or f'{kind}, {pooling}'}: such a checkpoint is not read here")
    description = Description(
        dimensions=tuple(RUBRICS), questions=tuple(texts[name] for name in RUBRICS), reply="", token=TOKEN,
        head="gaussian", head_sizes=(1024, 16), head_shared=KINDS[kind], aggregation=pooling, calibration=(),
        min_pixels=PIXELS, max_pixels=PIXELS, resize="bicubic", positions="text",
    )  # fmt: skip
    weights, processor = weights_of(checkpoint), load_processor(base)
    tokenizer = processor.tokenizer
    tokenizer.add_tokens([TOKEN], special_tokens=True)
    own = checkpoint / "tokenizer"
    if own.is_dir() and AutoTokenizer.from_pretrained(str(own)).get_vocab() != tokenizer.get_vocab():
        raise FileError(f"{own} is not the tokenizer of {base} with {TOKEN}: it was trained from another base")
    net = model_class(base).config_class.from_pretrained(str(base), local_files_only=True)
    net.get_text_config().vocab_size = len(tokenizer)
    named = [*filter(None, map(HEADS.fullmatch, weights))]
    heads = {f"parts.{found[1] or 0}.{found[2]}": weights.pop(found[0]).float() for found in named}
    with whole(out) as folder:
        net.save_pretrained(folder)
        processor.save_pretrained(folder)
        save_file(weights, folder / "model.safetensors", {"format": "pt"})
        save_file(heads, folder / HEAD)
        write_description(folder, description)
        loaded = CheckpointScorer.load(folder, "bfloat16", device="cpu").model
        if more := len(weights) - sum(not name.startswith("head.") for name in loaded.state_dict()):
            raise FileError(f"{checkpoint} has {more} weights that a model like {base} has not")


def texts_of(code: Path) -> dict[str, str]:
    """The question of each dimension, read from the published code. FileError: it is not there, or lacks one."""
    try:
        nodes = chain.from_iterable(ast.parse((code / name).read_bytes()).body for name in TEXTS)
        named = {ast.unparse(node.targets[0]): node.value for node in nodes if isinstance(node, ast.Assign)}
        rubrics = {name: ast.literal_eval(named[text]) for name, text in RUBRICS.items()}
        closing = ast.literal_eval(named[CLOSING])
        if wrong := [name for name, text in (rubrics | {CLOSING: closing}).items() if not isinstance(text, str)]:
            raise TypeError(f"{wrong[0]} is no text")
    except (OSError, SyntaxError, ValueError, LookupError, TypeError, RecursionError, MemoryError) as error:
        how = f"git clone {CODE} && git -C EditReward checkout {COMMIT}"
        raise FileError(f"{code} has not EditReward's rubrics ({error}). They come with its code: {how}") from error
    asked = {name: text.format(text_prompt="{instruction}") for name, text in rubrics.items()}
    return {name: "{source}\n{edited}\n" + text + closing for name, text in asked.items()}


def weights_of(checkpoint: Path) -> dict[str, torch.Tensor]:
    """By name, those of the heads too. FileError: there are none, or they cannot be read."""
    file = checkpoint / "model.pth"
    try:
        if not file.is_file():
            return load_file(file := checkpoint / "model.safetensors")
        found: Any = torch.load(file, "cpu", mmap=True, weights_only=True)
    except BROKEN as error:
        raise FileError(f"{file} cannot be read: {' '.join(str(error).split()):.300}") from error
    found = found.get("model", found) if isinstance(found, dict) else None
    parts = found.items() if isinstance(found, dict) else ()
    if not parts or not all(isinstance(name, str) and isinstance(part, torch.Tensor) for name, part in parts):
        raise FileError(f"{file} cannot be read: it holds no weights by name")
    return found
