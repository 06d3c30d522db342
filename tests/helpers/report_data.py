"""A small state of the graph for the report: metrics and plots as committed, and data made here, of any size."""

import hashlib
import itertools
from pathlib import Path
from typing import Any

import numpy as np
from small_repro import arena_row

from editjudge.core import images, masks, params, records
from editjudge.core.settings import section
from editjudge.labels.tiers import PairsSetting, rules_of
from editjudge.measures.annotation import slot_settings
from editjudge.measures.annotation.recipe import load_recipe
from editjudge.measures.annotation.slot_settings import SlotSetting
from editjudge.stages import train_pairs

ROOT = Path(__file__).parents[2]
TASK = "color_alter"
DAMAGE: dict[str, float | None] = {"precise": 0.0, "leaky": 1.5, "box": 3.0, "shifted": 6.0, "unedited": 0.0}
DAMAGE["broken"] = None
SCRIPT = "</script><script>window.stolen = 1</script><img src=x onerror='window.stolen = 1'>"
LONG = "w" * 5000
RIGHT_TO_LEFT = "غيّر لون السماء \u202e abc"
HOSTILE = (SCRIPT, LONG, RIGHT_TO_LEFT)
MEASURES = (
    ("unedit_area", "ssim", -0.05),
    ("unedit_area", "emd_both_sides", 0.1),
    ("unedit_area", "delta_e", 1.0),
    ("edit_area", "L_channel_ssim", -0.02),
    ("edit_area", "structure_similarity", -0.02),
)  # area, measure, what a unit of damage does to it
SIDES = ("Image A", "Image B")
WINNERS = {1: SIDES[0], -1: SIDES[1], 0: "Tie"}


def values() -> dict[str, Any]:
    """params.yaml with one task, the models of DAMAGE and the probe alone."""
    found = params.load(ROOT / "params.yaml")
    found["tasks"] = {TASK: found["tasks"][TASK]}
    found["editors"] = {model: {} for model in DAMAGE}
    found["imported"] = {}
    del found["benchmarks"]["probe_easy"]
    return found


def write(folder: Path, prompts: int = 4, side: int = 48) -> dict[str, Any]:
    """Fills a folder with what the report reads, and returns its params. The first instructions are HOSTILE."""
    for name in ("metrics", "plots", "pipelines", "dvc.yaml", "stages"):
        (folder / name).symlink_to(ROOT / name)
    rng = np.random.default_rng(0)
    rows = [_prompt(n, side, rng) for n in range(prompts)]
    edits = {row["key"]: _edits(row, rng) for row in rows}

    def write_row(name: str, found: list[records.Row], contract: str) -> None:
        records.write(folder / "data" / name, found, contract)

    another = {"shown": [{"name": "source_2", "image": rows[0]["image"]}]}  # of the third prompt
    write_row(f"pools/{TASK}.parquet", [row | (another if n == 2 else {}) for n, row in enumerate(rows)], "pools")
    for model in DAMAGE:
        for name in (f"candidates/{model}/{TASK}", f"gallery/{model}"):
            write_row(f"{name}.parquet", [edits[row["key"]][model] for row in rows], "candidates")
    annotations = [_annotation(row, edits[row["key"]][model], rng) for row in rows for model in sorted(DAMAGE)]
    write_row(f"annotations/{TASK}.parquet", annotations, "annotations")
    write_row(f"pair_verdicts/{TASK}.parquet", [], "pair_verdicts")
    write_row("train_pairs.parquet", pairs_of(values(), TASK, annotations, rows), "train_pairs")
    write_row("gedit_bench.parquet", [arena_row(row) for row in rows], "gedit_bench")
    write_row("matches.parquet", [match for row in rows for match in _matches(row["key"], rng)], "matches")
    bench = [_item(row, edits[row["key"]]) for row in rows]
    verdicts = [_verdict(item, judge, rng) for judge in ("pvc_judge", "base") for item in bench]
    write_row("probe_bench.parquet", bench, "vcreward_bench")
    write_row("verdicts/probe.parquet", verdicts, "verdicts")
    return values()


def _prompt(n: int, side: int, rng: np.random.Generator) -> records.Row:
    pixels = rng.integers(0, 255, (side, side + 16, 3), dtype=np.uint8)
    mask = np.zeros(pixels.shape[:2], bool)
    mask[8:24, 10:30] = True
    region = {"box": [10, 8, 30, 24], "label": "thing", "mask": masks.mask_png(mask) if n % 2 else None}
    said = HOSTILE[n] if n < len(HOSTILE) else f"Recolour thing {n} in teal."
    named = {"key": f"{TASK}-{n:05d}", "task": TASK, "instruction": said, "origin": f"photo{n % 4}", "source": "probe"}
    return named | {"image": images.encode_png(pixels), "regions": [region], "edit": None}


def _edits(row: records.Row, rng: np.random.Generator) -> dict[str, records.Row]:
    source = images.decode(row["image"]).astype(np.int16)
    found = {}
    for model, damage in DAMAGE.items():
        noise = rng.normal(0, 4 * (damage or 0.1), source.shape)
        image = None if damage is None else images.encode_png((source + noise).clip(0, 255).astype(np.uint8))
        status, reason = ("done", None) if image else ("failed", "timeout: no <b>answer</b>")
        found[model] = {"key": row["key"], "task": TASK, "model": model, "image": image, "damage": damage}
        found[model] |= {"status": status, "reason": reason}
    return found


def _annotation(row: records.Row, edit: records.Row, rng: np.random.Generator) -> records.Row:
    done, damage = edit["status"] == "done", edit["damage"] or 0.0
    values_ = [0.9 + slope * (damage + rng.normal(0, 0.2)) for *_, slope in MEASURES] if done else []
    measures = [
        {"area": area, "measure": name, "value": value, "reason": None}
        for (area, name, _), value in zip(MEASURES, values_, strict=False)
    ]
    return {name: edit[name] for name in ("key", "task", "model", "status", "reason", "damage")} | {
        "measures": measures,
        "change": None if not done else 0.1 if edit["model"] == "unedited" else 25.0,
        "edited_area_ratio": 0.2 if done else None,
        "source_sha256": hashlib.sha256(row["image"]).hexdigest(),
        "edit_sha256": hashlib.sha256(edit["image"]).hexdigest() if done else None,
    }


def pairs_of(
    given: dict[str, Any], task: str, annotations: list[records.Row], prompts: list[records.Row]
) -> list[records.Row]:
    """The training pairs of a task by measures. given: the parameters; annotations: those of the task."""
    setting = section(given, "train_pairs", PairsSetting)
    recipe = load_recipe(ROOT / f"pipelines/{given['tasks'][task]}/{task}.yaml")
    rules = rules_of(recipe, setting, slot_settings.unconfigured(section(given, "measures", SlotSetting)))
    chosen, _ = train_pairs.choose(annotations, vars(setting), rules)
    asked = {row["key"]: row["instruction"] for row in prompts}
    return train_pairs.to_rows(chosen, asked, annotations, setting.seed)


def _said(truth: int, rng: np.random.Generator) -> dict[str, Any]:
    """What a judge says that is right in three of four orders, and now and then nothing."""
    if rng.random() < 0.1:
        nothing = dict.fromkeys(("forward", "backward", "winner", "p_a"))
        return nothing | {"reason": "forward order: a reply that is no JSON", "score_a": None, "score_b": None}
    forward, backward = (truth if rng.random() < 0.75 else -truth for _ in range(2))
    winner = forward if forward == backward else 0
    said = {"forward": WINNERS[forward], "backward": WINNERS[backward], "winner": WINNERS[winner]}
    said |= {"p_a_forward": 0.5 + 0.25 * forward, "p_a_backward": 0.5 + 0.25 * backward}
    said["said"] = "A shown first: it <b>keeps</b> more.\n\nB shown first, as Image A: likewise."
    return said | {"p_a": 0.5 + 0.125 * (forward + backward), "reason": None, "score_a": None, "score_b": None}


def _matches(key: str, rng: np.random.Generator) -> list[records.Row]:
    found = []
    whole = sorted(model for model, damage in DAMAGE.items() if damage is not None)
    for (a, b), judge in itertools.product(itertools.combinations(whole, 2), ("measures", "pvc_judge")):
        first, second = DAMAGE[a] or 0.0, DAMAGE[b] or 0.0
        named = {"key": f"{key}_pair_{a}_vs_{b}", "prompt": key, "origin": "photo", "task": TASK, "judge": judge}
        named |= {"dimension": "visual_consistency", "model_a": a, "model_b": b, "damage_a": first, "damage_b": second}
        found.append(named | _said(1 if first <= second else -1, rng))
    return found


def _item(row: records.Row, edits: dict[str, records.Row]) -> records.Row:
    models = ["precise", "box"]
    shown = [{"bytes": image, "path": None} for image in (row["image"], *(edits[name]["image"] for name in models))]
    kept = {name: row[name] for name in ("key", "task", "instruction", "origin")}
    kept |= {"source_image": shown[0], "edited_images": shown[1:], "models": models, "damages": [0.0, 3.0]}
    return kept | {"winner": SIDES[0], "regions": [{"box": [10, 8, 30, 24], "label": "thing"}]}


def _verdict(item: records.Row, judge: str, rng: np.random.Generator) -> records.Row:
    said = _said(1, rng)
    named = {"key": item["key"], "task": TASK, "judge": judge, "truth": "Image A", "label": "Image A"}
    return named | said | {"cluster": item["origin"], "answer": said["winner"]}
