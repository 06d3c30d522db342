"""The page as an HTML file with template, style, scripts and data; it loads nothing from the network.

Data are embedded as JSON, which browsers do not run, and scripts insert them as text, never as HTML. A
Content-Security-Policy allows only the page's own script, by its hash, and what that script loads: the report's files
of data/, which a page that is opened as a file cannot read in another way."""

import base64
import hashlib
import json
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import jinja2

from editjudge.core.files import write_bytes
from editjudge.core.records import Row
from editjudge.report import gallery

FOLDER = Path(__file__).parent
TEMPLATE, STYLE = "page.html.jinja", "page.css"
SCRIPTS = ("base.js", "charts.js", "board.js", "results.js", "graph.js", "pair.js", "first.js", "gallery.js",
           "compare.js", "page.js")  # fmt: skip
SHARD = 48  # prompts whose details lie in one file
SIDE = 2048  # of the page of one pair: pixels of the long side from which images are made smaller


def write(folder: Path, title: str, data: dict[str, Any]) -> None:
    """The report: index.html with the `results`, and data/ with what the page loads when it is looked at: the library
    that draws Vega-Lite specifications, the pairs that the gallery filters, and the details of some prompts a file."""
    details = [gallery.details(prompt) for prompt in data["prompts"]]
    loaded: dict[str, Any] = {"pairs": {name: data.pop(name) for name in ("tasks", "images", "judges", "prompts")}}
    loaded |= {f"details-{at // SHARD}": details[at : at + SHARD] for at in range(0, len(details), SHARD)}
    texts = {name: f'take("{name}",{embedded(value)});' for name, value in loaded.items()}
    for name, text in (texts | {"charts": chart_script()}).items():
        write_bytes(folder / f"data/{name}.js", text.encode())
    write_bytes(folder / "index.html", render(title, data | {"shard": SHARD}).encode())


def render(title: str, data: dict[str, Any]) -> str:
    """The page: the graph's `results` above the gallery of pairs, the gallery of `prompts` alone, or one pair."""
    script = "".join((FOLDER / name).read_text(encoding="utf-8") for name in SCRIPTS)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True)
    return environment.from_string((FOLDER / TEMPLATE).read_text(encoding="utf-8")).render(
        title=title,
        style=(FOLDER / STYLE).read_text(encoding="utf-8"),
        script=script,
        digest=digest,
        data=embedded(data),
        results="results" in data,
        one=[len(prompt["pairs"]) for prompt in data.get("prompts", ())] == [1],
    )


@cache
def chart_script() -> str:
    """Vega, Vega-Lite and Vega-Embed in one script, as vl-convert brings them."""
    import vl_convert

    script = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;")
    return f"(() => {{{script}}})();"  # its names would else meet the page's own


def embedded(data: Any) -> str:
    """JSON for a script element: escaped so that no text in it ends the element or opens a comment."""
    text = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.replace("&", r"\u0026").replace("<", r"\u003c").replace(">", r"\u003e")


def one_pair(
    instruction: str,
    images: Sequence[bytes],
    names: tuple[str, str],
    verdicts: Sequence[Row],
    measured: Sequence[Row] = (),
    layers: Sequence[gallery.Layers] = ({}, {}, {}),
    differences: Sequence[bytes | None] = (None, None),
) -> str:
    """The page of one pair, without the graph: what judges and measures say of two edits, and what the models saw. It
    holds the images.

    images: the source, A and B. names: of the two edits. verdicts: a row a judge, with the columns of the contract of
    verdicts. measured: rows with area, measure, direction, and the values of the two edits as `values`. layers: of the
    source and the edits; an edit without its own has the source's. differences: maps of each edit's ΔE to the source.
    """
    pictures = gallery.PageImages(None, SIDE)
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
    columns = [{name: row[name] for name in ("area", "measure", "direction")} for row in measured]
    task = {"measures": columns, "rules": []}
    data = {"tasks": {"": task}, "images": pictures.rows} | gallery.as_json([prompt])
    return render("Two edits, compared", data)
