"""Boxes by a Grounding DINO on this machine, kept in work/ as a model's replies are."""

from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from functools import lru_cache
from pathlib import Path
from typing import Any

from editjudge.core import images, records
from editjudge.core.code import identity
from editjudge.engine import resume
from editjudge.engine.workers import cores, on_devices
from editjudge.grounding.prompts import MOST_BOXES, FractionBox, Grounded
from editjudge.grounding.settings import DetectorSetting
from editjudge.measures.annotation import slots
from editjudge.vision import detectors
from editjudge.vision.folders import OUT_OF_MEMORY
from editjudge.vision.loading import each, within_memory

WHERE = "grounding.grounder"
Wanted = tuple[records.Image, tuple[str, ...]]  # an image (encoded), and the names of what is to be found in it


def find(
    wanted: Sequence[Wanted], how: DetectorSetting, one: bool, cache: resume.RecordCache, place: str
) -> list[tuple[FractionBox, ...] | Grounded]:
    """The boxes in each image, in the order of the names: at least one of every name, and of `one` that is wanted the
    surest; or why there are none, with `place` before the reason."""
    model = [slots.weights_version(Path(how.model)), identity(detectors.__name__)]
    asked = [*model, how.dtype, how.threshold, how.overlap]
    named = [(resume.fingerprint(asked, names, bytes(image)), (image, names)) for image, names in wanted]
    starts = range(0, len(named), how.batch_size)
    jobs = [resume.Job(how, tuple(named[n : n + how.batch_size])) for n in starts]

    def start(most: int) -> Executor:
        devices = slots.devices_of(f"{WHERE}.device", how.device)
        workers = how.workers or (cores() if devices == ["cpu"] else 1)
        return on_devices((devices * workers)[:most], _begin)

    results = resume.run(jobs, _detect, cache, "images, for boxes", start, lambda meta: meta["reason"] != OUT_OF_MEMORY)
    metas = (meta for job in results for meta, _ in job)
    return [_found(names, meta, one, place) for (_, names), meta in zip(wanted, metas, strict=True)]


def _found(
    names: tuple[str, ...], meta: Mapping[str, Any], one: bool, place: str
) -> tuple[FractionBox, ...] | Grounded:
    detected, kind, reason = meta["boxes"], "unusable", meta["reason"]
    missing = [name for n, name in enumerate(names) if all(label != n for label, *_ in detected)]
    if reason is None and missing:
        kind, reason = "no box", f"no box of {', '.join(map(repr, missing))} above the threshold"
    if one and detected:
        detected = [max(detected, key=lambda box: box[1])]
    if reason is None and len(detected) > MOST_BOXES:
        kind, reason = "too many boxes", f"{len(detected)} boxes, more than {MOST_BOXES}"
    if reason is not None:
        return Grounded(kind=f"{place}: {kind}", reason=f"{place}: {reason}")
    return tuple((x0, y0, x1, y1) for _, _, (x0, y0, x1, y1) in detected)


class _DetectorProcess:
    """Where a process of the pool has its model."""

    device: str


def _begin(device: str) -> None:
    slots.one_thread()
    _DetectorProcess.device = device


@lru_cache(maxsize=1)
def _loaded(how: DetectorSetting, device: str) -> detectors.GroundingDino:
    """Not as a process begins: what is wrong then breaks the pool, and nobody hears of it."""
    return detectors.GroundingDino(f"{WHERE}.model", how.model, device, how.dtype, how.batch_size)


def _detect(how: DetectorSetting, payloads: list[Wanted]) -> list[resume.Result]:
    """{boxes, reason}: label, score and box of each, or why there are none."""
    found: dict[int, Any] = {}
    shown: dict[int, Any] = {}
    for n, (image, names) in enumerate(payloads):
        try:
            shown[n] = images.decode(bytes(image)), names
        except images.ImageError as error:
            found[n] = error
    model = _loaded(how, _DetectorProcess.device)

    def ask(items: list[Any]) -> Any:
        rgbs, names = zip(*items, strict=True)
        return within_memory(model, lambda: model.detect(rgbs, names, how.threshold, how.overlap))

    found |= zip(shown, each(ask, list(shown.values())), strict=True)
    metas: list[dict[str, Any]] = []
    for n in range(len(payloads)):
        if isinstance(found[n], ValueError):
            metas.append({"boxes": [], "reason": str(found[n])})
        else:
            metas.append({"boxes": [[box.label, box.score, box.box] for box in found[n]], "reason": None})
    return [(meta, None) for meta in metas]
