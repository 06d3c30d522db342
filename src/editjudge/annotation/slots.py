"""The models of the measures: whether their weights are there, what they are, and loading them."""

import hashlib
from collections.abc import Collection
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from editjudge.annotation.slot_settings import GRABCUT, LBP, SlotSetting, torch_slots
from editjudge.core.params import ParamsError
from editjudge.core.resume import file_hash
from editjudge.vision import faces_settings, folders, lpips
from editjudge.vision.faces import LbpFaces
from editjudge.vision.segmenters import GrabCut

if TYPE_CHECKING:  # they load torch
    from editjudge.vision.depth import DepthAnything
    from editjudge.vision.encoders_transformers import ClipEncoder, DinoEncoder, Encoder
    from editjudge.vision.faces_insightface import InsightFaces
    from editjudge.vision.lpips_torch import Lpips
    from editjudge.vision.parsing import FaceParser
    from editjudge.vision.pose import VitPose
    from editjudge.vision.segmenters_sam2 import Sam2Segmenter

SUFFIXES = (".json", ".onnx", ".safetensors")  # of the files that a model is made of
ARCHITECTURES = {
    "clip": folders.CLIP,
    "dinov3": folders.DINOV3,
    "segmenter": folders.SAM2,
    "depth": folders.DEPTH_ANYTHING,
    "parsing": folders.SEGFORMER,
    "pose": folders.VITPOSE,
}


def check(slots: Collection[str], setting: SlotSetting) -> None:
    """Raises ParamsError, naming the field and what to do, for the first slot whose weights are missing or wrong.

    Also for a device that is not there, or that onnxruntime cannot use.
    """
    heavy = torch_slots(slots, setting)
    for slot in sorted(heavy):
        _weights(slot, setting)
    device = devices(slots, setting, 1)[0]
    if "faces" in heavy:
        from editjudge.vision import faces_insightface

        faces_insightface.check("measures.insightface", setting.insightface, device)


def resolved(slots: Collection[str], setting: SlotSetting) -> SlotSetting:
    """The setting with each model of the slots by its local folder: no process needs to ask the hub."""
    heavy = torch_slots(slots, setting) - {"faces"}
    found: dict[str, Any] = {slot: str(_weights(slot, setting)) for slot in heavy}
    return replace(setting, **found)


def version(slots: Collection[str], setting: SlotSetting) -> dict[str, str]:
    """What values depend on, slot by slot: the embedded backend's name, or a hash of the weights' bytes."""
    heavy = torch_slots(slots, setting)
    return {slot: _version(slot, setting) if slot in heavy else getattr(setting, slot) for slot in sorted(slots)}


def _version(slot: str, setting: SlotSetting) -> str:
    """A hash of the files of a slot's model and of the settings that its answers depend on; another one's are apart."""
    options: Any = setting.dtype if slot != "lpips" else "float32"
    if slot == "faces":
        options = sorted((name, value) for name, value in setting.insightface.items() if name != "folder")
    digest = hashlib.sha256(repr(options).encode())
    found = _weights(slot, setting)
    files = sorted(file for file in found.iterdir() if file.suffix in SUFFIXES) if found.is_dir() else [found]
    for file in files:
        digest.update(f"{file.name}\0{file_hash(file)}\0".encode())
    return digest.hexdigest()


def _weights(slot: str, setting: SlotSetting) -> Path:
    """The folder or file of a slot's weights, looked into. ParamsError."""
    where, model = f"measures.{slot}", getattr(setting, slot)
    if slot == "faces":
        return Path(faces_settings.read("measures.insightface", setting.insightface).folder)
    return lpips.find(where, model) if slot == "lpips" else folders.find(where, model, ARCHITECTURES[slot])


def devices(slots: Collection[str], setting: SlotSetting, cores: int) -> list[str]:
    """The device of each process: every GPU once, or the CPU once for each core.

    Models on the CPU have one thread each: processes share no locks, and results do not depend on their number.
    """
    if not torch_slots(slots, setting) or setting.device == "cpu":
        return ["cpu"] * cores
    import torch

    name, count = setting.device, torch.cuda.device_count()
    if name == "auto":
        return [f"cuda:{n}" for n in range(count)] or ["cpu"] * cores
    try:
        device = torch.device(name)
    except RuntimeError:
        raise ParamsError(f"measures.device: torch knows no device {name!r}") from None
    if device.type == "cuda" and (device.index or 0) >= count:
        raise ParamsError(f"measures.device is {name}, and torch sees {count} GPUs")
    return [name]


class Models:
    """The models of the slots, each loaded when it is first asked for, in this process and on this device."""

    def __init__(self, setting: SlotSetting, device: str = "cpu") -> None:
        self.setting, self.device = setting, device

    def encoder(self, name: str) -> "Encoder":
        """`clip` or `dinov3`."""
        return self.clip if name == "clip" else self.dinov3

    @cached_property
    def clip(self) -> "ClipEncoder":
        from editjudge.vision.encoders_transformers import ClipEncoder

        return ClipEncoder("measures.clip", self.setting.clip, **self._torch())

    @cached_property
    def dinov3(self) -> "DinoEncoder":
        from editjudge.vision.encoders_transformers import DinoEncoder

        return DinoEncoder("measures.dinov3", self.setting.dinov3, **self._torch())

    @cached_property
    def segmenter(self) -> "GrabCut | Sam2Segmenter":
        if self.setting.segmenter == GRABCUT:
            return GrabCut()
        from editjudge.vision.segmenters_sam2 import Sam2Segmenter

        return Sam2Segmenter("measures.segmenter", self.setting.segmenter, **self._torch())

    @cached_property
    def lpips(self) -> "Lpips":
        from editjudge.vision.lpips_torch import Lpips

        return Lpips("measures.lpips", self.setting.lpips, self.device, self.setting.batch_size)

    @cached_property
    def depth(self) -> "DepthAnything":
        from editjudge.vision.depth import DepthAnything

        return DepthAnything("measures.depth", self.setting.depth, **self._torch())

    @cached_property
    def faces(self) -> "LbpFaces | InsightFaces":
        if self.setting.faces == LBP:
            return LbpFaces()
        from editjudge.vision.faces_insightface import InsightFaces

        setting = faces_settings.read("measures.insightface", self.setting.insightface)
        return InsightFaces("measures.insightface", setting, self.device)

    @cached_property
    def parsing(self) -> "FaceParser":
        from editjudge.vision.parsing import FaceParser

        return FaceParser("measures.parsing", self.setting.parsing, **self._torch())

    @cached_property
    def pose(self) -> "VitPose":
        from editjudge.vision.pose import VitPose

        return VitPose("measures.pose", self.setting.pose, **self._torch())

    def _torch(self) -> dict[str, Any]:
        return {"device": self.device, "dtype": self.setting.dtype, "batch_size": self.setting.batch_size}
