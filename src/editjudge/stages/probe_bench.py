"""Stage probe_bench: preference pairs with known truth from held-out photos, in VCReward-Bench's published form.

In a pair of probe_easy each edit does all that was asked, or nothing; the worse one has mostly changed more of the
image. In a pair of the probe each does more or less of it, and pairs are chosen so that BASELINES, which know nothing
of places, are right as often as not. The truth is the damage to what had to stay; one pair in TIE_EVERY is a tie."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import cv2
import numpy as np

from editjudge.core import images, params, records
from editjudge.core.main import stage
from editjudge.core.settings import section
from editjudge.core.winner import SIDES
from editjudge.editors import procedural
from editjudge.engine import workers
from editjudge.measures import pixel
from editjudge.sources.builtin import scenes
from editjudge.sources.settings import ProbeBenchSetting, RawPairs
from editjudge.statistics import agreement

# Of the other tasks the measures also judge what an edit may change, where more of the edit is more change.
TASKS = ("color_alter", "subject_add", "subject_remove", "tone_transfer")
BASELINES = ("least colour difference", "fewest changed pixels", "highest SSIM", "fewest JPEG bytes", "least edited")
# The damage that each kind of embedded editor aims at in the easy pairs, mean ΔE; those of `editors` do not count.
AMOUNTS = {"unedited": 0.0, "precise": 0.0, "leaky": 1.5, "box": 3.0, "regenerated": 5.0, "shifted": 9.0}
EDITS, TIE_EVERY, PASSES = 12, 30, 6
DONE, STRENGTHS = (0.15, 1.0), (0.02, 0.7)  # how far what was asked is done; how strong the damage is
CHANGED, QUALITY = 3.0, 90  # ΔE of a pixel that changed; of the JPEG whose bytes are counted
RELATIVE_GAP, STRUCTURE_GAP = 0.3, 0.01  # between two edits: of the larger damage, and of 1 - SSIM
BALANCED = (("all", 2.0), ("task", 4.0), ("origin", 1.0))  # in what BASELINES are balanced, and with what weight


@dataclass(frozen=True)
class KnownEdit:
    """image: uint8, (H, W, 3). damage, loss: mean ΔE, and 1 - SSIM, of what had to stay. whole: see `whole`."""

    image: np.ndarray
    kind: str
    damage: float
    loss: float
    whole: tuple[float, ...]


def whole(source: np.ndarray, moments: pixel.Moments, image: np.ndarray, done: float) -> tuple[float, ...]:
    """What BASELINES see of an edit, each lower for the better one: mean ΔE, share of changed pixels (0..1), -SSIM,
    bytes, and `done`, the share of what was asked (0..1). source, image: uint8, (H, W, 3); moments: the source's."""
    change = images.delta_e(source, image)
    alike = pixel.ssim(moments, image, np.ones(change.shape, bool))
    written = cv2.imencode(".jpg", image[..., ::-1], [cv2.IMWRITE_JPEG_QUALITY, QUALITY])[1]
    values = float(change.mean()), float((change > CHANGED).mean()), -alike, len(written), done
    return tuple(round(value, 6) for value in values)


def make_edits(prompt: records.Row, seed: int) -> list[KnownEdit]:
    """EDITS edits of a prompt, half of them without damage; the last two are alike in what had to stay, if not all."""
    rng, source = np.random.default_rng([seed, *prompt["key"].encode()]), images.decode(prompt["image"])
    scene = procedural.carry_out(source, procedural.parse_edit(prompt["edit"]))
    damages, made = sorted((procedural.DAMAGES | procedural.UNSEEN).items()), list[KnownEdit]()
    image, moments = source, pixel.Moments(source)
    for n in range(EDITS):
        done, strength = float(rng.uniform(*DONE)), float(np.exp(rng.uniform(*np.log(STRENGTHS))))
        part = procedural.partly(scene, done, along=bool(rng.random() < 0.5))
        kind, damage_by = damages[int(rng.integers(len(damages)))]
        if n == EDITS - 1 and not scene.preserve.all():
            kind, image = made[-1].kind, np.where(scene.preserve[..., None], image, part.clean)
        elif n < EDITS - 2 and rng.random() < 0.5:
            kind, image = "precise", part.clean
        else:
            image = damage_by(part, strength, rng)
            image = np.where(scene.preserve[..., None], image, part.clean) if kind == "box" else image
        loss = 1 - pixel.ssim(pixel.Moments(pixel.lightness(part.clean)), pixel.lightness(image), scene.preserve)
        damage = round(procedural.damage_of(part, image), 4)
        made.append(KnownEdit(image, kind, damage, round(loss, 6), whole(source, moments, image, done)))
    return made


def choose(
    prompts: Sequence[records.Row], edits: Sequence[Sequence[KnownEdit]], least_gap: float, seed: int
) -> list[tuple[KnownEdit, KnownEdit] | None]:
    """Two edits of each prompt, the better one first; None where no damages are `least_gap` (mean ΔE) apart.

    The better edit has less damage in colour and in structure. Of each prompt's pairs that one is taken with which
    BASELINES come closest to being right as often as wrong, on all pairs and on those of the task and of the photo,
    given what is taken of the others: PASSES times over all prompts, in a random order of pairs."""
    tied = [n % TIE_EVERY == TIE_EVERY - 1 and own[-1].damage == own[-2].damage for n, own in enumerate(edits)]
    pairs, right = [], []
    for n, own in enumerate(edits):
        found = [] if tied[n] else [(a, b) for a in own for b in own if _better(a, b, least_gap)]
        pairs.append([found[i] for i in np.random.default_rng([seed, n]).permutation(len(found))])
        right.append(np.array([np.sign(np.subtract(b.whole, a.whole)) for a, b in pairs[-1]]))
    taken: list[int | None] = [None] * len(edits)
    balance: dict[str, np.ndarray] = defaultdict(lambda: np.zeros(len(BASELINES)))
    for n in [n for n, found in enumerate(pairs) if found] * PASSES:
        groups = {prompts[n].get(name, name): weight for name, weight in BALANCED}
        was = 0 if taken[n] is None else right[n][taken[n]]
        others = {name: balance[name] - was for name in groups}
        taken[n] = best = int(np.argmin(sum(w * ((others[g] + right[n]) ** 2).sum(1) for g, w in groups.items())))
        balance |= {name: found + right[n][best] for name, found in others.items()}
    each = zip(taken, pairs, edits, tied, strict=True)
    return [(own[-2], own[-1]) if tie else None if n is None else its[n] for n, its, own, tie in each]


def _better(a: KnownEdit, b: KnownEdit, least_gap: float) -> bool:
    damaged = b.damage - a.damage >= max(least_gap, RELATIVE_GAP * b.damage)
    return damaged and b.loss - a.loss >= max(STRUCTURE_GAP, RELATIVE_GAP * b.loss)


def probe_row(prompt: records.Row, pair: tuple[KnownEdit, KnownEdit], swapped: bool) -> records.Row:
    """A row of the probe of two edits, the better one first, or of two alike; swapped: the sides are exchanged."""
    better, worse = pair
    shown = [(images.encode_png(each.image), each.kind, each.damage) for each in (reversed(pair) if swapped else pair)]
    if better.damage == worse.damage:
        return _row(prompt, "Tie", *zip(*shown, strict=True)) | {"stratum": "tie"}
    stratum = "agrees" if better.whole[0] < worse.whole[0] else "misleads"  # what the first of BASELINES does
    return _row(prompt, SIDES[int(swapped)], *zip(*shown, strict=True)) | {"stratum": stratum}


def make_pair(prompt: records.Row, amounts: Mapping[str, float], least_gap: float, seed: int) -> records.Row | None:
    """A row of probe_easy: two edits by editors drawn at random; None where no damages are `least_gap` (ΔE) apart."""
    rng = np.random.default_rng([seed, *prompt["key"].encode()])
    source, edit = images.decode(prompt["image"]), procedural.parse_edit(prompt["edit"])
    edits = {kind: procedural.edit_image(source, edit, kind, amounts[kind], rng) for kind in sorted(amounts)}
    pairs = [(a, b) for a in edits for b in edits if abs(edits[a][1] - edits[b][1]) >= least_gap]
    if not pairs:
        return None
    models = pairs[int(rng.integers(len(pairs)))]
    shown = [(images.encode_png(edits[model][0]), model, round(edits[model][1], 4)) for model in models]
    return _row(prompt, SIDES[int(shown[1][2] < shown[0][2])], *zip(*shown, strict=True))


def _row(prompt: records.Row, winner: str, pngs: Sequence[bytes], *known: Sequence[Any]) -> records.Row:
    row = {name: prompt[name] for name in ("key", "task", "instruction", "origin", "regions")} | {"winner": winner}
    row["source_image"], *row["edited_images"] = ({"bytes": each, "path": None} for each in (prompt["image"], *pngs))
    return row | dict(zip(("models", "damages"), map(list, known), strict=True))


def baselines(chosen: Sequence[tuple[records.Row, tuple[KnownEdit, KnownEdit]]]) -> list[records.Row]:
    """How often each of BASELINES is right, on a tie never, with 95 % intervals over photos."""
    found, photos = list[records.Row](), [prompt["origin"] for prompt, _ in chosen]
    for n, name in enumerate(BASELINES if chosen else ()):
        right = [a.damage != b.damage and a.whole[n] < b.whole[n] for _, (a, b) in chosen]
        found.append({"baseline": name} | agreement.share(right, photos))
    return found


def counts(rows: Sequence[records.Row], prompts: int) -> dict[str, Any]:
    fields = {"task": "task", "photo": "origin", "stratum": "stratum"}
    each = {name: Counter(row[field] for row in rows if field in row) for name, field in fields.items()}
    per = {f"per_{name}": [{name: value, "pairs": n} for value, n in sorted(own.items())] for name, own in each.items()}
    return {"pairs": len(rows), "prompts_without_pair": prompts - len(rows)} | per


def run() -> None:
    values = params.load()
    setting = section(values, "probe_bench", ProbeBenchSetting)
    side = section(values, "raw_pairs", RawPairs).image_side

    def prompts_of(per_task: int, tasks: Sequence[str]) -> list[records.Row]:  # of others no damage is known
        own = [task for task in params.leaf(values, "tasks") if task in tasks]
        return [row for task in own for row in scenes.make_pairs(task, "benchmark", per_task, side, setting.seed)]

    easy = prompts_of(setting.easy_per_task, scenes.EDITS)
    prompts = prompts_of(setting.per_task, TASKS) or prompts_of(setting.per_task, scenes.EDITS)
    edits = [*workers.spread(partial(make_edits, seed=setting.seed), prompts, "edits of the probe")]
    pairs = choose(prompts, edits, setting.least_gap, setting.seed)
    chosen = [(prompt, pair) for prompt, pair in zip(prompts, pairs, strict=True) if pair]
    rows = [probe_row(prompt, pair, bool(n % 2)) for n, (prompt, pair) in enumerate(chosen)]
    records.write(Path("data/probe_bench.parquet"), rows, "vcreward_bench")
    make = partial(make_pair, amounts=AMOUNTS, least_gap=setting.least_gap, seed=setting.seed)
    plain = [pair for pair in workers.spread(make, easy, "easy pairs of the probe") if pair is not None]
    records.write(Path("data/probe_easy.parquet"), plain, "vcreward_bench")
    found = counts(rows, len(prompts)) | {"baselines": baselines(chosen), "easy": [counts(plain, len(easy))]}
    own = {task: baselines([each for each in chosen if each[0]["task"] == task]) for task in TASKS}
    found["baselines_per_task"] = [{"task": task, "baselines": its} for task, its in own.items()]
    records.write_details(Path("metrics/probe_bench.json"), found)


if __name__ == "__main__":
    stage(__doc__, run)
