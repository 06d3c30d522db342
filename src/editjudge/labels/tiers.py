"""Training pairs of one prompt: which candidate preserved more than which, from their measures, and by which rules.

The rules are those of GEditBench v2 (arXiv 2603.28547): z-scores over the prompt's candidates give tiers, tiers give
pairs, and a pair stands if no primary measure speaks against it and the secondary measures vote for it.

`train_pairs.thresholds` of params.yaml sets them. One table serves a laptop and a cluster: a secondary measure that is
not configured has no vote. A primary measure has no stand-in: without it there would be no pairs, and nobody would know
why."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import isfinite
from typing import Annotated, Any, Literal, TypeAlias

import numpy as np
from pydantic import BeforeValidator, Field
from pydantic.dataclasses import dataclass as settings_class

from editjudge.core.params import ParamsError
from editjudge.core.settings import FORBID, Amount, Count, Positive, Real, Text, Wrong, one_of, section
from editjudge.measures.annotation import slot_settings
from editjudge.measures.annotation.recipe import Recipe
from editjudge.measures.annotation.slot_settings import SlotSetting
from editjudge.measures.names import AREAS, KINDS

Tier: TypeAlias = Literal["elite", "normal", "failure"]
JUDGED = "judged"  # in place of the tiers, where a VLM has compared the two
LEAST_STD = 1e-6  # below it an area does not vary
PARETO_TOLERANCE = 1e-6
_RANK: dict[Tier, int] = {"failure": 0, "normal": 1, "elite": 2}
SECTION = "train_pairs.thresholds"
NONE = "none"  # in place of the primary measure: the area does not count
DEFAULT = "default"  # in place of a task: what its areas leave out
Z = Annotated[Real, Field(ge=-100, le=100)]
MEASURES = sorted(KINDS, key=str.lower)


@settings_class(frozen=True, kw_only=True, config=FORBID)
class AreaSetting:
    """One area of one task; what it leaves out is as `default` has it. primary: a measure or none. elite: the z above
    which a candidate is elite. failure: the z at or below which it has failed. secondary: the measures that vote."""

    primary: Annotated[Text, one_of([*MEASURES, NONE])]
    elite: Z
    failure: Z
    secondary: Annotated[
        Sequence[Annotated[Text, one_of(MEASURES)]], BeforeValidator(lambda given: () if given is None else given)
    ] = ()

    def __post_init__(self) -> None:
        if self.failure > self.elite:
            raise Wrong("failure", f"is {self.failure}, above elite, {self.elite}")


def _whole(given: Any) -> Any:
    """The thresholds of every task, whose areas have the fields of DEFAULT's that they leave out."""
    if not (isinstance(given, Mapping) and isinstance(default := given.get(DEFAULT) or {}, Mapping)):
        return given
    found = {task: areas for task, areas in given.items() if task != DEFAULT}
    for task, areas in found.items():
        for area, each in areas.items() if isinstance(areas, Mapping) else ():
            found[task] = found[task] | {area: {**default.get(area, {}), **each} if isinstance(each, Mapping) else each}
    return found


@settings_class(frozen=True, kw_only=True, config=FORBID)
class PairsSetting:
    """Section `train_pairs` of params.yaml.

    mode: three_tiers, or head_tail: only elite over failure. margin: least difference of the global z for elite over
    normal. prompts_per_task: a task stops after so many that gave a pair. least_change: colour difference of the most
    changed blocks where the edit must show; 0: keep all. seed: which edit becomes Image A. thresholds: by task and
    area, see AreaSetting."""

    mode: Literal["head_tail", "three_tiers"]
    margin: Amount
    prompts_per_task: Positive
    least_change: Amount
    seed: Count
    thresholds: Annotated[Mapping[Text, Mapping[Annotated[Text, one_of(AREAS)], AreaSetting]], BeforeValidator(_whole)]


@dataclass(frozen=True)
class AreaRule:
    """How one area of the image is judged.

    primary: the measure that gives the area's z-score; direction: +1 if higher is better, -1 if lower is.
    elite, failure: z above which, and at or below which, the area counts as elite or as failed.
    secondary: (measure, direction) of the measures that vote."""

    area: str
    primary: str
    direction: int
    elite: float
    failure: float
    secondary: tuple[tuple[str, int], ...] = ()


def rules_in(values: Mapping[str, Any], recipe: Recipe) -> tuple[AreaRule, ...]:
    """`rules_of` by all parameters. ParamsError, also where the sections are wrong."""
    missing = slot_settings.unconfigured(section(values, "measures", SlotSetting))
    return rules_of(recipe, section(values, "train_pairs", PairsSetting), missing)


def rules_of(recipe: Recipe, pairs: PairsSetting, missing: Mapping[str, str]) -> tuple[AreaRule, ...]:
    """The rules of the recipe's task. missing: measures that are not configured, and why.

    ParamsError names the field: a task without thresholds, a measure that the recipe does not take there, and a primary
    measure that is not configured."""
    where, file = f"{SECTION}.{recipe.task}", f"pipelines/{recipe.pipeline}/{recipe.task}.yaml"
    rules = []
    if not (given := pairs.thresholds.get(recipe.task)):
        raise ParamsError(f"{where} is missing: the task's recipe, {file}, has measures")
    for area, setting in given.items():
        place, primary, taken = f"{where}.{area}", setting.primary, dict(recipe.areas).get(area, ())
        if primary == NONE:
            continue
        for role, name in (("primary", primary), *(("secondary", name) for name in setting.secondary)):
            if name not in taken:
                raise ParamsError(f"{place}.{role} is {name}, which {file} does not take in {area}: {', '.join(taken)}")
        if primary in missing:
            raise ParamsError(
                f"{place}.primary is {primary}, which {file} asks for in {area}, but which is not configured: "
                f"{missing[primary]}. Configure it, or name another measure of that area"
            )
        voting = tuple((name, KINDS[name].direction) for name in setting.secondary if name not in missing)
        rules.append(AreaRule(area, primary, KINDS[primary].direction, setting.elite, setting.failure, voting))
    if not rules:
        raise ParamsError(f"{where}: no area counts; give one of them a primary measure")
    return tuple(rules)


@dataclass(frozen=True)
class MeasuredEdit:
    """One model's edit: values by (area, measure), in the measure's own unit; None or absent where unscored."""

    model: str
    values: Mapping[tuple[str, str], float | None]


@dataclass(frozen=True)
class TrainingPair:
    """A pair that stands. tiers: such as "elite_over_failure", or JUDGED. margin: the winner's global z less the
    loser's; None for a judged pair."""

    winner: str
    loser: str
    tiers: str
    margin: float | None


@dataclass(frozen=True)
class Graded:
    """A candidate among those of its prompt."""

    candidate: MeasuredEdit
    tier: Tier
    z: float  # global
    zs: Mapping[str, float]  # by area that varies
    primary: np.ndarray  # (areas,) times direction: higher is better


def edited(rows: Iterable[Mapping[str, Any]], least_change: float, counts: Counter) -> list[MeasuredEdit]:
    """The candidates of a prompt's annotations that were measured and changed by `least_change` where the edit must
    show; the others are counted. A change that is not known, of annotations made elsewhere, is taken for one."""
    found = []
    for row in rows:
        if row["status"] == "failed":
            counts["candidates_failed"] += 1
        elif row["change"] is not None and row["change"] < least_change:
            counts["candidates_unedited"] += 1
        else:
            found.append(MeasuredEdit(row["model"], {(m["area"], m["measure"]): m["value"] for m in row["measures"]}))
    return found


def build_pairs(
    candidates: Iterable[MeasuredEdit], rules: Sequence[AreaRule], *, mode: str, margin: float = 0.3
) -> tuple[list[TrainingPair], Counter[str]]:
    """The training pairs among one prompt's candidates, ordered by the two models' names, whichever of them won, and
    counts of what was left out; both are independent of the candidates' order.

    mode: "head_tail" keeps elite over failure alone, "three_tiers" also normal over failure and elite over normal.
    margin: least difference of the global z for elite over normal.
    Counts: candidates_unscored, which lack a primary measure; no_pair_fewer_than_two_candidates, no_pair_no_area_varies
    or no_pair_no_pair_stands, where there is no pair; and of the pairs of scored candidates that fell, each under the
    first that holds, dropped_same_tier, dropped_mode, dropped_margin, dropped_pareto, dropped_no_secondary_comparable
    and dropped_votes.

    Raises ValueError for a value that is NaN or infinite."""
    ordered = sorted(candidates, key=lambda candidate: candidate.model)
    scored, _ = counted(ordered, rules)
    pairs, left_out = [], Counter(candidates_unscored=len(ordered) - len(scored))
    graded, counting = grade(ordered, rules)
    for better, worse, objection in compared(graded, counting, mode, margin):
        if objection is None:
            named = better.candidate.model, worse.candidate.model, f"{better.tier}_over_{worse.tier}"
            pairs.append(TrainingPair(*named, better.z - worse.z))
        else:
            left_out[f"dropped_{objection}"] += 1
    if not pairs:
        why = "no_pair_stands" if graded else "no_area_varies" if len(scored) > 1 else "fewer_than_two_candidates"
        left_out[f"no_pair_{why}"] = 1
    return pairs, left_out


def counted(
    candidates: Sequence[MeasuredEdit], rules: Sequence[AreaRule]
) -> tuple[list[MeasuredEdit], Sequence[AreaRule]]:
    """The candidates that have every primary measure, and the rules of the areas that count.

    An area whose primary measure no candidate has does not count: a close-up leaves nothing around its person."""
    rules = [r for r in rules if any(_value(c, r.area, r.primary) is not None for c in candidates)] or rules
    return [c for c in candidates if all(_value(c, r.area, r.primary) is not None for r in rules)], rules


def grade(candidates: Sequence[MeasuredEdit], rules: Sequence[AreaRule]) -> tuple[list[Graded], Sequence[AreaRule]]:
    """Tier and z of each candidate that counts, over the areas that vary, and the rules that count, see `counted`.

    No candidate has a tier where fewer than two count, or no area varies."""
    scored, rules = counted(candidates, rules)
    if len(scored) < 2:
        return [], rules
    values = np.array([[_value(c, rule.area, rule.primary) for rule in rules] for c in scored], float)
    signed = values * [rule.direction for rule in rules]
    z, varies = z_scores(signed)
    if not varies.any():
        return [], rules
    own = [rule for rule, counts in zip(rules, varies, strict=True) if counts]
    graded = []
    for c, row, primary in zip(scored, z[:, varies], signed, strict=True):
        zs = {rule.area: float(each) for rule, each in zip(own, row, strict=True)}
        graded.append(Graded(c, tier(row, own), float(row.mean()), zs, primary))
    return graded, rules


def compared(
    graded: Sequence[Graded], rules: Sequence[AreaRule], mode: str, margin: float
) -> Iterator[tuple[Graded, Graded, str | None]]:
    """Every two candidates, that of the better tier first, and why they are no pair, see `build_pairs`; None: they are.

    rules: those that count; mode, margin: as in `build_pairs`."""
    for a, b in combinations(graded, 2):
        better, worse = (a, b) if _RANK[a.tier] > _RANK[b.tier] else (b, a)
        yield better, worse, _objection(better, worse, rules, mode, margin)


def z_scores(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Standard scores over the candidates, and which areas vary.

    values: (candidates, areas) float, times their direction.
    Returns (candidates, areas) float64 with mean 0 and population standard deviation 1 in each area, all 0 where that
    deviation is below 1e-6; and (areas,) bool, False there."""
    std = values.std(axis=0)
    varies = std >= LEAST_STD
    return np.where(varies, (values - values.mean(axis=0)) / np.where(varies, std, 1.0), 0.0), varies


def tier(z: Sequence[float], rules: Sequence[AreaRule]) -> Tier:
    """The tier from the z-scores of the areas that vary, and their rules; one bad area is enough for a failure."""
    if any(score <= rule.failure for score, rule in zip(z, rules, strict=True)):
        return "failure"
    return "elite" if all(score > rule.elite for score, rule in zip(z, rules, strict=True)) else "normal"


def votes(winner: MeasuredEdit, loser: MeasuredEdit, rules: Sequence[AreaRule]) -> list[int]:
    """One vote a secondary measure that both have: +1 for the winner, -1 for the loser, 0 where they are equal."""
    cast = []
    for rule in rules:
        for measure, direction in rule.secondary:
            won, lost = _value(winner, rule.area, measure), _value(loser, rule.area, measure)
            if won is not None and lost is not None:
                cast.append(direction * ((won > lost) - (won < lost)))
    return cast


def _objection(better: Graded, worse: Graded, rules: Sequence[AreaRule], mode: str, margin: float) -> str | None:
    """Why the pair does not stand; None if it does."""
    tiers = (better.tier, worse.tier)
    if better.tier == worse.tier:
        return "same_tier"
    if mode == "head_tail" and tiers != ("elite", "failure"):
        return "mode"
    if tiers == ("elite", "normal") and better.z - worse.z < margin:
        return "margin"
    if (better.primary - worse.primary < -PARETO_TOLERANCE).any():
        return "pareto"
    if not any(rule.secondary for rule in rules):
        return None
    cast = votes(better.candidate, worse.candidate, rules)
    if not cast:
        return "no_secondary_comparable"
    return None if sum(cast) > 0 else "votes"


def _value(candidate: MeasuredEdit, area: str, measure: str) -> float | None:
    value = candidate.values.get((area, measure))
    if value is not None and not isfinite(value):
        raise ValueError(f"{candidate.model}: {measure} of {area} is {value}; an unscored measure is None")
    return value
