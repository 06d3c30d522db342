"""Stage candidates: one editing model's edits of all pools, a file a task, of the arena's prompts and of the suites.

A record whose inputs, settings and code are as they were is taken from work/. An edit that fails is a record with a
reason, and the run goes on. Images are in memory a row group at a time. A model whose images a user has (kind folder)
makes none: they are taken by key, as they are. Of a suite's dialogue, each turn edits what the model made of the one
before."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any, Literal

import numpy as np

from editjudge.core import images, params, records
from editjudge.core.files import work
from editjudge.core.main import stage
from editjudge.editors import making, settings
from editjudge.editors.galleries import pictures
from editjudge.editors.galleries.pictures import Given
from editjudge.editors.protocol import LASTING, Outcome, Request, Requests, with_score
from editjudge.editors.settings import FolderSetting, Making
from editjudge.engine import resume, unfinished

REASONS = 20  # of the failures, the most frequent, that metrics list


@dataclass(frozen=True)
class EditPrompt:
    """What a model is asked for; `row` has key, task, instruction, image and edit, and may have `shown`, see
    `records.references`. suite: of its case.

    turn: (suite, dialogue, number) of a dialogue's turn, whose image is what came of the turn before."""

    use: Literal["data", "benchmark"]
    row: records.Row
    suite: str | None = None
    turn: tuple[str, str, int] | None = None


@dataclass(frozen=True)
class Prompts:
    """All pools, the arena and the suites' cases, with `every` the later turns with their dialogue's photo, too; read
    from their files anew each time: a row group is in memory at a time. Images stay where they are, and workers read
    them there."""

    tasks: Iterable[str]
    suites: Iterable[str] = ()
    every: bool = False
    use: Sequence[settings.Use] = settings.USES

    def __iter__(self) -> Iterator[EditPrompt]:
        for task in self.tasks if "pools" in self.use else ():
            for row in records.iterate(Path(f"data/pools/{task}.parquet"), "pools", "image"):
                yield EditPrompt("data", row)
        if "benchmark" not in self.use:
            return
        for row in records.iterate(Path("data/gedit_bench.parquet"), "gedit_bench", "source_image.bytes"):
            yield EditPrompt("benchmark", records.prompt_of(row))
        for first in (True, False) if self.every else (True,):
            yield from self.cases(first)

    def cases(self, first: bool) -> Iterator[EditPrompt]:
        """The first turns, or the later ones."""
        for name in self.suites if "benchmark" in self.use else ():
            for row in records.iterate(Path(f"data/suites/{name}.parquet"), "suites", "source_image.bytes"):
                number = row["turn"] or 1
                if (number == 1) == first:
                    turn = None if row["dialogue"] is None else (name, row["dialogue"], number)
                    yield EditPrompt("benchmark", records.prompt_of(row), name, turn)

    def later(self) -> list[list[EditPrompt]]:
        """The prompts of all second turns, of all third ones and so on, without an image."""
        turns: dict[int, list[EditPrompt]] = {}
        for prompt in self.cases(first=False):
            light = replace(prompt, row=prompt.row | {"image": None, "source_image": None})
            turns.setdefault(prompt.row["turn"], []).append(light)
        return [turns[number] for number in sorted(turns)]


@dataclass(frozen=True)
class Candidate:
    """One edit: `name` is the fingerprint of all it depends on; `meta` has status, kind, reason and damage."""

    key: str
    task: str
    use: Literal["data", "benchmark"]
    name: str
    meta: dict[str, Any]
    suite: str | None = None

    @property
    def done(self) -> bool:
        return bool(self.meta["status"] == "done")


def edit_all(
    prompts: Iterable[EditPrompt],
    model: str,
    setting: Making,
    cache: resume.RecordCache,
    later: Sequence[Sequence[EditPrompt]] = (),
) -> tuple[list[Candidate], dict[str, Any]]:
    """One candidate for each prompt, in their order, and figures of the run that made what was missing. `prompts` is
    read twice, and the images are in the cache.

    later: the prompts of second turns, of third ones and so on, whose images are what came of the turns before.
    A failure that another try would only repeat is in the cache too; the others are tried again by the next run."""
    code = making.code(setting)
    metas: dict[str, dict[str, Any]] = {}
    candidates: list[Candidate] = []
    turns: dict[tuple[str, str, int], Candidate] = {}  # that are over
    missing: set[str] = set()

    def keep(name: str, outcome: Outcome) -> None:
        status = "done" if outcome.kind is None else "failed"
        metas[name] = {"status": status, "kind": outcome.kind, "reason": outcome.reason, "damage": outcome.damage}
        if outcome.lasting:
            metas[name] = cache.keep(name, metas[name], outcome.image)

    def before(prompt: EditPrompt) -> Candidate | None:
        suite, dialogue, number = prompt.turn or ("", "", 1)
        return turns.get((suite, dialogue, number - 1))

    def possible(group: Iterable[EditPrompt]) -> Iterator[EditPrompt]:
        """Those that can be asked: a later turn's with the image that came of the turn before."""
        for prompt in group:
            if prompt.turn is None or prompt.turn[2] == 1:
                yield prompt
            elif (last := before(prompt)) and last.done:
                yield replace(prompt, row=prompt.row | {"image": cache.data(last.name)})

    def requests(group: Iterable[EditPrompt], names: Sequence[str], wanted: set[str]) -> Requests:
        """The edits that are missing, each once."""
        for prompt, name in zip(possible(group), names, strict=True):
            if name in wanted:
                wanted.remove(name)
                row, seed = prompt.row, seed_of(setting.seed, model, prompt.row["key"])
                ask = None if isinstance(setting, settings.ProceduralSetting) else setting.ask
                instruction = with_score(row["instruction"], ask)
                more = tuple(records.references(row).values())
                yield name, Request(row["key"], instruction, row["image"], row["edit"], prompt.use, seed, more)

    def rounds() -> Iterator[Requests]:
        """The edits that are missing, turn by turn."""
        for group in (prompts, *later):
            asked = [(p.row["key"], p.row["task"], p.use, name_of(p, model, setting, code), p.suite, p.turn)
                     for p in possible(group)]  # fmt: skip
            names = [each[3] for each in asked]
            metas.update({name: meta for name in dict.fromkeys(names) if (meta := cache.meta(name)) is not None})
            missing.update(name for name in names if name not in metas)
            if missing:
                yield requests(group, names, set(missing))
                missing.clear()
            for key, task, use, name, suite, turn in asked:
                candidates.append(candidate := Candidate(key, task, use, name, metas[name], suite))
                turns.update({} if turn is None else {turn: candidate})
            for prompt in group if group is not prompts else ():
                if prompt.turn is not None and prompt.turn not in turns:
                    no_turn = {"kind": "no_edit", "reason": "the suite has no such case"}
                    lost = last.meta if (last := before(prompt)) else no_turn
                    meta = {"status": "failed", "damage": None}
                    meta |= {"kind": lost["kind"], "reason": f"the turn before: {lost['reason']}"}
                    row = prompt.row
                    turns[prompt.turn] = Candidate(row["key"], row["task"], prompt.use, "", meta, prompt.suite)
                    candidates.append(turns[prompt.turn])

    figures: dict[str, Any] = {}
    asked = rounds()
    if first := next(asked, None):
        figures = making.make(model, setting, chain([first], asked), len(missing) + sum(map(len, later)), keep)
    return candidates, figures


def name_of(prompt: EditPrompt, model: str, setting: Making, code: str) -> str:
    """The fingerprint of all that an edit depends on."""
    row, more = prompt.row, records.references(prompt.row).values()
    asked = row["key"], row["task"], row["instruction"], row["edit"], bytes(row["image"]), *map(bytes, more)
    most = setting.sources if isinstance(setting, settings.ApiSetting) else len(more) + 1
    too_many = [most] if len(more) >= most else []  # another number lets it be asked
    return resume.fingerprint(code, model, prompt.use, settings.decides(setting, prompt.use), *asked, *too_many)


def seed_of(seed: int, model: str, key: str) -> int:
    """The seed of one record and model, 0..2**63-1."""
    return int(resume.fingerprint(seed, model, key)[:16], 16) >> 1


def take_all(prompts: Iterable[EditPrompt], given: Given) -> list[Candidate]:
    """One candidate for each prompt from a user's own images; a candidate's name is the one that its image has there.

    An image is named by the prompt's key, or by the key that the prompt has in the user's own table, if no other prompt
    has that one. What is missing or cannot be decoded has failed with its reason."""
    found = []
    for prompt in prompts:
        key, task = prompt.row["key"], prompt.row["task"]
        own = key.removeprefix(f"{task}.").partition(".")[2] if key.startswith(f"{task}.") else ""
        name = own if own and given(key) == pictures.NO_IMAGE != given(own) else key
        row = pictures.candidate(key, task, "", given(name))
        meta: dict[str, Any] = {field: row[field] for field in ("status", "reason", "damage")} | {"kind": None}
        if meta["status"] == "failed":
            meta["kind"] = "missing" if meta["reason"] == pictures.NO_IMAGE else "unusable"
        else:
            try:
                shown = images.decode(bytes(prompt.row["image"])), images.decode(row["image"])
                meta["aspect_change"] = pictures.aspect_change(*shown)
            except images.ImageError as error:
                meta |= {"status": "failed", "kind": "bad_source", "reason": f"source: {error}"}
        found.append(Candidate(key, task, prompt.use, name, meta, prompt.suite))
    asked = Counter(c.name for c in found if c.name != c.key)
    for c in found:
        if c.name != c.key and asked[c.name] > 1 and c.done:
            reason = f"{asked[c.name]} prompts have the own key {c.name}: name their images by the whole key, {c.key}"
            c.meta.clear()
            c.meta.update(status="failed", kind="ambiguous", reason=reason, damage=None)
    return found


def rows(candidates: Iterable[Candidate], model: str, image_of: Callable[[str], Any]) -> Iterator[records.Row]:
    """The candidates' rows, the images by the candidates' names, one at a time."""
    for c in candidates:
        row = {"key": c.key, "task": c.task, "model": model, "image": bytes(image_of(c.name)) if c.done else None}
        yield row | {field: c.meta[field] for field in ("status", "reason", "damage")}


def counts(candidates: Sequence[Candidate]) -> dict[str, Any]:
    """How many candidates are done and failed, the failures' kinds and most frequent reasons, the mean known damage."""
    failed = [c.meta for c in candidates if not c.done]
    known = [c.meta["damage"] for c in candidates if c.meta["damage"] is not None]
    # The most frequent first, equals by name.
    kinds, reasons = (Counter(sorted(meta[name] for meta in failed)).most_common() for name in ("kind", "reason"))
    changed = [(c.key, c.meta["aspect_change"]) for c in candidates if c.meta.get("aspect_change") is not None]
    return {
        "records": len(candidates),
        "failed": len(failed),
        "kinds": [{"kind": kind, "records": number} for kind, number in kinds],
        "reasons": [{"reason": reason, "records": number} for reason, number in reasons[:REASONS]],
        "reasons_left_out": max(len(reasons) - REASONS, 0),
        "mean_known_damage": [round(float(np.mean(known)), 4)] if known else [],
        **({"aspect_changed": [{"key": key, "factor": factor} for key, factor in changed]} if changed else {}),
    }


def gap(candidates: Sequence[Candidate], model: str) -> unfinished.Gap:
    """The edits that another try may give."""
    missing = Counter(c.meta["kind"] for c in candidates if c.meta["kind"] not in (None, *LASTING))
    return unfinished.Gap(f"edits of {model}", missing, len(candidates), f"editors.{model}.budget")


def write(
    candidates: Sequence[Candidate],
    model: str,
    tasks: Iterable[str],
    image_of: Callable[[str], Any],
    suites: Sequence[str],
) -> dict[str, Any]:
    """The files of a model's candidates, of each task's pool, the arena and each suite, without a row where it is for
    the other use; what metrics say of those of the pools and the arena.

    What is said of the suites' goes to metrics/suite_candidates/<model>.json."""
    pools, gallery = {task: f"data/candidates/{model}/{task}" for task in tasks}, f"data/gallery/{model}"
    own = {suite: f"data/suite_gallery/{model}/{suite}" for suite in suites}
    found: dict[str, list[Candidate]] = {name: [] for name in (*pools.values(), gallery, *own.values())}
    for c in candidates:
        found[pools[c.task] if c.use == "data" else gallery if c.suite is None else own[c.suite]].append(c)
    for name, part in found.items():
        records.write(Path(f"{name}.parquet"), rows(part, model, image_of), "candidates")
    told = [{"suite": suite, **counts(found[name])} for suite, name in own.items()]
    records.write_details(Path(f"metrics/suite_candidates/{model}.json"), {"suites": told})
    return counts([c for c in candidates if c.suite is None])


def run(model: str) -> None:
    values = params.load()
    setting = settings.read(values, model)
    tasks, suites = params.leaf(values, "tasks"), [*(values.get("suites") or {})]
    report = Path(f"metrics/candidates/{model}.json")
    if isinstance(setting, FolderSetting):
        given = Given(Path(setting.path), setting.model or model)
        made = take_all(Prompts(tasks, suites, every=True, use=setting.use), given)
        there = {c.suite for c in made if c.done} | {None}  # of a suite only if there are any of it
        failed = (c for c in made if not c.done and c.suite in there)
        lacking = [{"key": c.key, "kind": c.meta["kind"], "reason": c.meta["reason"]} for c in failed]
        records.write_details(report, write(made, model, tasks, given, suites) | {"lacking": lacking})
        return
    prompts = Prompts(tasks, suites, use=setting.use)
    paid = isinstance(setting, settings.ApiSetting)
    with resume.RecordCache(work("candidates", f"{model}.sqlite"), paid) as cache:
        made, figures = edit_all(prompts, model, setting, cache, prompts.later())
        told = write(made, model, tasks, cache.data, suites)
        records.write_json(Path(f"metrics/resume/candidates_{model}.json"), figures | cache.counts())
    records.write_details(report, told)
    unfinished.check(values, "candidates", f"candidates@{model}", [gap(made, model)])


if __name__ == "__main__":
    stage(__doc__, run, "model")
