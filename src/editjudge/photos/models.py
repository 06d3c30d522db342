"""The models of the three stages, or what stands in for them. Workers load those of vision when one is first needed."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from itertools import tee
from pathlib import Path
from typing import Any, TypeAlias

from editjudge.core import records
from editjudge.core.code import identity
from editjudge.core.tables import RowError
from editjudge.engine import resume
from editjudge.engine.workers import Load, Workers, devices_of, engine
from editjudge.measures.annotation.slots import weights_version
from editjudge.models.chat.forms import Finding, Inquiry, InquiryForm
from editjudge.models.chat.models import Model, at_hand
from editjudge.models.chat.settings import AnyInquirySetting, BuiltInSetting
from editjudge.models.endpoint.spending import Account
from editjudge.photos import locating, pool, settings, writers
from editjudge.photos.edits import Writer
from editjudge.photos.pool import Captioner, Scorer, Seeing, embedded_captions
from editjudge.photos.settings import Aesthetic, BoxesSetting, Instructions, LaionSetting, PhotoPool
from editjudge.vision import aesthetics, folders, segmenters
from editjudge.vision.detectors import GroundingDino
from editjudge.vision.encoders import ClipTowers
from editjudge.vision.loading import VisionModel
from editjudge.vision.segmenters import Sam2Segmenter

AESTHETIC, DETECTOR, SEGMENTER, CLIP = "photo_pool.aesthetic", "regions.detector", "regions.segmenter", "regions.clip"
KINDS: dict[str, type[VisionModel]] = {
    "laion": ClipTowers, "clip": ClipTowers, "sam2": Sam2Segmenter, "grounding_dino": GroundingDino
}  # fmt: skip
OF_BOXES = ("threshold", "overlap", "most")
GROUP = 16  # photographs that a worker holds decoded
Wanted: TypeAlias = dict[str, Any]
"""Settings of vision models by their params fields; hub ids are replaced by folders."""


def in_folders(wanted: Wanted) -> Wanted:
    """The settings with each model's folder in the place of a hub id. ParamsError for one that cannot be had."""
    found = dict(wanted)
    for where, how in wanted.items():
        if not isinstance(how, BuiltInSetting):
            devices_of(f"{where}.device", how.device)
            folder = folders.find(f"{where}.model", how.model, KINDS[how.backend].architecture)
            found[where] = replace(how, model=str(folder))
    return found


def places(wanted: Wanted) -> list[str]:
    """Where workers with these models run: on each GPU or, if nothing needs one, each core; on a GPU that is named,
    one."""
    devices = [how.device for how in wanted.values() if not isinstance(how, BuiltInSetting)]
    if named := [device for device in devices if device not in ("auto", "cpu")]:
        return named[:1]
    return devices_of("device", "auto" if "auto" in devices else "cpu") if devices else ["cpu"] * engine().cpus()


def version(wanted: Wanted) -> str:
    """What the answers of the models depend on."""
    parts = list[Any]()
    for where, how in wanted.items():
        parts += [where, how.backend, *(getattr(how, name) for name in OF_BOXES if isinstance(how, BoxesSetting))]
        parts += [weights_version(Path(how.head))] if isinstance(how, LaionSetting) else []
        if not isinstance(how, BuiltInSetting):
            parts += [weights_version(Path(how.model), how.dtype), identity(KINDS[how.backend].__module__)]
    return resume.fingerprint(parts, identity(aesthetics.__name__, segmenters.__name__))


def loaded(wanted: Wanted, where: str, device: str) -> Any:
    """In a worker: a model, on its own device or, for auto, on the worker's. ParamsError."""
    how = wanted[where]
    own = device if how.device == "auto" else how.device
    return KINDS[how.backend](f"{where}.model", how.model, own, how.dtype, how.batch_size)


def scorer(wanted: Wanted, device: str) -> Scorer:
    """In a worker: the aesthetic scores of images. ParamsError."""
    if isinstance(how := wanted[AESTHETIC], BuiltInSetting):
        return lambda rgbs: [aesthetics.colour_sharpness(rgb) for rgb in rgbs]
    return aesthetics.LaionPredictor(AESTHETIC, loaded(wanted, AESTHETIC, device), how.head).scores


def _examining(setting: PhotoPool, wanted: Wanted, device: str) -> Callable[[tuple[Any, Any]], list[resume.Result]]:
    score = scorer(wanted, device)
    return lambda given: [(found, None) for found in pool.examined(setting, given[1], score)]


def _finding(wanted: Wanted, device: str) -> Callable[[tuple[Any, Any]], list[resume.Result]]:
    score, how = scorer(wanted, device), wanted[DETECTOR]
    find: locating.Finder = partial(locating.by_hand, score=score)
    if isinstance(how, BoxesSetting):
        detector, segmenter = loaded(wanted, DETECTOR, device), segmenters.EachBox(segmenters.grabcut)
        if not isinstance(wanted[SEGMENTER], BuiltInSetting):
            segmenter = loaded(wanted, SEGMENTER, device)
        clip = None if isinstance(wanted[CLIP], BuiltInSetting) else loaded(wanted, CLIP, device)
        find = locating.Locator(how, detector, segmenter, clip, score).find
    return lambda given: [(found, None) for found in locating.told(find, given[1])]


class PhotoModels(ExitStack):
    """As long as a stage runs. What they say is kept in the cache, under the photograph and the model."""

    def __init__(self, cache: Path) -> None:
        super().__init__()
        self.accounts: dict[str, Account] = {}
        self.cache = self.enter_context(resume.RecordCache(cache, paid=True))

    def _seeing(self, load: Load, wanted: Wanted, name: Callable[[Any], str], what: str) -> Seeing:
        """Workers look at photographs. name: of the record of one; what: names the progress bar."""
        start = partial(Workers, load, places(wanted))

        def see(given: Iterable[Any]) -> Iterator[tuple[Any, records.Row]]:
            shown, asked = tee(given)
            groups = records.in_groups(((name(each), each) for each in asked), GROUP)
            jobs = (resume.Job(None, tuple(group)) for group in groups)
            lost = {"reason": "not looked at"}
            found = resume.run(jobs, start, self.cache, what, lambda why: lost | {"detail": why})
            return zip(shown, (meta for results in found for meta, _ in results), strict=True)

        return see

    def examiner(self, setting: PhotoPool) -> Seeing:
        """`pool.examined` of paths. Raises ParamsError for a model that cannot be had, as those below."""
        wanted = in_folders({AESTHETIC: setting.aesthetic})
        code = version(wanted) + identity(pool.__name__)

        def name(path: str) -> str:
            try:
                data = pool.load(setting.photos, path)
            except RowError:  # the worker says why
                data = b""
            return resume.fingerprint("photo", code, setting.filters.side_above, path, data)

        return self._seeing(partial(_examining, setting, wanted), wanted, name, "photographs")

    def captioner(self, setting: Any) -> Captioner:
        if isinstance(setting, BuiltInSetting):
            return embedded_captions
        return partial(writers.caption, ask=self._ask("photo_pool.captioner", "captioner", setting))

    def finder(self, setting: settings.RegionsSetting, aesthetic: Aesthetic) -> Seeing:
        """`locating.told` of rows of the pool."""
        places = {DETECTOR: setting.detector, SEGMENTER: setting.segmenter, CLIP: setting.clip}
        wanted = in_folders({AESTHETIC: aesthetic, **places})
        code = version(wanted) + identity(locating.__name__)

        def name(row: records.Row) -> str:
            return resume.fingerprint("regions", code, row["path"], row["tags"], bytes(row["image"]))

        return self._seeing(partial(_finding, wanted), wanted, name, "photographs, for regions")

    def writer(self, setting: Instructions) -> Writer:
        if isinstance(setting.writer, BuiltInSetting):
            return partial(writers.fill_templates, seed=setting.seed)
        return partial(writers.write, ask=self._ask("instructions.writer", "writer", setting.writer))

    def _ask(self, where: str, role: str, setting: AnyInquirySetting) -> writers.Ask:
        """What asks a language model; a reply that cannot be read is asked for again, up to `reply_tries` replies."""
        setting = at_hand(where, setting)
        account = self.accounts.setdefault(role, Account(role, setting.price, setting.budget))
        model = self.enter_context(Model(setting, self.cache, account))

        def ask(inquiries: Sequence[Inquiry], schema: dict[str, Any]) -> list[Finding]:
            form = InquiryForm.of(inquiries, schema)
            return [found for [found] in model.answers(form, list(inquiries))] if inquiries else []

        return ask

    def report(self) -> dict[str, Any]:
        """For metrics: what the answers that are used cost, by role."""
        return {"cost": [{"role": role, **account.cost()} for role, account in self.accounts.items()]}

    def write_run(self, stage: str) -> None:
        """metrics/resume: what this run computed and re-used."""
        asked = {role: account.this_run() for role, account in self.accounts.items()}
        records.write_json(Path(f"metrics/resume/{stage}.json"), {**self.cache.counts(), **asked})
