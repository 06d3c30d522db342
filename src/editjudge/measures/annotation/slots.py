"""The models of the measures, by slot: checks, identifies and loads them, here or in a process for each GPU; keeps what
they said of sources."""

import hashlib
import io
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np

from editjudge.core.files import keep, kept
from editjudge.engine.resume import file_hash
from editjudge.engine.unfinished import Unfinished
from editjudge.engine.workers import devices_of, engine
from editjudge.measures.annotation.slot_settings import GRABCUT, LBP, SlotSetting, opencv_slots, torch_slots
from editjudge.measures.names import Slot
from editjudge.vision import faces, folders, lpips, packaged
from editjudge.vision.depth import DepthAnything
from editjudge.vision.encoders import ClipEncoder, DinoEncoder, Grid, HogEncoder
from editjudge.vision.faces import LbpFaces
from editjudge.vision.folders import NONE
from editjudge.vision.loading import VisionModel, within_memory
from editjudge.vision.pose import VitPose
from editjudge.vision.segmenters import EachBox, FaceParser, Sam2Segmenter, grabcut

SUFFIXES = (".json", ".onnx", ".safetensors")  # of the files that a model is made of
INSIGHTFACE = "measures.insightface"
GONE = (
    "was killed, perhaps for want of the machine's memory. What is finished is kept. To go on, run `dvc repro` again,"
    " with fewer measures.workers or a smaller measures.prompts"
)
GIGABYTE = 1e9
FULL = 0.9  # of the folder's bytes: there is room to be made
Arrays = Sequence[np.ndarray]

CLASSES: dict[Slot, type[VisionModel]] = {
    "clip": ClipEncoder,
    "dinov3": DinoEncoder,
    "segmenter": Sam2Segmenter,
    "depth": DepthAnything,
    "parsing": FaceParser,
    "pose": VitPose,
}


def check(slots: Collection[Slot], setting: SlotSetting) -> SlotSetting:
    """The setting with each model of the slots by its local folder: no process needs to ask the hub.

    Raises ParamsError, naming the field and what to do, for the first slot whose weights are missing or wrong. Also for
    a device that is not there, or that onnxruntime cannot use."""
    for slot in sorted(opencv_slots(slots, setting)):
        _weights(slot, setting)
    heavy = torch_slots(slots, setting)
    if not heavy:
        return setting
    engine().import_ahead("torch", "transformers.modeling_utils")  # beside the checks and what follows them
    found: dict[str, Any] = {slot: str(_weights(slot, setting)) for slot in sorted(heavy)}
    for slot in sorted(heavy & setting.slots.keys()):
        devices_of(f"measures.slots.{slot}.device", setting.of(slot, "device"))
    devices = devices_of("measures.device", setting.device)
    if found.pop("faces", None):
        faces.providers(INSIGHTFACE, setting.own_device("faces") or devices[0])
        faces.InsightFaces(INSIGHTFACE, setting.insightface)  # on the CPU, to see whether each file can be loaded
    return replace(setting, **found)


def version(slots: Collection[Slot], setting: SlotSetting) -> dict[str, str]:
    """Identifies each slot's model: the embedded backend's name, or a hash of its weights and settings."""
    found: dict[str, str] = {slot: getattr(setting, slot) for slot in sorted(slots)}
    for slot in torch_slots(slots, setting) | opencv_slots(slots, setting):
        options: Any = setting.of(slot, "dtype") if slot != "lpips" else "float32"
        if slot == "faces":
            options = sorted((name, value) for name, value in vars(setting.insightface).items() if name != "folder")
        found[slot] = weights_version(_weights(slot, setting), options)
    return found


def weights_version(found: Path, options: Any = None) -> str:
    """A hash of the files of a model, a folder or one file, and of options (by their repr)."""
    digest = hashlib.sha256(repr(options).encode())
    files = sorted(file for file in found.iterdir() if file.suffix in SUFFIXES) if found.is_dir() else [found]
    for file in files:
        digest.update(f"{file.name}\0{file_hash(file)}\0".encode())
    return digest.hexdigest()


def _weights(slot: Slot, setting: SlotSetting) -> Path:
    """The folder or file of a slot's weights, after it was checked. ParamsError."""
    where, model = f"measures.{slot}", getattr(setting, slot)
    if slot == "faces":
        return Path(setting.insightface.folder)
    if model == packaged.U2NETP:
        return packaged.find(where, model)
    if slot == "encoder":
        return packaged.OnnxEncoder(where, model).path
    return lpips.find(where, model) if slot == "lpips" else folders.find(where, model, CLASSES[slot].architecture)


@dataclass
class FeatureStore:
    """Arrays by name in a folder. most: bytes that this process may write; 0: nothing is kept or looked for.

    Features of source images are kept in work/ across runs: a new editing model or measure encodes no source again.
    Those of edits are not, since their measures are in the record cache. There is a file for each image and model,
    named by the hash of the pixels and of the model. Files are written under a temporary name, so that processes need
    no locks. Embedded encoders are faster than reading a file, so theirs are not kept."""

    folder: Path
    most: float
    written: float = 0.0

    def get(self, name: str) -> list[np.ndarray] | None:
        """The arrays under a name, or None where there are none that can be read."""
        with suppress(OSError):
            if (data := kept(self._path(name))) is not None:
                with np.load(io.BytesIO(data), allow_pickle=False) as found:
                    return [found[key] for key in sorted(found)]
        return None

    def put(self, name: str, arrays: Arrays) -> None:
        """Keep up to 10 arrays, unless there is no more room."""
        size = sum(array.nbytes for array in arrays)
        if self.written + size > self.most:
            return
        file = io.BytesIO()
        np.savez(file, allow_pickle=False, **{str(n): array for n, array in enumerate(arrays)})
        keep(self._path(name), file.getvalue())
        self.written += size

    def _path(self, name: str) -> Path:
        return self.folder / name[:2] / f"{name}.features"


def said(
    store: FeatureStore,
    model: str,
    shown: Sequence[tuple[np.ndarray, bool]],
    ask: Callable[[list[np.ndarray]], Sequence[Arrays]],
) -> list[Arrays]:
    """What a model says of each image: kept, or asked for. Equal images, such as unedited ones, are asked once.

    model: a hash of all but the image that the answer depends on. shown: images, and whether an answer is kept."""
    names, kept = list[str](), set[str]()
    for rgb, is_source in shown:
        digest = hashlib.blake2b(f"{model} {rgb.shape}".encode(), digest_size=24)
        digest.update(np.ascontiguousarray(rgb).data)
        names.append(digest.hexdigest())
        kept |= {names[-1]} if is_source and store.most else set()
    found: dict[str, Arrays] = {name: arrays for name in kept if (arrays := store.get(name)) is not None}
    missing = {name: rgb for name, (rgb, _) in zip(names, shown, strict=True) if name not in found}
    for name, answer in zip(missing, ask(list(missing.values())) if missing else (), strict=True):
        found[name] = answer
        if name in kept:
            store.put(name, answer)
    return [found[name] for name in names]


def trim(folder: Path, most: float) -> float:
    """Delete the files that were written first until at most half of `most` bytes are left, where they are nearly full.

    What a killed process left half written is among them. Returns the bytes that may be written."""
    stats = {}
    for file in folder.glob("*/*"):
        with suppress(FileNotFoundError):  # another stage has trimmed it
            stats[file] = file.stat()
    size = sum(stat.st_size for stat in stats.values())
    goal = most if size <= FULL * most else most / 2
    for file in sorted(stats, key=lambda file: (stats[file].st_mtime_ns, stats[file].st_size, file)):
        if size <= goal:
            break
        file.unlink(missing_ok=True)
        size -= stats[file].st_size
    return max(most - size, 0.0)


@dataclass
class Models:
    """The models of the slots, each loaded when it is first asked for, on this device or on the slot's own.

    hosts: by device, `Models` in the process that has that device's models; without one they are in this process.
    versions: what stands for each slot's model in the names of the feature store (slot: hash). store: of what models
    said of sources; by default nothing is kept."""

    setting: SlotSetting
    device: str = "cpu"
    hosts: Mapping[str, Any] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    store: FeatureStore = field(default_factory=lambda: FeatureStore(Path(), 0.0))
    _layouts: dict[Slot, Grid] = field(default_factory=dict)
    _loaded: dict[Slot, Any] = field(default_factory=dict)
    _loading: Any = field(default_factory=Lock)

    def ask(self, slot: Slot, method: str, *args: Any) -> Any:
        """What a slot's model says, wherever it runs. Raises what it raises; ValueError, too, if it has no memory;
        Unfinished where the process that has it was killed."""
        if not torch_slots([slot], self.setting):
            return getattr(self.model(slot), method)(*args)
        device = self.setting.own_device(slot) or self.device
        if device in self.hosts:
            try:
                return self.hosts[device]((slot, method, args))
            except (EOFError, ConnectionError):
                raise Unfinished(f"the process with the models on {device} {GONE}") from None
        model = self.model(slot)
        return within_memory(model, partial(getattr(model, method), *args))

    def layout(self, slot: Slot) -> Grid:
        """The patches of `clip` or `dinov3`."""
        if slot not in self._layouts:
            self._layouts[slot] = self.ask(slot, "layout")
        return self._layouts[slot]

    def model(self, slot: Slot) -> Any:
        """The slot's model in this process. Threads ask, and each model is loaded once."""
        with self._loading:
            if slot not in self._loaded:
                self._loaded[slot] = self._load(slot)
            return self._loaded[slot]

    def _load(self, slot: Slot) -> Any:
        where, given, size = f"measures.{slot}", getattr(self.setting, slot), self.setting.of(slot, "batch_size")
        device = self.setting.own_device(slot) or self.device
        if given == GRABCUT:
            return EachBox(grabcut)
        if given == packaged.U2NETP:
            return EachBox(packaged.saliency(where).mask)
        if given == LBP:
            return LbpFaces()
        if slot == "faces":
            return faces.InsightFaces(INSIGHTFACE, self.setting.insightface, device)
        if slot == "encoder":
            return HogEncoder() if given == NONE else packaged.OnnxEncoder(where, given)
        if slot == "lpips":
            return lpips.Lpips(where, given, device, size)
        return CLASSES[slot](where, given, device, self.setting.of(slot, "dtype"), size)


def asked(setting: SlotSetting, device: str) -> Callable[[tuple[Slot, str, Any]], Any]:
    """In a process with the models of one device: `Models.ask`."""
    models = Models(setting, device)
    one_thread()
    return lambda given: models.ask(given[0], given[1], *given[2])


def one_thread() -> None:
    """Torch with one thread in this process: processes share no locks, and results do not depend on their number."""
    import torch

    torch.set_num_threads(1)
