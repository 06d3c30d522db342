"""The settings of a LoRA adapter (peft's) and of its processor, read and checked before any weights are."""

import json
import subprocess
import sys
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open

from editjudge.core.errors import FileError

PROCESSOR, IMAGES, WEIGHTS = "processor_config.json", "preprocessor_config.json", "adapter_model.safetensors"
ADAPTER = "adapter_config.json"
SIZES = ("size", "max_patches", "max_soft_tokens")  # settings of image processors by which they choose sizes
OLDER = ("min_pixels", "max_pixels")  # which are taken before `size` where a file has both
SOFT_TOKENS = (70, 140, 280, 560, 1120)  # of an image, that Gemma 4 knows
PATTERNS = {"type": ["string", "array", "null"], "items": {"type": "string"}}
SCHEMA = {
    "if": {"properties": {"peft_type": {"const": "LORA"}}},
    "then": {"required": ["r", "lora_alpha"]},
    "properties": {
        "r": {"type": "integer", "minimum": 1},
        "lora_alpha": {"type": "number", "minimum": -1e9, "maximum": 1e9},
        "rank_pattern": {"type": ["object", "null"], "additionalProperties": {"type": "integer", "minimum": 1}},
        "use_rslora": {"type": ["boolean", "null"]},
        "target_modules": PATTERNS,
        "exclude_modules": PATTERNS,
        "modules_to_save": {"type": ["array", "null"], "items": {"type": "string"}},
    },
}
SECONDS = 10.0  # for a pattern and all names of a model; a good one takes less than one
MATCH = "import json, re, sys; pattern, names = json.load(sys.stdin); [re.fullmatch(pattern, name) for name in names]"


def _no_number(word: str) -> float:
    raise ValueError(f"{word} is no JSON number")


def read_json(path: Path) -> dict[str, Any]:
    """The object in a JSON file. FileError: there is none."""
    try:
        value = json.loads(path.read_bytes(), parse_constant=_no_number)
    except (ValueError, RecursionError) as error:
        raise FileError(f"{path} is no JSON: {error}") from error
    if not isinstance(value, dict):
        raise FileError(f"{path}: an object expected, not {type(value).__name__}")
    return value


def read_config(folder: Path) -> dict[str, Any]:
    """The settings of the adapter in a folder. FileError: none are there, one has a wrong type or value, or the weights
    beside them are dead."""
    from jsonschema import Draft202012Validator

    path = folder / ADAPTER
    if not path.is_file():
        raise FileError(f"{path} is missing")
    config = read_json(path)
    if error := next(Draft202012Validator(SCHEMA).iter_errors(config), None):
        raise FileError(f"{path}: {error.json_path.removeprefix('$.')}: {error.message:.200}")
    check_alive(folder / WEIGHTS)
    return config


def check_alive(file: Path) -> None:
    """FileError: an adapter that changes nothing, for all of its lora_B are zero, as training finds them, and nothing
    else was trained (modules_to_save). What is no file of weights its readers refuse."""
    with suppress(OSError, SafetensorError), safe_open(file, "pt") as weights:
        trained = [name for name in weights.keys() if ".lora_A." not in name]  # noqa: SIM118
        factors = [name for name in trained if ".lora_B." in name]
        if factors and factors == trained and not any(weights.get_tensor(name).any() for name in factors):
            raise FileError(f"{file} is dead: all of its lora_B are zero, so the model is its base and nothing more")


def image_settings(folder: Path) -> dict[str, Any]:
    """The settings of the image processor in a folder, in either of the files that may hold them; {}: there is none.

    FileError: a processor that does not say how it shows images."""
    path = folder / PROCESSOR
    found = read_json(path).get("image_processor") if path.is_file() else None
    if found is None and (folder / IMAGES).is_file():
        path = folder / IMAGES
        found = read_json(path)
    if path.is_file() and not (isinstance(found, dict) and {*SIZES, *OLDER} & found.keys()):
        raise FileError(f"{path} has no image_processor with a size")
    return found or {}


def image_sizes(images: Mapping[str, Any], least: int = 0, most: int = 0) -> dict[str, Any]:
    """What decides at which sizes an image processor with these settings shows images, between so many pixels; 0 leaves
    a bound as it is.

    Of one that cuts images into tiles, or knows a few numbers of tokens, only `most` counts. FileError: it shows all
    images at one size."""
    size, older = images.get("size") or {}, [images.get(name) for name in OLDER]
    known = [a or size.get(b) or 0 for a, b in zip(older, ("shortest_edge", "longest_edge"), strict=True)]
    if all(known):
        frames = 2 if str(images.get("image_processor_type")).startswith("Glm4") else 1  # as which an image counts
        longest = most * frames or known[1]
        return {"size": {"shortest_edge": min(least * frames or known[0], longest), "longest_edge": longest}}
    own = {name: images[name] for name in SIZES if images.get(name)}
    if most and "max_soft_tokens" in own:
        side = images["patch_size"] * images["pooling_kernel_size"]
        own["max_soft_tokens"] = max((n for n in SOFT_TOKENS if n * side**2 <= most), default=SOFT_TOKENS[0])
    elif most and "max_patches" in own:
        own["max_patches"] = max(1, most // (size["height"] * size["width"]))
    elif least or most:
        kind = images.get("image_processor_type", "processor that")
        raise FileError(f"min_pixels, max_pixels: a {kind} shows all images at one size")
    return own


def older_names(model: Any) -> dict[str, str]:
    """What names of parts that a model had in older versions of transformers have become, as regular expressions and
    their replacements. peft knows them of some types of models alone, and Qwen2.5-VL is none of these."""
    from transformers.conversion_mapping import get_model_conversion_mapping
    from transformers.core_model_loading import WeightRenaming

    rules = [rule for rule in get_model_conversion_mapping(model) if isinstance(rule, WeightRenaming)]
    return {rule.source_patterns[0]: rule.target_patterns[0] for rule in rules if not rule.scope_prefix}


def check_patterns(folder: Path, config: Mapping[str, Any], names: Iterable[str]) -> None:
    """FileError: target_modules or exclude_modules is no regular expression, or one that is not matched with all of
    the names in SECONDS. peft would go on for ever, and nothing but the end of a process ends `re`."""
    joined, words = list(names), [sys.executable, "-c", MATCH]
    for field in ("target_modules", "exclude_modules"):
        if isinstance(pattern := config.get(field), str):
            given = json.dumps([pattern, joined]).encode()
            try:
                subprocess.run(words, input=given, capture_output=True, timeout=SECONDS, check=True)
            except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
                slow = isinstance(error, subprocess.TimeoutExpired)
                why = "takes too long to match" if slow else "is no regular expression"
                raise FileError(f"{folder / 'adapter_config.json'}: {field}: {pattern:.100} {why}") from None
