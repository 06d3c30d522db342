"""Judges behind an endpoint, against a real HTTP server in a process of its own."""

import asyncio
import base64
import json
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from email.utils import formatdate
from itertools import islice
from pathlib import Path
from typing import Any

import openai
import pytest
import yaml
from cases import each_row, yaml_beside
from chat_client import ask, chat_server, kept, picture, questions, setting, settled
from fake_server import Server
from killing import wait_until

from editjudge.core.downloads import retry_after
from editjudge.core.params import ParamsError
from editjudge.engine.resume import RecordCache
from editjudge.judges import rubrics
from editjudge.judges.protocol import Edit, Question, Verdict
from editjudge.judges.styles import style
from editjudge.models.chat.asking import ChatAsking, ChatTask, EndpointModel
from editjudge.models.chat.settings import EndpointSetting, ServedSetting, TransformersSetting
from editjudge.models.endpoint import client as endpoint
from editjudge.models.endpoint.client import EndpointError, read_completion
from editjudge.models.endpoint.spending import Account

SECTIONS = "\n".join(f"**{n}. {name}**\n## Score: 3" for n, name in enumerate("ABC", 1))
KEY = "sk-secret-0123456789"
A_WINS, B_WINS, TIE = ('{"winner": "Image A"}', '{"winner": "Image B"}', '{"winner": "Tie"}')


@pytest.fixture(scope="module")
def sound() -> Iterator[Server]:
    """A server that answers everything; forget its log first."""
    with chat_server(bodies=True) as server:
        yield server


def test_every_question_is_answered_once_where_a_tenth_of_the_requests_fail(tmp_path: Path) -> None:
    with chat_server(delay=0.01, failures=0.1) as server:
        how = setting(server.url, timeout=3.0, tries=8)
        answers, account = ask(how, questions(150), tmp_path / "c")
        log = server.log()
    assert all(answer.combined.winner == "Tie" for answer in answers), "A always, in both orders"
    assert [answer.forward.key for answer in answers] == [f"k{n}" for n in range(150)]
    assert {(round(a.forward.p_a, 9), a.forward.usage.tokens_in) for a in answers} == {(0.75, 100)}
    assert sorted(log["answered"].values()) == [1] * 300
    failed = {kind: count for kind, count in log["kinds"].items() if kind != "200"}
    names = {"429": "429", "500": "500", "hang": "timeout", "cut": "connection"}
    assert dict(account.retries) == {names[kind]: count for kind, count in failed.items()}
    assert len(failed) == 4
    assert account.requests == 300 + sum(failed.values())
    assert (account.asked, account.failures.total(), kept(tmp_path / "c")) == (300, 0, 300)


def test_no_more_are_in_flight_than_allowed_and_equal_questions_are_asked_once(tmp_path: Path) -> None:
    with chat_server(delay=0.5) as server:  # all seven are there before one is answered, on a busy machine, too
        asked = [replace(question, key=f"{question.key}.{n}") for question in questions(20) for n in range(3)]
        answers, account = ask(setting(server.url, max_in_flight=7), asked, tmp_path / "c")
        log = server.log()
    assert log["flight"]["most"] == 7
    assert log["kinds"] == {"200": 40}
    assert [answer.combined.key for answer in answers] == [question.key for question in asked]
    assert account.cost()["answers"] == 40


def test_a_killed_run_asks_nothing_again_that_was_kept(tmp_path: Path) -> None:
    file = tmp_path / "c"
    with chat_server(delay=0.02) as server:
        script = Path(__file__).parents[1] / "helpers/chat_client.py"
        client = subprocess.Popen([sys.executable, script, server.url, file, "100"], stderr=subprocess.DEVNULL)
        wait_until(lambda: kept(file) >= 40)
        client.kill()
        client.wait()
        before = kept(file)
        assert 40 <= before < 200
        settled(server)
        first = server.log(forget=True)["answered"]
        answers, account = ask(setting(server.url), questions(100), file)
        second = server.log()["answered"]
    assert (account.reused, account.asked) == (before, 200 - before)
    assert sum(second.values()) == 200 - before
    assert len(set(first) & set(second)) <= 8, "only what was in flight when it was killed"
    assert len(set(first) | set(second)) == 200
    assert all(answer.forward.winner for answer in answers)


def test_an_endpoint_that_is_down_is_not_asked_thousands_and_not_remembered(tmp_path: Path, sound: Server) -> None:
    answers, account = ask(setting("http://127.0.0.1:9/v1", tries=1, max_in_flight=4), questions(300), tmp_path / "c")
    assert all(answer.combined.winner is None for answer in answers)
    assert "no connection" in answers[0].forward.reason
    assert account.failures["connection"] < 130
    assert account.failures["not asked"] == 600 - account.failures["connection"]
    assert "the 100 questions before" in answers[-1].combined.reason
    assert kept(tmp_path / "c") == 0
    answers, account = ask(setting(sound.url), questions(3), tmp_path / "c")
    assert (account.asked, account.reused) == (6, 0)
    assert all(answer.forward.winner == "Image A" for answer in answers)


@pytest.mark.parametrize(("status", "words"), [(401, "key is refused"), (403, "403"), (404, "unknown model")])
def test_a_refused_key_or_model_ends_the_run_at_once(tmp_path: Path, status: int, words: str) -> None:
    with chat_server(delay=0.01, status=status) as server:
        with pytest.raises(EndpointError, match=words):
            ask(setting(server.url, max_in_flight=4), questions(500), tmp_path / "c")
        assert server.log()["kinds"][str(status)] <= 16
    assert kept(tmp_path / "c") == 0


def test_keys_come_from_the_environment_and_stand_nowhere(tmp_path, monkeypatch, capfd) -> None:
    with chat_server(key=KEY) as server:
        how = setting(server.url, api_key_env="JUDGE_KEY")
        with pytest.raises(ParamsError, match="set the environment variable JUDGE_KEY"):
            ask(how, questions(1), tmp_path / "c")
        assert server.log()["kinds"] == {}
        monkeypatch.setenv("JUDGE_KEY", KEY)
        answers, account = ask(how, questions(2), tmp_path / "c")
        assert server.log()["last"]["headers"]["authorization"] == f"Bearer {KEY}"
        wrong = KEY[::-1]
        monkeypatch.setenv("JUDGE_KEY", wrong)
        with pytest.raises(EndpointError, match=r"401, the key is refused: .*Bearer \[key\]") as error:
            ask(how, questions(3), tmp_path / "c")
    written = [file.read_bytes() for file in tmp_path.iterdir()]
    told = [*capfd.readouterr(), repr(answers), repr(account), str(error.value), repr(error.value.__cause__)]
    for key in (KEY, wrong):
        assert not any(key.encode() in data for data in written)
        assert not any(key in text for text in told)
        assert key not in repr(endpoint.Connection(server.url, key))


def test_a_question_that_is_refused_fails_alone_and_is_asked_again_next_time(tmp_path: Path) -> None:
    """Also where the error names options by chance: they are taken from nobody. Escape codes stay out of the reason."""
    words = "seed, max_tokens, logprobs: \x1b[31mthis\x9b2J\b image\r is\x07 not allowed\u202e"
    with chat_server(bad=["q1"], bad_words=words) as server:
        # In turn: refused before any reply has come, a question is asked once more without the schema.
        how = setting(server.url, max_in_flight=1)
        answers, account = ask(how, questions(3), tmp_path / "c")
        assert {"logprobs", "max_tokens"} <= set(json.loads(server.log()["last"]["body"]))
        _, again = ask(how, questions(3), tmp_path / "c")
    assert [answer.combined.winner for answer in answers] == ["Tie", None, "Tie"]
    assert "refuses the question (400)" in answers[1].forward.reason
    assert json.loads(answers[1].forward.reason.partition(": ")[2])["error"]["message"] == (
        "seed, max_tokens, logprobs:  [31mthis 2J  image  is  not allowed "
    )
    assert (account.failures["400"], again.failures["400"], again.reused) == (2, 2, 4)
    assert (account.this_run()["options_refused"], account.requests) == ([], 4 + 2 * 2)


def test_a_single_403_is_one_question_and_a_refused_effort_ends_in_failures(tmp_path: Path) -> None:
    with chat_server(bad=["q1"], bad_status=403) as server:
        answers, account = ask(setting(server.url, max_in_flight=1), questions(3), tmp_path / "c")
    assert [answer.combined.winner for answer in answers] == ["Tie", None, "Tie"]
    assert account.failures == {"403": 2}
    with chat_server(refuse=["reasoning_effort"]) as server:
        answers, account = ask(setting(server.url, reasoning_effort="low"), questions(300), tmp_path / "d")
        assert server.log()["kinds"]["400"] < 2 * (100 + 4 * 64), "each once more, without the form of its reply"
    assert "Unsupported parameter: 'reasoning_effort'" in answers[0].forward.reason


def test_a_broken_image_is_not_sent(tmp_path: Path, sound: Server) -> None:
    sound.log(forget=True)
    first, second, third = questions(3)
    broken = [replace(first, a=b"?"), replace(second, source=b"")]
    answers, account = ask(setting(sound.url), [*broken, third], tmp_path / "c")
    assert [answer.combined.winner for answer in answers] == [None, None, "Tie"]
    assert answers[0].forward.reason == "a: not a PNG, JPEG or WebP image"
    assert answers[0].backward.reason == "b: not a PNG, JPEG or WebP image"
    assert account.this_run()["failures"] == {"image": 4}
    assert sound.log()["kinds"] == {"200": 2}


def test_unreadable_replies_are_asked_again_with_sampling_and_then_kept(tmp_path: Path) -> None:
    replies = {"q0": ["Image A is nicer.", A_WINS], "q1": ['{"winner": "Image'], "q2": ["I cannot help with that."]}
    with chat_server(replies=replies, bodies=True) as server:
        how = setting(server.url, max_in_flight=1)
        answers, account = ask(how, questions(3), tmp_path / "c")
        bodies = [json.loads(body) for body in server.log()["bodies"]]
        assert server.log(forget=True)["instructions"] == {"q0": 3, "q1": 6, "q2": 6}
        again, _ = ask(how, questions(3), tmp_path / "c")
        more, _ = ask(how | {"reply_tries": 4}, questions(3), tmp_path / "c")
        assert server.log()["instructions"] == {"q1": 2, "q2": 2}
    assert [answer.combined.winner for answer in answers] == ["Tie", None, None]
    assert answers[2].forward.reply == "I cannot help with that."
    assert again == answers
    assert more[2].forward.usage.requests == 4
    assert account.cost() | {"money": 0} == {
        "answers": 6, "unread": 4, "unasked": 0, "unknown_cost": 0,
        "tokens_in": 1500, "tokens_out": 150, "images": 45, "money": 0,
    }  # fmt: skip
    ours = [body for body in bodies if "Instruction: q1" in body["messages"][-1]["content"][0]["text"]]
    assert {body["temperature"] for body in ours} == {0.0, 0.7}
    assert [body.get("seed") for body in ours if body["temperature"] == 0.0] == [None, None]
    assert len({body["seed"] for body in ours if body["temperature"] == 0.7}) == 2


@each_row("refused, sent, words")
def test_options_that_an_endpoint_refuses_are_left_out(tmp_path, refused, sent, words) -> None:
    with chat_server(refuse=refused, **words) as server:
        how = setting(server.url, max_in_flight=2, reasoning_effort="low")
        answers, account = ask(how, questions(30), tmp_path / "c")
        body = json.loads(server.log()["last"]["body"])
        assert server.log()["kinds"]["400"] <= 8 * len(refused), "once by each of the questions under way"
    assert all(answer.forward.winner == "Image A" for answer in answers)
    assert account.this_run()["options_refused"] == refused
    assert not set(refused) & set(body)
    assert body | sent == body
    assert body["reasoning_effort"] == "low"
    assert (answers[0].forward.p_a is None) == ("logprobs" in refused)


def test_thinking_is_no_answer_and_what_is_cut_in_it_is_unread(tmp_path: Path) -> None:
    """Within the reply, told apart from it, or opened by the template, so that nothing marks its beginning."""
    said = yaml_beside(__file__)["THINKING"]
    with chat_server(replies={f"q{n}": [each] for n, each in enumerate(said)}) as server:
        how = setting(server.url, max_new_tokens=512, reply_tries=1)
        answers, _ = ask(how, questions(len(said)), tmp_path / "c")
    found = [answer.forward for answer in answers]
    assert [each.winner for each in found] == ["Image B"] * 3 + [None] * 4
    assert [round(each.p_a, 9) for each in found[:3]] == [0.75] * 3, "of the one decision behind the thinking"
    assert all(each.reason == "the reply ends before its thinking does" for each in found[4:])
    assert "thinking" not in found[3].reason


FORMS: list[tuple[Any, str]] = [
    (replace(style("decision"), structured=False, sides={"Image A": "first", "Image B": "second"}), "first"),
    (replace(style("decision"), structured=False, decimals=True), "1.5 and 0.5"),
    (rubrics.load("brief", "any"), "A: 3\nB: 3\nC: 3\n"),
    (replace(rubrics.load("brief", "any"), structured=False, form="sections"), SECTIONS),
    (style("decision"), f"I say {A_WINS}"),
]


def test_thinking_that_the_template_opened_is_unread_in_every_form(tmp_path: Path) -> None:
    """Whatever room a reply had: where the template is known by that, else where the reply was cut."""
    groups: list[tuple[Any, bool | None, list[Any], bool]] = []
    for form, said in FORMS:
        cut = {"content": said, "finish_reason": "length"}
        whole = [said, cut | {"reasoning_content": "Hm"}, f"{said}</think>{said}"]
        groups += [(form, None, [cut], False), (form, None, whole, True), (form, True, [cut, said], False)]
        groups += [(form, True, whole[1:], True), (form, False, [cut], True)]
    every = [reply for *_, replies, _ in groups for reply in replies]
    asked = iter(questions(len(every)))
    with chat_server(replies={f"q{n}": [reply] for n, reply in enumerate(every)}) as server:
        how = EndpointSetting(base_url=server.url, model="m", reply_tries=1)
        for form, opened, replies, read in groups:
            some: list[Any] = list(islice(asked, len(replies)))
            if "edited" in form.images:
                some = [Edit(question.instruction, question.source, question.a) for question in some]
            with RecordCache(tmp_path / "c") as store:
                asking = ChatAsking(how, form, store, Account())
                done = EndpointModel(asking, server.url, None, opened).answer_all(asking.tasks(some, []))
            expected = None if read else "the reply ends before its thinking does"
            assert [task.answer.reason for task in done] == [expected] * len(replies), (opened, replies)


def test_a_400_about_the_key_ends_the_run_and_a_short_key_does_not_spoil_replies(tmp_path, monkeypatch) -> None:
    invalid = pytest.raises(EndpointError, match="Please pass a valid API key")
    with chat_server(bad=["q0"], bad_words="API key not valid. Please pass a valid API key.") as server, invalid:
        ask(setting(server.url, max_in_flight=1), questions(9), tmp_path / "c")
    monkeypatch.setenv("JUDGE_KEY", "A")
    with chat_server(key="A") as server:
        answers, _ = ask(setting(server.url, api_key_env="JUDGE_KEY"), questions(1), tmp_path / "d")
    assert answers[0].forward.winner == "Image A"


def test_the_request_is_what_the_openai_client_sends(tmp_path: Path, sound: Server) -> None:
    question = Question("k", 'Say "hi" — \\ \n日本 <|image_pad|>', picture(1), picture(2), picture(3))
    sound.log(forget=True)
    ask(setting(sound.url, temperature=0.5, seed=7), [question], tmp_path / "c")
    ours = json.loads(sound.log()["last"]["body"])
    asked = style("decision")
    urls = iter(f"data:image/png;base64,{base64.b64encode(picture(n)).decode()}" for n in (1, 3, 2))
    parts: list[Any] = [
        part if part["type"] == "text" else {"type": "image_url", "image_url": {"url": next(urls)}}
        for part in asked.messages(question.instruction)[1]["content"]
    ]
    client = openai.OpenAI(base_url=sound.url, api_key="none", max_retries=0)
    chat: list[Any] = [asked.messages("")[0], {"role": "user", "content": parts}]
    how: dict[str, Any] = {"temperature": 0.5, "max_tokens": 24, "seed": 7, "logprobs": True, "top_logprobs": 20}
    schema = {"name": "reply", "strict": True, "schema": asked.schema}
    how |= {"response_format": {"type": "json_schema", "json_schema": schema}}
    reply = client.chat.completions.create(model="m", messages=chat, **how)
    assert ours == json.loads(sound.log()["last"]["body"])
    assert read_completion(reply.model_dump_json().encode()).text == reply.choices[0].message.content


def test_passes_have_seeds_of_their_own_and_resume_one_by_one_at_the_pace_a_minute(tmp_path, sound) -> None:
    how, start = setting(sound.url, temperature=0.8, passes=3, seed=5), time.monotonic()
    ask(how | {"passes": 2, "per_minute": 600}, questions(2), tmp_path / "c")
    assert time.monotonic() - start > 7 * 0.1
    log = sound.log(forget=True)
    assert sorted(json.loads(body)["seed"] for body in log["bodies"][-8:]) == [5, 5, 5, 5, 6, 6, 6, 6]
    answers, account = ask(how, questions(2), tmp_path / "c")
    assert sound.log()["kinds"] == {"200": 4}, "only the third pass"
    assert (account.asked, account.reused) == (4, 8)
    assert 0 < account.seconds < time.monotonic() - start
    assert answers[0].forward.usage.tokens_in == 300


@pytest.mark.parametrize("budget", [{"questions": 10}, {"tokens": 1199}, {"money": 0.00131}])
def test_a_budget_ends_the_asking_and_a_higher_one_goes_on(tmp_path, sound, budget) -> None:
    how = setting(sound.url, price={"input": 1.0, "output": 2.0}, budget=budget)
    sound.log(forget=True)
    answers, account = ask(how, questions(20), tmp_path / "c")
    done = [order for answer in answers for order in (answer.forward, answer.backward) if order.winner]
    assert sound.log()["kinds"] == {"200": len(done)} == {"200": 10}
    assert (account.unasked, account.failures.total()) == (30, 0)
    assert "forward order: budget spent: " in answers[-1].combined.reason
    same, again = ask(how, questions(20), tmp_path / "c")
    assert (same, again.asked, again.cost()) == (answers, 0, account.cost())
    _, higher = ask(how | {"budget": {name: 10 * most for name, most in budget.items()}}, questions(20), tmp_path / "c")
    assert (higher.reused, higher.asked, higher.unasked) == (10, 30, 0)
    assert higher.cost()["money"] == pytest.approx(40 * (100 * 1e-6 + 10 * 2e-6))
    assert sound.log()["kinds"] == {"200": 40}


@pytest.mark.parametrize("tokens", [1100, 2200, 4400])
def test_unreadable_replies_do_not_go_beyond_the_budget(tmp_path: Path, tokens: int) -> None:
    replies = {f"q{n}": ["I cannot say."] for n in range(1, 40)}
    with chat_server(replies=replies, delay=0.02) as server:
        how = setting(server.url, budget={"tokens": tokens})
        answers, account = ask(how, questions(40), tmp_path / "c")
        same, again = ask(how, questions(40), tmp_path / "c")
        paid = 110 * server.log()["kinds"]["200"]
    cost = account.cost()
    assert paid == cost["tokens_in"] + cost["tokens_out"]
    assert 0.8 * tokens <= paid <= tokens
    assert cost["answers"] + account.unasked == 80
    assert (same, again.cost(), again.reused, again.asked) == (answers, cost, account.asked, 0)
    orders = [order for answer in answers for order in (answer.forward, answer.backward)]
    assert sum(order.reply == "I cannot say." for order in orders) == cost["unread"]
    assert sum("budget spent" in (order.reason or "") for order in orders) == account.unasked


def test_a_budget_of_tokens_needs_an_endpoint_that_tells_them(tmp_path: Path) -> None:
    with chat_server(tell_tokens=False) as server:
        how = setting(server.url, budget={"tokens": 10**6}, max_in_flight=1)
        answers, account = ask(how, questions(20), tmp_path / "c")
    assert "does not say its tokens" in answers[-1].forward.reason
    assert answers[0].forward.usage is None
    assert account.cost()["tokens_in"] is None
    assert account.cost()["unknown_cost"] == account.cost()["answers"] < 10


@pytest.mark.parametrize("wait", ["0.6", "a date in an hour"])
def test_the_wait_that_an_endpoint_asks_for_is_kept_or_too_long(tmp_path, wait) -> None:
    header = wait if wait == "0.6" else formatdate(time.time() + 3600, usegmt=True)
    with chat_server(wait=header) as server:
        answers, account = ask(setting(server.url), questions(2), tmp_path / "c")
    if wait == "0.6":
        assert account.retries == {"429": 4}
        assert min(answer.forward.usage.seconds for answer in answers) > 0.6
    else:
        assert account.failures == {"429": 4}
        assert "asks to wait 3" in answers[0].forward.reason
        assert retry_after(header) > 3500
    assert retry_after("7") == 7
    assert (retry_after(None), retry_after("soon"), retry_after("-3")) == (None, None, 0)
    assert retry_after("Fri, 31 Dec 99999999999999999999 23:59:59 GMT") is None, "there is no such date"


@each_row("raw")
def test_what_is_no_completion_is_tried_again(raw: str) -> None:
    with pytest.raises(endpoint.TryFailed, match="completion"):
        read_completion(raw.encode())


def test_memory_does_not_grow_with_what_waits(sound: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    how = EndpointSetting(base_url=sound.url, model="m", max_in_flight=2)
    alive: list[int] = []

    def taken(_: ChatAsking, task: ChatTask, reply: Any) -> ChatTask:
        alive.append(len(asyncio.all_tasks()))
        return replace(task, answer=Verdict(task.name, "Tie", None, "", None))

    monkeypatch.setattr(ChatAsking, "taken", taken)
    model = EndpointModel(ChatAsking(how, style("pvc"), None, Account()), sound.url, None)  # type: ignore[arg-type]
    model.answer_all([ChatTask(str(n), question) for n, question in enumerate(questions(60))])
    assert len(alive) == 60
    assert max(alive) <= 2 * 4 + 2


def test_the_key_goes_to_no_address_without_https_but_the_endpoint_s_own() -> None:
    own = {"https://cdn.a.example/job": True, "http://a.example/job": False, "https://b.test/job": False}
    assert {url: endpoint._is_of_one(url, "https://a.example/v1") for url in own} == own, "who gets the key"
    assert endpoint._is_of_one("http://a.example/job", "http://a.example/v1")


@pytest.mark.parametrize("kind", [EndpointSetting, ServedSetting, TransformersSetting])
def test_a_field_that_is_left_out_is_as_the_page_says(kind: Any) -> None:
    page = (Path(__file__).parents[2] / "docs/judges.md").read_text()
    rows = re.findall(r"^\| (`[^|]*`) \| [^|]* \| ([^;|`]+) \|$", page, re.M)
    named = ((re.findall(r"`(\w+)`", names), values.split(", ")) for names, values in rows)
    told = {name: yaml.safe_load(value) for each in named for name, value in zip(*each, strict=False)}
    own = {name: each.default for name, each in kind.__pydantic_fields__.items() if name in told}
    own = {name: value for name, value in own.items() if isinstance(value, bool | int | float | str)}
    assert (own, len(own) > 8) == ({name: told[name] for name in own}, True)
