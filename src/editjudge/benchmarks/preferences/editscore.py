"""EditScore-Bench (Luo et al. 2025, arXiv 2509.23909; the hub's EditScore/EditReward-Bench): pairs, the better first.

Fields: key (of both edits), instruction, input_image, output_images (two), dimension (consistency, prompt_following,
overall), task_type. The published shuffle map `{<key 1>_vs_<key 2>_task_<task_type>: bool}` says which pairs are shown
the other way round. Without a map, a fixed function of the key says it, so that the better side is not always A."""

from pathlib import Path
from typing import Any

from editjudge.benchmarks.preferences.item import BenchmarkSetting, Item, collect, content, exchanged, photo
from editjudge.core.keys import plain
from editjudge.core.reading import Record, read
from editjudge.core.tables import RowError, TableError, json_object

DIMENSIONS = ("consistency", "prompt_following", "overall")


def load(setting: BenchmarkSetting) -> list[Item]:
    """The items of one dimension. Raises TableError, also where `dimension` is not one of the benchmark's."""
    if setting.dimension not in DIMENSIONS:
        raise TableError(f"EditScore-Bench: dimension is {setting.dimension!r}; known: {', '.join(DIMENSIONS)}")
    shuffle = None if setting.shuffle is None else json_object(Path(setting.shuffle))
    wanted = (None, setting.dimension)  # a row that does not say is a failed item
    records = (each for each in read(setting) if isinstance(each.row, RowError) or each.get("dimension") in wanted)
    return collect(records, lambda record: _item(record, shuffle))


def _item(record: Record, shuffle: dict[str, Any] | None) -> Item:
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
    return Item(
        key=key,
        task=task,
        dimension=record.text("dimension"),
        verdict="Image B" if turned else "Image A",
        cluster=photo(shown["source"], key),
        **shown,
    )
