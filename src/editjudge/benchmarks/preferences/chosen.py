"""Pairs whose better edit is named first: EditReward-Compass, and pairs of one's own in RewardBench's form.

EditReward-Compass (Bai et al. 2026, arXiv 2605.13062; the hub's DogNeverSleep/EditReward-Compass), a JSON list with
paths: dimension (IA, VC, VQ: instruction awareness, visual consistency, quality), source_image, prompt, winner, loser
and label (preference, tie). Nothing published says whether `prompt` is more than the instruction, as which it is shown.

RewardBench's form (Lambert et al. 2024, arXiv 2403.13787) with a source, as JSON, JSON lines, CSV or Parquet: prompt
(the instruction), image (the source), chosen and rejected, each an image or a path, and, if known, id and subset."""

from collections.abc import Mapping

from editjudge.benchmarks.preferences.item import (
    BenchmarkSetting,
    HumanVerdict,
    Item,
    collect,
    content,
    exchanged,
    photo,
)
from editjudge.core.keys import plain
from editjudge.core.reading import Record, read

COMPASS: Mapping[str, str] = {"IA": "prompt_following", "VC": "visual_consistency", "VQ": "visual_quality"}


def load(setting: BenchmarkSetting) -> list[Item]:
    """The benchmark's items; their task is the dimension, or the subset. Raises TableError."""
    return collect(read(setting), _compass if setting.form == "compass" else _own)


def _compass(record: Record) -> Item:
    of, tie = record.choice("dimension", COMPASS), record.choice("label", ("preference", "tie")) == "tie"
    return _item(record, record.key, of, COMPASS[of], ("source_image", "winner", "loser"), tie)


def _own(record: Record) -> Item:
    key = record.key if record.get("id") is None else plain(record.identifier("id"))
    return _item(record, key, str(record.get("subset") or "all"), "overall", ("image", "chosen", "rejected"), False)


def _item(record: Record, key: str, task: str, dimension: str, fields: tuple[str, str, str], tie: bool) -> Item:
    source, *edited = map(record.get, fields)
    turned = exchanged(key)
    verdict: HumanVerdict = "Tie" if tie else "Image B" if turned else "Image A"
    shown = content(record, "prompt", source, *(reversed(edited) if turned else edited))
    return Item(key=key, task=task, dimension=dimension, verdict=verdict, cluster=photo(shown["source"], key), **shown)
