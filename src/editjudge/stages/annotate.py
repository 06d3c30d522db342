"""Stage annotate: what is known of every candidate of one task: its region measures, or a VLM's verdicts on pairs.

A prompt's source is decoded and encoded once for all its candidates. A record whose inputs, recipe, models and code are
as they were is taken from work/; one that cannot be measured is a failed record with a reason."""

import hashlib
from collections import Counter
from collections.abc import Mapping
from itertools import chain
from pathlib import Path
from typing import Any

from editjudge.core import params, records
from editjudge.core.files import work
from editjudge.core.main import stage
from editjudge.core.masks import of_rows
from editjudge.core.settings import section
from editjudge.engine import resume, unfinished
from editjudge.grounding.grounding import Grounded, ground
from editjudge.grounding.settings import GroundingSetting
from editjudge.labels import verdicts as pairwise
from editjudge.measures.annotation import batch, slot_settings, slots
from editjudge.measures.annotation.recipe import Recipe, load_recipe
from editjudge.measures.annotation.slot_settings import SlotSetting
from editjudge.models.endpoint.spending import run_report

Rows = list[records.Row]


def annotate(
    prompts: Rows,
    candidates: Rows,
    recipe: Recipe,
    cache: resume.RecordCache,
    setting: SlotSetting | None = None,
    grounded: Mapping[tuple[str, str], Grounded] | None = None,
) -> Rows:
    """One annotation a candidate: prompt by prompt in the pool's order, models in order of their names.

    setting: the models; None: the embedded ones. grounded: where the edit of each candidate (key, model) is; None: in
    the record's own boxes. Raises ParamsError, before any work, for a model that cannot be loaded."""
    by_prompt: dict[str, Rows] = {p["key"]: [] for p in prompts}
    for row in sorted(candidates, key=lambda row: row["model"]):
        by_prompt[row["key"]].append(row)
    if (where := grounded) is None:  # the record's own boxes hold for the source and for each edit of it
        found = {p["key"]: of_rows(p["regions"]) for p in prompts}
        own = {key: Grounded(boxes, boxes, masks=masks) for key, (boxes, masks) in found.items()}
        where = {(row["key"], row["model"]): own[row["key"]] for row in candidates}
    asked, measured = list[batch.Original](), list[tuple[str, str]]()
    for p in prompts:
        done = [row for row in by_prompt[p["key"]] if row["status"] == "done"]
        usable = [(row, at) for row in done if (at := where[row["key"], row["model"]]).reason is None]
        edits = tuple(batch.Altered(row["image"], at.edited, at.attributes) for row, at in usable)
        first = usable[0][1] if usable else Grounded()
        asked.append(batch.Original(p["image"], first.source, recipe, edits, first.masks))
        measured += [(row["key"], row["model"]) for row, _ in usable]
    taken = batch.measure_all(asked, setting or SlotSetting(), cache, f"annotations of {recipe.task}")
    metas = dict(zip(measured, chain.from_iterable(taken), strict=True))
    annotations = []
    for p in prompts:
        source = sha256(p["image"])
        for row in by_prompt[p["key"]]:
            name = row["key"], row["model"]
            if row["status"] != "done":
                meta = batch.failed(f"candidate: {row['reason']}")
            else:
                meta = metas[name] if name in metas else batch.failed(f"regions: {where[name].reason}")
            known = {field: row[field] for field in ("key", "task", "model", "damage")}
            annotations.append(known | meta | {"source_sha256": source, "edit_sha256": sha256(row["image"])})
    return annotations


def sha256(image: records.Image | None) -> str | None:
    """A file's SHA-256 (hex), by which training knows the images that were measured; None where there is no file."""
    return None if image is None else hashlib.sha256(bytes(image)).hexdigest()


def counts(
    rows: Rows, recipe: Recipe, setting: SlotSetting, where: Mapping[tuple[str, str], Grounded] | None = None
) -> dict[str, Any]:
    """How many candidates were measured and failed and why, how many values each measure has, and which it lacks.

    where: as `grounded` of annotate; regions that were not found are counted by kind, since what an endpoint says in
    the place of an answer is another text in each run.
    left_out: of candidates that were measured, those of which the measure was not taken, as the instruction changes
    what it looks at or the area is next to nothing. not_configured: measures of the recipe, with the slots missing."""
    values: dict[tuple[str, str], list[float | None]] = {
        (area, name): [] for area, names in slot_settings.configured(recipe, setting).areas for name in names
    }
    for m in (m for row in rows for m in row["measures"]):
        values[m["area"], m["measure"]].append(m["value"])
    reasons = Counter[str]()
    for row in (row for row in rows if row["status"] == "failed"):
        grounded = (where or {}).get((row["key"], row["model"]), Grounded())
        reasons[str(row["reason"]) if grounded.kind is None else f"regions: {grounded.kind}"] += 1
    unscored = Counter((m["measure"], m["reason"]) for row in rows for m in row["measures"] if m["value"] is None)
    measured = len(rows) - reasons.total()
    return {
        "records": len(rows),
        "failed": reasons.total(),
        "reasons": [{"reason": reason, "records": number} for reason, number in sorted(reasons.items())],
        "measures": [
            {"area": area, "measure": name, "scored": len(v) - v.count(None), "unscored": v.count(None)}
            | {"left_out": measured - len(v)}
            for (area, name), v in sorted(values.items())
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


def memory_gap(rows: Rows) -> unfinished.Gap:
    """The annotations that lack boxes or a value because a model had too little memory."""
    return unfinished.Gap("annotations", Counter(memory=sum(map(batch.lacks_memory, rows))), len(rows), "")


def run(task: str) -> None:
    values = params.load()
    recipe = load_recipe(Path(f"pipelines/{params.leaf(values, f'tasks.{task}')}/{task}.yaml"))
    setting = section(values, "measures", SlotSetting)
    grounding = section(values, "grounding", GroundingSetting)
    slots.check(slot_settings.used(recipe, setting), setting)
    opened = pairwise.open_judges(recipe, params.leaf(values, "pairwise.judges"))
    accounts = {name: judge.account for name, judge in opened.items()}
    files = [Path(f"data/candidates/{model}/{task}.parquet") for model in sorted(params.leaf(values, "editors"))]
    prompts = list(records.iterate(Path(f"data/pools/{task}.parquet"), "pools", "image"))
    candidates = [row for file in files for row in records.iterate(file, "candidates", "image")]
    with resume.RecordCache(work("annotate", f"{task}.sqlite")) as cache:
        where = ground(prompts, candidates, recipe, grounding, cache)
        rows = annotate(prompts, candidates, recipe, cache, setting, where.found)
        verdicts = pairwise.annotate_pairs(prompts, candidates, recipe, opened)
        figures = cache.counts() | where.run_report() | {"judges": run_report(accounts)}
        records.write_json(Path(f"metrics/resume/annotate_{task}.json"), figures)
    records.write(Path(f"data/annotations/{task}.parquet"), rows, "annotations")
    records.write(Path(f"data/pair_verdicts/{task}.parquet"), verdicts, "pair_verdicts")
    report = counts(rows, recipe, setting, where.found) | {"regions": [where.report()]}
    report |= pairwise.counts(prompts, candidates, verdicts, accounts)
    records.write_details(Path(f"metrics/annotate/{task}.json"), report)
    gaps = [account.gap(f"grounding.{role}") for role, account in where.accounts.items()]
    gaps += [account.gap(f"{pairwise.SECTION}.{name}") for name, account in accounts.items()]
    unfinished.check(values, "annotate", f"annotate@{task}", [*gaps, memory_gap(rows)])


if __name__ == "__main__":
    stage(__doc__, run, "task")
