"""The page as one HTML file: template, style, scripts and data, with nothing to fetch.

Everything that comes from data stands as JSON, which no browser runs, and is put into the page as text. A
Content-Security-Policy admits the page's own scripts by their hashes, and none from elsewhere.
"""

import base64
import hashlib
import json
from pathlib import Path
from typing import Any

import jinja2

FOLDER = Path(__file__).parent
FILES = ("page.html.jinja", "page.css", "page.js")


def render(title: str, data: dict[str, Any], charts: bool = True) -> str:
    """The page. charts: with the library that draws Vega-Lite specifications (0.9 MB)."""
    template, style, script = ((FOLDER / name).read_text(encoding="utf-8") for name in FILES)
    scripts = [script, *([chart_script()] if charts else [])]
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True)
    return environment.from_string(template).render(
        title=title,
        style=style,
        scripts=scripts,
        hashes=" ".join(f"'sha256-{_digest(each)}'" for each in scripts),
        data=embedded(data),
        single="results" not in data,
    )


def chart_script() -> str:
    """Vega, Vega-Lite and Vega-Embed in one script, as vl-convert brings them."""
    import vl_convert

    script = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;")
    return f"(() => {{{script}}})();"  # its names would else meet the page's own


def embedded(data: Any) -> str:
    """JSON that can stand in a script element: no text of it can end the element or begin a comment."""
    text = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.replace("&", r"\u0026").replace("<", r"\u003c").replace(">", r"\u003e")


def _digest(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
