"""GenAI-Bench, image editing (Jiang et al. 2024, arXiv 2406.04485; the hub's TIGER-Lab/GenAI-Bench).

Fields: instruct_prompt, source_image, left_output_image, right_output_image, left_model, right_model, vote_type
(leftvote, rightvote, tievote, bothbad_vote). Rows have no key: their number in the file is one.
"""

from collections.abc import Mapping

from editjudge.benchmarks.preferences.item import HumanVerdict, Item, photo
from editjudge.core import reading

VOTES: Mapping[str, HumanVerdict] = {
    "leftvote": "Image A",
    "rightvote": "Image B",
    "tievote": "Both good",
    "bothbad_vote": "Both bad",
}


def load(setting: reading.Setting) -> list[Item]:
    """The benchmark's items. Raises TableError."""
    return reading.collect(reading.read(setting), _item)


def _item(record: reading.Record) -> Item:
    images = ("source_image", "left_output_image", "right_output_image")
    key, shown = reading.row_key(record), record.shown("instruct_prompt", *(record[field] for field in images))
    return Item(
        key=key,
        task="image_editing",
        dimension="overall",
        verdict=VOTES[record.choice("vote_type", VOTES)],
        cluster=photo(shown["source"], key),
        models=(record.text("left_model"), record.text("right_model")),
        **shown,
    )
