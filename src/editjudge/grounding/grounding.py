"""Where the edit of each candidate is: an instruction parser names objects, a grounder finds their boxes.

The embedded parser takes the record's own labels, else what a small grammar finds in the instruction; the embedded
grounder takes the record's own boxes. Both can be models behind an OpenAI-compatible endpoint or on this machine. The
recipe says in which images boxes are sought and by which prompts; a Grounding DINO is given the names alone."""

import io
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal

from PIL import Image

from editjudge.core import images, records, regions
from editjudge.core.code import identity
from editjudge.core.masks import of_rows
from editjudge.engine import resume
from editjudge.engine.workers import Workers, devices_of, engine
from editjudge.grounding import instructions, prompts, settings
from editjudge.grounding.instructions import Named
from editjudge.grounding.prompts import MOST_BOXES, SCHEMAS, FractionBox, Grounded, ParserPrompt, read_boxes, read_named
from editjudge.grounding.settings import DetectorSetting, Grounder, GrounderSetting, GroundingSetting, Parser
from editjudge.measures.annotation import slots
from editjudge.measures.annotation.recipe import Recipe, Sought
from editjudge.models.chat.forms import Finding, Inquiry, InquiryForm
from editjudge.models.chat.models import Model
from editjudge.models.chat.settings import EmbeddedSetting
from editjudge.models.endpoint.pictures import ORIENTATION, PixelLimits
from editjudge.models.endpoint.spending import Account
from editjudge.vision import detectors
from editjudge.vision.folders import OUT_OF_MEMORY
from editjudge.vision.loading import answers, within_memory

GROUNDER = "grounding.grounder"
DIGITS = 6  # of pixels, so that 0.29 x 100 does not lie below 29
ORIENTED = re.compile(rb"eXIf|Raw profile type|com\.adobe\.xmp")  # in a PNG that may say an orientation
QUOTED = 300  # characters of a reason
NOTHING = "nothing is named that could be found in the images"
TURNED = (5, 6, 7, 8)  # EXIF orientations that exchange width and height
Rows = Sequence[records.Row]
Size = tuple[int, int]
Wanted = tuple[records.Image, tuple[str, ...]]  # an image (encoded), and the names of what is to be found in it
Which = Literal["source", "edited"]


Boxes = tuple[FractionBox, ...] | Grounded
"""Boxes, or as a Grounded the reason why there are none, as everywhere here."""


@dataclass
class Grounding:
    """Of a task: where each candidate's edit is, and what the asking cost, by role.

    own: of a prompt whose record tells it for all its candidates, so that nothing is kept of each; else `found` has it
    by (key, model). seen: how many of those that were asked for had which kind of failure and reason, or none."""

    found: dict[tuple[str, str], Grounded] = field(default_factory=dict)
    accounts: dict[str, Account] = field(default_factory=dict)
    own: Callable[[records.Row], Grounded] | None = None
    seen: Counter[tuple[str | None, str | None]] = field(default_factory=Counter)

    def of(self, prompt: records.Row, candidates: Rows) -> dict[str, Grounded]:
        """Where the edits of a prompt's candidates are, all of which are done, by model."""
        own = self.own(prompt) if self.own and candidates else None
        found = {row["model"]: own or self.found[row["key"], row["model"]] for row in candidates}
        self.seen.update((each.kind, each.reason) for each in found.values())
        return found

    def failed(self) -> dict[str, int]:
        """How many candidates have no regions, by kind of reason."""
        kinds = Counter(kind for kind, _ in self.seen.elements() if kind is not None)
        return dict(sorted(kinds.items()))

    def report(self) -> dict[str, Any]:
        """For metrics: the same replies give the same figures."""
        cost = [{"role": role, **account.cost()} for role, account in self.accounts.items()]
        return {"grounded": self.seen.total() - sum(self.failed().values()), "failed": self.failed(), "cost": cost}

    def run_report(self) -> dict[str, Any]:
        """For metrics/resume: what this run asked and re-used, and why records failed, an endpoint's own words too."""
        if not self.accounts:
            return {}
        reasons = {reason: number for (_, reason), number in self.seen.items() if reason is not None}
        why = [{"reason": reason, "records": number} for reason, number in sorted(reasons.items())]
        return {role: account.this_run() for role, account in self.accounts.items()} | {"regions_failed": why}


def ground(
    pool: Iterable[tuple[records.Row, Rows]], recipe: Recipe, setting: GroundingSetting, cache: resume.RecordCache
) -> Grounding:
    """Where the edit of each candidate that is done is; a record whose regions are not found has a reason.

    pool: the prompts of one task with their candidates, which are read where a model is asked. A recipe without
    `regions` gives no boxes. Replies are kept in the cache. Raises EndpointError where an endpoint refuses its key or
    model, FileError for a broken prompt, ParamsError for a model of this machine that cannot be had."""
    if recipe.regions is None:
        return Grounding(own=lambda _: Grounded())
    run = _Run(recipe.regions, settings.found(setting), cache, Grounding())
    how, of_people = run.setting.grounder, recipe.pipeline == "human_centric"
    if isinstance(how, EmbeddedSetting) and (not of_people or isinstance(setting.parser, EmbeddedSetting)):
        run.result.own = lambda prompt: run.own(prompt, run.named([prompt], of_people)[prompt["key"]])
        return run.result
    done = [(prompt, [row for row in rows if row["status"] == "done"]) for prompt, rows in pool]
    asked = [prompt for prompt, rows in done if rows]
    with run.opened:  # a parser's server ends before a grounder's begins: each takes all GPUs
        named = run.named(asked, of_people)
    if isinstance(how, EmbeddedSetting):
        run.result.own = lambda prompt: run.own(prompt, named[prompt["key"]])
        return run.result
    with run.opened:
        run.result.found = run.find(asked, [row for _, rows in done for row in rows], named, how)
    return run.result


def _failed(kind: str, reason: str) -> Grounded:
    return Grounded(reason=reason, kind=kind)


# --- what models are asked


@dataclass(frozen=True)
class _Run:
    """One run over the candidates of a task; it counts in `result.accounts` what its models are asked.

    opened: ends what is in `models`, the model by role."""

    sought: Sought
    setting: GroundingSetting
    cache: resume.RecordCache
    result: Grounding
    opened: ExitStack = field(default_factory=ExitStack)
    models: dict[str, Model] = field(default_factory=dict)

    def ask(
        self, role: str, place: str, setting: Parser, inquiries: Mapping[Any, Inquiry], schema: dict[str, Any]
    ) -> dict[Any, Any]:
        """What came of each inquiry, or a Grounded with `place` before the reason. Equal ones are asked once. All show
        an image or none does.

        A reply that cannot be read is asked for again, sampled, up to `reply_tries` replies; then the inquiry has
        failed and is not asked in a later run either. One that the endpoint did not answer is asked again in the next
        run. EndpointError: the endpoint refuses key or model."""
        if role not in self.models:
            account = self.result.accounts[role] = Account(role, setting.price, setting.budget)
            self.models[role] = self.opened.enter_context(Model(setting, self.cache, account))
        form = InquiryForm.of(inquiries.values(), schema)
        found = self.models[role].answers(form, list(inquiries.values()))
        return {name: _read(place, finding) for name, [finding] in zip(inquiries, found, strict=True)}

    def named(self, prompts: Rows, of_people: bool) -> dict[str, Named | Grounded]:
        """What each prompt's instruction names. With own boxes only a person's attributes are wanted."""
        if isinstance(self.setting.grounder, EmbeddedSetting) and not of_people:
            return {prompt["key"]: Named() for prompt in prompts}
        if isinstance(self.setting.parser, EmbeddedSetting):
            return {prompt["key"]: _embedded_named(prompt, self.sought.parser) for prompt in prompts}
        asked = ParserPrompt.load(f"grounding/parsers/{self.sought.parser}.yaml")
        texts = {prompt["key"]: asked.text(prompt["instruction"]) for prompt in prompts}
        inquiries = {key: Inquiry(key, text, {}, partial(read_named, asked.form)) for key, text in texts.items()}
        return self.ask("parser", "parser", self.setting.parser, inquiries, SCHEMAS[asked.form])

    def own(self, prompt: records.Row, named: Named | Grounded) -> Grounded:
        """The record's own boxes, in the images in which the recipe seeks them."""
        (boxes, masks), where = of_rows(prompt["regions"]), self.sought.images
        if isinstance(named, Grounded):
            return named
        if not boxes:
            return _failed("no box", "the record has no box")
        source, edited = boxes if where != "edited" else (), boxes if where != "source" else ()
        return Grounded(source, edited, named.attributes, masks)

    def find(
        self, prompts: Rows, candidates: Rows, named: Mapping[str, Named | Grounded], how: Grounder
    ) -> dict[tuple[str, str], Grounded]:
        """The regions of each candidate. Edited images are shown only where the source's boxes are known."""
        where = self.sought.images
        rows = {prompt["key"]: prompt for prompt in prompts}
        sizes = {key: upright_size("source", row["image"]) for key, row in rows.items()}
        known = {key: size if isinstance(size, Grounded) else named[key] for key, size in sizes.items()}
        asked = {key: (row["instruction"], known[key], row["image"]) for key, row in rows.items()}
        sources = self.boxes("source", asked, how) if where != "edited" else {}
        known |= {key: found for key, found in sources.items() if isinstance(found, Grounded)}
        edited = {(row["key"], row["model"]): row["image"] for row in candidates if row["key"] in known}
        shown = {pair: (rows[pair[0]]["instruction"], known[pair[0]], image) for pair, image in edited.items()}
        edits = self.boxes("edited", shown, how) if where != "source" else {}
        each = ((pair, pair[0]) for pair in edited)
        return {at: _joined(known[key], sources.get(key, ()), edits.get(at, ()), sizes[key]) for at, key in each}

    def boxes(
        self, which: Which, asked: Mapping[Any, tuple[str, Named | Grounded, records.Image]], how: Grounder
    ) -> dict[Any, Boxes]:
        """The boxes in each image; an image in which nothing is to be found has none."""
        prompt = prompts.GrounderPrompt.load(f"grounding/grounders/{self.sought.grounder}.yaml")
        place = f"grounder, {which}"
        found: dict[Any, Boxes] = {}
        sought: dict[Any, tuple[Size, tuple[str, ...]]] = {}
        for name, (_, known, image) in asked.items():
            size = known if isinstance(known, Grounded) else upright_size(which, image)
            if isinstance(size, Grounded):
                found[name] = size
            elif labels := getattr(known, which):
                sought[name] = (size, labels)
            else:
                found[name] = ()
        if isinstance(how, DetectorSetting):
            wanted = [(asked[name][2], labels) for name, (_, labels) in sought.items()]
            return found | dict(zip(sought, detect(wanted, how, prompt.one, self.cache, place), strict=True))
        form: prompts.Coordinates = how.coordinates if isinstance(how, GrounderSetting) else "thousandths"
        limits, inquiries = PixelLimits(how.min_pixels, how.max_pixels), dict[Any, Inquiry]()
        for name, (size, labels) in sought.items():
            instruction, _, image = asked[name]
            sent = limits.size(*size)
            read = partial(read_boxes, labels=labels, size=sent, coordinates=form, one=prompt.one)
            text = prompts.grounder_text(prompt, instruction, labels, sent, form)
            inquiries[name] = Inquiry(str(name), text, {"image": image}, read)
        return found | self.ask("grounder", place, how, inquiries, prompts.BOXES_SCHEMA)


def _read(place: str, finding: Finding) -> Any:
    """What was found. A reply that came and cannot be read is another kind of failure than none."""
    if finding.value is not None:
        return finding.value
    return _failed(f"{place}: {'unreadable reply' if finding.reply else 'no answer'}", f"{place}: {finding.reason}")


def _embedded_named(prompt: records.Row, parser: str) -> Named | Grounded:
    """The record's own labels, with the attributes that the grammar finds; else all that it finds."""
    labels = tuple(dict.fromkeys(region["label"] for region in prompt["regions"] if region["label"].strip()))
    if labels and parser not in instructions.REPLACING:
        return Named(labels, labels, instructions.changed(prompt["instruction"], parser))
    reason = f"the grammar cannot read the instruction: {prompt['instruction'][:200]!r}"
    return instructions.named(prompt["instruction"], parser) or _failed("grammar", reason)


def upright_size(which: Which, encoded: records.Image) -> Size | Grounded:
    """(width, height) of an encoded image, upright, from its header wherever that tells it."""
    data = bytes(encoded)
    try:
        with Image.open(io.BytesIO(data), formats=images.FORMATS) as image:
            width, height = image.size
            if width * height > images.MAX_PIXELS:
                limit = f"more than the limit of {images.MAX_PIXELS}"
                return _failed("image", f"{which}: {width} x {height} pixels, {limit}")
            # Pillow decodes a PNG to look for its orientation, which hardly any has.
            turned = (image.format != "PNG" or ORIENTED.search(data)) and image.getexif().get(ORIENTATION) in TURNED
    except (OSError, SyntaxError, ValueError) as error:
        return _failed("image", f"{which}: not a whole PNG, JPEG or WebP image: {error}"[:QUOTED])
    return (height, width) if turned else (width, height)


def _joined(known: Named | Grounded, source: Boxes, edited: Boxes, size: Size | Grounded) -> Grounded:
    """The boxes of both images in the pixels of the source, whose size is (width, height); or the first failure."""
    for each in (known, size, source, edited):
        if isinstance(each, Grounded):
            return each
    assert isinstance(known, Named)
    here, there = (tuple(_pixels(box, size) for box in boxes) for boxes in (source, edited))
    return Grounded(here, there, known.attributes) if here or there else _failed("no box", NOTHING)


def _pixels(box: Any, size: Any) -> regions.Box:
    """A box in whole pixels of an image of (width, height): the nearest ones, and at least one."""
    exact = [round(share * side, DIGITS) for share, side in zip(box, (*size, *size), strict=True)]
    near = [round(value) for value in exact]
    whole = near[0] < near[2] and near[1] < near[3]
    return regions.clip_box(near if whole else exact, size[1], size[0])


# --- a Grounding DINO on this machine; its boxes are kept in work/ as a model's replies are


def detect(
    wanted: Sequence[Wanted], how: DetectorSetting, one: bool, cache: resume.RecordCache, place: str
) -> list[Boxes]:
    """The boxes in each image, in the order of the names: at least one of every name, and of `one` that is wanted the
    surest; or why there are none, with `place` before the reason."""
    model = [slots.weights_version(Path(how.model)), identity(detectors.__name__)]
    asked = [*model, how.dtype, how.threshold, how.overlap]
    named = [(resume.fingerprint(asked, names, bytes(image)), (image, names)) for image, names in wanted]
    starts = range(0, len(named), how.batch_size)
    jobs = [resume.Job(how, tuple(named[n : n + how.batch_size])) for n in starts]

    def start() -> Workers:
        devices = devices_of(f"{GROUNDER}.device", how.device)
        workers = how.workers or (engine().cpus() if devices == ["cpu"] else 1)
        return Workers(partial(_detecting, how), devices * workers)

    lost, lasts = lambda why: {"boxes": [], "reason": why}, lambda meta: meta["reason"] != OUT_OF_MEMORY
    results = resume.run(jobs, start, cache, "images, for boxes", lost, lasts, len(named))
    metas = (meta for job in results for meta, _ in job)
    return [_found(names, meta, one, place) for (_, names), meta in zip(wanted, metas, strict=True)]


def _found(names: Sequence[str], meta: Mapping[str, Any], one: bool, place: str) -> Boxes:
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


def _detecting(how: DetectorSetting, device: str) -> Callable[[tuple[Any, list[Wanted]]], list[resume.Result]]:
    """In a worker: {boxes, reason} of each image: label, score and box of each, or why there are none."""
    slots.one_thread()
    model = detectors.GroundingDino(f"{GROUNDER}.model", how.model, device, how.dtype, how.batch_size)

    def ask(wanted: list[Wanted]) -> list[detectors.Boxes]:
        rgbs, names = [images.decode(bytes(image)) for image, _ in wanted], [names for _, names in wanted]
        return within_memory(model, lambda: model.detect(rgbs, names, how.threshold, how.overlap))

    def detect(given: tuple[Any, list[Wanted]]) -> list[resume.Result]:
        metas = []
        for found in answers(ask, given[1]):
            failed = isinstance(found, ValueError)
            boxes = [] if failed else [[box.label, box.score, box.box] for box in found]
            metas.append({"boxes": boxes, "reason": str(found) if failed else None})
        return [(meta, None) for meta in metas]

    return detect
