"""Stage annotate: what is known of every candidate of one task: its region measures, or a VLM's verdicts on pairs.

A prompt's source is decoded and encoded once for all its candidates. A record whose inputs, recipe, models and code are
as they were is taken from work/; one that cannot be measured is a failed record with a reason."""

import hashlib
from collections import Counter, deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from editjudge.core import params, records
from editjudge.core.files import work
from editjudge.core.main import stage
from editjudge.core.masks import of_rows
from editjudge.core.settings import section
from editjudge.editors.settings import used
from editjudge.engine import resume, unfinished
from editjudge.grounding.grounding import Grounded, Grounding, ground
from editjudge.grounding.settings import GroundingSetting
from editjudge.labels import verdicts as pairwise
from editjudge.measures.annotation import batch, slot_settings, slots
from editjudge.measures.annotation.recipe import Recipe, load_recipe
from editjudge.measures.annotation.slot_settings import SlotSetting
from editjudge.models.endpoint.spending import run_report

Rows = list[records.Row]
REGIONS = "regions: "  # begins the reason of what was not measured for want of them


@dataclass(frozen=True)
class Pool:
    """A task's prompts, each with its candidates, models in order of their names; read from their files anew each time:
    a row group of each is in memory at a time, and no image."""

    task: str
    models: tuple[str, ...]

    def __iter__(self) -> Iterator[tuple[records.Row, Rows]]:
        files = [Path(f"data/candidates/{model}/{self.task}.parquet") for model in sorted(self.models)]
        prompts = records.iterate(Path(f"data/pools/{self.task}.parquet"), "pools", "image")
        return records.beside(prompts, [records.iterate(file, "candidates", "image") for file in files])


def own_boxes(prompt: records.Row) -> Grounded:
    """The record's own boxes, which hold for the source and for each edit of it."""
    boxes, masks = of_rows(prompt["regions"])
    return Grounded(boxes, boxes, masks=masks)


def annotate(
    pool: Iterable[tuple[records.Row, Rows]],
    recipe: Recipe,
    cache: resume.RecordCache,
    setting: SlotSetting | None = None,
    where: Grounding | None = None,
) -> Iterator[records.Row]:
    """One annotation a candidate, as they are made: prompt by prompt in the pool's order, and its candidates in theirs.

    setting: the models; None: the embedded ones. where: where the edits are; None: in the record's own boxes. Raises
    ParamsError, before any work, for a model that cannot be loaded."""
    where = where or Grounding(own=own_boxes)
    measured = deque[tuple[records.Image, Rows, dict[str, Grounded]]]()  # of a prompt: image, candidates, regions

    def asked() -> Iterator[batch.Original]:
        for prompt, rows in pool:
            done = [row for row in rows if row["status"] == "done"]
            at = where.of(prompt, done)
            measured.append((prompt["image"], rows, at))
            usable = [(row, at[row["model"]]) for row in done if at[row["model"]].reason is None]
            edits = tuple(batch.Altered(row["image"], its.edited, its.attributes) for row, its in usable)
            first = usable[0][1] if usable else Grounded()
            yield batch.Original(prompt["image"], first.source, recipe, edits, first.masks)

    what = f"annotations of {recipe.task}"
    for metas in batch.measure_all(asked(), [recipe], setting or SlotSetting(), cache, what):
        image, rows, at = measured.popleft()
        source, found = sha256(image), iter(metas)
        for row in rows:
            if row["status"] != "done":
                meta = batch.failed(f"candidate: {row['reason']}")
            elif (reason := at[row["model"]].reason) is not None:
                meta = batch.failed(f"{REGIONS}{reason}")
            else:
                meta = next(found)
            known = {field: row[field] for field in ("key", "task", "model", "damage")}
            yield known | meta | {"source_sha256": source, "edit_sha256": sha256(row["image"])}


def sha256(image: records.Image | None) -> str | None:
    """A file's SHA-256 (hex), by which training knows the images that were measured; None where there is no file."""
    return None if image is None else hashlib.sha256(bytes(image)).hexdigest()


def counts(
    rows: Iterable[records.Row], recipe: Recipe, setting: SlotSetting, where: Grounding | None = None
) -> dict[str, Any]:
    """How many candidates were measured and failed and why, how many values each measure has, and which it lacks.

    where: as that of annotate; regions that were not found are counted by kind, since what an endpoint says in the
    place of an answer is another text in each run.
    left_out: of candidates that were measured, those of which the measure was not taken, as the instruction changes
    what it looks at or the area is next to nothing. not_configured: measures of the recipe, with the slots missing."""
    own = slot_settings.configured(recipe, setting).areas
    scored = Counter({(area, name): 0 for area, names in own for name in names})
    lacking, reasons, unscored, records_read = scored.copy(), Counter[str](), Counter[tuple[str, str]](), 0
    for row in rows:
        records_read += 1
        if row["status"] == "failed" and not (where and row["reason"].startswith(REGIONS)):
            reasons[row["reason"]] += 1
        for m in row["measures"]:
            (scored if m["value"] is not None else lacking)[m["area"], m["measure"]] += 1
            unscored.update([] if m["value"] is not None else [(m["measure"], m["reason"])])
    reasons.update({f"{REGIONS}{kind}": number for kind, number in (where.failed() if where else {}).items()})
    measured = records_read - reasons.total()
    return {
        "records": records_read,
        "failed": reasons.total(),
        "reasons": [{"reason": reason, "records": number} for reason, number in sorted(reasons.items())],
        "measures": [
            {"area": area, "measure": name, "scored": scored[area, name], "unscored": lacking[area, name]}
            | {"left_out": measured - scored[area, name] - lacking[area, name]}
            for area, name in sorted({*scored, *lacking})
        ],
        "unscored_reasons": [
            {"measure": name, "reason": reason, "values": n} for (name, reason), n in sorted(unscored.items())
        ],
        "not_configured": [
            {"area": area, "measure": name, "slots": list(missing)}
            for area, names in recipe.areas
            for name in names
            if (missing := slot_settings.lacking(name, setting))
        ],
    }


def memory_gap(rows: Iterable[records.Row]) -> unfinished.Gap:
    """The annotations that lack boxes or a value because a model had too little memory."""
    lacking = [batch.lacks_memory(row) for row in rows]
    return unfinished.Gap("annotations", Counter(memory=sum(lacking)), len(lacking), "")


def run(task: str) -> None:
    values = params.load()
    recipe = load_recipe(Path(f"pipelines/{params.leaf(values, f'tasks.{task}')}/{task}.yaml"))
    setting = section(values, "measures", SlotSetting)
    slots.check(slot_settings.used(recipe, setting), setting)
    opened = pairwise.open_judges(recipe, params.leaf(values, "pairwise.judges"))
    accounts = {name: judge.account for name, judge in opened.items()}
    models = tuple(used(params.leaf(values, "editors"), "pools"))
    pool, out = Pool(task, models), Path(f"data/annotations/{task}.parquet")
    with resume.RecordCache(work("annotate", f"{task}.sqlite"), paid=True) as cache:
        where = ground(pool, recipe, section(values, "grounding", GroundingSetting), cache)
        records.write(out, annotate(pool, recipe, cache, setting, where), "annotations")
        judged = [*pool] if recipe.judge else []
        asked = [prompt for prompt, _ in judged], [row for _, rows in judged for row in rows]
        verdicts = pairwise.annotate_pairs(*asked, recipe, opened)
        figures = cache.counts() | where.run_report() | {"judges": run_report(accounts)}
        records.write_json(Path(f"metrics/resume/annotate_{task}.json"), figures)
    records.write(Path(f"data/pair_verdicts/{task}.parquet"), verdicts, "pair_verdicts")
    report = counts(records.iterate(out, "annotations"), recipe, setting, where) | {"regions": [where.report()]}
    report |= pairwise.counts(*asked, verdicts, accounts)
    records.write_details(Path(f"metrics/annotate/{task}.json"), report)
    gaps = [account.gap(f"grounding.{role}") for role, account in where.accounts.items()]
    gaps += [account.gap(f"{pairwise.SECTION}.{name}") for name, account in accounts.items()]
    gaps += [memory_gap(records.iterate(out, "annotations"))]
    unfinished.check(values, "annotate", f"annotate@{task}", gaps)


if __name__ == "__main__":
    stage(__doc__, run, "task")
