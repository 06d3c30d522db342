"""Stage candidates: one editing model's edits of all pools, a file a task, of the arena's prompts and of the suites.

A record whose inputs, settings and code are as they were is taken from work/. An edit that fails is a record with a
reason, and the run goes on. Images are in memory a row group at a time. A model whose images a user has (kind folder)
makes none: they are taken by key, as they are. Of a suite's dialogue, each turn edits what the model made of the one
before.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any, Literal

import numpy as np

from editjudge.core import images, params, records
from editjudge.core.files import work
from editjudge.core.main import stage
from editjudge.core.records import RowWriter
from editjudge.editors import making, settings
from editjudge.editors.folder import FolderSetting
from editjudge.editors.galleries import pictures
from editjudge.editors.galleries.given import Given
from editjudge.editors.outcomes import LASTING, Outcome
from editjudge.editors.request import Request, Requests
from editjudge.editors.settings import Making
from editjudge.engine import resume, unfinished

REASONS = 20  # of the failures, the most frequent, that metrics list


@dataclass(frozen=True)
class EditPrompt:
    """What a model is asked for; `row` has key, task, instruction, image and edit. suite: of its case.

    turn: (suite, dialogue, number) of a dialogue's turn, whose image is what came of the turn before.
    """

    use: Literal["data", "benchmark"]
    row: records.Row
    suite: str | None = None
    turn: tuple[str, str, int] | None = None


class Prompts:
    """All pools, the arena and the suites' cases, but for later turns; read from their files anew each time: a row
    group is in memory at a time."""

    def __init__(self, tasks: Iterable[str], data: Path, suites: Iterable[str] = ()) -> None:
        self._pools, self._arena = [data / f"pools/{task}.parquet" for task in tasks], data / "gedit_bench.parquet"
        self._suites = {name: data / f"suites/{name}.parquet" for name in suites}

    def __iter__(self) -> Iterator[EditPrompt]:
        for pool in self._pools:
            for row in records.iterate(pool, "pools"):
                yield EditPrompt("data", row)
        for row in records.iterate(self._arena, "gedit_bench"):
            yield EditPrompt("benchmark", records.prompt_of(row))
        yield from self._cases(lambda turn: turn == 1)

    def every(self) -> Iterator[EditPrompt]:
        """Those, and the later turns with their dialogue's photo."""
        yield from self
        yield from self._cases(lambda turn: turn > 1)

    def later(self) -> list[list[EditPrompt]]:
        """The prompts of all second turns, of all third ones and so on, without an image."""
        turns: dict[int, list[EditPrompt]] = {}
        for prompt in self._cases(lambda turn: turn > 1):
            light = replace(prompt, row=prompt.row | {"image": None, "source_image": None})
            turns.setdefault(prompt.row["turn"], []).append(light)
        return [turns[number] for number in sorted(turns)]

    def _cases(self, wanted: Callable[[int], bool]) -> Iterator[EditPrompt]:
        for name, file in self._suites.items():
            for row in records.iterate(file, "suites"):
                if wanted(number := row["turn"] or 1):
                    turn = None if row["dialogue"] is None else (name, row["dialogue"], number)
                    yield EditPrompt("benchmark", records.prompt_of(row), name, turn)


@dataclass(frozen=True)
class _Turn:
    """Prompts that can be asked: a later turn's with the image that came of the turn before, where there is one."""

    prompts: Iterable[EditPrompt]
    done: dict[tuple[str, str, int], "Candidate"]
    image_of: Callable[[str], Any]

    def __iter__(self) -> Iterator[EditPrompt]:
        for prompt in self.prompts:
            if prompt.turn is None or prompt.turn[2] == 1:
                yield prompt
            elif (before := self.before(prompt)) and before.meta["status"] == "done":
                yield replace(prompt, row=prompt.row | {"image": self.image_of(before.name)})

    def before(self, prompt: EditPrompt) -> "Candidate | None":
        suite, dialogue, number = prompt.turn or ("", "", 1)
        return self.done.get((suite, dialogue, number - 1))

    def lost(self, prompt: EditPrompt) -> "Candidate":
        """The candidate of a turn that has no image to edit; it has failed as the turn before."""
        before = self.before(prompt)
        meta: dict[str, Any] = before.meta if before else {"kind": "no_edit", "reason": "the suite has no such case"}
        reason = f"the turn before: {meta['reason']}"
        failed = {"status": "failed", "kind": meta["kind"], "reason": reason, "damage": None}
        return Candidate(prompt.row["key"], prompt.row["task"], prompt.use, "", failed, prompt.suite)


@dataclass(frozen=True)
class Candidate:
    """One edit: `name` is the fingerprint of all it depends on; `meta` has status, kind, reason and damage."""

    key: str
    task: str
    use: Literal["data", "benchmark"]
    name: str
    meta: dict[str, Any]
    suite: str | None = None


@dataclass(frozen=True)
class MadeEdits:
    """All candidates in the prompts' order, and figures of the run that made what was missing."""

    candidates: list[Candidate]
    figures: dict[str, Any]


def edit_all(
    prompts: Iterable[EditPrompt],
    model: str,
    setting: Making,
    cache: resume.RecordCache,
    later: Sequence[Sequence[EditPrompt]] = (),
) -> MadeEdits:
    """One candidate for each prompt; `prompts` is read twice, and the images are in the cache.

    later: the prompts of second turns, of third ones and so on, whose images are what came of the turns before.
    A failure that another try would only repeat is in the cache too; the others are tried again by the next run.
    """
    code = making.code(setting)
    metas: dict[str, dict[str, Any]] = {}
    candidates: list[Candidate] = []
    names: list[str] = []

    def keep(name: str, outcome: Outcome) -> None:
        status = "done" if outcome.kind is None else "failed"
        metas[name] = {"status": status, "kind": outcome.kind, "reason": outcome.reason, "damage": outcome.damage}
        if outcome.lasting:
            metas[name] = cache.keep(name, metas[name], outcome.image)

    def rounds() -> Iterator[Requests]:
        """The edits that are missing, turn by turn."""
        done: dict[tuple[str, str, int], Candidate] = {}
        for group in (prompts, *later):
            turn = _Turn(group, done, cache.data)
            asked = [
                (p.row["key"], p.row["task"], p.use, name_of(p, model, setting, code), p.suite, p.turn) for p in turn
            ]
            names[:] = [each[3] for each in asked]
            metas.update({name: meta for name in dict.fromkeys(names) if (meta := cache.meta(name)) is not None})
            if missing := {name for name in names if name not in metas}:
                yield _requests(turn, names, missing, model, setting)
            for key, task, use, name, suite, place in asked:
                candidates.append(candidate := Candidate(key, task, use, name, metas[name], suite))
                done |= {} if place is None else {place: candidate}
            for prompt in group if group is not prompts else ():
                if prompt.turn not in done and prompt.turn is not None:
                    candidates.append(lost := turn.lost(prompt))
                    done[prompt.turn] = lost

    figures: dict[str, Any] = {}
    asked = rounds()
    if first := next(asked, None):
        count = len({name for name in names if name not in metas}) + sum(map(len, later))
        figures = making.make(model, setting, chain([first], asked), count, keep)
    return MadeEdits(candidates, figures)


def name_of(prompt: EditPrompt, model: str, setting: Making, code: str) -> str:
    """The fingerprint of all that an edit depends on."""
    row, decides = prompt.row, settings.decides(setting, prompt.use)
    return resume.fingerprint(
        code, model, prompt.use, decides, row["key"], row["task"], row["instruction"], row["edit"], row["image"]
    )


def _requests(
    prompts: Iterable[EditPrompt], names: list[str], missing: set[str], model: str, setting: Making
) -> Requests:
    """The edits that are missing, each once."""
    for prompt, name in zip(prompts, names, strict=True):
        if name in missing:
            missing.remove(name)
            row, seed = prompt.row, seed_of(setting.seed, model, prompt.row["key"])
            instruction = settings.told(setting, row["instruction"])
            yield name, Request(row["key"], instruction, row["image"], row["edit"], prompt.use, seed)


def seed_of(seed: int, model: str, key: str) -> int:
    """The seed of one record and model, 0..2**63-1."""
    return int(resume.fingerprint(seed, model, key)[:16], 16) >> 1


def take_all(prompts: Iterable[EditPrompt], given: Given) -> MadeEdits:
    """One candidate for each prompt from a user's own images; a candidate's name is the one that its image has there.

    An image is named by the prompt's key, or by the key that the prompt has in the user's own table, if no other prompt
    has that one. What is missing or cannot be decoded has failed with its reason.
    """
    found = [Candidate(p.row["key"], p.row["task"], p.use, *_taken(p, given), p.suite) for p in prompts]
    asked = Counter(c.name for c in found if c.name != c.key)
    twice = {"status": "failed", "kind": "ambiguous", "damage": None}
    candidates = []
    for c in found:
        if c.name != c.key and asked[c.name] > 1 and c.meta["status"] == "done":
            reason = f"{asked[c.name]} prompts have the own key {c.name}: name their images by the whole key, {c.key}"
            c = replace(c, meta=twice | {"reason": reason})
        candidates.append(c)
    return MadeEdits(candidates, {})


def _taken(prompt: EditPrompt, given: Given) -> tuple[str, dict[str, Any]]:
    key, task = prompt.row["key"], prompt.row["task"]
    own = key.removeprefix(f"{task}.").partition(".")[2] if key.startswith(f"{task}.") else ""
    name = own if own and given(key) == pictures.NO_IMAGE != given(own) else key
    meta = pictures.candidate(key, task, "", given(name))
    known: dict[str, Any] = {field: meta[field] for field in ("status", "reason", "damage")}
    if meta["status"] == "failed":
        return name, known | {"kind": "missing" if meta["reason"] == pictures.NO_IMAGE else "unusable"}
    try:
        changed = pictures.aspect_change(images.decode(prompt.row["image"]), images.decode(meta["image"]))
    except images.ImageError as error:
        return name, known | {"status": "failed", "kind": "bad_source", "reason": f"source: {error}"}
    return name, known | {"kind": None, "aspect_change": changed}


def rows(candidates: Iterable[Candidate], model: str, image_of: Callable[[str], Any]) -> Iterator[records.Row]:
    """The candidates' rows, the images by the candidates' names, one at a time."""
    for c in candidates:
        image = image_of(c.name) if c.meta["status"] == "done" else None
        row = {"key": c.key, "task": c.task, "model": model, "image": image}
        yield row | {field: c.meta[field] for field in ("status", "reason", "damage")}


def files(
    candidates: Iterable[Candidate], model: str, tasks: Iterable[str], suites: Iterable[str] = ()
) -> dict[Path, list[Candidate]]:
    """Where candidates are written: those of each task's pool, those of the arena, and those of each suite."""
    found = {Path(f"data/candidates/{model}/{task}.parquet"): list[Candidate]() for task in tasks}
    found[gallery := Path(f"data/gallery/{model}.parquet")] = []
    found |= {Path(f"data/suite_gallery/{model}/{suite}.parquet"): [] for suite in suites}
    for c in candidates:
        pool = Path(f"data/candidates/{model}/{c.task}.parquet")
        own = gallery if c.suite is None else Path(f"data/suite_gallery/{model}/{c.suite}.parquet")
        found[own if c.use == "benchmark" else pool].append(c)
    return found


def counts(candidates: list[Candidate]) -> dict[str, Any]:
    """How many candidates are done and failed, the failures' kinds and most frequent reasons, the mean known damage."""
    failed = [c.meta for c in candidates if c.meta["status"] == "failed"]
    known = [c.meta["damage"] for c in candidates if c.meta["damage"] is not None]
    reasons = _tally(meta["reason"] for meta in failed)
    changed = [(c.key, c.meta["aspect_change"]) for c in candidates if c.meta.get("aspect_change") is not None]
    return {
        "records": len(candidates),
        "failed": len(failed),
        "kinds": [{"kind": kind, "records": number} for kind, number in _tally(meta["kind"] for meta in failed)],
        "reasons": [{"reason": reason, "records": number} for reason, number in reasons[:REASONS]],
        "reasons_left_out": max(len(reasons) - REASONS, 0),
        "mean_known_damage": [round(float(np.mean(known)), 4)] if known else [],
        **({"aspect_changed": [{"key": key, "factor": factor} for key, factor in changed]} if changed else {}),
    }


def gap(candidates: Collection[Candidate], model: str) -> unfinished.Gap:
    """The edits that another try may give."""
    missing = Counter(c.meta["kind"] for c in candidates if c.meta["kind"] not in (None, *LASTING))
    return unfinished.Gap(f"edits of {model}", missing, len(candidates), f"editors.{model}.budget")


def lacking(candidates: Collection[Candidate]) -> list[dict[str, Any]]:
    """Of a user's own images, those that are missing or unusable, by name; of a suite only if there are any of it."""
    there = {c.suite for c in candidates if c.meta["status"] == "done"} | {None}
    failed = (c for c in candidates if c.meta["status"] == "failed" and c.suite in there)
    return [{"key": c.key, "kind": c.meta["kind"], "reason": c.meta["reason"]} for c in failed]


def write(
    made: MadeEdits, model: str, tasks: Iterable[str], image_of: Callable[[str], Any], suites: Sequence[str] = ()
) -> dict[str, Any]:
    """The files of a model's candidates; what metrics say of those of the pools and the arena.

    What is said of the suites' goes to metrics/suite_candidates/<model>.json.
    """
    for file, part in files(made.candidates, model, tasks, suites).items():
        with RowWriter(file, "candidates") as out:
            for row in rows(part, model, image_of):
                out.add(row)
    of = {suite: [c for c in made.candidates if c.suite == suite] for suite in suites}
    told = [{"suite": suite, **counts(own)} for suite, own in of.items()]
    records.write_details(Path(f"metrics/suite_candidates/{model}.json"), {"suites": told})
    return counts([c for c in made.candidates if c.suite is None])


def _tally(words: Iterable[str]) -> list[tuple[str, int]]:
    """How often each stands there, the most frequent first, equals by name."""
    return sorted(Counter(words).items(), key=lambda item: (-item[1], item[0]))


def run(model: str) -> None:
    values = params.load()
    setting = settings.read(values, model)
    tasks, suites = params.leaf(values, "tasks"), [*(values.get("suites") or {})]
    prompts = Prompts(tasks, Path("data"), suites)
    report = Path(f"metrics/candidates/{model}.json")
    if isinstance(setting, FolderSetting):
        given = Given(Path(setting.path), setting.model or model)
        made = take_all(prompts.every(), given)
        told = write(made, model, tasks, given, suites) | {"lacking": lacking(made.candidates)}
        records.write_details(report, told)
        return
    with resume.RecordCache(work("candidates", f"{model}.sqlite")) as cache:
        made = edit_all(prompts, model, setting, cache, prompts.later())
        told = write(made, model, tasks, cache.data, suites)
        records.write_json(Path(f"metrics/resume/candidates_{model}.json"), made.figures | cache.counts())
    records.write_details(report, told)
    unfinished.check(values, "candidates", f"candidates@{model}", [gap(made.candidates, model)])


if __name__ == "__main__":
    stage(__doc__, run, "model")
