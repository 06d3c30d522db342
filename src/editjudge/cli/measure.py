"""`editjudge measure`."""

from pathlib import Path

from editjudge.cli.options import Params


def measure(
    *,
    source: Path,
    edited: list[Path],
    out: Path,
    task: str | None = None,
    measures: list[str] | None = None,
    boxes: Path | None = None,
    masks: Path | None = None,
    limit: int | None = None,
    params: Params = None,
) -> None:
    """Measure many edits of your own: a table with a row for each edit.

    A folder has an image for each key, KEY.png, .jpg, .jpeg or .webp; a gallery or a table serves too. What is finished
    is kept in work/measure and not measured again.

    Args:
        source: Folder of the photos.
        edited: Folders of edits, one for each model, which it gives its name.
        out: The table: CSV, JSON lines or Parquet, by its ending.
        task: Measures of this task's recipe, such as color_alter.
        measures: Or these measures, such as ssim, or with an area, unedit_area.ssim.
        boxes: A table with the columns key and boxes or masks: where each edit is.
        masks: Or a folder with a mask for each key, whose brighter half is where the edit is.
        limit: Only so many photos.
    """
    from editjudge.cli.own_edits import measure_folders  # here: it loads the measures

    measure_folders(source, edited, out, (task, measures or []), (boxes, masks), limit, params)
