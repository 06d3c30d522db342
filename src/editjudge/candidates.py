"""Stage candidates: one editing model's edits of all pools and of the arena's prompts.

A record whose inputs, settings and code are as they were is taken from work/. An edit that fails is a record with a
reason, and the run goes on.
"""

import argparse
from pathlib import Path
from typing import Any

import numpy as np

from editjudge import images, params, records, resume
from editjudge.editors import procedural

CODE = ("editjudge.editors.procedural", "editjudge.editors.operations", "editjudge.images", "editjudge.regions")


def edit_prompts(setting: dict[str, Any], payloads: list[dict[str, Any]]) -> list[resume.Result]:
    """The edits of some prompts by one model."""
    return [edit_prompt(setting, payload) for payload in payloads]


def edit_prompt(setting: dict[str, Any], payload: dict[str, Any]) -> resume.Result:
    """Carry out one edit. The random numbers depend on the seed, the model and the key alone."""
    rng = np.random.default_rng([setting["seed"], *resume.fingerprint(payload["model"], payload["key"]).encode()])
    try:
        source, edit = images.decode(payload["image"]), procedural.parse_edit(payload["edit"])
        edited = procedural.edit_image(source, edit, setting["kind"], setting["amount"], rng)
    except ValueError as error:
        return {"status": "failed", "reason": str(error), "damage": None}, None
    return {"status": "done", "reason": None, "damage": round(edited.damage, 4)}, images.encode_png(edited.image)


def edit_all(
    prompts: list[records.Row], model: str, setting: dict[str, Any], cache: resume.RecordCache
) -> list[records.Row]:
    """One candidate for each prompt, in the prompts' order."""
    code = resume.code_version(CODE)
    jobs = []
    for p in prompts:
        name = resume.fingerprint(code, model, setting, p["key"], p["instruction"], p["edit"], p["image"])
        payload = {"key": p["key"], "image": p["image"], "edit": p["edit"], "model": model}
        jobs.append(resume.Job(setting, ((name, payload),)))
    results = resume.run(jobs, edit_prompts, cache, f"candidates of {model}")
    return [
        {"key": p["key"], "task": p["task"], "model": model, "image": data} | meta
        for p, [(meta, data)] in zip(prompts, results, strict=True)
    ]


def counts(rows: list[records.Row]) -> dict[str, Any]:
    """How many candidates are done and failed, the failures' reasons, and the mean known damage."""
    reasons = [row["reason"] for row in rows if row["status"] == "failed"]
    known = [row["damage"] for row in rows if row["damage"] is not None]
    return {
        "records": len(rows),
        "failed": len(reasons),
        "reasons": [{"reason": reason, "records": reasons.count(reason)} for reason in sorted(set(reasons))],
        "mean_known_damage": [round(float(np.mean(known)), 4)] if known else [],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", required=True)
    model = parser.parse_args().model
    values = params.load()
    tasks, setting = params.leaf(values, "tasks"), params.leaf(values, f"editors.{model}")
    pools = [row for task in tasks for row in records.iterate(Path(f"data/pools/{task}.parquet"), "pools")]
    arena = [records.prompt_of(row) for row in records.iterate(Path("data/gedit_bench.parquet"), "gedit_bench")]
    with resume.RecordCache(Path(f"work/candidates/{model}.sqlite")) as cache:
        rows = edit_all(pools + arena, model, setting, cache)
        records.write_json(Path(f"metrics/resume/candidates_{model}.json"), cache.counts())
    records.write(Path(f"data/candidates/{model}.parquet"), rows[: len(pools)], "candidates")
    records.write(Path(f"data/gallery/{model}.parquet"), rows[len(pools) :], "candidates")
    records.write_json(Path(f"metrics/candidates/{model}.json"), counts(rows))


if __name__ == "__main__":
    main()
