"""`editjudge bench`: judges on reward benchmarks, beside what papers print."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from editjudge import api
from editjudge.benchmarks import report
from editjudge.benchmarks.preferences import forms
from editjudge.benchmarks.preferences.item import Item
from editjudge.cli.printing import Params, complain, table
from editjudge.core import hub
from editjudge.core import params as settings
from editjudge.core.errors import UserError
from editjudge.core.files import write_bytes
from editjudge.core.keys import plain
from editjudge.core.records import Row, grouped, write_json
from editjudge.core.settings import known, section
from editjudge.engine.unfinished import Unfinished
from editjudge.judges import opening
from editjudge.judges.protocol import Judge
from editjudge.measures.annotation.recipe import load_recipes
from editjudge.measures.annotation.slot_settings import SlotSetting
from editjudge.stages import judge_benchmark
from editjudge.stages.graph import plan
from editjudge.statistics import boards, power

PUBLISHED = Path(report.__file__).with_name("published.yaml")
SHOWN = ("figure", "judge", "value", "low", "high", "scored", "n", "photos")
APART = ("first", "second", "difference", "low", "high", "p", "photos", "needed")
HERE = "here"


def bench(
    *on: str,
    data: list[str] | None = None,
    judge: list[str] | None = None,
    prompt: list[str] | None = None,
    base_url: str | None = None,
    api_key_env: str | None = None,
    answers: list[Path] | None = None,
    out: list[Path] | None = None,
    dry: bool = False,
    params: Params = None,
) -> None:
    """Measure judges on reward benchmarks, beside the figures that papers print.

    Each judge is asked about each pair in both orders; what that costs at most is told first. Answers are kept in
    work/: the same command asks nothing again, and goes on where it was stopped. Of every two judges the difference is
    told, and how many photos would tell them apart. Without any verdict it ends with status 1.

    Args:
        on: Names in `benchmarks` of the settings; all of them, if neither these nor --data are given.
        data: Benchmarks in a published form, each as FORM=PATH.
        judge: Names in `judges`, `scorers` or `raters` of the settings, or folders or hub ids of models. The first of
            `judges`, if there are no --answers.
        prompt: Ask each judge in these ways, such as decision and difference_first.
        base_url: The judges are models behind this OpenAI-compatible endpoint.
        api_key_env: The environment variable with its key.
        answers: Files of answers that judges have given already to one benchmark (JSON lines, CSV or Parquet), named
            after their judges: `key`, and `winner` or `score_a` and `score_b`; or `prompt`, `model` and `score`.
        out: Write the table as .md, .tex or .csv, all figures as .json.
        dry: Only tell what it costs."""
    values = settings.load_own(params)
    named = on or (() if data else tuple(settings.leaf(values, "benchmarks")))
    benches = {name: settings.leaf(values, f"benchmarks.{name}") for name in named} | dict(map(_given, data or ()))
    if answers and len(benches) != 1:
        raise UserError(f"--answers are to one benchmark, not to {len(benches)}")
    for file in (file for file in out or () if file.suffix not in boards.WRITERS):
        raise UserError(f"--out {file}: {known(file.suffix, boards.WRITERS)}")
    wanted = judge or ([] if answers else [next(iter(settings.leaf(values, "judges")))])
    judges = dict(_opened(values, wanted, prompt or (), base_url, api_key_env))
    items = {name: _told(name, given, judges) for name, given in benches.items()}
    if dry:
        return
    verdicts = {name: report.answered(own, answers or ()) for name, own in items.items()}
    silent, found = {name: dict[str, int]() for name in benches}, dict[str, Any]()
    recipes = load_recipes(values.get("tasks") or {}) if Path("pipelines").is_dir() else {}
    for who, opened in judges.items():
        with opened:  # one model at a time, and one benchmark's images
            for name, given in benches.items():
                about = forms.load(name, given), recipes, section(values, "measures", SlotSetting)
                verdicts[name][who], silent[name][who] = judge_benchmark.ask(who, opened, *about)
        complain("bench", f"{who}: {opened.account.asked} answers came, {opened.account.reused} were kept before")
    accounts = {who: opened.account for who, opened in judges.items()}
    for name, given in benches.items():
        found[name] = judge_benchmark.summary(name, given, items[name], verdicts[name], accounts, silent[name])
    rows = [row for name, own in found.items() for row in rows_of(name, own)]
    _print(rows, {name: differences(own) for name, own in found.items()})
    for file in out or ():
        if file.suffix == ".json":
            write_json(file, {"rows": rows, "benchmarks": found})
        else:
            write_bytes(file, (boards.WRITERS[".csv"](rows) if file.suffix == ".csv" else printed(rows, file)).encode())
    lacking = "; ".join(gap.told() for who in judges if (gap := accounts[who].gap(f"judges.{who}")).kinds.total())
    every = [row for its in verdicts.values() for own in its.values() for row in own]
    if all(row["winner"] is None for row in every):
        raise Unfinished(f"nothing was scored; the first: {every[0]['reason']}. {lacking}")
    if lacking:
        complain("bench", f"{lacking}: the same command asks for them again")


def _given(words: str) -> tuple[str, Mapping[str, str]]:
    form, _, path = words.partition("=")
    if form not in forms.FORMS or not path:
        raise UserError(f"--data {words}: FORM=PATH expected; {known(form, forms.FORMS)}")
    return words, {"form": form, "path": path}


def _opened(
    values: dict[str, Any], names: Sequence[str], prompts: Sequence[str], base_url: str | None, key: str | None
) -> Iterator[tuple[str, Judge]]:
    """Each judge in each way of asking, checked; nothing is loaded. ParamsError, FileError."""
    for name in names:
        place = next((each for each in opening.SECTIONS if name in (values.get(each) or {})), None)
        if base_url:
            place, entry = "judges", {"backend": "endpoint", "model": name, "base_url": base_url, "rule": "probability"}
            entry |= {"api_key_env": key} if key else {}
        elif place or not (Path(name).is_dir() or hub.is_id(name)):
            opening.find_judge(values, name)  # which says what there is, if there is none
            entry = values[str(place)][name]
        else:
            place, entry = api.entry_of(name)
        for way in prompts or (None,):
            asked = entry | ({"prompt": way} if way else {})
            yield f"{name}, {way}" if way else name, opening.open_judge(f"{place}.{plain(name)}", asked)


def _told(name: str, given: Mapping[str, Any], judges: Mapping[str, Judge]) -> list[Item]:
    """A benchmark's items without their images, which are read again to be shown; what it costs is said."""
    items = forms.load(name, given)
    usable = [item for item in items if item.failed is None]
    edits = len({(item.instruction, item.source, each) for item in usable for each in (item.a, item.b)})
    for judge, opened in judges.items():
        complain("bench", f"{judge} on {name}: {plan.asking(opened, len(usable), edits)}")
    return [replace(item, source=b"", a=b"", b=b"") for item in items]


def rows_of(name: str, found: Mapping[str, Any]) -> list[Row]:
    """A row for each figure of a judge, and for each that papers print: benchmark, SHOWN, and where it is `from`."""
    rows = []
    for own in found["judges"]:
        seen = own["accuracy"]
        common = {"benchmark": name, "judge": own["judge"], "from": HERE, "photos": seen["clusters"]}
        for each in own["published"] or [seen | {"name": "accuracy", "value": seen["accuracy"]}]:
            value = {end: each[end] if seen["scored"] else None for end in ("value", "low", "high")}  # which is no 0
            rows.append(common | value | {"figure": each["name"], "scored": seen["scored"], "n": seen["n"]})
    for entry in settings.load(PUBLISHED).get(found["benchmark"][0]["form"], ()):
        common = dict.fromkeys(SHOWN) | {"benchmark": name, "figure": entry["figure"]}
        common["from"] = f"{entry['source']}; {entry['protocol']}"
        rows += [common | {"judge": judge, "value": value} for judge, value in entry["judges"].items()]
    return rows


def differences(found: Mapping[str, Any]) -> list[Row]:
    """Of every two judges, in the columns of APART."""
    photos, every = found["judges"][0]["accuracy"]["clusters"], found["between_judges"][0]["pairs"]
    own = [pair["difference"] | {name: pair[name] for name in ("first", "second")} for pair in every]
    return [row | {"photos": photos, "needed": power.of_interval(row, photos)} for row in own]


def _print(rows: Sequence[Row], apart: Mapping[str, Sequence[Row]]) -> None:
    for name, own in grouped(rows, "benchmark").items():
        print(f"{name}:")
        table(SHOWN, [[row[column] for column in SHOWN] for row in own])
        if apart[name]:
            print("differences of accuracy; needed: photos for 80 % power at the 5 % level")
            table(APART, [[row[column] for column in APART] for row in apart[name]])


def printed(rows: Sequence[Row], file: Path) -> str:
    """A table for each benchmark as papers print it, a row a judge, and below where the others' figures are from."""
    text, (head, note) = "", ("% ", "% ") if file.suffix == ".tex" else ("## ", "\n")
    for name, own in grouped(rows, "benchmark").items():
        places, figures = list(dict.fromkeys(row["from"] for row in own)), dict.fromkeys(row["figure"] for row in own)
        lines = dict[tuple[str, str], Row]()
        for row in own:
            who = row["judge"] if row["from"] == HERE else f"{row['judge']} [{places.index(row['from'])}]"
            ends = "" if row["low"] is None else f" ({row['low']:.3f} to {row['high']:.3f})"
            line = lines.setdefault((row["judge"], row["from"]), {"judge": who} | figures)
            line[row["figure"]] = None if row["value"] is None else f"{row['value']:.3f}{ends}"
        notes = "".join(f"{note}[{n}] {place}\n" for n, place in enumerate(places) if place != HERE)
        text += f"{head}{name}\n\n{boards.WRITERS[file.suffix](list(lines.values()))}{notes}\n"
    return text
