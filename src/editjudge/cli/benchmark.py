"""`editjudge benchmark`."""

import json as json_format
from pathlib import Path

from editjudge.benchmarks.preferences import answers, forms
from editjudge.cli.options import Params
from editjudge.cli.printing import table
from editjudge.core import params as settings
from editjudge.core.errors import UserError
from editjudge.core.records import write_json
from editjudge.core.shipped import settings_file


def benchmark(
    *files: Path,
    on: str | None = None,
    form: str | None = None,
    path: Path | None = None,
    json: Path | None = None,
    params: Params = None,
) -> None:
    """Measure a judge by answers it has given to a benchmark, without the graph.

    A file (JSON lines, CSV or Parquet) is a judge, named after it. Its rows answer the benchmark's items by `key`, with
    `winner` (Image A, Image B, Tie, Both good or Both bad) or with `score_a` and `score_b`, higher being better; or
    they score single edits by `prompt`, `model` and `score`. An answer that is null, missing or Failed is unscored, and
    counted.

    Args:
        files: Files of answers.
        on: A name in `benchmarks` of the settings.
        form: Or the benchmark's published form, with --path.
        path: The benchmark's file or folder.
        json: Write all figures to this file.
    """
    if not files or bool(on) == bool(form) or bool(form) != bool(path):
        raise UserError("give files of answers, and either --on, or --form and --path")
    if on:
        setting = settings.leaf(settings.load(settings_file(params)), f"benchmarks.{on}")
    elif form in forms.FORMS:
        setting = {"form": form, "path": str(path)}
    else:
        raise UserError(f"--form {form}: known: {', '.join(forms.FORMS)}")
    found = answers.figures(str(on or form), setting, files)
    for judge in found["judges"]:
        seen = judge["accuracy"]
        print(f"{judge['judge']}: {seen['scored']} of {seen['n']} scored, {seen['unparsed']} unscored")
        rows = [[row[name] for name in ("name", "value", "low", "high")] for row in judge["published"]]
        table(("figure", "value", "low", "high"), rows)
    if json:
        write_json(json, json_format.loads(json_format.dumps(found)))
