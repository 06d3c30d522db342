"""The models of the three stages, or what stands in for them, each loaded when it is first needed."""

from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

from editjudge.core import records
from editjudge.core.code import identity
from editjudge.engine import resume
from editjudge.measures.annotation.slots import devices_of, weights_version
from editjudge.models.chat.forms import Finding, Inquiry, InquiryForm
from editjudge.models.chat.models import Model, at_hand
from editjudge.models.chat.settings import BuiltInSetting, InquirySetting, LocalInquirySetting
from editjudge.models.endpoint.spending import Account
from editjudge.photos import locating, writers
from editjudge.photos.edits import Writer
from editjudge.photos.pool import Captioner, Scorer, embedded_captions, remembered
from editjudge.photos.settings import Aesthetic, ClipSetting, Instructions, RegionsSetting, Sam2Setting
from editjudge.vision import aesthetics, folders
from editjudge.vision.detectors import GroundingDino, Owlv2
from editjudge.vision.encoders import ClipTowers
from editjudge.vision.loading import VisionModel
from editjudge.vision.segmenters import GrabCut, Sam2Segmenter

AESTHETIC = "photo_pool.aesthetic"


class PhotoModels(ExitStack):
    """As long as a stage runs. What they say is kept in the cache, under the photograph and the model."""

    def __init__(self, cache: Path) -> None:
        super().__init__()
        cache.parent.mkdir(parents=True, exist_ok=True)
        self.accounts: dict[str, Account] = {}
        self.cache = self.enter_context(resume.RecordCache(cache))

    def aesthetic(self, setting: Aesthetic) -> Scorer:
        """Raises ParamsError for a model that cannot be had, as those below."""
        if isinstance(setting, BuiltInSetting):
            return lambda rgbs: [aesthetics.colour_sharpness(rgb) for rgb in rgbs]
        clip, version = self._loaded(AESTHETIC, setting, ClipTowers)
        predictor = aesthetics.LaionPredictor(AESTHETIC, clip, setting.head)
        version = [*version, weights_version(Path(setting.head)), identity(aesthetics.__name__)]

        def score(rgbs: Sequence[Any]) -> list[float]:
            names = [resume.fingerprint("aesthetic", version, list(rgb.shape), rgb.tobytes()) for rgb in rgbs]
            return remembered(self.cache, names, lambda missing: predictor.scores([rgbs[n] for n in missing]))

        return score

    def captioner(self, setting: Any) -> Captioner:
        if isinstance(setting, BuiltInSetting):
            return embedded_captions
        return partial(writers.caption, ask=self._ask("photo_pool.captioner", "captioner", setting))

    def finder(self, setting: RegionsSetting, score: Scorer, aesthetic: Any) -> locating.Finder:
        """aesthetic: the setting of `score`."""
        how = setting.detector
        if isinstance(how, BuiltInSetting):
            return partial(locating.by_hand, score=score)
        detector, version = self._loaded("regions.detector", how, Owlv2 if how.backend == "owlv2" else GroundingDino)
        segmenter, of_segmenter = GrabCut(), list[str]()
        if isinstance(setting.segmenter, Sam2Setting):
            segmenter, of_segmenter = self._loaded("regions.segmenter", setting.segmenter, Sam2Segmenter)
        is_rated = isinstance(setting.clip, ClipSetting)
        clip, of_clip = self._loaded("regions.clip", setting.clip, ClipTowers) if is_rated else (None, [])
        rated = {name: value for name, value in vars(aesthetic).items() if name != "device"}
        code = identity(locating.__name__, type(segmenter).__module__, aesthetics.__name__)
        parts = [*version, *of_segmenter, *of_clip, how.threshold, how.overlap, how.most, rated, code]
        return locating.Locator(how, detector, segmenter, clip, score, self.cache, resume.fingerprint(parts)).find

    def writer(self, setting: Instructions) -> Writer:
        if isinstance(setting.writer, BuiltInSetting):
            return partial(writers.fill_templates, seed=setting.seed)
        return partial(writers.write, ask=self._ask("instructions.writer", "writer", setting.writer))

    def _loaded(self, where: str, how: Any, kind: type[VisionModel]) -> tuple[Any, list[str]]:
        """A model on its first device, and what its answers depend on."""
        folder = folders.find(f"{where}.model", how.model, kind.architecture)
        device = devices_of(f"{where}.device", how.device)[0]
        model = kind(f"{where}.model", str(folder), device, how.dtype, how.batch_size)
        return model, [where, weights_version(folder, how.dtype), identity(kind.__module__)]

    def _ask(self, where: str, role: str, setting: InquirySetting | LocalInquirySetting) -> writers.Ask:
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
