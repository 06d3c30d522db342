"""An editing model run by its diffusers pipeline, one record at a time; `check` says beforehand whether it can be.

The same record gives the same image whatever ran before it: the noise is drawn on the CPU from the record's own seed.
Between kinds of GPU, and between versions of torch, images differ in their last bits."""

import inspect
import json
import math
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import diffusers
import numpy as np
import torch
from diffusers.loaders.lora_base import LoraBaseMixin
from diffusers.pipelines.qwenimage.pipeline_qwenimage_edit_plus import calculate_dimensions
from PIL import Image

from editjudge.core import hub, images
from editjudge.core.checkpoints import check_finite, check_indices
from editjudge.core.errors import FileError
from editjudge.core.params import ParamsError
from editjudge.editors.diffusers.mends import mend, stand_ins, told_what_is_missing
from editjudge.editors.protocol import Edited, EditFailed, Request, check_count
from editjudge.editors.settings import AS_PUBLISHED, DiffusersSetting, Resolution
from editjudge.vision.folders import read_json

INDEX = "model_index.json"
PLUS = "JoyImageEditPlusPipeline"
LISTED = ("GlmImagePipeline", PLUS)  # these take a list of pictures only; all others take one
FLOAT32 = {"ChronoEditPipeline": ("vae", "image_encoder")}  # parts that their authors load so
# These take several pictures; where they are not told a size, the last of them decides it for those that LAST names.
# GLM-Image takes them, too, but not beside transformers 5; most others take a list for a batch, or for its first.
LAST = ("QwenImageEditPlusPipeline", "QwenImage21Pipeline", PLUS)
SEVERAL = ("Flux2Pipeline", "Flux2KleinPipeline", "Flux2KleinKVPipeline", "BriaFiboEditPipeline", *LAST)
TOKENS = 2048  # of text and picture, for each picture
STRUCTURED = ("BriaFiboEditPipeline",)  # these take an object in JSON with the instruction in it


def check(where: str, setting: DiffusersSetting) -> None:
    """Raises ParamsError, which names a field of the section `where` and what to do, if the model cannot be run.

    Looked up before any weight is loaded: the model's model_index.json (in its folder or on the hub), its pipeline
    class in diffusers, whether this takes the arguments in `data` and `benchmark`, and a LoRA in a local folder."""
    automatic = setting.pipeline == AS_PUBLISHED
    folder = hub.find(f"{where}.model", setting.model, [INDEX], "black-forest-labs/FLUX.1-Kontext-dev")
    published = read_json(f"{where}.model", folder / INDEX).get("_class_name")
    name = published if automatic else setting.pipeline
    if not isinstance(name, str):
        raise ParamsError(f"{where}.model: {setting.model} names code of its own as its pipeline, which is never run")
    found = getattr(diffusers, name) if name in dir(diffusers) else None
    if not (inspect.isclass(found) and issubclass(found, diffusers.DiffusionPipeline)):
        field = "model" if automatic else "pipeline"
        missing = f"needs the pipeline class {name}, which diffusers {diffusers.__version__} does not have"
        advice = "Install the version that has it, or serve the model where it is installed and enter it as `kind: api`"
        raise ParamsError(f"{where}.{field}: {setting.model} {missing}. {advice}")
    known = call_arguments(name)
    for use in ("data", "benchmark"):
        for argument in getattr(setting, use):
            if argument not in known:
                raise ParamsError(f"{where}.{use}.{argument} is no argument of {name}; it takes {', '.join(known)}")
    lora = setting.lora
    if lora is not None and os.path.isdir(lora.model) and not (Path(lora.model) / lora.file).is_file():
        raise ParamsError(f"{where}.lora.file: {lora.model} has no {lora.file}")


def call_arguments(pipeline: str) -> tuple[str, ...]:
    """The arguments, by name, of a call of a pipeline class of diffusers."""
    parameters = inspect.signature(getattr(diffusers, pipeline).__call__).parameters.values()
    return tuple(p.name for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD and p.name != "self")


def size_of_edit(setting: Resolution, width: int, height: int) -> tuple[int, int] | None:
    """The width and height at which a source of this width and height is edited; None: the pipeline chooses."""
    if setting.rule == "pipeline":
        return None
    scale = math.sqrt(setting.pixels / (width * height))
    scale = min(scale, 1.0) if setting.rule == "at_most" else scale
    wide, high = (max(math.floor(side * scale / setting.multiple + 1e-6), 1) for side in (width, height))
    return wide * setting.multiple, high * setting.multiple


def resized(source: Image.Image, size: tuple[int, int] | None) -> Image.Image:
    return source if size in (None, source.size) else source.resize(size, Image.Resampling.LANCZOS)


class DiffusersEditor:
    """A loaded model.

    device: `cpu`, or a GPU such as `cuda:0`; where the setting has more than one GPU per worker, the process must see
    no others. Raises ParamsError for what the model or device does not have, and what diffusers raises in loading."""

    def __init__(self, setting: DiffusersSetting, device: str) -> None:
        diffusers.utils.logging.set_verbosity_error()  # some pipelines warn at every call, with the instruction in it
        self.setting, self.pipe = setting, _loaded(setting)
        if setting.gpus_per_worker == 1:  # else it was spread over the GPUs while it was loaded
            if setting.offload != "none" and device == "cpu":
                raise ParamsError(f"offload: {setting.offload} needs a GPU")
            place = {"none": "to", "model": "enable_model_cpu_offload", "sequential": "enable_sequential_cpu_offload"}
            getattr(self.pipe, place[setting.offload])(device=device)
        self.pipe.set_progress_bar_config(disable=True)
        self.name = type(self.pipe).__name__
        self.takes = frozenset(call_arguments(self.name))

    def edit(self, request: Request) -> Edited:
        """The edit of one record, of the size that the setting's rule or the pipeline chose.

        Raises EditFailed (safety_checker: the pipeline withheld the image; not_finite; several_sources: it takes one),
        images.ImageError for a source that cannot be decoded, and whatever the pipeline raises."""
        check_count(request, sys.maxsize if self.name in SEVERAL else 1)
        sizes, sources = self.setting.resolution, [Image.fromarray(images.decode(each)) for each in request.sources]
        shown = [resized(each, size_of_edit(sizes, *each.size)) for each in sources]
        size, listed = size_of_edit(sizes, *sources[0].size), len(shown) > 1 or self.name in LISTED
        asked, arguments = request.instruction, dict(getattr(self.setting, request.use))
        if size is not None and "height" in self.takes:
            arguments |= {"width": size[0], "height": size[1]}
        if size is not None and "max_area" in self.takes:
            arguments["max_area"] = size[0] * size[1]  # else FLUX.1 Kontext scales the size to an area of its own
        if size is None and len(shown) > 1 and self.name in LAST:
            arguments |= self._size_of_first(sources[0], arguments)
        if len(shown) > 1 and self.name == PLUS:  # at about 1,030 tokens a picture its 4,096 would cut the first off
            arguments.setdefault("max_sequence_length", TOKENS * len(shown))
        arguments |= {  # last: no setting replaces the record's own
            "images" if "images" in self.takes else "image": shown if listed else shown[0],
            "prompt": json.dumps({"edit_instruction": asked}, ensure_ascii=False) if self.name in STRUCTURED else asked,
            "generator": torch.Generator("cpu").manual_seed(request.seed),
            "output_type": "np",  # a PIL image would hide what is not finite as black
        }
        torch.manual_seed(request.seed)  # JoyAI-Image-Edit draws from the process's generator, too
        try:
            output = self.pipe(**arguments)
        except BaseException:  # offloaded parts come back, so that the next record finds the model as new
            self.pipe.maybe_free_model_hooks()
            if torch.cuda.is_available():
                torch.cuda.empty_cache()
            raise
        if any(output.get("nsfw_content_detected") or ()):
            raise EditFailed("safety_checker", "the pipeline's safety checker withheld the image")
        image = output["frames"][0][-1] if "frames" in output else output["images"][0]  # float, (H, W, 3 or 4), 0..1
        image = image[..., :3] * image[..., 3:] + 1 - image[..., 3:] if image.shape[-1] == 4 else image  # over white
        if not np.isfinite(image).all():
            raise EditFailed("not_finite", f"{int((~np.isfinite(image)).sum())} values of the image are not finite")
        return Edited((image * 255).round().clip(0, 255).astype(np.uint8), None)

    def _size_of_first(self, source: Image.Image, arguments: Mapping[str, Any]) -> dict[str, int]:
        """The size of the edit that the pipeline chooses where this is its only source."""
        if self.name == PLUS:
            height, width = self.pipe.image_processor.get_default_height_width(source)
            return {"width": width, "height": height}
        side = arguments.get("output_resolution", 1024)
        width, height = calculate_dimensions(side * side, source.width / source.height)
        return {"width": width, "height": height}


def _loaded(setting: DiffusersSetting) -> Any:
    """The pipeline, all weights of all its parts there and finite, with its LoRA. ParamsError and FileError."""
    published: Any = diffusers.DiffusionPipeline
    loader = published if setting.pipeline == AS_PUBLISHED else getattr(diffusers, setting.pipeline)
    folder, spread = Path(setting.model), setting.gpus_per_worker > 1
    if not folder.is_dir():  # files of other formats than safetensors are left out
        name, revision = hub.pinned(setting.model)
        folder = Path(published.download(name, revision=revision, use_safetensors=True))
    check_indices(folder)
    dtype = getattr(torch, setting.dtype)
    parts = stand_ins(folder, setting.pipeline, dtype)
    dtypes = dict.fromkeys(FLOAT32.get(setting.pipeline, ()), torch.float32) | {"default": dtype}
    options: dict[str, Any] = {"dtype": dtypes, "device_map": "balanced" if spread else None}
    with told_what_is_missing() as missing:
        pipe = loader.from_pretrained(folder, use_safetensors=True, **options, **parts)
    parts = {name: part for name, part in pipe.components.items() if isinstance(part, torch.nn.Module)}
    weights = {f"{name}.{each}": weight for name, part in parts.items() for each, weight in part.named_parameters()}
    # Of a model that is spread, what no GPU holds is elsewhere meanwhile.
    missing += [name for name, weight in weights.items() if weight.is_meta and not spread]
    if missing:
        raise FileError(f"{folder} lacks {len(missing)} weights: {', '.join(sorted(missing)[:3])}")
    check_finite(folder, ((name, weight) for name, weight in weights.items() if not weight.is_meta))
    mend(pipe)
    if (lora := setting.lora) is not None:
        if not issubclass(type(pipe), LoraBaseMixin):
            raise ParamsError(f"the LoRA {lora.model} cannot be added: {type(pipe).__name__} takes none")
        folder = hub.find("lora.model", lora.model, [lora.file], "fal/FLUX.2-dev-Turbo")
        pipe.load_lora_weights(folder, weight_name=lora.file, adapter_name="lora", use_safetensors=True)
        if not any("lora" in names for names in pipe.get_list_adapters().values()):
            raise ParamsError(f"the LoRA {lora.model}/{lora.file} has no weights for {type(pipe).__name__}")
        pipe.set_adapters(["lora"], [lora.weight])
    return pipe
