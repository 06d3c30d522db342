"""The page of `dvc plots show` and `dvc plots diff` with its scripts inside, so that it needs no network.

    python -m tools.plots_page

writes .dvc/plots.html, the template of that page, and has this clone's DVC use it. `make setup` does it. The
scripts are those in the package vl-convert-python.
"""

import argparse
from pathlib import Path

import vl_convert
from dvc.repo import Repo

from editjudge.core.errors import UserError
from editjudge.core.files import write_bytes
from editjudge.core.main import guarded

VEGA_LITE = "5.21"  # of the schema that DVC's templates name
FIRST = ("plots_accuracy", "plots_leaderboard", "plots_psychometric")  # ids begin with a plot's path
PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
{refresh_tag}
<title>editjudge: plots</title>
<script>%(script)s</script>
<style>
body { display: flex; flex-direction: column; font-family: sans-serif; margin: 1rem; }
body > div { order: 99; margin-bottom: 1.5rem; overflow-x: auto; border: 0 !important; text-align: left !important; }
%(order)s
</style>
</head>
<body>
{plot_divs}
</body>
</html>
"""


def page() -> str:
    """The template: DVC puts the plots for {plot_divs}. Results come first, then how they came about."""
    script = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;", vl_version=VEGA_LITE)
    if "</script" in script or "{plot_divs}" in script or "{scripts}" in script:
        raise UserError("vl-convert-python: its scripts cannot stand inside a page")
    order = "\n".join(f'body > div[id^="{start}"] {{ order: {place}; }}' for place, start in enumerate(FIRST))
    return PAGE % {"script": script, "order": order}


def run() -> None:
    with Repo() as repo:
        file = Path(str(repo.dvc_dir), "plots.html")
        write_bytes(file, page().encode())
        with repo.config.edit("local") as config:
            config.setdefault("plots", {})["html_template"] = file.name
    print(f"plots_page: {file}")


def main() -> None:
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    guarded("plots_page", run)


if __name__ == "__main__":
    main()
