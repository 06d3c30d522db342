"""Ranks one or more models on a suite of single edits, such as ImgEdit-Bench, with any VLM: without the graph.

    python -m editjudge.commands.suite --suite imgedit_basic --cases basic_edit.json --images photos \\
        --gallery edits/mine --model gpt-4.1 --base-url https://api.openai.com/v1 --api-key-env OPENAI_API_KEY

--gallery is a folder of KEY.png of each model, named after it. --rater names an entry of `raters` in params.yaml;
or --model and --base-url name a VLM behind an OpenAI-compatible endpoint. Replies are kept in work/, so that the same
command asks nothing again. --out gets ratings.parquet with every reply, metrics.json, the board, gallery.csv with what
a gallery lacks, and refused.csv with rows that are no cases.
"""

import argparse
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, get_args

from editjudge.benchmarks import people
from editjudge.benchmarks.suites import forms as suites
from editjudge.benchmarks.suites import suite_rating, suite_report
from editjudge.benchmarks.suites.forms import SUITES
from editjudge.core import params, records
from editjudge.core.main import guarded
from editjudge.core.settings import known, read
from editjudge.core.tables import TableError
from editjudge.editors.galleries import pictures, suite_gallery
from editjudge.engine import unfinished
from editjudge.models.endpoint.spending import cost_rows
from editjudge.statistics import boards

REASONS = 5  # that are told of a model


def raters_of(arguments: argparse.Namespace) -> dict[str, Any]:
    """The entries of section `raters` that are asked. ParamsError."""
    if arguments.rater:
        given = params.leaf(params.load(), "raters")
        for name in arguments.rater:
            if name not in given:
                raise params.ParamsError(f"raters has no {name!r}; {known(name, list(given))}")
        return {name: given[name] for name in arguments.rater}
    if not (arguments.model and arguments.base_url):
        if arguments.people:
            return {}
        raise params.ParamsError("who rates? --rater of params.yaml, or --model and --base-url of an endpoint")
    entry = {"backend": "endpoint", "model": arguments.model, "base_url": arguments.base_url, "runs": arguments.runs}
    entry["rubrics"] = SUITES[arguments.suite].rubrics or "imgedit"
    entry |= {"temperature": 1.0} if arguments.runs > 1 else {}
    entry |= {"api_key_env": arguments.api_key_env} if arguments.api_key_env else {}
    return {"vlm": entry}


def rank(arguments: argparse.Namespace) -> str:
    """Writes all to --out; the board as Markdown. Raises what a wrong file, setting or endpoint does."""
    fields = {"form": arguments.suite, "path": str(arguments.cases), "images": arguments.images}
    fields |= {"people": arguments.people}
    setting = read("--cases", suites.SuiteSetting, fields)
    raters = suite_rating.chosen(arguments.suite, setting, raters_of(arguments))
    with TemporaryDirectory(prefix="suite-") as folder:
        cases, refused, edits = _files(arguments, setting, Path(folder))
        rows, accounts = suite_rating.rate(cases, edits, raters)
    said = None
    if setting.people:
        said = people.report(people.read(Path(setting.people), [case["dialogue"] for case in cases]))
    told = suite_report.summary(setting.form, rows)
    board = suite_report.board_rows(setting.form, told, said)
    suite = {"form": setting.form, "cases": len(cases), "refused": len(refused)}
    found = {"suite": suite, "raters": told, "people": said, "cost": cost_rows(accounts)}
    records.write(arguments.out / "ratings.parquet", rows, "ratings")
    records.write_json(arguments.out / "metrics.json", found)
    suite_report.write(arguments.out, board)
    gaps = [account.gap(f"raters.{name}") for name, account in accounts.items()]
    _tell_unscored(told, [gap for gap in gaps if gap.kinds.total()], arguments.out)
    return (arguments.out / f"board{next(iter(boards.WRITERS))}").read_text()


def _tell_unscored(told: list[dict[str, Any]], gaps: list[unfinished.Gap], out: Path) -> None:
    """Says why ratings have no score. Raises Unfinished where answers lack and no rating has a score."""
    for rater in told:
        for model in rater["models"]:
            if model["unscored"]:
                why = "; ".join(f"{each['ratings']} {each['reason']}" for each in model["reasons"][:REASONS])
                which = f"{model['unscored']} of {model['ratings']} ratings by {rater['rater']}"
                print(f"suite: {model['model']}: unscored are {which}: {why}", file=sys.stderr)
    if lacking := "; ".join(gap.told() for gap in gaps):
        lacking += ": the same command asks for them again"
        if not any(model["scored"] for rater in told for model in rater["models"]):
            raise unfinished.Unfinished(f"{lacking}. {out} has no score")
        print(f"suite: {lacking}", file=sys.stderr)


def _files(
    arguments: argparse.Namespace, setting: suites.SuiteSetting, folder: Path
) -> tuple[list[records.Row], list[records.Row], dict[str, suite_rating.Edits]]:
    """The cases, rows that are none, and each gallery's edits, their images left in files of the folder; what is wrong
    is told."""
    refused, path = list[records.Row](), folder / "cases.parquet"
    with (
        records.RowWriter(path, "suites") as out,
        records.TableWriter(arguments.out / "refused.csv", suites.REFUSED) as bad,
    ):
        for row in suites.cases(arguments.suite, setting):
            (refused.append if "reason" in row else out.add)(row)
        for row in refused:
            bad.add(row)
    for row in refused[: suite_gallery.SHOWN]:
        print(f"suite: {row['file']}: row {row['row']}: {row['reason']}", file=sys.stderr)
    if refused:
        print(f"suite: {len(refused)} rows are no cases: {arguments.out / 'refused.csv'}", file=sys.stderr)
    if not (cases := suite_rating.stored_cases(path)):
        raise TableError(f"{arguments.cases}: no row can be used as a case: {refused[0]['reason'] if refused else ''}")
    if not arguments.gallery and not arguments.people:
        raise params.ParamsError("whose edits? --gallery, a folder of each model's")
    edits = dict[str, suite_rating.Edits]()
    with records.TableWriter(arguments.out / "gallery.csv", ("model", "kind", "name", "reason")) as lacking:
        for gallery in arguments.gallery:
            model = gallery.stem if gallery.is_file() else gallery.absolute().name
            report, file = suite_gallery.Report(), folder / f"{len(edits)}.parquet"
            if model in edits:
                raise pictures.GalleryError(f"{gallery}: another gallery is called {model}: name the folders by models")
            pictures.check_name(model, "model")
            records.write(file, suite_gallery.read(gallery, cases, model, report), "candidates")
            edits[model] = suite_rating.stored_edits(file)
            for row in report.rows():
                lacking.add({"model": model, **row})
            print("\n".join(f"suite: {model}: {line}" for line in report.lines()), file=sys.stderr)
    return cases, refused, edits


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--suite", required=True, choices=get_args(suites.Form), help="the form of --cases")
    add("--cases", type=Path, required=True, metavar="FILE", help="the published table, or its folder")
    add("--images", metavar="FOLDER", help="of the photos (beside the table if left out)")
    add("--gallery", type=Path, nargs="*", default=[], metavar="FOLDER", help="of each model's edits, KEY.png")
    add("--rater", nargs="+", metavar="NAME", help="of params.yaml")
    add("--model", help="of a VLM behind an endpoint")
    add("--base-url")
    add("--api-key-env", metavar="VARIABLE", help="the environment variable with the key")
    add("--runs", type=int, default=1, help="ratings of each edit by --model, averaged")
    add("--people", metavar="CSV", help="people's yes and no, of dialogues")
    add("--out", type=Path, default=Path("suite"), metavar="FOLDER")
    print(guarded("suite", rank, parser.parse_args()), end="")


if __name__ == "__main__":
    main()
