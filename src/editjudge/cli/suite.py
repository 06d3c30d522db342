"""`editjudge suite`."""

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from editjudge.benchmarks import people as people_said
from editjudge.benchmarks.suites import forms as suites
from editjudge.benchmarks.suites import suite_rating, suite_report
from editjudge.cli.options import Params
from editjudge.cli.printing import complain
from editjudge.core import params as settings
from editjudge.core import records
from editjudge.core.errors import UserError
from editjudge.core.settings import known, read
from editjudge.core.shipped import settings_file
from editjudge.core.tables import TableError
from editjudge.editors.galleries import pictures, suite_gallery
from editjudge.engine import unfinished
from editjudge.models.endpoint.spending import cost_rows
from editjudge.statistics import boards

REASONS = 5  # that are told of a model


def suite(
    *,
    suite: suites.Form,
    cases: Path,
    gallery: list[Path] | None = None,
    images: Path | None = None,
    rater: list[str] | None = None,
    model: str | None = None,
    base_url: str | None = None,
    api_key_env: str | None = None,
    runs: int = 1,
    people: Path | None = None,
    out: Path = Path("suite"),
    params: Params = None,
) -> None:
    """Rank editing models on a suite of single edits, such as ImgEdit-Bench, with any VLM.

    Replies are kept in work/, so that the same command asks nothing again. The results are ratings.parquet with every
    reply, metrics.json, the board, gallery.csv with what a gallery lacks, and refused.csv with rows that are no cases.

    Args:
        suite: The published form of the cases.
        cases: The published table, or its folder.
        gallery: A folder of KEY.png for each editing model, which it gives its name.
        images: Folder of the photos; beside the table without it.
        rater: Names in `raters` of the settings.
        model: Or a VLM behind an OpenAI-compatible endpoint,
        base_url: its address,
        api_key_env: and the environment variable with its key.
        runs: Ratings of each edit by --model, averaged.
        people: People's yes and no, of dialogues (CSV).
        out: Folder of the results.
    """
    fields = {"form": suite, "path": str(cases), "images": _text(images), "people": _text(people)}
    setting = read("--cases", suites.SuiteSetting, fields)
    given = named(rater, params) if rater else endpoint(suite, model, base_url, api_key_env, runs, bool(people))
    raters = suite_rating.chosen(suite, setting, given)
    with TemporaryDirectory(prefix="suite-") as folder:
        kept, refused = read_cases(suite, setting, Path(folder), out)
        if not gallery and not people:
            raise UserError("whose edits? --gallery, a folder for each model")
        edits = read_galleries(gallery or (), kept, Path(folder), out)
        rows, accounts = suite_rating.rate(kept, edits, raters)
    said = None
    if setting.people:
        said = people_said.report(people_said.read(Path(setting.people), [case["dialogue"] for case in kept]))
    told = suite_report.summary(setting.form, rows)
    counts = {"form": setting.form, "cases": len(kept), "refused": len(refused)}
    found = {"suite": counts, "raters": told, "people": said, "cost": cost_rows(accounts)}
    records.write(out / "ratings.parquet", rows, "ratings")
    records.write_json(out / "metrics.json", found)
    suite_report.write(out, suite_report.board_rows(setting.form, told, said))
    gaps = [account.gap(f"raters.{name}") for name, account in accounts.items()]
    tell_unscored(told, [gap for gap in gaps if gap.kinds.total()], out)
    print((out / f"board{next(iter(boards.WRITERS))}").read_text(), end="")


def _text(path: Path | None) -> str | None:
    return None if path is None else str(path)


def named(raters: Sequence[str], params: Path | None) -> dict[str, Any]:
    """These entries of section `raters`. ParamsError."""
    given = settings.leaf(settings.load(settings_file(params)), "raters")
    for name in raters:
        if name not in given:
            raise settings.ParamsError(f"raters has no {name!r}; {known(name, list(given))}")
    return {name: given[name] for name in raters}


def endpoint(
    suite: str, model: str | None, base_url: str | None, key: str | None, runs: int, people: bool
) -> dict[str, Any]:
    """A VLM behind an endpoint as the rater `vlm`; nobody where people have rated. UserError: neither is given."""
    if not (model and base_url):
        if people:
            return {}
        raise UserError("who rates? --rater of the settings, or --model and --base-url of an endpoint")
    entry: dict[str, Any] = {"backend": "endpoint", "model": model, "base_url": base_url, "runs": runs}
    entry["rubrics"] = suites.SUITES[suite].rubrics or "imgedit"
    entry |= {"temperature": 1.0} if runs > 1 else {}
    return {"vlm": entry | ({"api_key_env": key} if key else {})}


def tell_unscored(told: list[dict[str, Any]], gaps: list[unfinished.Gap], out: Path) -> None:
    """Says why ratings have no score. Raises Unfinished where answers lack and no rating has a score."""
    for rater in told:
        for model in rater["models"]:
            if model["unscored"]:
                why = "; ".join(f"{each['ratings']} {each['reason']}" for each in model["reasons"][:REASONS])
                which = f"{model['unscored']} of {model['ratings']} ratings by {rater['rater']}"
                complain("suite", f"{model['model']}: unscored are {which}: {why}")
    if lacking := "; ".join(gap.told() for gap in gaps):
        lacking += ": the same command asks for them again"
        if not any(model["scored"] for rater in told for model in rater["models"]):
            raise unfinished.Unfinished(f"{lacking}. {out} has no score")
        complain("suite", lacking)


def read_cases(
    suite: suites.Form, setting: suites.SuiteSetting, folder: Path, out: Path
) -> tuple[list[records.Row], list[records.Row]]:
    """The cases, their images left in a file of the folder, and the rows that are none, which refused.csv gets too."""
    refused, path = list[records.Row](), folder / "cases.parquet"
    with records.RowWriter(path, "suites") as cases:
        for row in suites.cases(suite, setting):
            (refused.append if "reason" in row else cases.add)(row)
    with records.TableWriter(out / "refused.csv", suites.REFUSED) as table:
        for row in refused:
            table.add(row)
    for row in refused[: suite_gallery.SHOWN]:
        complain("suite", f"{row['file']}: row {row['row']}: {row['reason']}")
    if refused:
        complain("suite", f"{len(refused)} rows are no cases: {out / 'refused.csv'}")
    if not (kept := suite_rating.stored_cases(path)):
        raise TableError(f"{setting.path}: no row can be used as a case: {refused[0]['reason'] if refused else ''}")
    return kept, refused


def read_galleries(
    galleries: Sequence[Path], cases: Sequence[records.Row], folder: Path, out: Path
) -> dict[str, suite_rating.Edits]:
    """Each model's edits, their images left in files of the folder; gallery.csv gets what is missing. GalleryError."""
    edits = dict[str, suite_rating.Edits]()
    with records.TableWriter(out / "gallery.csv", ("model", "kind", "name", "reason")) as lacking:
        for gallery in galleries:
            model = gallery.stem if gallery.is_file() else gallery.absolute().name
            report, file = suite_gallery.GalleryReport(), folder / f"{len(edits)}.parquet"
            if model in edits:
                raise pictures.GalleryError(f"{gallery}: another gallery is called {model}: name the folders by models")
            pictures.check_name(model, "model")
            records.write(file, suite_gallery.read(gallery, cases, model, report), "candidates")
            edits[model] = suite_rating.stored_edits(file)
            for row in report.rows():
                lacking.add({"model": model, **row})
            for line in report.lines():
                complain("suite", f"{model}: {line}")
    return edits
