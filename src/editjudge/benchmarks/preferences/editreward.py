"""EditReward-Bench (Wu et al. 2025, arXiv 2509.26346; the hub's TIGER-Lab/EditReward-Bench): pairs and tuples.

Three published forms, told apart by their fields:
- the hub's Parquet: id, dataset (2pair, 3pair, 4pair), instruction, source_image, candidate_1, candidate_2, ranking
  ("A>B", "C>B", "A=B=Good", ...), comparison_type ("AvsB", ...; absent or empty means AvsB), model_1, model_2;
- the evaluator's JSON, EditReward_Bench_2pair.json and so on: prompt, path_src, paths_generated, human_vote.ranking
  ("A=B=Good", "C>A>B"), an object a tuple, which becomes rows as the hub has them;
- GEditBench v2's JSONL of visual quality: key, instruction, source_image_path, edited_image_paths, winner, without
  the ties.
Rows of one dataset whose id is the same before a last "_AvsB" (or "_AvB") are one tuple of K = 2, 3 or 4 edits, which
counts as right only if all its pairs are. Ids are told apart within a dataset alone, so that groups and the hub's keys
begin with it."""

import re
from collections.abc import Mapping
from dataclasses import replace
from itertools import chain, combinations
from typing import Any

from editjudge.benchmarks.preferences.item import BenchmarkSetting, HumanVerdict, Item, broken, collect, content, photo
from editjudge.core.keys import plain
from editjudge.core.reading import Record, read
from editjudge.core.tables import RowError
from editjudge.core.winner import WINNERS

SIZES = {"2pair": 2, "3pair": 3, "4pair": 4}
TIES: Mapping[str, HumanVerdict] = {"": "Tie", "=Good": "Both good", "=Bad": "Both bad"}
SIDES = re.compile(r"([A-D])v(?:s)?([A-D])")
NAMED = re.compile(r"(.+)_([A-D])vs?([A-D])", re.DOTALL)  # a tuple and two of its edits
RANKING = re.compile(r"([A-D])([<>=])([A-D])(=Good|=Bad)?")


def load(setting: BenchmarkSetting) -> list[Item]:
    """The benchmark's items. Raises TableError.

    K of the JSONL's tuples is the highest letter's. A tuple is in the cluster of its source image, where it has one."""
    items = _once(collect(chain.from_iterable(map(_pairs, read(setting))), _item))
    photos = {item.group: photo(item.source, "") for item in reversed(items) if item.source}
    letters: dict[str | None, str] = {}
    for item in items:
        letters[item.group] = max(letters.get(item.group, "B"), *(item.models or ()))
    found = []
    for item in items:
        own: dict[str, Any] = {"cluster": photos.get(item.group, item.cluster)}
        if item.task == "":
            own["size"] = ord(letters[item.group]) - ord("A") + 1
            own["task"] = f"K={own['size']}"
        found.append(replace(item, **own))
    return found


def _pairs(record: Record) -> list[Record]:
    """A record of the evaluator's JSON as one for each pair; another one as it is."""
    values = record.row if isinstance(record.row, Mapping) else {}
    shown, vote = values.get("paths_generated"), values.get("human_vote")
    if not isinstance(shown, list) or not isinstance(vote, Mapping):
        return [record]
    ranking = str(vote.get("ranking") or vote.get("preference") or "").replace(" ", "")
    row = {"dataset": f"{len(shown)}pair", "source_image": values.get("path_src"), "instruction": values.get("prompt")}
    letters, found = "ABCD"[: len(shown)], list[Record]()
    better = ranking[::-1] if "<" in ranking else ranking
    ordered = sorted(better.replace(">", "").replace("<", "")) == sorted(letters)
    for (left, a), (right, b) in combinations(zip(letters, shown, strict=False), 2):
        first, second = sorted((left, right), key=better.find)
        own = {"id": f"{record.name}-{record.number:05d}_{left}vs{right}", "candidate_1": a, "candidate_2": b}
        own |= {"ranking": f"{first}>{second}" if ordered else ranking, "comparison_type": f"{left}vs{right}"}
        found.append(replace(record, row=row | own))
    return found or [record]


def _item(record: Record) -> Item:
    """The record's item; a broken one keeps its tuple, which cannot be right without it."""
    place = dict[str, Any]()  # of the item in its tuple; size and task of the JSONL's are known once all of it is
    try:
        if "candidate_1" in record.values:
            identity, dataset = record.text("id"), record.choice("dataset", SIZES)
            named = NAMED.fullmatch(identity)
            group, size = f"{dataset}-{named[1] if named else identity}", SIZES[dataset]
            place |= {"group": group, "cluster": group, "size": size, "task": f"K={size}"}
            left, right = _sides(record.get("comparison_type"))
            key = plain(group if size == 2 else f"{group}_{left}vs{right}")
            verdict = _verdict(record.text("ranking"), left, right)
            shown = content(record, "instruction", *map(record.get, ("source_image", "candidate_1", "candidate_2")))
            return Item(key=key, dimension="overall", verdict=verdict, models=(left, right), **place, **shown)
        key = record.text("key")
        named = NAMED.fullmatch(key)
        group, models = (f"tuple-{named[1]}", (named[2], named[3])) if named else (f"pair-{key}", ("A", "B"))
        place |= {"group": group, "cluster": group, "models": models, "task": ""}
        edited = record.two("edited_image_paths")
        shown = content(record, "instruction", record.get("source_image_path"), *edited)
        if len(set(models)) < 2:
            raise RowError(f"field key: {plain(key)!r:.80} compares an edit with itself")
        verdict = record.choice("winner", WINNERS)
        return Item(key=plain(key), dimension="visual_quality", verdict=verdict, **place, **shown)
    except RowError as error:
        return replace(broken(record, str(error)), **place)


def _sides(words: Any) -> tuple[str, str]:
    if words in (None, "") or words != words:  # NaN: what pandas makes of an empty cell
        words = "AvsB"
    match = SIDES.fullmatch(words) if isinstance(words, str) else None
    if match is None or match[1] == match[2]:
        raise RowError(f"field comparison_type: {words!r:.40} does not name two of the edits A to D")
    return match[1], match[2]


def _verdict(ranking: str, left: str, right: str) -> HumanVerdict:
    match = RANKING.fullmatch(ranking.replace(" ", ""))
    if match is None or {match[1], match[3]} != {left, right}:
        raise RowError(f"field ranking: {ranking!r:.40} does not rank {left} and {right}")
    if match[2] == "=":
        return TIES[match[4] or ""]
    better = match[1] if match[2] == ">" else match[3]
    return "Image A" if better == left else "Image B"


def _once(items: list[Item]) -> list[Item]:
    """The items, a pair of edits that stands again in its tuple (its sides exchanged) being a failed row."""
    seen, kept = set(), []
    for item in items:
        pair = (item.group, frozenset(item.models or ()))
        if item.verdict is not None and pair in seen:
            reason = f"{' and '.join(sorted(pair[1]))} of {item.group} stand already in an earlier row"
            item = replace(item, source=b"", a=b"", b=b"", verdict=None, group=None, failed=reason)
        elif item.verdict is not None:
            seen.add(pair)
        kept.append(item)
    return kept
