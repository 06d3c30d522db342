"""Published judges and raters: their words stand where theirs do, and replies are read and combined as theirs are.

The files of words are stand-ins in the layout of the authors' files: the words themselves are not ours to have here."""

import json
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import tiny_families
import yaml
from cases import each_row, yaml_beside
from peft import LoraConfig, get_peft_model
from pictures import png
from safetensors.torch import load_file, save_file
from tiny_base import here

from editjudge.core import prompts
from editjudge.core.errors import FileError, UserError
from editjudge.core.settings import read
from editjudge.judges import rubrics, styles
from editjudge.judges.asking import ChatJudge
from editjudge.judges.opening import open_judge
from editjudge.judges.protocol import Edit, Question, Rating, Score, Unscored
from editjudge.judges.settings import JudgeSetting, RaterSetting, ScorerEntry
from editjudge.models.chat import models
from editjudge.models.chat.asking import AGAIN
from editjudge.models.chat.checkpoint import load_model
from editjudge.models.chat.local_model import ChatModel
from editjudge.models.serve import launch
from editjudge.models.weights.adapter import WEIGHTS
from editjudge.models.weights.merge import merge_adapter

WORDS = yaml_beside(__file__)["WORDS"]


@pytest.fixture
def words(workdir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prompts, "sha256", lambda _: mock.ANY)
    for name, text in WORDS.items():
        file = workdir / "models/prompts" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)


Scripted = Callable[[str, dict[str, Any], Callable[[Any], str]], ChatJudge]


@pytest.fixture
def scripted(words: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Scripted:
    """scripted(where, entry, said): a judge or rater on a tiny checkpoint in this process, which runs for four tokens;
    said(chat) is then what it said."""
    monkeypatch.setattr(models, "gpus_apart", lambda *_: 0)
    monkeypatch.setattr(models, "Workers", here)
    run = ChatModel.reply

    def opened(where: str, entry: dict[str, Any], said: Callable[[Any], str]) -> ChatJudge:
        def reply(self: ChatModel, chats: Any, *more: Any) -> Any:
            replies = run(self, [replace(chat, max_new_tokens=4) for chat in chats], *more)
            return [replace(each, text=said(chat) or each.text) for chat, each in zip(chats, replies, strict=True)]

        monkeypatch.setattr(ChatModel, "reply", reply)
        family = entry.pop("family", "qwen3_vl")
        folder = tmp_path / family
        model = str(folder if folder.is_dir() else tiny_families.save(family, folder))
        judge = open_judge(where, {"backend": "transformers", "model": model, **entry}, tmp_path / f"{where}.sqlite")
        assert isinstance(judge, ChatJudge)
        return judge

    return opened


def shown(form: prompts.Prompt) -> list[list[str]]:
    """The parts of each turn."""
    chat = form.messages("Red")
    return [[part.get("text", f"[{part['type']}]") for part in turn["content"]] for turn in chat]


SC, PQ = "In JSON.\n\nTwo images.\n\n0 to 25: Red\n", "In JSON.\n\nAlone, 0 to 25.\n"
ASKED = yaml_beside(__file__)["ASKED"]
PAIRS = yaml_beside(__file__)["PAIRS"]


def test_each_is_asked_in_its_authors_words_laid_out_as_theirs(words: None) -> None:
    assert sorted(ASKED) == rubrics.PUBLISHED
    for name, calls in ASKED.items():
        asked = rubrics.questions(name, "style")
        assert {call: shown(form) for call, form in asked.calls.items()} == calls
        assert [form.schema for form in asked.calls.values()] == [{}] * len(calls), "no JSON is forced"
    assert {name: shown(styles.style(name)) for name in styles.PUBLISHED} == PAIRS
    assert {form.images for form in map(styles.style, PAIRS)} == {("source", "a", "b")}
    for type_, why in (
        ("stile", r"prompts\.json has no text stile \(KeyError\)"),
        ('a"b', r'prompts\.json has no text a"b \(KeyError\)'),
        ("add.0", r"has no text add\.0 \(TypeError\)"),
        ("", "depends on the type of the edit, and none is given"),
    ):
        with pytest.raises(FileError, match=why):
            rubrics.questions("imgedit_judge", type_)


@pytest.mark.parametrize(
    ("name", "content", "place"),
    [
        ("a.json", '{"a": [1]}', "a"), ("a.json", '{"a": 1}', "a"), ("a.json", "[" * 200_000, "a"),
        ("a.yaml", "a: {b: c}", "a"), ("a.yaml", "a:\n", "a"), ("a.yaml", "[" * 5_000, "a"),
        ("a.py", "A = 3", "A"), ("a.py", "A = ['x']", "A"), ("a.py", "A = " + "-" * 200_000 + "1", "A"),
        ("a.py", "A = " + "(" * 5_000, "A"), ("a.py", "A = f'{x}' + 1", "A"), ("a.py", b"\xff\x00", "A"),
    ],
)  # fmt: skip
def test_a_file_without_such_a_text_is_named(name: str, content: str | bytes, place: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(FileError, match=rf"{name} has no text {place} \(\w+\)"):
        prompts.text_in(tmp_path / name, place)


def test_words_that_are_missing_or_others_are_said_to_be_the_authors(workdir: Path) -> None:
    file = Path("models/prompts/editscore/vie_prompts.py")
    given = {"backend": "endpoint", "base_url": "http://127.0.0.1:9/v1", "model": "m"}
    for text in (None, "_context = 'Ours.'"):
        if text:
            file.parent.mkdir(parents=True)
            file.write_text(text)
        words = rf"not ours to give: curl --create-dirs -o {file} https://raw\.\S+/VectorSp"
        with pytest.raises(UserError, match=words):
            open_judge("raters.r", given | {"rubrics": "editscore"})
    own = {"version": 1, "source": "-", "words": {"them": {"file": "a b;.txt", "url": "http://h/$(id)"}}}
    Path("own.yaml").write_text(yaml.safe_dump(own))
    with pytest.raises(FileError, match=r"-o 'a b;\.txt' 'http://h/\$\(id\)'"):
        rubrics.questions("own.yaml")
    with pytest.raises(FileError, match="visual_consistency_pairwise_v1"):
        open_judge("judges.j", given | {"prompt": "pvc_judge", "rule": "agreement"})


READY_ENTRIES = yaml.safe_load((Path(__file__).parents[2] / "configs/judges.yaml").read_text())


def test_every_ready_entry_is_a_setting(words: None) -> None:
    """And its questions are there."""
    for section, kind in (("judges", JudgeSetting), ("raters", RaterSetting), ("scorers", ScorerEntry)):
        for name, given in READY_ENTRIES[section].items():
            read(f"{section}.{name}", kind, given)
    entries = [given for section in ("judges", "raters") for given in READY_ENTRIES[section].values()]
    used = {given.get("rubrics", given.get("prompt")) for given in entries}
    assert used == {*rubrics.PUBLISHED, *styles.PUBLISHED}
    tried = {given.get("reply_tries") for given in entries if "editscore" in given.get("rubrics", "")}
    assert tried == {3}, "theirs gives up at the third"


@pytest.mark.parametrize("mark", ["{them:}", "{they:a}", "{them:a b}", "{them:b}", "{them:c}", "{them:a"])
def test_a_mark_that_names_no_text_is_refused(mark: str, words: None) -> None:
    Path("theirs.json").write_text(json.dumps({"a": "{them:b} {type}", "c": [1]}))
    own = {"version": 1, "source": "-", "words": {"them": {"file": "theirs.json", "url": "-"}}}
    call = {"user": ["{source}", "{edited}", "{score: 3} {them:a}"], "dimensions": {"a": {"name": "A"}}}
    for text in ("", mark):
        call["user"][1:2] = ["{edited}", *([text] if text else [])]  # type: ignore[index]
        Path("own.yaml").write_text(yaml.safe_dump(own | {"calls": {"one": call}}))
        if text:
            with pytest.raises(FileError, match=r"names no text|has no text"):
                rubrics.questions("own.yaml", "add")
        else:
            [asked] = rubrics.questions("own.yaml", "add").calls.values()
            assert shown(asked)[0][-1] == "{score: 3} {them:b} {type}", "their text is as it is"


def said_scores(*scores: Any) -> str:
    return json.dumps({"reasoning": "So it is.", "score": scores[0] if len(scores) == 1 else list(scores)})


def edits(*tasks: str) -> list[Edit]:
    return [Edit("Red", png(0), png(1), task=task, key=str(n)) for n, task in enumerate(tasks)]


@pytest.mark.parametrize("family", ["qwen2_5_vl", "qwen3_vl"])
def test_editscore_by_hand(scripted: Scripted, family: str) -> None:
    """SC and PQ are the smaller score over 2.5; O = sqrt(SC PQ); passes are averaged by O. The third is unread."""
    said = {42: ((20, 15), (25, 10)), 43: ((25, 25), (22.5, 25)), 44: ((24, 24), (26, 24))}
    sampling = list[tuple[float, ...]]()

    def answer(chat: Any) -> str:
        sampling.append((chat.temperature, chat.top_p, chat.top_k, chat.max_new_tokens))
        return said_scores(*said[chat.seed % AGAIN]["Alone" in chat.text])

    here = ("backend", "model", "adapter", "dtype")  # of the entry, other ones
    ready = READY_ENTRIES["raters"]["editscore_qwen3_vl_8b"].items()
    given = {name: value for name, value in ready if name not in here} | {"runs": 3, "family": family}
    with scripted("raters.r", given, answer) as rater:
        [score] = rater.score(edits("any"))
        [runs] = rater.rate(edits("any"))  # type: ignore[attr-defined]
    assert sampling == [(0.7, 0.9, 20, 512)] * (2 * 3 + 2), "what cannot be read is asked three times"
    assert isinstance(score, Score)
    assert score.overall == pytest.approx((24**0.5 + 90**0.5) / 2)
    assert score.dimensions["instruction_following"] == pytest.approx(9)
    assert score.dimensions["visual_consistency"] == pytest.approx(8)
    assert (score.dimensions["semantics"], score.dimensions["quality"]) == pytest.approx((8, 6.5))
    assert [run.scores and run.scores["quality"] for run in runs] == [4, 9, None]
    assert runs[2].reason == "quality: no number in 0..25: [26, 24]"


@pytest.mark.parametrize("family", ["qwen2_5_vl", "qwen3_vl"])
def test_editscores_adapter_is_asked_as_its_base_with_it_merged(scripted, tmp_path, family) -> None:
    """The adapter as peft saves it: EditScore's own files were not to be had. Of Qwen2.5-VL, too, with the names of
    weights that transformers had before 4.52."""
    base, adapter, older = tiny_families.save(family, tmp_path / family), tmp_path / "adapter", tmp_path / "older"
    layers = r"^(?!.*visual).*\.(q_proj|k_proj|v_proj|o_proj|gate_proj|up_proj|down_proj)$"
    config = LoraConfig(r=4, init_lora_weights=False, target_modules=layers)
    get_peft_model(load_model(base), config).save_pretrained(adapter)
    merge_adapter(base, adapter, tmp_path / "merged")
    name = {"qwen2_5_vl": "editscore_7b", "qwen3_vl": "editscore_qwen3_vl_8b"}[family]
    ready = READY_ENTRIES["raters"][name] | {"dtype": "float32", "runs": 2, "reply_tries": 1}
    said = {}
    for of, how in {"adapter": {"model": str(base), "adapter": str(adapter)}, "merged": {}, "base": {}}.items():
        model = {"model": str(base if of == "base" else tmp_path / "merged"), "adapter": "none"} | how
        with scripted(f"raters.{of}", ready | model, lambda chat: "") as rater:
            said[of] = [run.reply for run in rater.rate(edits("any"))[0]]
    assert said["adapter"] == said["merged"] != said["base"]
    if family == "qwen2_5_vl":
        shutil.copytree(adapter, older)
        weights = load_file(adapter / WEIGHTS).items()
        save_file({key.replace("model.language_model.", "model."): each for key, each in weights}, older / WEIGHTS)
        given = ready | {"model": str(base), "adapter": str(older)}
        with scripted("raters.older", given, lambda chat: "") as rater:
            assert [run.reply for run in rater.rate(edits("any"))[0]] == said["adapter"]


FOUR = "# Judgement\n1. Text Faithfulness:\n## Justification: as 4.0\n## Score: {}\n2. Image Faithfulness:\n"
FOUR += "## Score: {}\n**3. Physical and Visual Quality:**\n## Score: **{}**\n4. Text Rendering:\n## Score: {}\n"
FOUR += "# Summary: ## Score: 1"
LINES = "Brief reasoning: ok\nStyle Fidelity: 4\nContent Preservation: 5\nRendering Quality: 3"
BY_HAND = [
    ("firm_edit", {"Kept": said_scores(4), "Done": said_scores("[3]")}, None),
    ("firm_edit", {"Kept": said_scores(4), "Done": '{"reasoning": "y", "score": [3]}'}, 0.5 * (0.6 + 0.4 * 0.75)),
    ("firm_edit", {"Kept": said_scores("5"), "Done": said_scores(5)}, 1.0),
    ("firm_edit", {"Kept": said_scores(6), "Done": said_scores(5)}, None),
    ("firm_edit", {"Kept": said_scores(4.9), "Done": said_scores(3.5)}, 0.5 * (0.6 + 0.4 * 0.75)),
    ("unifiedreward_edit", {"Done": said_scores(20, 10), "Alone": said_scores(25, 15)}, 24**0.5),
    ("unifiedreward_edit", {"Done": said_scores(20), "Alone": said_scores(25, 15)}, None),
    ("rationalrewards", {"": FOUR.format(4, 3, 2, 1)}, (2.5 - 1) / 3),
    ("rationalrewards", {"": FOUR.format(4.0, 3.5, 2.5, "N/A")}, (10 / 3 - 1) / 3),
    ("rationalrewards", {"": FOUR.format("N/A", "N/A", "N/A", "N/A")}, None),
    ("rationalrewards", {"": FOUR.format(4, 3, 2, 5)}, None),
    ("rationalrewards", {"": FOUR.format(4, 3, 2, "good")}, None),
    ("imgedit_judge", {"": LINES}, 4.0),
    ("imgedit_judge", {"": LINES.replace("4", "0")}, None),
]


@pytest.mark.parametrize(("name", "said", "overall"), BY_HAND)
def test_replies_are_combined_as_theirs_and_what_is_unread_is_unscored(name, said, overall, scripted) -> None:
    answer = lambda chat: next(text for mark, text in said.items() if mark in chat.text)  # noqa: E731
    with scripted("raters.r", {"rubrics": name}, answer) as rater:
        [score, *_] = rater.score(edits("style_transfer"))
        unknown = rater.score(edits("nothing_known", "")) if name == "imgedit_judge" else None
    if overall is None:
        assert isinstance(score, Unscored)
        assert score.reason
    else:
        assert isinstance(score, Score)
        assert score.overall == pytest.approx(overall)
    if unknown is not None:
        assert unknown == [Unscored("no rubric of nothing_known"), Unscored("no rubric of no task")]


@each_row("name, said, winner")
def test_pairs(name: str, said: str, winner: str | None, scripted: Scripted) -> None:
    asks, other = ("visual_consistency", "overall") if name == "pvc_judge" else ("overall", "visual_consistency")
    with scripted("judges.j", {"prompt": name, "rule": "agreement"}, lambda chat: said) as judge:
        asked = [Question("k", "Red", png(0), png(1), png(2), task="sref")]
        [answer], [nothing] = judge.compare(asked, asks), judge.compare(asked, other)  # type: ignore[arg-type]
    assert (nothing.combined.winner, nothing.forward.reason) == (None, f"{name} asks about {asks}, not about {other}")
    assert answer.forward.winner == winner
    assert answer.forward.reason is None or re.search("not clear|before its thinking", answer.forward.reason)


def test_a_judge_by_a_rater_counts_the_score_of_the_dimension(scripted: Scripted) -> None:
    said = iter([said_scores(20, 5), said_scores(10, 25), *[said_scores(20, 20)] * 9])
    with scripted("judges.j", {"prompt": "editscore", "rule": "agreement"}, lambda chat: next(said)) as judge:
        question = Question("k", "Red", png(0), png(1), png(2))
        winners = [judge.compare([question], about)[0].combined.winner for about in ("visual_consistency", "overall")]
        assert judge.compare([question], "instruction_following")[0].scores == (8.0, 4.0)
    assert winners == ["Image B", "Image B"]


def test_a_file_of_ones_own(tmp_path: Path) -> None:
    """Of the same form, with words in it; formulas are checked when it is read."""
    named = {"a": {"name": "A"}, "b": {"name": "B"}}
    call = {"user": ["{source}", "{edited}", "Rate {instruction}"], "dimensions": named}
    own = {"version": 1, "source": "mine", "calls": {"one": call}, "overall": "max(a, 2 * b) - 1"}
    file = tmp_path / "own.yaml"
    file.write_text(yaml.safe_dump(own))
    asked = rubrics.questions(str(file), "")
    score = asked.score([Rating("k", {"a": 3.0, "b": 1.0}, "A: 3\nB: 1", None)])
    assert isinstance(score, Score)
    assert (score.overall, asked.names) == (2.0, ("a", "b"))
    file.write_text(yaml.safe_dump(own | {"overall": "a / (b - 2)"}))
    said = Rating("k", {"a": 3.0, "b": 2.0}, "A: 3\nB: 2", None)
    score = rubrics.questions(str(file), "").score([said])
    assert score == Unscored("the formula a / (b - 2) divides by zero for this reply", "A: 3\nB: 2")
    file.write_text(yaml.safe_dump(own | {"scores": {"c": "a / (b - 2)", "d": "b"}, "overall": "d"}))
    [[rated]] = rubrics.questions(str(file), "").rate(lambda *_: [[said]], edits("any"))
    assert (rated.scores, rated.reason) == (None, "c: the formula a / (b - 2) divides by zero for this reply")
    for wrong in ("a + c", "a / (b - b)", "sqrt(a - 2)", "a ** 2", "open(a)", "__import__('os')", "a.b", "a +", "'a'"):
        file.write_text(yaml.safe_dump(own | {"overall": wrong}))
        with pytest.raises(UserError, match=r"own\.yaml\.overall is no formula of a, b"):
            rubrics.questions(str(file), "")


def test_thinking_is_switched_off_where_an_entry_says_so(scripted: Scripted, tmp_path: Path) -> None:
    """In this process; and a server is told so."""
    template = tiny_families.save("qwen3_vl", tmp_path / "qwen3_vl") / "chat_template.jinja"
    template.write_text(template.read_text() + "{{ '<think>' if enable_thinking | default(true) else '</think>' }}")
    for thinks in (True, False):
        asked = list[str]()
        given = {"rubrics": "unifiedreward_edit", "enable_thinking": thinks}
        with scripted(f"raters.{thinks}", given, lambda chat, asked=asked: asked.append(chat.text)) as rater:
            rater.score(edits("any"))
        assert all(text.endswith("<think>" if thinks else "</think>") for text in asked)
        words = launch.command(rater.model_setting, launch.Serving(engine="transformers"), 1)  # type: ignore[arg-type]
        assert json.loads(words[-1])["thinking"] == thinks
