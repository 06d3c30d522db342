"""Boxes by a Grounding DINO on this machine, kept in work/ as a model's replies are."""

from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from editjudge.core import images, records
from editjudge.core.code import identity
from editjudge.engine import resume
from editjudge.engine.workers import cores, on_devices
from editjudge.grounding.grounded import Grounded
from editjudge.grounding.prompts import MOST_BOXES, FractionBox
from editjudge.grounding.settings import DetectorSetting
from editjudge.measures.annotation import slots
from editjudge.vision.folders import OUT_OF_MEMORY

WHERE = "grounding.grounder"
DETECTORS = "editjudge.vision.detectors"  # loads torch


@dataclass(frozen=True)
class Wanted:
    """An image (encoded), and the names of what is to be found in it."""

    image: records.Image
    names: tuple[str, ...]


def find(
    wanted: Sequence[Wanted], how: DetectorSetting, one: bool, cache: resume.RecordCache, place: str
) -> list[tuple[FractionBox, ...] | Grounded]:
    """The boxes in each image, in the order of the names: at least one of every name, and of `one` that is wanted the
    surest; or why there are none, with `place` before the reason."""
    model = [slots.weights_version(Path(how.model)), identity(DETECTORS)]
    asked = [*model, how.dtype, how.threshold, how.overlap]
    named = [(resume.fingerprint(asked, item.names, bytes(item.image)), item) for item in wanted]
    starts = range(0, len(named), how.batch_size)
    jobs = [resume.Job(how, tuple(named[n : n + how.batch_size])) for n in starts]

    def start(most: int) -> Executor:
        devices = slots.devices_of(f"{WHERE}.device", how.device)
        each = how.workers or (cores() if devices == ["cpu"] else 1)
        return on_devices((devices * each)[:most], _begin)

    results = resume.run(jobs, _detect, cache, "images, for boxes", start, lambda meta: meta["reason"] != OUT_OF_MEMORY)
    metas = (meta for job in results for meta, _ in job)
    return [_found(item, meta, one, place) for item, meta in zip(wanted, metas, strict=True)]


def _found(item: Wanted, meta: Mapping[str, Any], one: bool, place: str) -> tuple[FractionBox, ...] | Grounded:
    def failed(kind: str, reason: str) -> Grounded:
        return Grounded(kind=f"{place}: {kind}", reason=f"{place}: {reason}")

    if meta["reason"] is not None:
        return failed("unusable", meta["reason"])
    detected = meta["boxes"]
    missing = [name for n, name in enumerate(item.names) if all(label != n for label, *_ in detected)]
    if missing:
        return failed("no box", f"no box of {', '.join(map(repr, missing))} above the threshold")
    if one:
        detected = [max(detected, key=lambda each: each[1])]
    if len(detected) > MOST_BOXES:
        return failed("too many boxes", f"{len(detected)} boxes, more than {MOST_BOXES}")
    return tuple((x0, y0, x1, y1) for _, _, (x0, y0, x1, y1) in detected)


class _DetectorProcess:
    """Where a process of the pool has its model."""

    device: str


def _begin(device: str) -> None:
    slots.one_thread()
    _DetectorProcess.device = device


@lru_cache(maxsize=1)
def _loaded(how: DetectorSetting, device: str) -> Any:
    """Not as a process begins: what is wrong then breaks the pool, and nobody hears of it."""
    from editjudge.vision.detectors import GroundingDino

    return GroundingDino(f"{WHERE}.model", how.model, device, how.dtype, how.batch_size)


def _detect(how: DetectorSetting, payloads: list[Wanted]) -> list[resume.Result]:
    """{boxes, reason}: label, score and box of each, or why there are none."""
    found: dict[int, Any] = {}
    rgbs: dict[int, Any] = {}
    for n, item in enumerate(payloads):
        try:
            rgbs[n] = images.decode(bytes(item.image))
        except images.ImageError as error:
            found[n] = error
    model = _loaded(how, _DetectorProcess.device)
    found |= zip(rgbs, _asked(model, how, list(rgbs.values()), [payloads[n].names for n in rgbs]), strict=True)
    return [(_meta(found[n]), None) for n in range(len(payloads))]


def _asked(model: Any, how: DetectorSetting, rgbs: list[Any], names: list[tuple[str, ...]]) -> list[Any]:
    """All images at once, or, where memory is too small for that, one after the other."""
    from editjudge.vision.loading import within_memory

    try:
        return list(within_memory(model, lambda: model.detect(rgbs, names, how.threshold, how.overlap)))
    except ValueError as error:
        if len(rgbs) == 1:
            return [error]
        return [each for rgb, own in zip(rgbs, names, strict=True) for each in _asked(model, how, [rgb], [own])]


def _meta(said: Any) -> dict[str, Any]:
    if isinstance(said, ValueError):
        return {"boxes": [], "reason": str(said)}
    return {"boxes": [[each.label, each.score, each.box] for each in said], "reason": None}
