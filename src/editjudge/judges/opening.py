"""Opening judges: whatever params.yaml describes under `judges`, `scorers` or `raters` becomes a `protocol.Judge`.

with open_judge("judges.pvc_judge", values["judges"]["pvc_judge"]) as judge:
    [answer] = judge.compare([Question("k", "Make the car red", source, a, b)])

Apart from `asking`, so that who only asks raters does not depend on the code of the measures."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from editjudge.core import params
from editjudge.core.settings import known, read
from editjudge.judges.asking import ChatJudge, ScorerJudge, open_rater
from editjudge.judges.measures_judge import MeasuresJudge
from editjudge.judges.protocol import Judge
from editjudge.judges.settings import ChatJudgeSetting, JudgeSetting, ScorerSetting

SECTIONS = ("judges", "scorers", "raters")


def open_judge(where: str, given: Any, store: Path | None = None) -> Judge:
    """The judge, scorer or rater that stands at `where` (such as scorers.clip_d), after its settings, keys and folders
    were checked; nothing is loaded yet. store: the file of its kept answers; None: one in work/judge.

    Raises ParamsError."""
    section, _, name = where.rpartition(".")
    if section == "raters":
        return open_rater(where, given, store)
    if section == "scorers":
        return ScorerJudge(where, ScorerSetting(rule="agreement", scorer=name), store, given)
    setting = read(where, JudgeSetting, given)
    if isinstance(setting, ChatJudgeSetting):
        return ChatJudge(where, setting, store)
    if isinstance(setting, ScorerSetting):
        return ScorerJudge(where, setting, store)
    return MeasuresJudge(where, setting, store)


def open_judges(judges: Mapping[str, Mapping[str, Any]], where: str = "judges") -> dict[str, Judge]:
    """Each judge of the section `where`, checked before any of them is asked. ParamsError: one is wrong, or none."""
    if not (isinstance(judges, Mapping) and judges):
        why = f"`{where}` has none, or the arena takes none of them"
        raise params.ParamsError(f"params.yaml: there is no judge to ask: {why}")
    return {name: open_judge(f"{where}.{name}", given) for name, given in judges.items()}


def find_judge(values: Mapping[str, Any], name: str) -> Judge:
    """The judge, scorer or rater of this name in params.yaml, opened. ParamsError: there is none."""
    for section in SECTIONS:
        if name in (entries := values.get(section) or {}):
            return open_judge(f"{section}.{name}", entries[name])
    names = [each for section in SECTIONS for each in values.get(section) or {}]
    raise params.ParamsError(f"params.yaml: no judge, scorer or rater {name!r}; {known(name, names)}")
