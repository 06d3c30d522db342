"""The settings of a LoRA adapter (peft's) and of its processor, read and checked before any weights are."""

import json
import subprocess
import sys
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open

from editjudge.core import params
from editjudge.core.errors import FileError

PROCESSOR, IMAGES, WEIGHTS = "processor_config.json", "preprocessor_config.json", "adapter_model.safetensors"
ADAPTER = "adapter_config.json"
SIZES = ("size", "max_patches", "max_soft_tokens")  # settings of image processors by which they choose sizes
OLDER = ("min_pixels", "max_pixels")  # which are taken before `size` where a file has both
SOFT_TOKENS = (70, 140, 280, 560, 1120)  # of an image, that Gemma 4 knows
SCHEMAS = params.load(Path(__file__).with_name("adapter.yaml"))
NAMED = r"(^|.*\.){}($|\..*)"
# What peft (check_target_module_exists, get_pattern_key) makes of a pattern before it matches it with a name's start;
# target_modules and exclude_modules are matched with whole names, as they are.
EXPRESSIONS = {
    "rank_pattern": r"(.*\.)?({})$",
    "alpha_pattern": r"(.*\.)?({})$",
    "modules_to_save": NAMED,
    "layers_pattern": r"(?:^|.*?\.){}\.(?P<idx>\d+)\.",
}
SECONDS = 10.0  # for all patterns and all names of a model; good ones take less than one
MATCH = """
import json, re, sys
patterns, names = json.load(sys.stdin)
for n, (whole, pattern) in enumerate(patterns):
    print(n, flush=True)
    for name in names:
        re.fullmatch(pattern, name) if whole else re.match(pattern, name)
"""


def _no_number(word: str) -> float:
    raise ValueError(f"{word} is no JSON number")


def read_json(path: Path) -> dict[str, Any]:
    """The object in a JSON file. FileError: there is none, or no regular file."""
    if not path.is_file():
        raise FileError(f"{path} is missing or no file")
    try:
        value = json.loads(path.read_bytes(), parse_constant=_no_number)
    except (ValueError, RecursionError) as error:
        raise FileError(f"{path} is no JSON: {error}") from error
    if not isinstance(value, dict):
        raise FileError(f"{path}: an object expected, not {type(value).__name__}")
    return value


def read_config(folder: Path) -> dict[str, Any]:
    """The settings of the LoRA adapter in a folder. FileError: none are there, one has a wrong type or value, or the
    weights beside them are missing or dead."""
    path = folder / ADAPTER
    for file in (path, folder / WEIGHTS):
        if not file.is_file():
            raise FileError(f"{file} is missing: adapters are read from safetensors only")
    config = read_json(path)
    _check(path, config, SCHEMAS["config"])
    check_alive(folder / WEIGHTS)
    return config


def _check(path: Path, value: Any, schema: Mapping[str, Any]) -> None:
    """FileError: the content of a file does not fit a JSON schema."""
    from jsonschema import Draft202012Validator

    if error := next(Draft202012Validator(schema).iter_errors(value), None):
        raise FileError(f"{path}: {error.json_path.removeprefix('$').removeprefix('.') or 'it'}: {error.message:.200}")


def check_alive(file: Path) -> None:
    """FileError: an adapter that changes nothing, for all of its lora_B are zero, as training finds them, and nothing
    else was trained (modules_to_save). DoRA's magnitudes begin as the lengths of the base's rows, and do not count.
    What is no file of weights its readers refuse."""
    with suppress(OSError, SafetensorError), safe_open(file, "pt") as weights:
        names = weights.keys()
        trained = [name for name in names if ".lora_A." not in name and ".lora_magnitude_vector" not in name]
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
    if path.is_file():
        if not (isinstance(found, dict) and {*SIZES, *OLDER} & found.keys()):
            raise FileError(f"{path} has no image_processor with a size")
        _check(path, found, SCHEMAS["images"])
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


def _patterns(config: Mapping[str, Any]) -> list[tuple[str, str, bool, str]]:
    """What peft takes as regular expressions: the setting, a pattern in it, whether it is matched with whole names, and
    the expression."""
    found = []
    for field in ("target_modules", "exclude_modules", *EXPRESSIONS):
        given, form = config.get(field) or (), EXPRESSIONS.get(field)
        if form is None and not isinstance(given, str):  # endings of names, unless embeddings are to be tied
            form, given = NAMED, given if config.get("ensure_weight_tying") else ()
        for each in [given] if isinstance(given, str) else given:
            found.append((field, each, form is None, each if form is None else form.format(each)))
    return found


def check_patterns(folder: Path, config: Mapping[str, Any], names: Iterable[str]) -> None:
    """FileError: a pattern is no regular expression, or one that is not matched with all of the names in SECONDS. peft
    would go on for ever, and nothing but the end of a process ends `re`."""
    if not (patterns := _patterns(config)):
        return
    given = json.dumps([[each[2:] for each in patterns], list(names)]).encode()
    try:
        subprocess.run([sys.executable, "-c", MATCH], input=given, capture_output=True, timeout=SECONDS, check=True)
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
        slow = isinstance(error, subprocess.TimeoutExpired)
        why = "takes too long to match" if slow else "is no regular expression"
        field, pattern, *_ = patterns[int((error.stdout or b"0").split()[-1])]
        raise FileError(f"{folder / ADAPTER}: {field}: {pattern:.100} {why}") from None
