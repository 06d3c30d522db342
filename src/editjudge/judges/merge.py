"""Merging LoRA adapters into their base: a plain checkpoint that any Qwen3-VL runtime serves."""

import shutil
import tempfile
from pathlib import Path

import torch
from peft import PeftModel, get_peft_model_state_dict
from safetensors import safe_open

from editjudge.judges.checkpoint import DTYPES, Precision, load_model
from editjudge.judges.processor import load_processor

ADAPTER = "adapter_model.safetensors"
PROCESSOR_FILES = (
    "added_tokens.json",
    "chat_template.jinja",
    "chat_template.json",
    "merges.txt",
    "preprocessor_config.json",
    "processor_config.json",
    "special_tokens_map.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "video_preprocessor_config.json",
    "vocab.json",
)


def load_adapted(base_dir: Path, adapter_dir: Path) -> PeftModel:
    """The base in float32 on the CPU with the adapter on it, in eval mode.

    FileNotFoundError: no adapter in safetensors there. RuntimeError, ValueError: the adapter belongs to a base of other
    sizes or layers.
    """
    weights = adapter_dir / ADAPTER
    if not weights.is_file():
        raise FileNotFoundError(f"{weights} is missing: adapters are read from safetensors only")
    model = PeftModel.from_pretrained(load_model(base_dir), str(adapter_dir), local_files_only=True)
    with safe_open(weights, "pt") as file:
        strays = set(file.keys()) ^ set(get_peft_model_state_dict(model, save_embedding_layers=False))
    if strays:
        raise ValueError(f"{weights} does not fit {base_dir}: {len(strays)} tensors, {min(strays)} among them")
    return model.eval()


def merge_adapter(base_dir: Path, adapter_dir: Path, out_dir: Path, dtype: Precision = "float32") -> None:
    """Writes the base with the adapter merged in as a checkpoint: safetensors in `dtype`, and the base's processor.

    The sum is taken in float32. An out_dir that exists is replaced; it appears whole, or not at all.
    """
    load_processor(base_dir)
    merged = load_adapted(base_dir, adapter_dir).merge_and_unload()
    torch.nn.Module.to(merged, dtype=DTYPES[dtype])
    out_dir.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out_dir.parent, prefix=f".{out_dir.name}.") as scratch:
        whole = Path(scratch, "merged")
        merged.save_pretrained(whole)
        for name in PROCESSOR_FILES:
            if (base_dir / name).is_file():
                shutil.copyfile(base_dir / name, whole / name)
        if out_dir.exists():
            shutil.rmtree(out_dir)
        whole.rename(out_dir)
