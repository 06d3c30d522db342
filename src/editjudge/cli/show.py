"""`editjudge show`."""

from pathlib import Path


def show(*, task: str, key: list[str] | None = None, limit: int = 12, out: Path | None = None) -> None:
    """Show a task's prompts on one page: all edits of each, what the models see of them, and their pairs.

    Reads the graph's data and writes work/gallery/TASK/index.html, with its images beside it. The models are asked
    again for what they see: boxes, masks, faces, joints. Each edit's colour difference to its source is measured.

    Args:
        task: A task of params.yaml.
        key: Keys of prompts; the first ones of the pool if not given.
        limit: How many of them.
        out: Folder of the page.
    """
    from editjudge.cli.prompts_page import page_of
    from editjudge.core import params
    from editjudge.core.files import work, write_bytes

    folder = out or work("gallery", task)
    text = page_of(params.load(), task, key or [], limit, folder / "images")
    write_bytes(folder / "index.html", text.encode())
    print(f"show: {folder / 'index.html'}")
