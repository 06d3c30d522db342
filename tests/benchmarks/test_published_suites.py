"""Suites in the words of their authors: what is asked, and that made-up replies come to what the public scripts say."""

import itertools
import json
import math
import random
import re
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from types import SimpleNamespace
from typing import Any

import forks
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import suite_files
from cases import yaml_beside
from chat_client import chat_server
from pictures import picture

from editjudge.benchmarks.suites import forms, suite_report, wise
from editjudge.benchmarks.suites.suite import figures_of
from editjudge.core import records
from editjudge.core.records import Row
from editjudge.judges import rubrics
from editjudge.judges.asking import ChatJudge
from editjudge.models.chat.forms import RawReply

CASES = 200
Said = dict[str, list[dict[str, str]]]  # by case, of each run the reply to each question


class Scripted(ChatJudge):
    """A rater whose replies are made up. reply: to a question (its dimensions and range) in a run; None: unreadable."""

    def __init__(self, form: str, runs: int, reply: Callable[[rubrics.Rubric], str]) -> None:
        self.form, self.account = form, None  # type: ignore[assignment]
        self.model_setting, self.said, self.chats = SimpleNamespace(passes=runs), Said(), dict[Any, Any]()
        self.model, self.reply = SimpleNamespace(answers=self.answers), reply  # type: ignore[assignment]

    def __enter__(self) -> "Scripted":
        return self

    def __exit__(self, *_: object) -> None: ...

    identity = "scripted"

    def answers(self, form: rubrics.Rubric, edits: Sequence[Any]) -> list[list[Any]]:
        found = []
        for edit in edits:
            replies = [self.reply(form) for _ in range(self.model_setting.passes)]
            runs = self.said.setdefault(edit.key, [{} for _ in replies])
            for run, text in zip(runs, replies, strict=True):
                run["+".join(form.dimensions)] = text
            [*_, turn] = chat = form.messages(edit.instruction)
            shown = iter(form.images)
            parts = [edit.images[next(shown)] if p["type"] == "image" else p["text"] for p in turn["content"]]
            self.chats[edit.key, "+".join(form.dimensions)] = [each["content"][0]["text"] for each in chat[:-1]], parts
            found.append([form.answer(edit, RawReply(text)) for text in replies])
        return found


@dataclass
class Rated:
    cases: list[Row]
    judge: Scripted
    boards: dict[str, dict[str, Any]]  # by what tells it apart
    figures: dict[str, dict[str, float | None]]


def rated(
    form, table: Path, words: Mapping[str, str], reply: Any, monkeypatch: Any, runs=1, lacking=(), **about
) -> Rated:
    """The boards of a suite whose every case is rated by made-up replies. words: the authors' files. lacking: how the
    keys of cases without an edit begin."""
    (folder := table.parent / "words").mkdir()
    for name, text in words.items():
        (folder / name).write_text(text)
    suite = forms.SUITES[form]
    asked = rubrics.worded(suite.published or "", folder, table.parent / "asked.yaml")
    rater = {"rubrics": asked, "backend": "endpoint", "model": "m", "base_url": "http://127.0.0.1:1/v1"}
    assert forms.chosen(form, forms.SuiteSetting(form=form, path=str(table)), {"r": rater})
    cases = suite_files.load(form, table, **about)
    records.check("suites", cases, "x")
    judge = Scripted(asked, runs, reply)
    monkeypatch.setattr(forms, "open_rater", lambda *_: judge)
    edited = [case["key"] for case in cases if not case["key"].startswith(tuple(lacking))]
    edits = {key: {"image": picture(9), "reason": None} for key in edited}
    rows, _ = forms.rate(cases, {"m": edits}, {"r": {}})
    records.check("ratings", rows, "x")
    [told] = suite_report.summary(form, rows)
    boards = {"/".join(each.labels.values()): each for each in suite.boards}
    found = dict(zip(boards, told["models"][0]["boards"], strict=True))
    means = {name: {key: each["mean"] for key, each in figures_of(board).items()} for name, board in found.items()}
    assert suite_report.board_rows(form, [told])[0]["score"] is not None
    return Rated(cases, judge, found, means)


def by_type(board: Mapping[str, Any], name: str) -> dict[str, float | None]:
    return {each["type"]: figures_of(each)[name]["mean"] for each in board["types"]}


def images(folder: Path, *names: str) -> None:
    for n, name in enumerate(names):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(picture(n))


def prompt_file(*names: str, rest: str = "") -> str:
    """Python code as the authors have theirs: a text in each of these variables."""
    return "".join(f'{name} = """Rate {name}.\nInstruction: {{instruct}}\n{rest}"""\n' for name in names)


def questions_of(form: str) -> dict[str, dict[str, list[str]]]:
    """By kind of case and name, the lines of each question of a suite that has questions of its own."""
    said = forms.SUITES[form].published
    kinds = said.get("kinds", {"": said.get("calls")}) if isinstance(said, Mapping) else {}
    return {kind: {name: call["user"] for name, call in calls.items()} for kind, calls in kinds.items()}


@pytest.mark.parametrize("form", [form for form in forms.SUITES if questions_of(form)])
def test_a_question_shows_each_picture_once_in_the_order_of_its_number(form: str) -> None:
    counts: dict[str, dict[int, str]] = defaultdict(dict)
    texts = {f"{kind} {name}": each for kind, own in questions_of(form).items() for name, each in own.items()}
    for asked, lines in texts.items():
        assert re.search(r"\{(source|truth|edited)\}", "".join(lines)), f"{form}, {asked} shows no picture"
    numbered = (r"(?:#|Image )(\d)", r"Frame (\d)", r"\{source_?(\d?)\}", r"\{truth_?(\d?)\}")
    for (asked, lines), what in itertools.product(texts.items(), numbered):
        found = [int(n or 1) for n in re.findall(what, "".join(lines))]
        assert found == [*range(1, len(found) + 1)], f"{form}, {asked}: {lines}"
        counts[what] |= {len(found): asked} if len(found) > 1 else {}
    assert all(len(each) < 2 for each in counts.values()), f"some questions lack a picture of others: {counts}"


RISE_WORDS = yaml_beside(__file__)["RISE_WORDS"]
RISE_ASKS = yaml_beside(__file__)["RISE_ASKS"]
FINAL = {"utils.py": prompt_file(*(f"prompt_{name}" for name in RISE_WORDS), rest="Truth: {reference}\n")}


def final(draw: random.Random) -> Callable[[rubrics.Rubric], str]:
    """Replies as RISEBench and UniREditBench ask for them; one in 60 has no number."""

    def reply(form: rubrics.Rubric) -> str:
        number = draw.choice([*range(form.least, form.most + 1), form.most, form.most])
        return "I cannot say." if draw.random() < 1 / 60 else f"It is 3 of 7 so.\n\n**Final Score:** **{number}**"

    return reply


def extracted(said: Mapping[str, str]) -> dict[str, int] | None:
    """The numbers of a case's replies; None where one has none."""
    ends = {key: text.rpartition("**Final Score:** **")[2].rstrip("*") for key, text in said.items()}
    return {key: int(end) for key, end in ends.items()} if all(end.isdigit() for end in ends.values()) else None


def rise_table(folder: Path) -> Path:
    """200 cases of all kinds in the form of the published file of 360."""
    images(folder, "a.png", "truth.png")
    rows: list[Row] = []
    for n in range(CASES):
        category = ("temporal", "causal", "spatial", "logical")[n % 4] + "_reasoning"
        row = {"index": f"{category}_{n}", "category": category, "instruction": f"edit {n}", "image": "a.png"}
        row |= {"reasoning_img": "x" if n % 3 else None, "consistency_free": True if n % 11 == 1 else None}
        pictured = category == "logical_reasoning" or category == "spatial_reasoning"
        if pictured and n % 8 > 3:
            row |= {"reference_img": "truth.png"}
        else:
            row |= {"reference_txt" if category == "logical_reasoning" else "reference": f"truth {n}"}
        row |= {"consistency_free": None} if category == "logical_reasoning" else {}  # where the script ends
        rows.append(row)
    (folder / "data.json").write_text(json.dumps(rows))
    return folder / "data.json"


def rise_script(case: Row, said: Mapping[str, str], free: bool) -> tuple[float | None, int]:
    """gpt_eval.py's score and completion of one case, in other words. free: NaN in consistency_free is true."""
    numbers = extracted(said)
    if numbers is None:
        return None, 0
    if case["type"] == "logical_reasoning":
        r, c = (4 * min(numbers[key], 1) + 1 for key in ("reasoning", "consistency"))
        score, complete = 0.3 * c + 0.7 * r, r == c == 5
    else:
        c, r, v = numbers.get("consistency"), numbers["reasoning"], numbers["quality"]
        score = 0.2 * v + 0.8 * r if free or c is None else 0.3 * c + 0.5 * r + 0.2 * v
        complete = r == v == 5 and c in (None, 5)
    return (max(1, score * 0.5) if r == 1 else score), int(complete)


@pytest.mark.parametrize("form", ["risebench", "risebench_mended"])
def test_risebench_asks_each_kind_with_its_own_words_and_pictures(form: str) -> None:
    kinds = questions_of(form)
    assert {kind.removesuffix("_free") for kind in kinds} == set(RISE_ASKS)
    for kind, own in kinds.items():
        wanted = {name: [*words, "edited"] for name, words in RISE_ASKS[kind.removesuffix("_free")].items()}
        if form == "risebench_mended":
            wanted["consistency"][1] = "source"
        if kind.endswith("_free"):
            del wanted["consistency"]
        found = {name: re.findall(r"\{(?:theirs:prompt_)?(\w+)\}", "".join(lines)) for name, lines in own.items()}
        assert found == wanted, f"{form}, {kind}"


def test_risebench_is_asked_and_scored_as_gpt_eval_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = rated("risebench", rise_table(tmp_path), FINAL, final(random.Random(0)), monkeypatch)
    said = {case["key"]: found.judge.said[case["key"]][0] for case in found.cases}
    for label, free in (("published", True), ("mended", False)):
        scored = [(case, *rise_script(case, said[case["key"]], free)) for case in found.cases]
        kept = {case["key"]: score for case, score, _ in scored if score is not None}
        assert 0 < len(kept) < CASES
        assert found.figures[label]["weighted"] == pytest.approx(25 * (fmean(kept.values()) - 1), abs=1e-6)
        of = defaultdict(list)
        for case, _, complete in scored:
            if label == "published" or case["key"] in kept:
                of[case["type"]].append(100 * complete)
        mean = fmean(n for each in of.values() for n in each)
        assert found.figures[label]["accuracy"] == pytest.approx(mean, abs=1e-6)
        assert by_type(found.boards[label], "accuracy") == pytest.approx({kind: fmean(of[kind]) for kind in of})
    assert found.figures["published"]["weighted"] != pytest.approx(found.figures["mended"]["weighted"], abs=0.01)
    source, truth, edit = picture(0), picture(1), picture(9)

    def text(name: str, n: int, reference: str) -> str:
        return f"Rate prompt_{name}.\nInstruction: edit {n}\nTruth: {reference}\n"

    asked = found.judge.chats
    assert asked["temporal_reasoning_4", "reasoning"][1] == [text("reasoning_w_input", 4, "truth 4"), source, edit]
    assert asked["temporal_reasoning_0", "reasoning"][1] == [text("reasoning", 0, "truth 0"), edit]
    assert asked["spatial_reasoning_6", "consistency"][1][1:] == [truth, edit], "the reference in the source's place"
    assert asked["spatial_reasoning_6", "reasoning"][1][1:] == [truth, edit]
    assert asked["logical_reasoning_3", "reasoning"][1] == [text("logical_txt", 3, "truth 3"), edit]
    assert ("causal_reasoning_1", "consistency") not in asked, "free of consistency"
    (tmp_path / "other").mkdir()
    table = rise_table(tmp_path / "other")
    mended = rated("risebench_mended", table, FINAL, final(random.Random(0)), monkeypatch)
    assert mended.judge.chats["spatial_reasoning_6", "consistency"][1][1:] == [source, edit]
    assert mended.judge.chats["spatial_reasoning_6", "reasoning"][1][1:] == [truth, edit]


UNIREDIT = {
    "utils.py": prompt_file("prompt_consist", "prompt_reasoning_w_ref_image", "prompt_generation", rest="{reference}")
}


def uniredit_table(folder: Path, count: int = CASES) -> Path:
    images(folder, "a.png", "truth.png")
    about = {"original_image_path": "a.png", "reference_image_path": "truth.png", "reference_effect": "as it should be"}
    rules = ({}, {"rules": "Walls stop."})
    rows = [
        {"name": f"game {n % 3}", "idx": n, "instruction": f"edit {n}"} | about | rules[n % 2] for n in range(count)
    ]
    (folder / "data.json").write_text(json.dumps(rows))
    return folder / "data.json"


def test_uniredit_is_asked_and_scored_as_its_script_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = rated("uniredit", uniredit_table(tmp_path), UNIREDIT, final(random.Random(1)), monkeypatch)
    scores, best = defaultdict(list), []
    for case in found.cases:
        if numbers := extracted(found.judge.said[case["key"]][0]):
            a, r, v = (numbers[key] for key in ("consistency", "reasoning", "quality"))
            scores[case["type"]].append(25 * (0.3 * a + 0.5 * r + 0.2 * v - 1))
            best.append(100 * (a == r == v == 5))
    every = [score for each in scores.values() for score in each]
    assert 0 < len(every) < CASES
    figures = found.figures["published"]
    assert (figures["score"], figures["accuracy"]) == pytest.approx((fmean(every), fmean(best)), abs=1e-6)
    assert by_type(found.boards["published"], "score") == pytest.approx({k: fmean(each) for k, each in scores.items()})
    [*_, case] = found.cases
    assert (case["file"], case["instruction"]) == ("game 1/199", "Walls stop.\nedit 199")
    asked = "Rate prompt_reasoning_w_ref_image.\nInstruction: Walls stop.\nedit 199\nas it should be"
    assert found.judge.chats[case["key"], "reasoning"] == ([], [asked, picture(0), picture(1), picture(9)])


@pytest.mark.parametrize(
    ("form", "table", "words", "requests", "board"),
    [
        ("risebench", rise_table, FINAL, 4 * 3 - 1, "| vlm | mine | here, in the words of words | 25.00 |"),
        ("uniredit", uniredit_table, UNIREDIT, 4 * 3, "| vlm | mine | here, in the words of words | 75.00 |"),
    ],
)
def test_a_model_is_ranked_with_one_command_that_pays_nothing_twice(form, table, words, requests, board, workdir):
    cases = json.loads(table(Path("t")).read_text())
    Path("t/data.json").write_text(json.dumps(cases[4:8]))
    Path("words").mkdir()
    command = ["suite", "--suite", form, "--cases", "t/data.json", "--model", "m", "--gallery", "mine"]
    suite_files.gallery(Path("mine"), suite_files.load(form, Path("t/data.json")))
    unworded = forks.program(*command, "--base-url", "http://127.0.0.1:1/v1")
    assert unworded.stderr.startswith("suite: utils.py not found: get it with curl -o utils.py https://raw.github")
    (Path("words") / "utils.py").write_text(words["utils.py"])
    replies = {name: ["So.\n\n**Final Score:** **4**"] for name in (*(f"edit {n}" for n in range(8)), "Walls stop.")}
    replies |= {"edit 7": ["**Final Score**: **1**"]} if form == "risebench" else {}
    command += ["--prompts", "words", "--base-url"]
    told = forks.program(*command, "http://127.0.0.1:1/v1", "--dry", "--price", "2", "8")
    cost = {"risebench": "30 images, 50,400 tokens read and 49,152 written, money 0.49"}
    cost["uniredit"] = "36 images, 58,080 tokens read and 49,152 written, money 0.51"
    assert told.returncode == 0
    asked = f"suite: vlm: 12 questions at most with {cost[form]}; an unread reply is asked for 3 times"
    assert told.stderr.splitlines()[1] == asked
    with chat_server(replies=replies, bodies=True) as server:
        for _ in range(2):
            done = forks.program(*command, server.url)
            assert done.returncode == 0, done.stderr
            bodies = [json.loads(body) for body in server.log()["bodies"]]
            assert len(bodies) == requests
    assert board in done.stdout
    assert {(body["temperature"], body["max_tokens"], len(body["messages"])) for body in bodies} == {(0.0, 4096, 1)}


KRIS_WORDS = yaml_beside(__file__)["KRIS_WORDS"]
KRIS_FILE = {"prompts.py": prompt_file(*(f"prompt_{name}" for name in KRIS_WORDS), rest="{{X: 1}} {explanation} {N}.")}
KRIS_CASES = yaml_beside(__file__)["KRIS_CASES"]


def kris_table(folder: Path) -> Path:
    for category, row in KRIS_CASES.items():
        images(folder / "bench" / category, *(n for v in row.values() for n in ([v] if isinstance(v, str) else v)))
        said = {str(n): row | {"ins_en": f"edit {n}", "explain_en": "because"} for n in range(34)}
        (folder / "bench" / category / "annotation.json").write_text(json.dumps(said))
    return folder / "bench"


def kris_replies(draw: random.Random) -> Callable[[rubrics.Rubric], str]:
    def reply(form: rubrics.Rubric) -> str:
        if draw.random() < 1 / 60:
            return "I cannot."
        scores = {f"{key}_score": draw.randint(1, 5) for key in form.dimensions}
        return f"So it is:\n```json\n{json.dumps({'reasoning': '1. Seen 2. Wanted'} | scores)}\n```"

    return reply


def test_kris_has_the_numbers_of_its_scripts_and_a_form_that_tells_the_judge_what_was_asked(tmp_path, monkeypatch):
    found = rated("kris", kris_table(tmp_path), KRIS_FILE, kris_replies(random.Random(2)), monkeypatch)
    numbers: dict[str, list[float]] = defaultdict(list)
    for case in found.cases:
        texts = found.judge.said[case["key"]][0].values()
        if all("{" in text for text in texts):
            own = {k: v for text in texts for k, v in json.loads(text.split("```")[1][4:]).items() if k != "reasoning"}
            for name, value in own.items():
                numbers[name.removesuffix("_score")].append(25 * (value - 1))
            numbers["score"].append(fmean(25 * (value - 1) for value in own.values()))
    assert 150 < len(numbers["score"]) < 204
    assert len(numbers["knowledge"]) < 35
    assert found.figures["published"] == pytest.approx({name: fmean(each) for name, each in numbers.items()}, abs=1e-6)
    (tmp_path / "other").mkdir()
    table = kris_table(tmp_path / "other")
    mended = rated("kris_mended", table, KRIS_FILE, kris_replies(random.Random(2)), monkeypatch)
    for form in (found.judge.form, mended.judge.form):
        for name, call in rubrics.questions(form).calls.items():
            keys = name.partition(" of ")[0].split("+")
            for key in ("{}_score", "{} score"):  # metrics_common.py reads both, by consistency[_\s]*score
                reply = json.dumps({key.format(each): 3 for each in keys})
                assert call.read(reply) == (dict.fromkeys(keys, 3), None), f"{name} reads {reply}"

    def asked(of: Rated, category: str, key: str) -> list[Any]:
        return of.judge.chats[f"{category}-7", key][1]

    empty = "Rate prompt_{}.\nInstruction: \n{{X: 1}}  {}."
    whole = "Rate prompt_{}.\nInstruction: edit 7\n{{X: 1}} because {}."
    pair = ["This is the original image:", picture(0), "This is the edited image:", picture(9)]
    assert asked(found, "color_change", "consistency") == [empty.format("consist", "n"), *pair]
    assert asked(found, "viewpoint_change", "instruction") == [empty.format("instruction_following", "w"), *pair]
    words = whole.format("view_instruction_following", "w")
    assert asked(mended, "viewpoint_change", "instruction") == [
        words, *pair, "This is the ground truth image:", picture(1),
    ]  # fmt: skip
    assert asked(mended, "physics", "instruction+knowledge")[0] == whole.format("dual_evaluation", "e")
    assert "abnormal" in asked(mended, "anomaly_correction", "instruction")[0]
    assert asked(mended, "temporal_prediction", "consistency") == [
        whole.format("consist_temporal", "2"), "Frame 1 (Reference):", picture(0), "Frame 2 (Generated):", picture(9),
        "Frame 3 (Reference):", picture(1), "Frame 4 (Reference):", picture(2),
    ]  # fmt: skip
    shown = asked(mended, "multi-element_composition", "instruction")
    assert shown[1::2] == [*(f"Reference Image {n}:" for n in (1, 2, 3)), "Predicted Image:"]
    assert shown[2::2] == [*map(picture, (0, 1, 2)), picture(9)]


def test_omnicontext_is_the_last_of_three_answers_as_published_and_their_mean_as_mended(tmp_path, monkeypatch):
    rule = "_prompts_0shot_in_context_generation_rule_"
    names = [rule + each for each in ("PF_Scene", "SC_Scene", "PF_Single_and_Multiple", "SC_Single_and_Multiple")]
    prompts = '_context_no_delimit = """Be {\n"score": <score>}\n"""\n'
    prompts += prompt_file(*names).replace("{instruct}", "<instruction>")
    draw, kinds = random.Random(3), ("single_object", "multiple_character", "scene_mixed")
    images(tmp_path, "a.png", "b.png", "c.png")
    shown = ["a.png", "b.png", "c.png"]
    rows = [
        {"key": f"{n:04}", "task_type": kinds[n % 3], "instruction": f"make {n}", "instruction_language": "en",
         "input_images": shown[: 1 + n % 3]}
        for n in range(CASES)
    ]  # fmt: skip
    (tmp_path / "rows.json").write_text(json.dumps(rows))

    def reply(_: rubrics.Rubric) -> str:
        said = json.dumps({"score": draw.randint(0, 10), "reasoning": "so"})
        return "Sorry." if draw.random() < 1 / 60 else f"```json\n{said}\n```"

    words = {"prompt_generator.py": prompts}
    found = rated("omnicontext", tmp_path / "rows.json", words, reply, monkeypatch, runs=3)

    def average(run: int) -> float:
        """calculate_statistics.py's last line; what it guesses at random is left out."""
        types = defaultdict(list)
        for case in found.cases:
            texts = found.judge.said[case["key"]][run].values()
            if all("score" in text for text in texts):
                pf, sc = (json.loads(text.split("```")[1][4:])["score"] for text in texts)
                types[case["type"]].append(math.sqrt(pf * sc))
        assert 0 < sum(map(len, types.values())) < CASES
        return fmean(map(fmean, types.values()))

    assert found.figures["published"]["score"] == pytest.approx(average(2), abs=1e-6)
    assert found.figures["mended"]["score"] == pytest.approx(fmean(map(average, range(3))), abs=1e-6)
    text = 'Be {\n"score": <score>}\n' + f"Rate {rule}SC_Scene.\nInstruction: make 2\n"
    asked = found.judge.chats
    assert found.cases[2]["file"] == "fullset/scene_mixed/0002"
    assert asked["0002", "subject_consistency"] == ([], [text, *map(picture, (0, 1, 2)), picture(9)])
    assert asked["0003", "prompt_following"][1][1:] == [picture(0), picture(9)]


REDEDIT = yaml_beside(__file__)["REDEDIT"]


def test_rededit_has_the_arithmetic_of_the_script_that_cannot_start(tmp_path, monkeypatch):
    draw, tasks = random.Random(4), list(REDEDIT)
    images(tmp_path, "redbench/a.png")
    rows = [
        {"id": str(n), "source": "redbench/a.png", "a_to_b_instructions": f"改 {n}",
         "a_to_b_instructions_eng": f"edit {n}", "task": tasks[n % 8]}
        for n in range(CASES)
    ]  # fmt: skip
    (tmp_path / "redbench.jsonl").write_text("\n".join(map(json.dumps, rows)))
    words = {"prompts.json": json.dumps({task: f"Rate {task}.\nInstruction: <edit_prompt>\n" for task in tasks})}

    def reply(form: rubrics.Rubric) -> str:
        names = REDEDIT[form.messages("x")[0]["content"][-1]["text"].split()[1].rstrip(".")]
        lines = "\n".join(f"{name}: {draw.randint(1, 5)}" for name in names)
        return "No." if draw.random() < 1 / 60 else f"Brief reasoning: so.\n{lines}"

    found = rated("rededit_cn", tmp_path / "redbench.jsonl", words, reply, monkeypatch)
    types = defaultdict(list)
    for case in found.cases:
        [text] = found.judge.said[case["key"]][0].values()
        parts = [line.strip().split(": ") for line in text.splitlines()]
        if numbers := [int(part[1]) for part in parts if len(part) == 2 and part[1].isdigit()]:
            types[case["type"]].append(round(sum(numbers) / len(numbers), 2))
    means = {task: round(sum(each) / len(each), 2) for task, each in types.items()}
    assert CASES - 20 < sum(map(len, types.values())) < CASES
    assert by_type(found.boards["published"], "score") == pytest.approx(means, abs=1e-6)
    assert found.figures["published"]["score"] == pytest.approx(fmean(means.values()), abs=1e-6)
    assert found.figures["capped"]["score"] < found.figures["published"]["score"]
    [[_, parts], *_] = found.judge.chats.values()
    assert (parts[0], parts[2], parts[4]) == (picture(0), picture(9), "Rate add.\nInstruction: 改 0\n")
    assert found.cases[3]["file"] == "text/text-3"


WISE_METRICS = yaml_beside(__file__)["WISE_METRICS"]
WISE_OF = {"Awareness": "DP IF VQ KF", "Interpretation": "DP IF VQ KF", "Imagination": "DP IF VQ CF"}
WISE_OF |= {"Complex": "DP IF VQ KF CF"}
WISE_FILES = {
    f"prompt_{many}.py": prompt_file(*(f"prompt_{n}_{many}" for n in WISE_METRICS.values()))
    for many in ("single", "multi")
}
WISE_FILES["prompt_single.py"] += prompt_file("prompt_visual_quality")
WISE_FILES["evaluation_utils.py"] = """
def message(instruction, hint):
    text = base + "\\n\\n" f"To do: {instruction}"
    return {"type": "text", "text": ("Hint: " f"it shows\\n{hint}")}
"""


def wise_tables(folder: Path) -> Path:
    images(folder, "WiseEdit/a.png", "WiseEdit/b.png", "WiseEdit/truth.png")
    ref = '"[""WiseEdit/truth.png""]"'
    rows = [
        f"{n},edit {n},改 {n},{'' if n % 2 else 'as it was'},{'' if n % 3 else ref},WiseEdit/a.png,WiseEdit/b.png"
        for n in range(25)
    ]
    names = "Awareness_1 Awareness_2 Interpretation_1 Imagination_1 Imagination_2 Imagination_3 WiseEdit_Complex_2"
    for name in names.split():
        (at := folder / "WiseEdit" / name).mkdir()
        (at / f"{name}.csv").write_text("\ufeff" + "\n".join(["idx,prompt,promptcn,hint,ref,input_1,input_2", *rows]))
    return folder / "WiseEdit"


def wise_figures(found: Rated, lacking: Sequence[str]) -> dict[str, float]:
    """statistic.py's last lines: the basic overall of both languages, and the complex one."""
    rows: dict[str, dict[str, dict[str, int]]] = defaultdict(dict)
    for case in found.cases:
        pair, _, tongue = case["key"].rpartition(".")
        texts = found.judge.said.get(case["key"], [{}])[0].items()
        rows[pair][tongue] = {
            name: int(said[1]) if (said := re.search(r"core\W+(\d+)", text)) else 0 for name, text in texts
        }
    sums: dict[Any, list[float]] = defaultdict(list)
    for pair, of in rows.items():
        category = pair.removeprefix("WiseEdit_").partition("_")[0]
        for name in WISE_OF[category].split():
            if pair.startswith(tuple(lacking[:1])):
                of = {tongue: dict.fromkeys(WISE_OF[category].split(), 1) for tongue in ("en", "cn")}
            if all(of[tongue].get(each) for tongue in ("en", "cn") for each in WISE_OF[category].split()):
                for tongue in ("en", "cn"):
                    sums[category, tongue, name].append(of[tongue][name])
    means = {key: round((sum(own) / len(own) - 1.0) / 9.0 * 100.0, 1) for key, own in sums.items()}
    whole = {(c, t): fmean(means[c, t, name] for name in WISE_OF[c].split()) for c in WISE_OF for t in ("en", "cn")}
    own = {t: fmean(whole[c, t] for c in ("Imagination", "Awareness", "Interpretation")) for t in ("en", "cn")}
    return own | {"complex": fmean((whole["Complex", "cn"], whole["Complex", "en"]))}


def test_wiseedit_has_the_numbers_of_its_script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    draw, lacking = random.Random(5), ["Imagination_3", "Awareness_1-7.cn"]

    def reply(_: rubrics.Rubric) -> str:
        n = draw.randint(1, 10)
        whole = json.dumps({"reason": "it has 2 of 10", "score": n})
        said = draw.choice(
            [f"So it is.\n{whole}", f'{{"reason": **It has** 2 of 10.\n"score": {n},\n}}', f"Score: {n}/10"]
        )
        return "I cannot tell." if draw.random() < 1 / 60 else said

    def asked(form: str, folder: Path) -> Rated:
        return rated(form, wise_tables(folder), WISE_FILES, reply, monkeypatch, lacking=lacking, images=str(folder))

    found = asked("wiseedit", tmp_path)
    wanted = wise_figures(found, lacking)
    assert {part: found.figures[f"published/{part}"]["score"] for part in wanted} == pytest.approx(wanted, abs=1e-6)
    assert found.figures["mended/en"]["score"] > found.figures["published/en"]["score"] + 5, "no folder is the lowest"
    assert found.cases[1]["file"] == "Awareness_1/cn/0"
    chats = found.judge.chats
    start = "Rate prompt_{}.\nInstruction: {{instruct}}\n\n\nTo do: edit {}"
    shown = ["Input image:", picture(0), "Edited image:", picture(9)]
    behind = ["Hint: it shows\nas it was", "Reference image:", picture(2)]
    knowledge = [start.format("knowledge_fidelity_single", 0), *shown, *behind]
    assert chats["Awareness_1-0.en", "KF"] == chats["Awareness_1-0.cn", "KF"] == ([], knowledge)
    assert chats["Awareness_1-1.en", "KF"][1] == [start.format("knowledge_fidelity_single", 1), *shown]
    assert chats["Awareness_1-0.en", "DP"][1] == [start.format("detail_preserving_single", 0), *shown]
    assert chats["Imagination_2-0.en", "VQ"][1][1:] == ["Image:", picture(9)]
    assert chats["Imagination_1-0.en", "IF"][1][:5] == [start.format("instruction_following_single", 0), *shown]
    assert chats["WiseEdit_Complex_2-0.en", "CF"][1] == [
        start.format("creative_fusion_multi", 0), "Input image #1:", picture(0), "Input image #2:", picture(1),
        *shown[2:],
    ]  # fmt: skip
    (tmp_path / "other").mkdir()
    assert wise.references("[" * 100_000) == ["[" * 100_000], "a cell ends no suite"
    assert asked("wiseedit_mended", tmp_path / "other").judge.chats["Awareness_1-1.cn", "DP"][1][0].endswith("改 1")


def test_complex_edit_is_the_mean_of_many_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    alignment, quality = ("instruction_following", "identity_preservation"), ("perceptual_quality",)
    draw = random.Random(6)
    levels = [{"compound_instruction": f"do {n} things"} for n in range(1, 9)]
    rows = [{"image": {"bytes": picture(n), "path": None}, "edit": {"compound": levels}} for n in range(25)]
    (data := tmp_path / "data").mkdir()
    for n, part in enumerate((rows[:15], rows[15:])):
        pq.write_table(pa.Table.from_pylist(part), data / f"test_syn-0000{n}-of-00002.parquet")

    def reply(form: rubrics.Rubric) -> str:
        why = {"reasoning": "9 of 10\nidentity_preservation: 3\ninstruction following: 4"}
        scores = {name: str(draw.randint(0, 10)) for name in form.dimensions}
        return json.dumps((why if len(scores) > 1 else {}) | scores)

    words = {"prompt_quality.py": prompt_file("PERCEPTUAL_QUALITY_PROMPT_W_RUBRIC_WO_INST")}
    words["prompt_alignment.py"] = prompt_file("ALIGNMENT_PROMPT_W_RUBRIC")
    words["prompt_alignment.py"] += 'PROMPT_TEMPLATE = """To do:\n{instruction}"""\n'
    found = rated("complex_edit", data, words, reply, monkeypatch, runs=2)
    overall, of_eight = [], []
    for case in found.cases:
        runs = [
            {k: int(v) for text in run.values() for k, v in json.loads(text).items() if k != "reasoning"}
            for run in found.judge.said[case["key"]]
        ]
        means = {name: sum(run[name] for run in runs) / len(runs) for name in (*alignment, *quality)}
        overall.append(sum(means.values()) / len(means))
        of_eight += [overall[-1]] if case["type"] == "syn_8" else []
    assert len(overall) == CASES
    assert found.figures["published"]["score"] == pytest.approx(fmean(overall), abs=1e-6)
    assert by_type(found.boards["published"], "score")["syn_8"] == pytest.approx(fmean(of_eight), abs=1e-6)
    assert (found.cases[7]["file"], found.cases[-1]["file"]) == ("syn_8/00000", "syn_8/00024"), "counted over shards"
    pq.write_table(pa.Table.from_pylist(rows[:2]), data / "test_real-00000-of-00001.parquet")
    both = suite_files.load("complex_edit", data)
    assert {case["key"] for case in found.cases} < {case["key"] for case in both}, "another split moves no key"
    assert both[0]["file"] == "real_1/00000"
    system, parts = found.judge.chats["syn_3-00004", "+".join(alignment)]
    assert system == [
        "Rate ALIGNMENT_PROMPT_W_RUBRIC.\nInstruction: {instruct}\n\n"
        "Explain your reasoning before answering the questions."
    ]
    assert parts == [picture(4), picture(9), "To do:\ndo 3 things"]
    assert found.judge.chats["syn_3-00004", quality[0]][1] == [picture(9)]
    asked = rubrics.questions(found.judge.form).calls["alignment"]
    said = json.dumps({"reasoning": "2 of 10", **dict.fromkeys(alignment, "7")})
    assert asked.read(said) == (dict.fromkeys(alignment, 7), None)
    assert asked.read(f"{said}\ninstruction following: 2")[0] is None, "what comes behind may take it back"
    fields = asked.schema["properties"]
    assert list(fields) == ["reasoning", *alignment]
    assert fields[alignment[0]]["enum"][-1] == "10"
