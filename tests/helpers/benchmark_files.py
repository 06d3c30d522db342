"""Reward benchmarks in their published forms: rows of a form, and ImagenHub's folder."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pictures import picture


def struct(seed: int) -> dict[str, Any]:
    """An image as the hub's Parquet files hold it."""
    return {"bytes": picture(seed), "path": None}


def save(folder: Path, **seeds: int) -> None:
    """Images on disk, `a__b__c=seed` being a/b/c.png."""
    for name, seed in seeds.items():
        file = folder / f"{name.replace('__', '/')}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(picture(seed))


def vcreward(**changes: Any) -> dict[str, Any]:
    row = {"key": "k1", "task": "color_alter", "instruction": "Make it red.", "winner": "Image B"}
    return row | {"source_image": struct(0), "edited_images": [struct(1), struct(2)]} | changes


def editscore(first: str, second: str, dimension: str = "consistency") -> dict[str, Any]:
    row = {"key": [first, second], "instruction": "Add a hat.", "task_type": "subject-add", "dimension": dimension}
    return row | {"input_image": struct(0), "output_images": [struct(1), struct(2)]}


def editreward(identity: str, dataset: str, ranking: str, comparison: str | None) -> dict[str, Any]:
    row = {"id": identity, "dataset": dataset, "ranking": ranking, "comparison_type": comparison, "instruction": "Go."}
    return row | {"source_image": struct(0), "candidate_1": struct(1), "candidate_2": struct(2)}


def genai(vote: str, before: str = "") -> dict[str, Any]:
    """before: the source's caption."""
    row = {"instruct_prompt": "Go.", "source_prompt": before, "target_prompt": "A red cup.", "vote_type": vote}
    row |= {"left_model": "m1", "right_model": "m2", "source_image": struct(0)}
    return row | {"left_output_image": struct(1), "right_output_image": struct(2)}


def mmrb2(key: str, chosen: str, images: int = 1) -> dict[str, Any]:
    """Of files named by their numbers. images: those of the prompt."""
    sides = {f"response_{s}": {"response_content": [["image", f"{k}.png"]]} for s, k in (("a", 1), ("b", 2))}
    prompt = [*(["image", f"{k}.png"] for k in range(images)), ["text", "Go."]]
    return {"id": key, "prompt_source": "emu-edit", "prompt_content": prompt, "chosen": chosen} | sides


def imagenhub(folder: Path, raters: Mapping[str, Mapping[str, Mapping[str, str]]]) -> Path:
    """raters: by name, what each says of each model's edit of each sample. The first model's images are png(1), ..."""
    samples = next(iter(raters.values()))
    models = list(next(iter(samples.values())))
    for seed, name in enumerate(("input", *models)):
        save(folder, **{f"{name}__{sample}": seed for sample in samples})
    for rater, said in raters.items():
        lines = ["\t".join([f"{sample}.png", *cells.values()]) for sample, cells in said.items()]
        (folder / f"{rater}.tsv").write_text("\n".join(["\t".join(["uid", *models]), *lines, ""]))
    told = {f"{sample}.png": {"instruction": "Go."} for sample in samples}
    (folder / "dataset_lookup.json").write_text(json.dumps(told))
    return folder
