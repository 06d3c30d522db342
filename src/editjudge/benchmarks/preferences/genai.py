"""GenAI-Bench, image editing (Jiang et al. 2024, arXiv 2406.04485; the hub's TIGER-Lab/GenAI-Bench).

Fields: instruct_prompt, source_prompt and target_prompt (captions, which may be empty), source_image,
left_output_image, right_output_image, left_model, right_model, vote_type (leftvote, rightvote, tievote, bothbad_vote).
Rows have no key: their number in the file is one."""

from collections.abc import Mapping

from editjudge.benchmarks.preferences.item import BenchmarkSetting, HumanVerdict, Item, collect, content, photo
from editjudge.core.reading import Record, read

VOTES: Mapping[str, HumanVerdict] = {
    "leftvote": "Image A",
    "rightvote": "Image B",
    "tievote": "Both good",
    "bothbad_vote": "Both bad",
}


def load(setting: BenchmarkSetting) -> list[Item]:
    """The benchmark's items. Raises TableError."""
    return collect(read(setting), _item)


def _item(record: Record) -> Item:
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
