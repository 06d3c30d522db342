"""A model of transformers from a local folder, with all of its weights: safetensors only, no remote code."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from editjudge.core.errors import FileError


def load(kind: Any, folder: Path, device: str, **options: Any) -> Any:
    """The model of the class `kind` in eval mode on `device`. options: of its from_pretrained.

    FileError: files that cannot be read or that lie outside the folder, and weights that are missing (transformers
    fills them by chance and only warns), of another shape, or not finite. ImportError: an option needs a package."""
    import torch
    from huggingface_hub.errors import StrictDataclassError
    from safetensors import SafetensorError

    check_indices(folder)
    try:
        model, report = kind.from_pretrained(
            str(folder), use_safetensors=True, local_files_only=True, trust_remote_code=False,
            output_loading_info=True, ignore_mismatched_sizes=True, **options,
        )  # fmt: skip
    except (OSError, ValueError, TypeError, LookupError, RuntimeError, SafetensorError, StrictDataclassError) as error:
        if isinstance(error, torch.OutOfMemoryError):
            raise
        raise FileError(f"{folder} cannot be loaded: {' '.join(str(error).split())}") from error
    if wrong := sorted([*report["missing_keys"], *(name for name, *_ in report["mismatched_keys"])]):
        raise FileError(
            f"{folder} lacks {len(wrong)} weights of a {kind.__name__}, or has them in another"
            f" shape: {', '.join(wrong[:3])}"
        )
    torch.nn.Module.to(model, device)
    check_finite(folder, model.named_parameters())
    return model.eval()


def load_tokenizer(folder: Path) -> Any:
    """FileError: there is none in the folder that can be used."""
    from transformers import AutoTokenizer

    try:
        return AutoTokenizer.from_pretrained(str(folder), local_files_only=True, trust_remote_code=False)
    except Exception as error:  # tokenizers raises Exception itself
        raise FileError(f"{folder} has no tokenizer that can be used: {' '.join(str(error).split()):.300}") from error


def check_indices(folder: Path) -> None:
    """Every index of weight files, in the folder and in those in it, names files beside itself. FileError."""
    for path in sorted(folder.rglob("*.safetensors.index.json")):
        try:
            named = set(json.loads(path.read_bytes())["weight_map"].values())
            strange = sorted(name for name in named if Path(name).name != name)
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
            raise FileError(f"{path} is no index of weights: {error!r:.200}") from error
        if strange:
            raise FileError(f"{path} names {strange[0]}, which is no file of the folder")


def check_finite(folder: Path, weights: Iterable[tuple[str, Any]]) -> None:
    """Every tensor is finite, each read once and none copied. FileError names the first that is not."""
    for name, weight in weights:
        if weight.numel() and weight.is_floating_point():
            low, high = weight.detach().aminmax()
            if not (low.isfinite() and high.isfinite()):
                raise FileError(f"{folder}: {name} holds values that are not finite")
