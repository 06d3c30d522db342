"""`editjudge bench`: judges on reward benchmarks, beside what papers print."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from editjudge import api
from editjudge.benchmarks import changed, report
from editjudge.benchmarks.preferences import forms
from editjudge.benchmarks.preferences.item import Item
from editjudge.cli.printing import Params, complain, table
from editjudge.core import hub
from editjudge.core import params as settings
from editjudge.core.errors import UserError
from editjudge.core.files import work, write_bytes
from editjudge.core.keys import plain
from editjudge.core.records import Row, grouped, write_json
from editjudge.core.settings import known, section
from editjudge.engine.unfinished import Unfinished
from editjudge.judges import opening
from editjudge.judges.asking import ChatJudge
from editjudge.judges.protocol import Judge
from editjudge.judges.styles import style
from editjudge.measures.annotation.recipe import load_recipes
from editjudge.measures.annotation.slot_settings import SlotSetting
from editjudge.models.endpoint.spending import Usage
from editjudge.stages import judge_benchmark
from editjudge.statistics import boards, power

PUBLISHED = Path(report.__file__).with_name("published.yaml")
SHOWN = ("figure", "judge", "value", "low", "high", "scored", "n", "photos")
APART = ("first", "second", "difference", "low", "high", "p", "p_holm", "needed")
IMAGE, TEXT = 1280, 1000  # tokens of the largest image that is sent, at 32 x 32 pixels each, and, a guess, of a text


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

    What it costs at most is told first. Answers are kept in work/: the same command asks nothing again, and goes on
    where it was stopped. Every two judges are compared. Without any verdict it ends with status 1.

    Args:
        on: Names in `benchmarks` of the settings; all of them, if neither these nor --data are given.
        data: Benchmarks in a published form, each as FORM=PATH.
        judge: Names in `judges`, `scorers` or `raters` of the settings, or folders or hub ids of models; the first one.
        prompt: Ask each judge in these ways, such as decision and difference_first.
        base_url: The judges are models behind this OpenAI-compatible endpoint.
        api_key_env: The environment variable with its key.
        answers: Files of answers that judges have given already to one benchmark (JSON lines, CSV or Parquet), named
            after their judges: `key`, and `winner` or `score_a` and `score_b`; or `prompt`, `model` and `score`.
        out: Write the table as .md, .tex or .csv, all figures as .json.
        dry: Only tell what it costs."""
    values = settings.load_own(params)
    named = on or (() if data else settings.leaf(values, "benchmarks"))
    benches = {name: settings.leaf(values, f"benchmarks.{name}") for name in named}
    benches |= {each: dict(zip(("form", "path"), each.split("=", 1), strict=False)) for each in data or ()}
    for file in (file for file in out or () if file.suffix not in boards.WRITERS):
        raise UserError(f"--out {file}: {known(file.suffix, boards.WRITERS)}")
    wanted = judge or ([] if answers else [*settings.leaf(values, "judges")][:1])
    if not wanted and not answers:
        raise UserError("no judge: name one (--judge), or give its answers (--answers)")
    judges = dict(_opened(values, wanted, prompt or (), base_url, api_key_env))
    if twice := {*judges} & {file.stem for file in answers or ()}:
        raise UserError(f"--answers: {', '.join(sorted(twice))} is also a --judge: give the file another name")
    items = {name: _told(name, given, judges) for name, given in benches.items()}
    if dry:
        return
    verdicts = {name: report.answered(own, answers or ()) for name, own in items.items()}
    silent, found = {name: dict[str, int]() for name in benches}, {name: dict[str, Any](boxes=[]) for name in benches}
    recipes = load_recipes(values.get("tasks") or {}) if Path("pipelines").is_dir() else {}
    for who, opened in judges.items():
        with opened:  # one model at a time, and one benchmark's images
            for name, given in benches.items():
                about = forms.load(name, given), recipes, section(values, "measures", SlotSetting)
                verdicts[name][who], silent[name][who], its = judge_benchmark.ask(who, opened, *about)
                found[name]["boxes"] += [{"judge": who} | each for each in changed.overlap(opened, about[0], its)]
        complain("bench", f"{who}: {opened.account.asked} answers came, {opened.account.reused} were kept before")
    accounts = {who: opened.account for who, opened in judges.items()}
    for name, given in benches.items():
        found[name] |= judge_benchmark.summary(name, given, items[name], verdicts[name], accounts, silent[name])
    rows = [row for name, own in found.items() for row in rows_of(name, own, benches[name].get("dimension"))]
    _print(rows, found)
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
            kept = work("judge", f"{plain(f'{base_url} {name}')}.sqlite") if base_url else None  # of this address
            yield f"{name}, {way}" if way else name, opening.open_judge(f"{place}.{plain(name)}", asked, kept)


def _told(name: str, given: Mapping[str, Any], judges: Mapping[str, Judge]) -> list[Item]:
    """A benchmark's items without their images, which are read again to be shown; what it costs is said."""
    items = forms.load(name, given)
    usable = [item for item in items if item.failed is None]
    edits = len({(i.dimension, i.instruction, i.source, each) for i in usable for each in (i.a, i.b)})
    if failed := [item for item in items if item.failed]:
        out = sum(item.verdict is None for item in failed)
        lost = f"{len(failed)} of {len(items)} rows cannot be asked"
        lost += f" ({out} left out, {len(failed) - out} count as wrong)"
        complain("bench", f"{name}: {lost}; the first: {failed[0].where}: {failed[0].failed}")
    for judge, opened in judges.items():
        complain("bench", f"{judge} on {name}: {asking(opened, len(usable), edits)}")
    return [replace(item, source=b"", a=b"", b=b"") for item in items]


def asking(judge: Judge, pairs: int, edits: int, more: int = 0) -> str:
    """What a judge is asked at most about so many pairs, of so many different edits, kept answers included. more:
    images that are shown beside sources and edits."""
    if not isinstance(judge, ChatJudge):
        return f"{pairs:,} pairs of {edits:,} edits, measured or scored here"
    own, rates = judge.model_setting, judge.outline
    each = own.passes * (rates.most_asked if rates else 2)
    asked, images = each * (edits if rates else pairs), each * (2 * edits + more if rates else 3 * pairs)
    calls = rates.calls.values() if rates else [style(judge.form)]
    longest = own.max_new_tokens or max(each.max_new_tokens for each in calls)
    usage = Usage(0, images * IMAGE + asked * TEXT, asked * longest, images)
    told = f"{asked:,} questions at most with {images:,} images, {usage.tokens_in:,} tokens read and "
    again = f"; an unread reply is asked for {own.reply_tries} times" if own.reply_tries > 1 else ""
    money = judge.account.price.of(usage)
    return f"{told}{usage.tokens_out:,} written{f', money {money:,.2f}' if money else ''}{again}"


def rows_of(name: str, found: Mapping[str, Any], dimension: Any = None) -> list[Row]:
    """A row for each figure of a judge, and for each that papers print: benchmark, SHOWN, and where it is `from`."""
    rows, probe = [], found["judges"][0]["psychometric"] is not None  # in VCReward-Bench's form, and other pairs
    for own in found["judges"]:
        seen = own["accuracy"]
        common = {"benchmark": name, "judge": own["judge"], "from": "here", "photos": seen["clusters"]}
        for each in own["published"] or [seen | {"name": "accuracy", "value": seen["accuracy"]}]:
            value = {end: each[end] if seen["scored"] else None for end in ("value", "low", "high")}  # which is no 0
            figure = each["name"].replace("VCReward-Bench", name) if probe else each["name"]
            counts = seen if each.get("n") is None else each
            rows.append(common | value | {"figure": figure} | {count: counts.get(count) for count in ("scored", "n")})
    ours = {row["figure"] for row in rows}
    for entry in settings.load(PUBLISHED).get(found["benchmark"][0]["form"], ()):
        if entry["figure"] not in ours or entry.get("dimension", dimension) != dimension:
            continue
        common = dict.fromkeys(SHOWN) | {"benchmark": name, "figure": entry["figure"]}
        common["from"] = f"{entry['source']}; {entry['protocol']}"
        rows += [common | {"judge": judge, "value": value} for judge, value in entry["judges"].items()]
    return rows


def _print(rows: Sequence[Row], found: Mapping[str, Any]) -> None:
    for name, own in grouped(rows, "benchmark").items():
        print(f"{name}:")
        table(SHOWN, [[row[column] for column in SHOWN] for row in own])
        for figure, place in dict.fromkeys((row["figure"], row["from"]) for row in own if row["from"] != "here"):
            print(f"{figure} of other judges: {place}")
        photos, apart = found[name]["judges"][0]["accuracy"]["clusters"], found[name]["between_judges"][0]["pairs"]
        lines = [each | (gap := each["difference"]) | {"needed": power.of_interval(gap, photos)} for each in apart]
        if lines:
            print(f"differences of accuracy; needed: photos, of {photos} here, for 80 % power at the 5 % level")
            table(APART, [[line[column] for column in APART] for line in lines])
        if boxes := found[name]["boxes"]:
            print("boxes of what changed: intersection over union with what was measured; n: questions, in both orders")
            table(tuple(boxes[0]), [[*line.values()] for line in boxes])


def printed(rows: Sequence[Row], file: Path) -> str:
    """A table for each benchmark as papers print it, a row a judge, and below where the others' figures are from."""
    text, (head, note) = "", ("% ", "% ") if file.suffix == ".tex" else ("## ", "\n")
    for name, own in grouped(rows, "benchmark").items():
        places, figures = list(dict.fromkeys(row["from"] for row in own)), dict.fromkeys(row["figure"] for row in own)
        lines = dict[tuple[str, str], Row]()
        for row in own:
            who = row["judge"] if row["from"] == "here" else f"{row['judge']} [{places.index(row['from'])}]"
            ends = "" if row["low"] is None else f" ({row['low']:.3f} to {row['high']:.3f})"
            line = lines.setdefault((row["judge"], row["from"]), {"judge": who} | figures)
            line[row["figure"]] = None if row["value"] is None else f"{row['value']:.3f}{ends}"
        notes = "".join(f"{note}[{n}] {place}\n" for n, place in enumerate(places) if place != "here")
        text += f"{head}{name}\n\n{boards.WRITERS[file.suffix](list(lines.values()))}{notes}\n"
    return text
