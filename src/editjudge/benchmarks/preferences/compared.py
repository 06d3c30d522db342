"""Reward benchmarks of pairs in their published forms: a function for each makes an item of a row, or all items."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import chain, islice
from pathlib import Path
from typing import Any

from editjudge.benchmarks.preferences.item import (
    BenchmarkSetting,
    Box,
    HumanVerdict,
    Item,
    Point,
    collect,
    content,
    exchanged,
    merged,
    pairs,
    photo,
)
from editjudge.core.keys import plain
from editjudge.core.reading import Record, box, locate, matching, number, read
from editjudge.core.tables import RowError, TableError, json_object
from editjudge.core.winner import WINNERS

TIES: Mapping[str, HumanVerdict] = {"tie": "Tie", "both_good": "Both good", "both_bad": "Both bad"}
VOTES: Mapping[str, HumanVerdict] = {
    "leftvote": "Image A",
    "rightvote": "Image B",
    "tievote": "Both good",
    "bothbad_vote": "Both bad",
}
CHOSEN: Mapping[str, HumanVerdict] = {"A": "Image A", "B": "Image B"}
DIMENSIONS = ("consistency", "prompt_following", "overall")  # of EditScore-Bench
COMPASS: Mapping[str, str] = {"IA": "prompt_following", "VC": "visual_consistency", "VQ": "visual_quality"}


def vcreward(record: Record) -> Item:
    """VCReward-Bench (GEditBench v2, arXiv 2603.28547): pairs in which one edit preserves more of the source.

    Fields: key, task, instruction, source_image, edited_images (two), winner; in Parquet with the images inside, or as
    metadata.jsonl with paths. The probe's own columns (damages, models, origin, regions, stratum) are read, too."""
    shown = content(record, "instruction", record.get("source_image"), *record.two("edited_images"))
    key, origin, models = plain(record.text("key")), record.get("origin"), record.get("models")
    return Item(
        key=key,
        task=record.text("task"),
        dimension="visual_consistency",
        verdict=record.choice("winner", WINNERS),
        cluster=origin if isinstance(origin, str) and origin else photo(shown["source"], key),
        models=(models[0], models[1]) if isinstance(models, list) and [*map(type, models)] == [str, str] else None,
        damages=_damages(record.get("damages")),
        regions=_boxes(record.get("regions")),
        stratum=None if record.get("stratum") is None else record.text("stratum"),
        **shown,
    )


def _damages(values: Any) -> tuple[float, float] | None:
    if not isinstance(values, list) or len(values) != 2 or values == [None, None]:
        return None
    a, b = (number(value, "damages") for value in values)
    if min(a, b) < 0:
        raise RowError("wrong type", f"damages: numbers of 0 or more expected, not {values!r:.80}")
    return a, b


def _boxes(regions: Any) -> tuple[Box, ...] | None:
    if regions is None:
        return None
    if not isinstance(regions, list) or not all(isinstance(region, dict) for region in regions):
        raise RowError("wrong type", f"regions: a list of objects expected, not {regions!r:.80}")
    corners = (map(round, box(region.get("box"), "regions")) for region in regions)
    return tuple((x0, y0, x1, y1) for x0, y0, x1, y1 in corners)


def genai(record: Record) -> Item:
    """GenAI-Bench, image editing (Jiang et al. 2024, arXiv 2406.04485; the hub's TIGER-Lab/GenAI-Bench).

    Fields: instruct_prompt, source_prompt and target_prompt (captions, which may be empty), source_image,
    left_output_image, right_output_image, left_model, right_model, vote_type (leftvote, rightvote, tievote,
    bothbad_vote). Rows have no key: their number in the file is one."""
    images = ("source_image", "left_output_image", "right_output_image")
    shown = content(record, "instruct_prompt", *map(record.get, images))
    before, after = (str(record.get(name) or "").strip() for name in ("source_prompt", "target_prompt"))
    return Item(
        captions=(before, after) if before and after else None,
        key=record.key,
        task="image_editing",
        dimension="overall",
        verdict=VOTES[record.choice("vote_type", VOTES)],
        cluster=photo(shown["source"], record.key),
        models=(record.text("left_model"), record.text("right_model")),
        **shown,
    )


def compass(record: Record) -> Item:
    """EditReward-Compass (Bai et al. 2026, arXiv 2605.13062; the hub's DogNeverSleep/EditReward-Compass), the better
    edit named first; the item's task is the dimension.

    A JSON list with paths: dimension (IA, VC, VQ: instruction awareness, visual consistency, quality), source_image,
    prompt, winner, loser and label (preference, tie). Nothing published says whether `prompt` is more than the
    instruction, as which it is shown."""
    of, tie = record.choice("dimension", COMPASS), record.choice("label", ("preference", "tie")) == "tie"
    return _better_first(record, record.key, of, COMPASS[of], ("source_image", "winner", "loser"), tie)


def rewardbench(record: Record) -> Item:
    """RewardBench's form (Lambert et al. 2024, arXiv 2403.13787) with a source, for pairs of one's own, the better edit
    named first; the item's task is the subset.

    JSON, JSON lines, CSV or Parquet: prompt (the instruction), image (the source), chosen and rejected, each an image
    or a path, and, if known, id and subset."""
    key, task = record.key if record.get("id") is None else plain(record.identifier("id")), record.get("subset")
    return _better_first(record, key, str(task or "all"), "overall", ("image", "chosen", "rejected"), False)


def _better_first(record: Record, key: str, task: str, dimension: str, fields: tuple[str, str, str], tie: bool) -> Item:
    source, *edited = map(record.get, fields)
    turned = exchanged(key)
    verdict: HumanVerdict = "Tie" if tie else "Image B" if turned else "Image A"
    shown = content(record, "prompt", source, *(reversed(edited) if turned else edited))
    return Item(key=key, task=task, dimension=dimension, verdict=verdict, cluster=photo(shown["source"], key), **shown)


def editscore(setting: BenchmarkSetting) -> list[Item]:
    """EditScore-Bench (Luo et al. 2025, arXiv 2509.23909; the hub's EditScore/EditReward-Bench): pairs, the better
    first; those of one dimension. Raises TableError, also where `dimension` is not one of the benchmark's.

    Fields: key (of both edits), instruction, input_image, output_images (two), dimension (consistency,
    prompt_following, overall), task_type. The published shuffle map `{<key 1>_vs_<key 2>_task_<task_type>: bool}` says
    which pairs are shown the other way round. Without a map, a fixed function of the key says it, so that the better
    side is not always A."""
    if setting.dimension not in DIMENSIONS:
        raise TableError(f"EditScore-Bench: dimension is {setting.dimension!r}; known: {', '.join(DIMENSIONS)}")
    shuffle = None if setting.shuffle is None else json_object(Path(setting.shuffle))
    wanted = (None, setting.dimension)  # a row that does not say is a failed item
    records = (each for each in read(setting) if isinstance(each.row, RowError) or each.get("dimension") in wanted)
    return collect(records, lambda record: _editscore(record, shuffle))


def _editscore(record: Record, shuffle: dict[str, Any] | None) -> Item:
    names, edited, task = record.two("key"), record.two("output_images"), record.text("task_type")
    name = f"{names[0]}_vs_{names[1]}_task_{task}"
    key = plain(name)
    if shuffle is None:
        turned = exchanged(name)
    elif isinstance(shuffle.get(name), bool):
        turned = shuffle[name]
    else:
        raise RowError(f"the shuffle map has no true or false for {name}")
    shown = content(record, "instruction", record.get("input_image"), *(reversed(edited) if turned else edited))
    dimension, verdict = record.text("dimension"), CHOSEN["B" if turned else "A"]
    return Item(key=key, task=task, dimension=dimension, verdict=verdict, cluster=photo(shown["source"], key), **shown)


def mmrb2(setting: BenchmarkSetting) -> list[Item]:
    """MMRB2's editing part (Hu et al. 2025, arXiv 2512.16899; CC BY-NC): pairs, none of them tied; an item's task is
    where the prompt comes from. Raises TableError.

    `edit.json`, as its scripts build it: {"pairs": [...]} with id (or pair_id), prompt_content and response_a/b.
    response_content (lists of ["image", path] and ["text", words]), chosen (A, B) and prompt_source. A judge is shown
    one image of each: a prompt of several is a failed item that says so."""
    return collect(_mmrb2_pairs(setting), _mmrb2)


def _mmrb2_pairs(setting: BenchmarkSetting) -> Iterator[Record]:
    for file in matching(locate(setting), setting.files or "**/edit.json", (".json",)):
        if not isinstance(rows := json_object(file).get("pairs"), list):
            raise TableError(f"{file}: no list `pairs`")
        for at, row in enumerate(rows):
            values = row if isinstance(row, dict) else RowError("wrong type", "an object expected")
            yield Record(file, at, values, Path(setting.images) if setting.images else file.parent)


def _mmrb2(record: Record) -> Item:
    parts = {side: _mmrb2_parts(record, side) for side in ("prompt", "response_a", "response_b")}
    images = {side: [value for kind, value in own if kind == "image"] for side, own in parts.items()}
    text = replace(record, row={"text": "\n".join(str(value) for kind, value in parts["prompt"] if kind == "text")})
    several = [f"{side} has {len(own)} images" for side, own in images.items() if len(own) != 1]
    found = content(text, "text", *(None if several else own[0] for own in images.values()))
    found["failed"] = f"{', '.join(several)}: a judge is shown one" if several else found["failed"]
    key, task = plain(str(record.get("id") or record["pair_id"])), str(record.get("prompt_source") or "editing")
    chosen, cluster = CHOSEN[record.choice("chosen", CHOSEN)], photo(found["source"], key)
    verdict = None if several else chosen  # it leaves the counts
    return Item(key=key, task=task, dimension="overall", verdict=verdict, cluster=cluster, **found)


def _mmrb2_parts(record: Record, side: str) -> list[Any]:
    value = record["prompt_content"] if side == "prompt" else record[side]
    value = value.get("response_content") if isinstance(value, Mapping) else value
    if not isinstance(value, list) or not all(isinstance(part, list) and len(part) == 2 for part in value):
        raise RowError("wrong type", f"{side}: a list of [kind, value] expected, not {value!r:.40}")
    return value


def aurora(setting: BenchmarkSetting) -> list[Item]:
    """AURORA-Bench's human judgements (Krojer et al. 2024, arXiv 2407.03471), in pairs, or one edit at a time, which
    become all pairs of a prompt. Raises TableError.

    A JSON list with paths: input, prompt, and either gens (two), models (two) and winner (one of the models, "tie",
    "both_good" or "both_bad"); or gen, model and score. `task`, where a record has it, is its sub-task."""
    records = read(setting)
    first = list(islice(records, 1))
    every = chain(first, records)
    if any("gen" in record.row for record in first if isinstance(record.row, Mapping)):
        return pairs(merged(every, _aurora_points), "overall")
    return collect(every, _aurora)


def _aurora(record: Record) -> Item:
    edited, models = record.two("gens"), [str(model) for model in record.two("models")]
    verdicts: dict[str, HumanVerdict] = {**TIES, models[1]: "Image B", models[0]: "Image A"}
    return Item(
        key=record.key,
        task=str(record.get("task") or "image_editing"),
        dimension="overall",
        verdict=verdicts[record.choice("winner", [*models, *TIES])],
        cluster=str(record["input"]),
        models=(models[0], models[1]),
        **content(record, "prompt", record["input"], *edited),
    )


def _aurora_points(record: Record) -> Iterator[Point]:
    instruction, model = record.text("prompt"), record.text("model")
    score, source = number(record["score"], "score"), str(record["input"])
    task = str(record.get("task") or "image_editing")
    (shown, edited), failed = record.found(source, record.get("gen"))
    yield Point(f"{source}: {instruction}", model, task, instruction, shown, edited, (score,), failed)
