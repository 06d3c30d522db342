"""The settings of a LoRA adapter (peft's) and of its processor, read and checked before any weights are."""

import json
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from editjudge.core.errors import FileError

PROCESSOR = "processor_config.json"
PATTERNS = {"type": ["string", "array", "null"], "items": {"type": "string"}}
SCHEMA = {
    "if": {"properties": {"peft_type": {"const": "LORA"}}},
    "then": {"required": ["r", "lora_alpha"]},
    "properties": {
        "r": {"type": "integer", "minimum": 1},
        "lora_alpha": {"type": "number", "minimum": -1e9, "maximum": 1e9},
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
    """The settings of the adapter in a folder. FileError: none are there, or one has a wrong type or value."""
    from jsonschema import Draft202012Validator

    path = folder / "adapter_config.json"
    if not path.is_file():
        raise FileError(f"{path} is missing")
    config = read_json(path)
    if error := next(Draft202012Validator(SCHEMA).iter_errors(config), None):
        raise FileError(f"{path}: {error.json_path.removeprefix('$.')}: {error.message:.200}")
    return config


def image_sizes(folder: Path) -> Any:
    """The sizes of images that an adapter was trained with, by the processor beside it; None without one. FileError: a
    processor that says none."""
    path = folder / PROCESSOR
    try:
        return read_json(path)["image_processor"]["size"] if path.is_file() else None
    except (LookupError, TypeError) as error:
        raise FileError(f"{path} has no image_processor with a size") from error


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
