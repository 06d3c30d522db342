"""The rules of the tiers, from `train_pairs.thresholds` of params.yaml, checked against recipes and models before work.

One table serves a laptop and a cluster: a secondary measure that is not configured has no vote. A primary measure has
no stand-in: without it there would be no pairs, and nobody would know why.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field
from pydantic.dataclasses import dataclass

from editjudge.core.params import ParamsError
from editjudge.core.settings import FORBID, Amount, Count, Positive, Real, Text, Wrong, known, read
from editjudge.labels.tiers import AreaRule
from editjudge.measures.annotation.recipe import Recipe
from editjudge.measures.names import AREAS, KINDS

SECTION = "train_pairs.thresholds"
NONE = "none"  # in place of the primary measure: the area does not count
DEFAULT = "default"  # in place of a task: what its areas leave out
Z = Annotated[Real, Field(ge=-100, le=100)]


@dataclass(frozen=True, kw_only=True, config=FORBID)
class AreaSetting:
    """One area of one task. primary: a measure or NONE. elite, failure: the z above which a candidate is elite, and at
    or below which it has failed. secondary: the measures that vote."""

    primary: Text
    elite: Z
    failure: Z
    secondary: Annotated[Sequence[Text], BeforeValidator(lambda given: () if given is None else given)] = ()

    def __post_init__(self) -> None:
        if self.failure > self.elite:
            raise Wrong("failure", f"is {self.failure}, above elite, {self.elite}")


@dataclass(frozen=True, kw_only=True, config=FORBID)
class PairsSetting:
    """Section `train_pairs` of params.yaml. thresholds: by task and area, see AreaSetting."""

    mode: Literal["head_tail", "three_tiers"]
    margin: Amount
    prompts_per_task: Positive
    least_change: Amount
    seed: Count
    thresholds: Mapping[Text, Any]


def read_rules(recipe: Recipe, thresholds: Any, missing: Mapping[str, str]) -> tuple[AreaRule, ...]:
    """The rules of the recipe's task.

    thresholds: the section `train_pairs.thresholds`; an area has the fields of DEFAULT's that it leaves out. missing:
    measures that are not configured, and why.
    ParamsError names the field: of a task without thresholds, an unknown measure or area, thresholds in the wrong
    order, a measure that the recipe does not take there, and a primary measure that is not configured.
    """
    where = f"{SECTION}.{recipe.task}"
    given = thresholds.get(recipe.task) if isinstance(thresholds, Mapping) else None
    if not (isinstance(given, Mapping) and given):
        raise ParamsError(f"{where} is missing: the task's recipe, {_file(recipe)}, has measures")
    default = thresholds.get(DEFAULT) or {}
    whole = {
        area: {**default.get(area, {}), **each} if isinstance(each, Mapping) else each for area, each in given.items()
    }
    rules = (_rule(f"{where}.{area}", area, each, recipe, missing) for area, each in whole.items())
    counted = tuple(rule for rule in rules if rule is not None)
    if not counted:
        raise ParamsError(f"{where}: no area counts; give one of them a primary measure")
    return counted


def _rule(where: str, area: str, given: Any, recipe: Recipe, missing: Mapping[str, str]) -> AreaRule | None:
    """None for an area that does not count."""
    if area not in AREAS:
        raise ParamsError(f"{where}: unknown area {area!r}; {known(area, AREAS)}")
    setting = read(where, AreaSetting, given)
    if setting.primary == NONE:
        return None
    _check_taken(f"{where}.primary", setting.primary, area, recipe)
    for name in setting.secondary:
        _check_taken(f"{where}.secondary", name, area, recipe)
    if setting.primary in missing:
        raise ParamsError(
            f"{where}.primary is {setting.primary}, which {_file(recipe)} asks for in {area}, but which is not "
            f"configured: {missing[setting.primary]}. Configure it, or name another measure of that area"
        )
    voting = tuple((name, KINDS[name].direction) for name in setting.secondary if name not in missing)
    primary = setting.primary
    return AreaRule(area, primary, KINDS[primary].direction, setting.elite, setting.failure, voting)


def _check_taken(where: str, measure: str, area: str, recipe: Recipe) -> None:
    if measure not in KINDS:
        raise ParamsError(f"{where}: unknown measure {measure!r}; {known(measure, sorted(KINDS, key=str.lower))}")
    taken = dict(recipe.areas).get(area, ())
    if measure not in taken:
        raise ParamsError(f"{where} is {measure}, which {_file(recipe)} does not take in {area}: {', '.join(taken)}")


def _file(recipe: Recipe) -> str:
    return f"pipelines/{recipe.pipeline}/{recipe.task}.yaml"
