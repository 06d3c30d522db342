"""The page of one pair, without the graph: what judges and measures say of two edits, and what the models saw."""

from collections.abc import Sequence

from editjudge.core.records import Row
from editjudge.report import gallery, page
from editjudge.report.pictures import PageImages

SIDE = 2048  # pixels of the long side from which images are made smaller


def one_pair(
    instruction: str,
    images: Sequence[bytes],
    names: tuple[str, str],
    verdicts: Sequence[Row],
    measured: Sequence[Row] = (),
    layers: Sequence[gallery.Layers] = ({}, {}, {}),
    differences: Sequence[bytes | None] = (None, None),
) -> str:
    """The page, with the images inside of it.

    images: the source, A and B. names: of the two edits. verdicts: a row a judge, with the columns of the contract of
    verdicts. measured: rows with area, measure, direction, and the values of the two edits as `values`. layers: of the
    source and the edits; an edit without its own has the source's. differences: maps of each edit's ΔE to the source.
    """
    pictures = PageImages(None, SIDE)
    sides = names if names[0] != names[1] else (f"{names[0]} (A)", f"{names[1]} (B)")
    edits: dict[str, Row] = {
        name: {
            "image": pictures.add(images[side + 1]),
            "difference": pictures.add(differences[side]),
            "values": [row["values"][side] for row in measured],
        }
        | ({"layers": layers[side + 1]} if layers[side + 1] else {})
        for side, name in enumerate(sides)
    }
    pair: Row = {"key": "compared", "a": sides[0], "b": sides[1], "judged": verdicts}
    pair |= dict.fromkeys(("truth", "winner", "why"))
    prompt = gallery.GalleryPrompt("", "", "compared", edits, [pair], instruction, pictures.add(images[0]), layers[0])
    task = {
        "measures": [{name: row[name] for name in ("area", "measure", "direction")} for row in measured],
        "rules": [],
    }
    data = {"tasks": {"": task}, "images": pictures.rows} | gallery.as_json([prompt])
    return page.render("Two edits, compared", data)
