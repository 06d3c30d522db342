"""An editing model run by its diffusers pipeline, one record at a time.

The same record gives the same image whatever ran before it: the noise is drawn on the CPU from the record's own seed.
Between kinds of GPU, and between versions of torch, images differ in their last bits.
"""

from contextlib import ExitStack
from pathlib import Path
from typing import Any

import diffusers
import numpy as np
import torch
from diffusers.loaders.lora_base import LoraBaseMixin
from PIL import Image

from editjudge.core import hub, images
from editjudge.core.checkpoints import check_finite, check_indices
from editjudge.core.errors import FileError
from editjudge.core.params import ParamsError
from editjudge.editors.diffusers.check import call_arguments
from editjudge.editors.diffusers.mends import mend, stand_ins, told_what_is_missing
from editjudge.editors.diffusers.settings import AS_PUBLISHED, DiffusersSetting, Lora
from editjudge.editors.request import Edited, EditFailed, Request

LISTED = ("GlmImagePipeline",)  # these take a list of pictures only; all others take one
DTYPES = {"bfloat16": torch.bfloat16, "float16": torch.float16, "float32": torch.float32}


class DiffusersEditor:
    """A loaded model.

    device: `cpu`, or a GPU such as `cuda:0`; where the setting has more than one GPU per worker, the process must see
    no others. Raises ParamsError for what the setting asks and the model or device has not, and what diffusers raises
    where the model cannot be loaded.
    """

    def __init__(self, setting: DiffusersSetting, device: str) -> None:
        diffusers.utils.logging.set_verbosity_error()  # some pipelines warn at every call, with the instruction in it
        self.setting = setting
        self.pipe = _loaded(setting)
        _place(self.pipe, setting, device)
        self.pipe.set_progress_bar_config(disable=True)
        self.takes = frozenset(call_arguments(type(self.pipe).__name__))

    def edit(self, request: Request) -> Edited:
        """The edit of one record, of the size that the setting's rule or the pipeline chose.

        Raises EditFailed (safety_checker: the pipeline withheld the image; not_finite), images.ImageError for a source
        that cannot be decoded, and whatever the pipeline raises.
        """
        source = Image.fromarray(images.decode(request.image))
        size = self.setting.resolution.size(*source.size)
        shown = source if size in (None, source.size) else source.resize(size, Image.Resampling.LANCZOS)
        with ExitStack() as if_it_fails:
            if_it_fails.callback(self._recover)
            output = self.pipe(**self._arguments(shown, size, request))
            if_it_fails.pop_all()
        return Edited(_picture(output), None)

    def _arguments(self, image: Image.Image, size: tuple[int, int] | None, request: Request) -> dict[str, Any]:
        """The pipeline's call. The record's own arguments come last: no setting replaces them."""
        arguments = dict(self.setting.data if request.use == "data" else self.setting.benchmark)
        if size is not None and "height" in self.takes:
            arguments |= {"width": size[0], "height": size[1]}
        if size is not None and "max_area" in self.takes:
            arguments["max_area"] = size[0] * size[1]  # else FLUX.1 Kontext scales the size to an area of its own
        return arguments | {
            "image": [image] if type(self.pipe).__name__ in LISTED else image,
            "prompt": request.instruction,
            "generator": torch.Generator("cpu").manual_seed(request.seed),
            "output_type": "np",  # a PIL image would hide what is not finite as black
        }

    def _recover(self) -> None:
        """Brings offloaded parts back and frees cached memory, so that the next record finds the model as new."""
        self.pipe.maybe_free_model_hooks()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()


def _loaded(setting: DiffusersSetting) -> Any:
    named = setting.pipeline != AS_PUBLISHED
    loader: Any = getattr(diffusers, setting.pipeline) if named else diffusers.DiffusionPipeline
    folder = Path(setting.model)
    if not folder.is_dir():  # files of other formats than safetensors are left out
        published: Any = diffusers.DiffusionPipeline
        name, revision = hub.pinned(setting.model)
        folder = Path(published.download(name, revision=revision, use_safetensors=True))
    check_indices(folder)
    with told_what_is_missing() as missing:
        pipe = loader.from_pretrained(
            folder,
            dtype=DTYPES[setting.dtype],
            use_safetensors=True,
            device_map="balanced" if setting.gpus_per_worker > 1 else None,
            **stand_ins(folder),
        )
    _check_weights(folder, pipe, missing, setting.gpus_per_worker > 1)
    mend(pipe)
    if setting.lora is not None:
        _add_lora(pipe, setting.lora)
    return pipe


def _check_weights(folder: Path, pipe: Any, missing: list[str], spread: bool) -> None:
    """All weights of all parts are there and finite. FileError. spread: what no GPU holds is elsewhere meanwhile."""
    parts = {name: part for name, part in pipe.components.items() if isinstance(part, torch.nn.Module)}
    weights = {f"{name}.{each}": weight for name, part in parts.items() for each, weight in part.named_parameters()}
    missing = missing + [name for name, weight in weights.items() if weight.is_meta and not spread]
    if missing:
        raise FileError(f"{folder} lacks {len(missing)} weights: {', '.join(sorted(missing)[:3])}")
    check_finite(folder, ((name, weight) for name, weight in weights.items() if not weight.is_meta))


def _add_lora(pipe: Any, lora: Lora) -> None:
    if not issubclass(type(pipe), LoraBaseMixin):
        raise ParamsError(f"the LoRA {lora.model} cannot be added: {type(pipe).__name__} takes none")
    folder = hub.find("lora.model", lora.model, [lora.file], "fal/FLUX.2-dev-Turbo")
    pipe.load_lora_weights(folder, weight_name=lora.file, adapter_name="lora", use_safetensors=True)
    if not any("lora" in names for names in pipe.get_list_adapters().values()):
        raise ParamsError(f"the LoRA {lora.model}/{lora.file} has no weights for {type(pipe).__name__}")
    pipe.set_adapters(["lora"], [lora.weight])


def _place(pipe: Any, setting: DiffusersSetting, device: str) -> None:
    if setting.gpus_per_worker > 1:
        return  # spread over the GPUs while it was loaded
    if setting.offload != "none" and device == "cpu":
        raise ParamsError(f"offload: {setting.offload} needs a GPU")
    if setting.offload == "model":
        pipe.enable_model_cpu_offload(device=device)
    elif setting.offload == "sequential":
        pipe.enable_sequential_cpu_offload(device=device)
    else:
        pipe.to(device)


def _picture(output: diffusers.utils.BaseOutput) -> np.ndarray:
    """The one image of a pipeline's output (float, (1, H, W, 3), 0..1) as RGB, uint8, (H, W, 3)."""
    if any(output.get("nsfw_content_detected") or ()):
        raise EditFailed("safety_checker", "the pipeline's safety checker withheld the image")
    image = output["images"][0]
    if not np.isfinite(image).all():
        raise EditFailed("not_finite", f"{int((~np.isfinite(image)).sum())} values of the image are not finite")
    return (image * 255).round().clip(0, 255).astype(np.uint8)
