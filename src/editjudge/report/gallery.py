"""The pairs of the gallery: training pairs and why others are none, benchmark items and matches with their verdicts.

Sides are "A" and "B", a tie is "T", no verdict is None. A pair's `judged` is a list of JUDGED columns for each judge.
"""

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations, zip_longest
from typing import Any

import cv2
import numpy as np

from editjudge.benchmarks.preferences.item import Item
from editjudge.core import records
from editjudge.core.images import ImageError
from editjudge.core.keys import plain
from editjudge.core.masks import of_rows, png_mask
from editjudge.labels import tiers
from editjudge.labels.rules import PairsSetting
from editjudge.measures.names import DIRECTIONS
from editjudge.report.pictures import Pictures

Rows = Sequence[records.Row]
TRAINING, ARENA = "training", "arena"
JUDGED = ("judge", "dimension", "forward", "backward", "winner", "p_a", "reason", "p_forward", "p_backward")
CODES = {"Image A": "A", "Image B": "B", "Tie": "T", None: None}


@dataclass
class Prompt:
    """A source with an instruction, edits of it by name, and pairs of them, as the page has them.

    kind: TRAINING, ARENA or the name of a benchmark. boxes, outlines: where the edit is sought, in the source's pixels.
    """

    kind: str
    task: str
    key: str
    edits: dict[str, dict[str, Any]]
    pairs: list[dict[str, Any]]
    instruction: str = ""
    source: int | None = None
    boxes: Sequence[Sequence[int]] = ()
    outlines: list[list[list[int]]] = field(default_factory=list)

    def show(self, instruction: str, image: bytes | None, regions: Any, pictures: Pictures) -> None:
        """Takes what the prompt's own row says. regions: as in the contracts, with box and mask."""
        boxes, masks = of_rows(regions)
        self.instruction, self.source = instruction, pictures.add(image)
        self.boxes, self.outlines = boxes, [outline for mask in masks for outline in outlines_of(mask)]

    def row(self) -> dict[str, Any]:
        """As JSON; edits in order of their names, pairs with the numbers of theirs."""
        names = list(self.edits)
        pairs = [pair | {side: names.index(pair[side]) for side in "ab"} for pair in self.pairs]
        return vars(self) | {"edits": [{"model": name} | edit for name, edit in self.edits.items()], "pairs": pairs}


def outlines_of(mask: bytes) -> list[list[list[int]]]:
    """The outlines of what a mask (PNG) shows, as points x, y; none where it cannot be read."""
    try:
        shown = png_mask(mask).astype(np.uint8)
    except ImageError:
        return []
    found, _ = cv2.findContours(shown, cv2.RETR_LIST, cv2.CHAIN_APPROX_SIMPLE)
    return [cv2.approxPolyDP(each, 1.0, True)[:, 0].tolist() for each in found]


def brief(value: float | None) -> float | None:
    """At four significant digits, which is what a page shows."""
    return None if value is None else float(f"{value:.4g}")


def less_damaged(a: float | None, b: float | None) -> str | None:
    """The side whose known damage is less; None where one is not known or both are equal."""
    return None if a is None or b is None or a == b else "A" if a < b else "B"


def judged(row: Mapping[str, Any], judges: list[str]) -> list[Any]:
    """What a judge said of a pair, as JUDGED. judges: their names by number; a new one is added."""
    if row["judge"] not in judges:
        judges.append(row["judge"])
    sides = [CODES[row[name]] for name in ("forward", "backward", "winner")]
    sure = [brief(row.get(name)) for name in ("p_a", "p_a_forward", "p_a_backward")]
    return [judges.index(row["judge"]), row.get("dimension"), *sides, sure[0], row["reason"], *sure[1:]]


# --- training pairs


def training(
    task: str,
    annotations: Rows,
    verdicts: Rows,
    pairs: Rows,
    rules: Sequence[tiers.AreaRule],
    setting: PairsSetting,
    judges: list[str],
) -> list[Prompt]:
    """The task's prompts with every two candidates. verdicts: of VLM judges, where there are no rules."""
    taken: dict[str, dict[frozenset[str], records.Row]] = {}
    for pair in pairs:
        taken.setdefault(pair["prompt"], {})[frozenset((pair["model_a"], pair["model_b"]))] = pair
    said = records.grouped(verdicts, "key")
    columns = columns_of(annotations)
    found = []
    for key, rows in records.grouped(annotations, "key").items():
        made = taken.get(key, {})
        edits, graded, counted = edits_of(rows, columns, rules, setting)
        if rules:
            given = by_measures(key, edits, graded, counted, made, setting)
        else:
            given = [by_judges(row, made, judges) for row in said.get(key, ())]
        found.append(Prompt(TRAINING, task, key, edits, given))
    return found


def columns_of(annotations: Rows) -> list[tuple[str, str]]:
    """The areas and measures that the annotations have, in their order."""
    return list(dict.fromkeys((m["area"], m["measure"]) for row in annotations for m in row["measures"]))


def edits_of(
    rows: Rows, columns: Sequence[tuple[str, str]], rules: Sequence[tiers.AreaRule], setting: PairsSetting
) -> tuple[dict[str, dict[str, Any]], list[tiers.Graded], Sequence[tiers.AreaRule]]:
    """The candidates of a prompt by model, those among them that have a tier, and the rules that count.

    values, z: of each column; z over the candidates that were measured and edited, higher being better.
    """
    edited = tiers.edited(rows, setting.least_change, Counter())
    scored, counted = tiers.counted(edited, rules) if rules else ([], rules)
    graded = tiers.grade(scored, counted)
    by_model = {each.candidate.model: each for each in graded}
    names = {each.model for each in edited}
    values = {row["model"]: {(m["area"], m["measure"]): m for m in row["measures"]} for row in rows}
    zs = {
        column: standard({name: values[name].get(column, {}).get("value") for name in names}, column[1])
        for column in columns
    }
    edits = {}
    for row in sorted(rows, key=lambda row: row["model"]):
        model, own = row["model"], values[row["model"]]
        tier = by_model[model].tier if model in by_model else state(row, names, bool(rules))
        edits[model] = {
            "image": None,
            "tier": tier,
            "total": brief(by_model[model].z) if model in by_model else None,
            "values": [brief(own.get(column, {}).get("value")) for column in columns],
            "z": [brief(zs[column].get(model)) for column in columns],
            "change": brief(row["change"]),
            "damage": brief(row["damage"]),
            "reason": row["reason"],
            "missing": {n: own[c]["reason"] for n, c in enumerate(columns) if c in own and own[c]["value"] is None},
        }
    return edits, graded, counted


def state(row: records.Row, edited: set[str], measured: bool) -> str | None:
    """What stands for the tier of a candidate that has none."""
    if row["status"] == "failed":
        return "failed"
    return "unedited" if row["model"] not in edited else "unscored" if measured else None


def standard(values: Mapping[str, float | None], measure: str) -> dict[str, float]:
    """z-scores by model, higher being better; see `tiers.z_scores`."""
    known = {name: value for name, value in sorted(values.items()) if value is not None}
    if not known:
        return {}
    z, _ = tiers.z_scores(np.array([list(known.values())], float).T * DIRECTIONS[measure])
    return dict(zip(known, map(float, z[:, 0]), strict=True))


def by_measures(
    key: str,
    edits: Mapping[str, Mapping[str, Any]],
    graded: Sequence[tiers.Graded],
    rules: Sequence[tiers.AreaRule],
    made: Mapping[frozenset[str], records.Row],
    setting: PairsSetting,
) -> list[dict[str, Any]]:
    """Every two candidates of a prompt, with the rule that made a pair of them or did not."""
    found = {
        frozenset((better.candidate.model, worse.candidate.model)): (better, worse, why)
        for better, worse, why in tiers.compared(graded, rules, setting.mode, setting.margin)
    }
    pairs = []
    for a, b in combinations(edits, 2):
        two = frozenset((a, b))
        given = {"key": plain(f"{key}.{a}.{b}"), "a": a, "b": b, "made": two in made, "judged": [], "winner": None}
        if two in found:
            better, worse, why = found[two]
            same = better.tier == worse.tier
            given |= {
                "tiers": f"both_{better.tier}" if same else f"{better.tier}_over_{worse.tier}",
                "why": why or ("made" if two in made else "beyond_cap"),
                "margin": brief(better.z - worse.z),
                "winner": None if same else "A" if better.candidate.model == a else "B",
            }
        else:
            given["why"] = next(
                why for why in ("failed", "unedited", "unscored") if why in (edits[a]["tier"], edits[b]["tier"])
            )
        pairs.append(_as_trained(given, made.get(two)) | {"truth": None})
    for pair in pairs:
        pair["truth"] = less_damaged(edits[pair["a"]]["damage"], edits[pair["b"]]["damage"])
    return pairs


def _as_trained(given: dict[str, Any], pair: records.Row | None) -> dict[str, Any]:
    """The pair with the key and the sides that training knows it by."""
    if pair is None:
        return given
    return given | {
        "key": pair["key"],
        "a": pair["model_a"],
        "b": pair["model_b"],
        "winner": CODES[pair["winner"]],
        "why": "made",
        "tiers": pair["tiers"],
    }


def by_judges(row: records.Row, made: Mapping[frozenset[str], records.Row], judges: list[str]) -> dict[str, Any]:
    """A pair that VLM judges compared."""
    a, b = row["model_a"], row["model_b"]
    pair = made.get(frozenset((a, b)))
    if pair is not None:
        why = "made"
    elif row["status"] != "done":
        why = row["status"]
    else:
        why = "tie" if row["winner"] == "Tie" else "unedited_or_beyond_cap"
    key = plain(f"{row['key']}.{a}.{b}") if pair is None else pair["key"]
    given: dict[str, Any] = {
        "key": key,
        "a": a,
        "b": b,
        "made": pair is not None,
        "why": why,
        "winner": CODES[row["winner"]],
    }
    said = [judged(each | {"dimension": row["dimension"]}, judges) for each in row["verdicts"]]
    return given | {"judged": said, "truth": less_damaged(row["damage_a"], row["damage_b"])}


# --- what judges were asked


def benchmark(name: str, items: Sequence[Item], verdicts: Rows, judges: list[str]) -> list[Prompt]:
    """The items of a benchmark with what each judge said of them; the truth is people's verdict."""
    said = records.grouped(verdicts, "key")
    found = []
    for item in items:
        own = said.get(item.key, [])
        models, damages = item.models or ("A", "B"), item.damages or (None, None)
        if models[0] == models[1]:
            models = (f"{models[0]} (A)", f"{models[1]} (B)")
        sides = zip(models, damages, strict=True)
        edits = {model: {"image": None, "damage": brief(damage), "reason": item.failed} for model, damage in sides}
        truth = next((CODES[row["truth"]] for row in own), None)
        pair: dict[str, Any] = {
            "key": f"{name}.{item.key}",
            "a": models[0],
            "b": models[1],
            "truth": truth,
            "winner": truth,
        }
        pair |= {"judged": [judged(row, judges) for row in own], "why": None}
        found.append(Prompt(name, item.task, item.key, edits, [pair], item.instruction, boxes=item.regions or ()))
    return found


def arena(matches: Rows, judges: list[str]) -> list[Prompt]:
    """The prompts of the arena with their matches; the truth is the side that is less damaged, where that is known."""
    prompts: dict[str, Prompt] = {}
    pairs: dict[str, dict[str, Any]] = {}
    for row in matches:
        prompt = prompts.setdefault(row["prompt"], Prompt(ARENA, row["task"], row["prompt"], {}, []))
        a, b = row["model_a"], row["model_b"]
        for model, damage in ((a, row["damage_a"]), (b, row["damage_b"])):
            prompt.edits.setdefault(model, {"image": None, "damage": brief(damage), "reason": None})
        if row["key"] not in pairs:
            truth = less_damaged(row["damage_a"], row["damage_b"])
            pairs[row["key"]] = {"key": row["key"], "a": a, "b": b, "truth": truth, "winner": truth, "why": None}
            pairs[row["key"]]["judged"] = []
            prompt.pairs.append(pairs[row["key"]])
        pairs[row["key"]]["judged"].append(judged(row, judges))
    return list(prompts.values())


# --- which of them are shown


def chosen(prompts: Sequence[Prompt], most: int) -> list[Prompt]:
    """Whole prompts with `most` pairs in all, the same number of each kind and task as far as they go.

    Of a kind and task those come first whose key has the smaller hash. In the order in which they were given.
    """
    if sum(len(prompt.pairs) for prompt in prompts) <= most:
        return list(prompts)
    by_kind: dict[tuple[str, str], list[Prompt]] = {}
    for prompt in sorted(prompts, key=lambda prompt: hashlib.sha256(prompt.key.encode()).digest()):
        by_kind.setdefault((prompt.kind, prompt.task), []).append(prompt)
    kept, left = set[int](), most
    turns: Iterable[tuple[Prompt | None, ...]] = zip_longest(*(each for _, each in sorted(by_kind.items())))
    for prompt in (prompt for turn in turns for prompt in turn if prompt is not None):
        if len(prompt.pairs) <= left:
            kept.add(id(prompt))
            left -= len(prompt.pairs)
    return [prompt for prompt in prompts if id(prompt) in kept]
