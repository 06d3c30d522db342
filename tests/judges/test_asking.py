import os
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from chat_client import ask, chat_server, questions
from chat_client import setting as endpoint
from killing import wait_until
from tiny_base import here

from editjudge.core import images, params, prompts
from editjudge.engine.workers import cores
from editjudge.judges import opening
from editjudge.judges.measures_judge import compare
from editjudge.judges.protocol import CONSISTENCY, BothOrders, Context, Dimension, Question, mirrored
from editjudge.judges.rubrics import SCALES, pointwise
from editjudge.judges.styles import STYLES, Style, style
from editjudge.measures.annotation import batch
from editjudge.measures.annotation.recipe import load_recipe
from editjudge.models.chat import models
from editjudge.models.chat.asking import ChatAsking
from editjudge.models.chat.forms import ChatForm
from editjudge.models.chat.local_model import ChatModel
from editjudge.models.chat.settings import EndpointSetting, ServedSetting
from editjudge.models.endpoint.spending import Account, Budget, Usage

ROOT = Path(__file__).parents[2]
MEASURES = {"backend": "measures", "rule": "agreement", "tie_margin": 0.0}
NO_MEMORY = {"value": None, "reason": "out of memory, even for one at a time"}


@pytest.fixture
def question(photo: np.ndarray) -> Question:
    """Both sides recoloured inside the box; B has also lost the left of the photo."""
    good = photo.copy()
    good[20:52, 30:66, 0] = 255 - good[20:52, 30:66, 0]
    bad = good.copy()
    bad[:, :20] = 128
    asked = Context(load_recipe(ROOT / "pipelines/object_centric/color_alter.yaml"), ((30, 20, 66, 52),))
    return Question("q", "Make it red.", *map(images.encode_png, (photo, good, bad)), context=asked)


def form(prompt: str, dimension: Dimension) -> ChatForm:
    return pointwise(SCALES[prompt], dimension) if prompt in SCALES else style(prompt, dimension)


def setting(model: Path) -> dict:
    how = {"backend": "transformers", "model": str(model), "dtype": "float32", "batch_size": 4}
    return how | {"rule": "probability", "tie_margin": 0.0}


def test_the_judge_by_measures_finds_the_better_side_in_both_orders(question: Question, tmp_path: Path) -> None:
    with opening.open_judge("judges.m", MEASURES, tmp_path / "c") as judge:
        [answer, without] = judge.compare([question, replace(question, key="bare", context=None)])
        assert judge.store.counts() == {"computed": 2, "reused": 0}, "each image once, whatever the order"
    assert (answer.forward.winner, answer.backward.winner, answer.combined.winner) == ("Image A", "Image B", "Image A")
    assert without.forward.reason == "the question says no regions to measure"


def test_a_judge_by_measures_without_memory_is_unfinished(question, tmp_path, monkeypatch) -> None:
    """B lacks a value that A has; the other question has all."""
    other, plain = replace(question, key="other", b=question.source), batch.measure_all

    def scarce(prompts: Any, *rest: Any) -> list[list[dict]]:
        found = list(plain(prompts, *rest))
        for prompt, metas in zip(prompts, found, strict=True):
            metas[[edit.image for edit in prompt.edits].index(question.b)]["measures"][-1] |= NO_MEMORY
        return found

    monkeypatch.setattr(batch, "measure_all", scarce)
    with opening.open_judge("judges.m", MEASURES, tmp_path / "c") as judge:
        judge.compare([question, other])
    gap = judge.account.gap("judges.m")
    assert (gap.kinds, gap.total) == ({"memory": 2}, 4), "both orders of one question of two"


def test_equal_sides_are_a_tie_and_a_missing_primary_is_none() -> None:
    row = {"area": "edit_area", "measure": "ssim", "value": 0.5, "reason": None}
    assert compare("q", [row], [dict(row)]).winner == "Tie"
    missing = row | {"value": None, "reason": "the region is empty"}
    assert compare("q", [row], [missing]).winner is None
    assert compare("q", [missing], [missing]).reason == "ssim in edit_area: the region is empty"
    around = row | {"area": "unedit_area", "value": 0.4}
    assert compare("q", [missing, row | {"area": "unedit_area"}], [missing, around]).winner == "Image A"


def differing(question: Question, count: int) -> list[Question]:
    return [replace(question, key=f"k{n}", instruction=f"Make it {n}.") for n in range(count)]


def test_a_model_in_this_process_resumes_by_pass_and_counts_its_cost(question, base_dir, tmp_path) -> None:
    how = setting(base_dir) | {"temperature": 1.0, "passes": 2, "price": {"image": 0.5}}
    broken = replace(question, key="broken", a=b"no image")
    first, account = ask(how, [*differing(question, 2), broken, *differing(question, 2)], tmp_path / "c")
    assert first[3:] == first[:2], "each question is asked once"
    assert (account.asked, account.failures, account.cost()["images"]) == (8, {"image": 4}, 24)
    assert account.cost()["money"] == 12.0
    assert account.cost()["tokens_in"] > 0
    assert "a: not a PNG" in first[2].forward.reason
    again, account = ask(how | {"passes": 3}, differing(question, 2), tmp_path / "c")
    assert (account.reused, account.asked) == (8, 4)
    assert again[0].forward.reply.startswith(first[0].forward.reply)
    assert len(set(again[0].forward.reply.splitlines())) > 1, "passes are drawn apart"


def test_the_number_of_processes_changes_no_reply(question, base_dir, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(models, "CHUNK", 4)  # its last chunk has 2
    several = differing(question, 5)
    one, two = (ask(setting(base_dir) | {"workers": n}, several, tmp_path / f"{n}")[0] for n in (1, 2))
    assert one == two


def test_there_is_one_copy_of_a_model_on_each_gpu_or_one_a_core() -> None:
    assert models.places(0, 3) == ["cuda:0", "cuda:1", "cuda:2"]
    assert models.places(0, 0) == ["cpu"] * cores()
    assert models.places(5, 2) == ["cuda:0", "cuda:1", "cuda:0", "cuda:1", "cuda:0"]
    assert models.places(1, 8) == ["cuda:0"]
    assert models.places(99, 0) == ["cpu"] * cores()


def test_workers_with_a_model_have_the_gpus_in_turn(base_dir, tmp_path, monkeypatch) -> None:
    """Two, of which torch has none here: each worker says what it was to load the model on."""
    monkeypatch.setattr(models, "gpus_apart", lambda *_: 2)
    monkeypatch.setattr(models, "_answering", home)
    given = setting(base_dir) | {"workers": 0}
    with opening.open_judge("judges.j", given, tmp_path / "c") as judge:
        assert sorted(judge.model._workers.in_order([tmp_path] * 2)) == [("cuda", "0"), ("cuda", "1")]


def home(_: Any, device: str) -> Callable[[Path], tuple[str, str]]:
    """This worker's device and GPU; it waits for the other one."""
    gpu = os.environ["CUDA_VISIBLE_DEVICES"]

    def own(folder: Path) -> tuple[str, str]:
        (folder / gpu).touch()
        wait_until(lambda: {"0", "1"} <= {file.name for file in folder.iterdir()})
        return device, gpu

    return own


def test_a_budget_ends_a_model_in_this_process_too(question: Question, base_dir: Path, tmp_path: Path) -> None:
    how = setting(base_dir) | {"budget": {"questions": 3}}
    answers, account = ask(how, differing(question, 3), tmp_path / "c")
    assert (account.asked, account.unasked, account.cost()["answers"]) == (3, 3, 3)
    assert "budget spent" in answers[2].combined.reason
    most = account.cost()["tokens_in"] + account.cost()["tokens_out"]
    _, account = ask(how | {"budget": {"tokens": 2 * most}}, differing(question, 9), tmp_path / "c")
    assert account.unasked > 0
    assert account.cost()["tokens_in"] + account.cost()["tokens_out"] <= 2 * most


def test_edits_are_scored_once_in_this_process_too(question: Question, base_dir: Path, tmp_path: Path) -> None:
    how = setting(base_dir) | {"prompt": "viescore_25"}
    turned = replace(question, key="t", a=question.b, b=question.a)
    answers, account = ask(how, [question, turned], tmp_path / "c")
    assert account.asked == 2
    assert all(answer.combined.winner or answer.combined.reason for answer in answers)
    assert [answer.backward for answer in answers] == [mirrored(answer.forward) for answer in answers]


def record_name(question: Question, how: Any, prompt: str) -> str:
    """Of the kept reply."""
    return ChatAsking(how, form(prompt, CONSISTENCY), None, Account()).tasks([question], models.model_of(how))[0].name  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "change",
    [
        *[{"temperature": 0.5}, {"seed": 1}, {"logprobs": 5}, {"max_new_tokens": 9}],
        *[{"min_pixels": 9}, {"max_pixels": 9}, {"model": "n"}],
    ],
)
def test_what_decides_a_reply_stands_in_the_name_of_its_record(question: Question, change: dict) -> None:
    plain = EndpointSetting(base_url="http://127.0.0.1:9/v1", model="m", temperature=1.0)
    elsewhere = replace(plain, base_url="http://127.0.0.1:8/v1", tries=2, max_in_flight=3)

    name = record_name(question, plain, "decision")
    assert name == record_name(question, elsewhere, "decision")
    assert name != record_name(question, replace(plain, **change), "decision")
    assert name != record_name(question, plain, "reason_last")


def test_how_images_are_served_stands_in_the_name_of_a_record(question, base_dir, workdir) -> None:
    serve = params.load(ROOT / "params.yaml")["serve"]

    def name(least: int = 0, most: int = 0, **changes: object) -> str:
        (workdir / "params.yaml").write_text(yaml.safe_dump({"serve": serve | changes}))
        how = ServedSetting(model=str(base_dir), dtype="float32", batch_size=4, min_pixels=least, max_pixels=most)
        return record_name(question, how, "pvc")

    assert name() == name(port=0, start_seconds=1.0)
    sizes = {name(least, most) for least, most in ((4, 9), (5, 9), (4, 8))}
    assert len({name(), name(engine="vllm"), *sizes}) == 5


@pytest.mark.parametrize("name", [*STYLES, *SCALES])
def test_each_dimension_is_asked_in_its_own_words(name: str) -> None:
    dimensions = [d for d in prompts.names("judges/prompts/dimensions") if name not in SCALES or d != "overall"]
    forms = [form(name, dimension) for dimension in dimensions]
    assert len({str(form.messages("Make it red.")) for form in forms}) == len(dimensions) >= 3
    assert len({form.max_new_tokens for form in forms}) == 1 or name == "pvc"


def test_replies_are_read_when_they_are_used(question, tmp_path, monkeypatch) -> None:
    """A real endpoint counts its requests; the second of two replies is sampled, and what it says comes to count."""
    replies = {"q0": ["Image A wins.", "Neither."], "q1": ['{"winner": "Image A"}']}
    with chat_server(replies=replies) as server:

        def again(**changes: Any) -> tuple[list[BothOrders], Account, int]:
            server.log(forget=True)
            how = endpoint(server.url, reply_tries=2, max_in_flight=1) | changes
            answers, account = ask(how, questions(2), tmp_path / "c")
            return answers, account, server.log()["kinds"].get("200", 0)

        first, account, sent = again()
        assert (sent, account.asked, first[0].combined.winner) == (6, 4, None)
        for changes in ({"rule": "agreement"}, {"tie_margin": 0.4}, {"reply_tries": 1}, {"score_margin": 1.0}):
            assert again(**changes)[2] == 0
        plain = Style.read
        monkeypatch.setattr(Style, "read", lambda s, t: (t[:7], None) if t.endswith("wins.") else plain(s, t))
        mended, account, sent = again()
        assert (sent, account.reused, account.cost()["unread"]) == (0, 4, 1)
        assert mended[0].forward.winner == "Image A", "the first reply is readable now"
        assert mended[1] == first[1]
        shutil.copytree(prompts.PACKAGE / "judges/prompts", tmp_path / "judges/prompts")
        monkeypatch.setattr(prompts, "PACKAGE", tmp_path)
        file = tmp_path / "judges/prompts/comparisons/decision.yaml"
        file.write_text(f"# A comment.\n{file.read_text()}")
        assert again()[2] == 0
        file.write_text(file.read_text().replace("Decide at once.", "Decide."))
        assert again()[2] > 0, "another word is another question"


@pytest.mark.parametrize("name", ["reason_last", "viescore_25"])
def test_an_answer_about_one_dimension_is_none_about_another(name, question, base_dir, tmp_path, monkeypatch) -> None:
    how, asked = setting(base_dir) | {"prompt": name}, []
    render = ChatModel.render
    listed = lambda self, messages: asked.append(str(messages)) or render(self, messages)  # noqa: E731
    monkeypatch.setattr(ChatModel, "render", listed)
    monkeypatch.setattr(models, "Workers", here)
    counts = []
    for dimension in ("visual_quality", "instruction_following", "visual_quality"):
        with opening.open_judge("judges.j", how, tmp_path / "c") as judge:
            judge.compare([question], dimension)
        counts.append((judge.account.asked, judge.account.reused))
    assert counts == [(2, 0), (2, 0), (0, 2)]
    quality, following = form(name, "visual_quality"), form(name, "instruction_following")
    words = [str(form.messages(question.instruction)) for form in (quality, following)]
    assert [words.index(text) for text in asked] == [0, 0, 1, 1], "the model was asked in these words"


@pytest.mark.parametrize("judges", [{}, None, "pvc_judge"])
def test_where_there_are_no_judges_is_named(judges: Any) -> None:
    with pytest.raises(params.ParamsError, match="no judge to ask"):
        opening.open_judges(judges)


def test_the_dearest_answer_so_far_bounds_the_next_whatever_came_last() -> None:
    account = Account("j", budget=Budget(tokens=1000))
    for name, tokens in (("a", 100), ("b", 300), ("c", 50)):
        account.use(name, Usage(tokens_in=tokens), True)
    assert account.affordable() == (1000 - 450) // 300


def test_a_served_model_answers_over_http_what_it_answers_in_this_process(question, base_dir, workdir, monkeypatch):
    values = params.load(ROOT / "params.yaml")
    (workdir / "params.yaml").write_text(yaml.safe_dump({"serve": values["serve"] | {"port": 0}}))
    how = setting(base_dir) | {"backend": "served", "reply_tries": 1}
    served, account = ask(how, differing(question, 2), workdir / "c")
    assert (account.asked, account.failures.total()) == (4, 0)
    local, _ = ask(setting(base_dir), differing(question, 2), workdir / "d")
    assert [answer.combined.reply for answer in served] == [answer.combined.reply for answer in local]
    monkeypatch.setattr(subprocess, "Popen", None)
    again, account = ask(how, differing(question, 2), workdir / "c")
    assert again == served, "nothing is served where nothing is asked"
    assert account.reused == 4
