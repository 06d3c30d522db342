"""EditReward as it is published (TIGER-AI-Lab, MIT), made a scorer's folder that answers as the published code does.

    python -m tools.import_editreward --checkpoint FOLDER --base FOLDER --out FOLDER

What is published is one file of weights that holds the heads too. All else lies elsewhere: the configuration and the
processor in the base's repository, the rubrics in the code's (judges/prompts/scorers/editreward.yaml), and there, the
same for both bases, that the mean of the dimensions counts. The folder has what that code does: a look at the edit for
each dimension, the token inside the user's turn, images resized by PIL, and positions in the chat as of a text, without
an image's grid. It takes images as they are stored: transparency is dropped, and no orientation is applied."""

import re
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch
from cyclopts import App
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from editjudge.core import hub
from editjudge.core.checkpoints import load_tokenizer
from editjudge.core.errors import FileError
from editjudge.core.files import whole
from editjudge.core.main import guarded
from editjudge.judges.scorers.checkpoint import HEAD, CheckpointScorer, Description, write_description
from editjudge.judges.scorers.questions import TOKEN, ScorerPrompt
from editjudge.models.chat.checkpoint import load_processor, model_class

REWARD = "<|Reward|>"
PIXELS = 256 * 28 * 28  # of both images; the code does not follow the sizes in its settings
# What torch and pickle raise on a file of other bytes.
WRONG = (EOFError, ValueError, TypeError, LookupError, AttributeError, AssertionError, OverflowError, UnpicklingError)
BROKEN = (*WRONG, OSError, RuntimeError, MemoryError, SafetensorError)
HEADS = re.compile(r"rm_heads?\.(?:head_(\d)\.)?(\d.+)")


def import_editreward(checkpoint: Path, base: Path, out: Path) -> None:
    """Writes a published checkpoint as a scorer's folder, whole and checked, or nothing.

    checkpoint: the folder of model.pth or model.safetensors, and maybe of tokenizer/. base: that of the model that it
    was trained from. FileError: a file is missing, or they do not fit together."""
    questions = ScorerPrompt.load("editreward").questions
    weights, processor = weights_of(checkpoint), load_processor(base)
    named = [*filter(None, map(HEADS.fullmatch, weights))]
    description = Description(
        dimensions=("instruction_following", "visual_quality"), reply="", token=REWARD, calibration=(),
        questions=tuple(question.replace(TOKEN, REWARD) for question in questions), aggregation="mean",
        head="gaussian", head_sizes=(1024, 16), head_shared=not any(found[1] for found in named),
        min_pixels=PIXELS, max_pixels=PIXELS, resize="bicubic", positions="text",
    )  # fmt: skip
    tokenizer = processor.tokenizer
    tokenizer.add_tokens([REWARD], special_tokens=True)
    own = checkpoint / "tokenizer"
    if own.is_dir() and load_tokenizer(own).get_vocab() != tokenizer.get_vocab():
        raise FileError(f"{own} is not the tokenizer of {base} with {REWARD}: it was trained from another base")
    net = model_class(base).config_class.from_pretrained(str(base), local_files_only=True)
    net.get_text_config().vocab_size = len(tokenizer)
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


def import_scorer(*, checkpoint: str, base: str, out: Path) -> None:
    """Make a scorer of EditReward's published checkpoint: a folder for `scorers`, and for `editjudge score --judge`.

    Args:
        checkpoint: The folder or hub id of its model.pth or model.safetensors.
        base: The folder or hub id of the model that it was trained from.
        out: The new folder."""
    if out.exists():
        raise FileError(f"{out} is there already: name another place, or remove it")
    example = "TIGER-Lab/EditReward-MiMo-VL-7B-SFT-2508"
    own = hub.find("--checkpoint", checkpoint, (*hub.CHECKPOINT, "model.pth"), example)
    import_editreward(own, hub.find("--base", base), out)
    print(f"{out}: a scorer of {checkpoint}")


if __name__ == "__main__":
    app = App(help_format="plaintext")
    app.default(import_scorer)
    guarded("import_editreward", app)
