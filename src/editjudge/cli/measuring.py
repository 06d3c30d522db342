"""`editjudge suite`: editing models on suites by VLMs."""

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from editjudge.benchmarks.suites import forms as suites
from editjudge.benchmarks.suites import suite_report
from editjudge.cli.bench import asking
from editjudge.cli.printing import Params, complain
from editjudge.core import params as settings
from editjudge.core import records
from editjudge.core.errors import UserError
from editjudge.core.settings import read
from editjudge.editors.galleries import pictures
from editjudge.engine import unfinished
from editjudge.judges import rubrics
from editjudge.judges.asking import open_rater
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
    prompts: Path | None = None,
    runs: int = 1,
    price: tuple[float, float] = (0.0, 0.0),
    people: Path | None = None,
    out: Path = Path("suite"),
    dry: bool = False,
    params: Params = None,
) -> None:
    """Rank editing models on a suite of single edits, such as ImgEdit-Bench, with any VLM.

    What it costs at most is told first. Replies are kept in work/, so that the same command asks nothing again. The
    results are ratings.parquet with every reply, metrics.json, the board, gallery.csv with what a gallery lacks, and
    refused.csv with rows that are no cases.

    Args:
        suite: The published form of the cases.
        cases: The published table, or its folder.
        gallery: A folder of KEY.png for each editing model, which it gives its name.
        images: Folder of the photos; beside the table without it.
        rater: Names in `raters` of the settings.
        model: Or a VLM behind an OpenAI-compatible endpoint,
        base_url: its address,
        api_key_env: and the environment variable with its key.
        prompts: The suite's published prompts, in which --model is asked as the public script asks: ImgEdit-Bench's
            prompts.json, or VIEScore's vie_prompts.py for GEdit-Bench; a folder where a suite has several files.
            Without them the words are our own, where the suite has such.
        runs: Ratings of each edit by --model, averaged.
        price: Of a million tokens that --model reads, and of a million that it writes.
        people: People's yes and no, of dialogues (CSV).
        out: Folder of the results.
        dry: Only tell what it costs."""
    texts = {name: None if path is None else str(path) for name, path in (("images", images), ("people", people))}
    setting = read("--cases", suites.SuiteSetting, {"form": suite, "path": str(cases)} | texts)
    if rater:
        values = settings.load_own(params)
        given = {name: settings.leaf(values, f"raters.{name}") for name in rater}
    elif model and base_url:
        form = suites.SUITES[suite]
        asked = form.rubrics or "imgedit"
        prompts = prompts or (Path() if form.published and not form.rubrics else None)
        if prompts:
            if not form.published:
                raise UserError(f"--prompts: no public script asks a judge about {suite}")
            asked = rubrics.worded(form.published, prompts, out / "prompts.yaml")
        entry = {"backend": "endpoint", "model": model, "base_url": base_url, "runs": runs, "rubrics": asked}
        entry |= {"price": dict(zip(("input", "output"), price, strict=True))}
        published = {"temperature": form.temperature, "logprobs": 0}
        entry |= published if prompts else {"temperature": 1.0} if runs > 1 else {}
        given = {"vlm": entry | ({"api_key_env": api_key_env} if api_key_env else {})}
    elif people:
        given = dict[str, Any]()
    else:
        raise UserError("who rates? --rater of the settings, or --model and --base-url of an endpoint")
    raters = suites.chosen(suite, setting, given)
    with TemporaryDirectory(prefix="suite-") as folder:
        kept, refused = _cases(suite, setting, Path(folder), out)
        if not gallery and not people:
            raise UserError("whose edits? --gallery, a folder for each model")
        edits = _galleries(gallery or (), kept, Path(folder), out)
        there = [case for case in kept for own in edits.values() if own.get(case["key"], {}).get("image")]
        more = sum(len(case["shown"] or ()) for case in there)
        for name, fields in raters.items():
            complain("suite", f"{name}: {asking(open_rater(f'raters.{name}', fields), 0, len(there), more)}")
        if dry:
            return
        rows, told, board, accounts = suite_report.results(setting, kept, edits, raters)
    counts = {"form": setting.form, "cases": len(kept), "refused": refused}
    records.write(out / "ratings.parquet", rows, "ratings")
    records.write_json(out / "metrics.json", {"suite": counts, **told})
    words = f"here, in the words of {prompts}" if prompts else "here, in our own words" if not rater else "here"
    for row in board:
        row["from"] = words if row["from"] == suite_report.HERE and row["rater"] != "people" else row["from"]
    suite_report.write(out, board)
    rated = [(each["rater"], its) for each in told["raters"] for its in each["models"]]
    for name, its in rated:
        if its["unscored"]:
            why = "; ".join(f"{each['ratings']} {each['reason']}" for each in its["reasons"][:REASONS])
            which = f"{its['unscored']} of {its['ratings']} ratings by {name}"
            complain("suite", f"{its['model']}: unscored are {which}: {why}")
    gaps = [account.gap(f"raters.{name}") for name, account in accounts.items()]
    nothing = bool(rated) and not any(its["scored"] for _, its in rated)
    if lacking := "; ".join(gap.told() for gap in gaps if gap.kinds.total()):
        lacking += ": the same command asks for them again"
        if nothing:
            raise unfinished.Unfinished(f"{lacking}. {out} has no score")
        complain("suite", lacking)
    if nothing:
        raise UserError(f"{out} has no score: all {sum(its['ratings'] for _, its in rated)} ratings are unscored")
    print((out / f"board{next(iter(boards.WRITERS))}").read_text(), end="")


def _cases(form: suites.Form, setting: suites.SuiteSetting, folder: Path, out: Path) -> tuple[list[records.Row], int]:
    """The cases, their images left in a file of the folder; refused.csv gets the rows that are none: how many."""
    path, refused = folder / "cases.parquet", out / "refused.csv"
    nothing = f"{setting.path}: no row can be used as a case"
    with records.sifted(path, "suites", refused, suites.REFUSED, nothing) as (cases, refuse):
        counts = records.sort_out(suites.cases(form, setting), cases, refuse, "type", "cases")
    if counts["refused"]:
        complain("suite", f"{counts['refused']} rows are no cases: {refused}")
    return [*records.iterate(path, "suites", "source_image.bytes")], counts["refused"]


def _galleries(
    galleries: Sequence[Path], cases: Sequence[records.Row], folder: Path, out: Path
) -> dict[str, suites.Edits]:
    """Each model's edits, their images left in files of the folder; gallery.csv gets what is missing. GalleryError."""
    edits = dict[str, suites.Edits]()
    with records.csv_writer(out / "gallery.csv", ("model", "kind", "name", "reason")) as lacking:
        for gallery in galleries:
            model = gallery.stem if gallery.is_file() else gallery.absolute().name
            report, file = pictures.GalleryReport(), folder / f"{len(edits)}.parquet"
            if model in edits:
                raise pictures.GalleryError(f"{gallery}: another gallery is called {model}: name the folders by models")
            pictures.check_name(model, "model")
            records.write(file, pictures.read_suite(gallery, cases, model, report), "candidates")
            edits[model] = {row["key"]: row for row in records.iterate(file, "candidates", "image")}
            for row in report.rows:
                lacking({"model": model, **row})
            for line in report.lines():
                complain("suite", f"{model}: {line}")
    return edits
