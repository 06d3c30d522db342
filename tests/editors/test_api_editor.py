"""The editor behind an API, against a real HTTP server in a process of its own."""

import hashlib
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any, cast

import numpy as np
import openai
import pytest
from cases import yaml_beside
from chat_client import edit_server
from fake_server import Server
from pictures import picture as source

from editjudge.core import images
from editjudge.core.params import ParamsError
from editjudge.core.settings import read
from editjudge.editors import making
from editjudge.editors.api import reply
from editjudge.editors.api.editor import DOWN, ApiEditor
from editjudge.editors.protocol import Outcome, Request
from editjudge.editors.settings import ApiSetting
from editjudge.models.chat.settings import Program
from editjudge.models.endpoint.client import EndpointError, Refused, TryFailed
from editjudge.models.serve import launch
from editjudge.models.serve.launch import free_port

KEY = "sk-secret-0123456789"
HARD = 'Say "hi" — \\ \r\n日本語 🎨 ../../etc/passwd\n--boundary\r\nContent-Disposition: form-data; name="x"\r\n\r\n'


def request(prompt: str, seed: int = 0, **changes: Any) -> Request:
    plain = {"key": f"k{seed}", "image": source(seed % 5), "edit": None, "use": "data", "seed": seed}
    return Request(instruction=prompt, **plain | changes)


def setting(url: str, **changes: Any) -> ApiSetting:
    plain = {"kind": "api", "base_url": url, "model": "m", "seed": 1, "timeout": 5.0}
    return read("editors.a", ApiSetting, plain | changes)


def edited(how: ApiSetting, requests: list[Request]) -> tuple[dict[int, Outcome], ApiEditor]:
    """What became of each request; each is kept once."""
    editor, kept = ApiEditor(how, "a"), {}

    def keep(number: int, outcome: Outcome) -> None:
        assert number not in kept
        kept[number] = outcome

    editor.edit_many(enumerate(requests), keep)
    assert sorted(kept) == list(range(len(requests)))
    return kept, editor


def kinds(kept: dict[int, Outcome]) -> list[str]:
    return [outcome.kind or "done" for _, outcome in sorted(kept.items())]


def test_every_edit_is_made_once_where_a_tenth_of_the_requests_fail() -> None:
    prompts = [f"make it {n}" for n in range(120)]
    with edit_server(failures=0.1, delay=0.01) as server:
        how = setting(server.url, timeout=2.0, tries=8, max_in_flight=8)
        kept, editor = edited(how, [request(prompt, n) for n, prompt in enumerate(prompts)])
        log = server.log()
    for number, outcome in kept.items():
        assert np.array_equal(images.decode(outcome.image), 255 - images.decode(source(number % 5)))
        assert outcome.damage is None
    assert log["answered"] == dict.fromkeys(prompts, 1)
    failed = {kind: count for kind, count in log["kinds"].items() if kind != "good"}
    names = {"429": "429", "500": "500", "hang": "timeout", "cut": "connection"}
    assert editor.retries == {names[kind]: count for kind, count in failed.items()}
    assert len(failed) == 4
    assert editor.report()["requests"] == 120 + sum(failed.values())
    assert log["flight"]["most"] <= 8 + log["kinds"]["hang"] + log["kinds"]["cut"], "those that the client gave up"


def test_a_model_is_served_by_its_stage_a_copy_on_each_group_of_gpus(workdir: Path) -> None:
    """Copies take turns, each sees its own GPUs, and none is left; without a GPU there is one."""
    port, shown = free_port("127.0.0.1", 0), ["sh", "-c", 'echo "GPUs $CUDA_VISIBLE_DEVICES"; exec "$@"', "sh"]
    words = [*shown, sys.executable, str(Path(__file__).parents[1] / "helpers/edit_server.py"), '{"port": {port}}']
    server = {"command": words, "health": "/log", "stop_seconds": 5.0}
    how = setting(f"http://127.0.0.1:{port}/v1", server=server, max_in_flight=2)
    with launch.copies("a", how.base_url, how.model, cast(Program, how.server), ["cuda:0,1", "cuda:2,3"]) as urls:
        assert urls == [f"http://127.0.0.1:{port + n}/v1" for n in range(2)]
        ApiEditor(how, "a", urls).edit_many(enumerate(request(f"p{n}", n) for n in range(8)), lambda *_: None)
        assert [sum(Server(url).log()["answered"].values()) for url in urls] == [4, 4]
        logs = [Path(f"work/serve/a-{port + n}.log").read_text() for n in range(2)]
        assert [log.split("\n")[0] for log in logs] == ["GPUs 0,1", "GPUs 2,3"]
    kept: dict[str, Outcome] = {}
    figures = making.make("a", how, [iter([("k", request("p", 1))])], 1, kept.__setitem__)
    assert (figures["outcomes"], kept["k"].kind) == ({"done": 1}, None)
    assert not launch.healthy(f"http://127.0.0.1:{port}/log"), "it ends with the stage"
    broken = setting(how.base_url, server=server | {"command": [sys.executable, "-c", "print('no GPU'); exit(3)"]})
    with pytest.raises(
        launch.ServingError, match=r"(?s)the server of a ended with code 3.*work/serve/a-\d+.log.*no GPU"
    ):
        making.make("a", broken, [iter([("k", request("p", 1))])], 1, kept.__setitem__)


def test_no_more_are_in_flight_than_allowed_and_the_pace_is_kept() -> None:
    with edit_server(delay=0.3) as server:
        kept, _ = edited(setting(server.url, max_in_flight=3), [request(f"p{n}", n) for n in range(24)])
        log = server.log()
    assert log["flight"]["most"] == 3
    assert set(log["last"]["fields"]) == {"prompt", "model"}, "a seed only where it is wanted"
    with edit_server() as server:
        start = time.monotonic()
        edited(setting(server.url, per_minute=1200), [request(f"p{n}", n) for n in range(20)])
        times = server.log()["times"]
    assert kinds(kept) == ["done"] * 24
    assert len(times) == 20
    assert all(at - start > 0.05 * (n - 1) for n, at in enumerate(times)), "none sooner: 1,200 a minute are 50 ms apart"


MEETS = yaml_beside(__file__)["MEETS"]


def test_what_comes_back_is_an_edit_or_a_failure_of_its_kind() -> None:
    requests = [request(prompt, n) for n, prompt in enumerate(MEETS)]
    with edit_server(behave={prompt: meets for prompt, (meets, _) in MEETS.items()}) as server:
        how = setting(server.url, tries=3, timeout=1.0, megabytes=1.0, max_in_flight=8)
        kept, editor = edited(how, [*requests, request("x", 99, image=b"GIF89a")])
        log = server.log()
    assert kinds(kept) == [*(kind for _, kind in MEETS.values()), "bad_source"]
    reasons = {prompt: str(kept[n].reason) for n, prompt in enumerate(MEETS)}
    assert "rejected by the safety system. (moderation_blocked)" in reasons["blocked"]
    assert "may be sensitive" in reasons["blocked item"]
    assert "Invalid value: '7x7' for size" in reasons["bad size"]
    assert reasons["huge"] == "the answer is larger than 1.4 MB"
    assert "(try 3)" in reasons["always 500"]
    assert reasons["broken"].startswith("the edited image: broken image")
    assert reasons["page"].startswith("the image's address: not an image: begins with b'<html>")
    assert "private host" in reasons["private"]
    assert "neither https" in reasons["insecure"]
    assert "private host" in reasons["elsewhere"], "a redirect from the endpoint's own host to another private one"
    assert not any("secret" in reason for reason in reasons.values())
    assert log["kinds"]["fetched"] == 1
    assert log["came"]["blocked"] == log["came"]["broken"] == 1, "asking again would cost again"
    assert editor.report()["outcomes"] == Counter(kinds(kept))


@pytest.mark.parametrize("form", ["PNG", "JPEG", "WEBP"])
def test_the_form_is_what_the_openai_client_sends(form: str) -> None:
    image = source(1, form)
    with edit_server() as server:
        extra = {"size": "1024x1024", "quality": "high", "strength": 0.5, "turbo": True}
        how = setting(server.url, benchmark=extra, data={"size": "auto"}, send_seed=True, api_key_env="none")
        asked = request(HARD, 2**40 + 7, image=image, use="benchmark", key="../k 日本")
        kept, _ = edited(how, [asked])
        ours = server.log()["last"]
        client = openai.OpenAI(base_url=server.url, api_key="none", max_retries=0)
        name = f"image.{form.lower()}"
        how: dict[str, Any] = {"model": "m", "size": "1024x1024", "quality": "high"}
        how |= {"extra_body": {"seed": 7, "strength": 0.5, "turbo": True}}
        client.images.edit(image=(name, image, f"image/{form.lower()}"), prompt=HARD, **how)
        theirs = server.log()["last"]
    assert kinds(kept) == ["done"]
    assert ours["fields"] == theirs["fields"]
    assert ours["fields"]["prompt"] == HARD
    sent = [["image", name, f"image/{form.lower()}", hashlib.sha256(image).hexdigest()]]
    assert ours["files"] == theirs["files"] == sent
    assert ours["headers"]["Content-Type"].startswith("multipart/form-data; boundary=")
    assert int(ours["headers"]["Content-Length"]) > len(image)


@pytest.mark.parametrize("budget", [{"images": 10}, {"money": 0.4}, {"images": 50, "money": 0.41}])
def test_a_budget_ends_the_run_cleanly(budget: dict[str, float]) -> None:
    with edit_server(behave={"p1": ["429", "good"], "p2": ["500", "500", "good"]}, delay=0.02) as server:
        how = setting(server.url, budget=budget, price=0.04, max_in_flight=4)
        kept, editor = edited(how, [request(f"p{n}", n) for n in range(30)])
        log = server.log()
        rest = [n for n, kind in enumerate(kinds(kept)) if kind == "budget"]
        assert Counter(kinds(kept)) == {"done": 10, "budget": 20}
        again, _ = edited(how, [request(f"p{n}", n) for n in rest])
    assert log["kinds"]["good"] == 10, "an answer of 429 or 500 costs nothing"
    assert editor.report() | {"retries": 0, "requests": 0, "seconds": 0} == {
        "outcomes": {"budget": 20, "done": 10}, "left": 20, "requests": 0, "retries": 0, "money": 0.4, "seconds": 0
    }  # fmt: skip
    assert "budget of" in kept[rest[0]].reason
    assert Counter(kinds(again)) == {"done": 10, "budget": 10}


def test_what_hangs_or_is_cut_may_have_been_worked_on_and_is_paid_for() -> None:
    with edit_server(behave={"p0": ["hang", "good"], "p1": ["cut", "good"]}) as server:
        how = setting(server.url, budget={"images": 4}, max_in_flight=1, timeout=1.0)
        kept, editor = edited(how, [request(f"p{n}", n) for n in range(6)])
    assert editor.report()["requests"] == 4
    assert Counter(kinds(kept)) == {"done": Counter(kinds(kept))["done"], "budget": 6 - Counter(kinds(kept))["done"]}
    assert 2 <= Counter(kinds(kept))["done"] <= 3, "two of the four were without an answer"


def test_thousands_left_by_a_budget_do_not_wait_for_the_pace() -> None:
    with edit_server() as server:
        start = time.monotonic()
        how = setting(server.url, budget={"images": 1}, per_minute=200)
        kept, _ = edited(how, [request("p", n) for n in range(2000)])
    assert Counter(kinds(kept)) == {"done": 1, "budget": 1999}
    assert time.monotonic() - start < 300, "17 tasks may wait their turn of 0.3 s; all would take 600 s"


@pytest.mark.parametrize(
    ("behaves", "words"), [("no_key", r"401, the key is refused: .*\[key\]"), ("no_model", "404"), ("forbidden", "403")]
)
def test_a_refused_key_or_model_ends_the_run_and_loses_nothing(behaves, words, monkeypatch, capfd) -> None:
    monkeypatch.setenv("EDIT_KEY", KEY)
    kept: dict[int, Any] = {}
    with edit_server(usual=behaves, delay=0.02) as server:
        editor = ApiEditor(setting(server.url, api_key_env="EDIT_KEY", max_in_flight=2), "a")
        with pytest.raises(EndpointError, match=words) as error:
            editor.edit_many(enumerate(request(f"p{n}", n) for n in range(200)), kept.__setitem__)
        log = server.log()
    assert log["last"]["headers"]["Authorization"] == f"Bearer {KEY}"
    assert log["kinds"][behaves] <= 4
    told = [*capfd.readouterr(), str(error.value), *map(repr, (error.value, editor.setting, kept, editor.report()))]
    assert not any(KEY in text for text in told)


def test_answers_under_way_are_kept_when_the_key_is_refused() -> None:
    kept: dict[int, Any] = {}
    with edit_server(behave={"p3": ["no_key"]}, delay=0.1) as server:
        editor = ApiEditor(setting(server.url, max_in_flight=4), "a")
        with pytest.raises(EndpointError):
            editor.edit_many(enumerate(request(f"p{n}", n) for n in range(50)), kept.__setitem__)
        answered = server.log()["answered"]
    assert {f"p{n}" for n, outcome in kept.items() if outcome.kind is None} == set(answered)
    assert len(answered) >= 3


def test_an_endpoint_that_is_down_is_given_up_and_a_key_that_is_wanted_must_be_there(monkeypatch) -> None:
    kept, _ = edited(setting("http://127.0.0.1:9/v1", tries=1, max_in_flight=2), [request("p", n) for n in range(200)])
    counts = Counter(kinds(kept))
    assert counts["connection"] + counts["not_asked"] == 200
    assert DOWN <= counts["connection"] <= DOWN + 8
    assert "no connection" in kept[0].reason
    monkeypatch.delenv("EDIT_KEY", raising=False)
    with pytest.raises(ParamsError, match="set the environment variable EDIT_KEY"):
        ApiEditor(setting("http://127.0.0.1:9/v1", api_key_env="EDIT_KEY"), "a")


@pytest.mark.parametrize(
    "raw",
    [b"", b"[]", b"{}", b'{"data": null}', b'{"data": [null]}', b'{"data": [{}]}', b'{"data": [{"url": 3}]}', b"\xff",
     b'{"data": [{"b64_json": "A"}]}', b'{"data": {"url": "x"}}'],
)  # fmt: skip
def test_answers_without_an_image_are_malformed(raw: bytes) -> None:
    with pytest.raises(TryFailed, match="no image"):
        reply.read(raw)


def test_words_of_refusals() -> None:
    told = reply.refusal(Refused(400, r'{"message": "\u001b[2Jno\b \\n\u20ac", "code": "\u009b"}'))
    assert str(told).endswith(r":  [2Jno  \n€ ( )"), "no escape code once JSON is read"
    plain = reply.refusal(Refused(400, '{"error": "Content blocked: content_policy_violation"}'))
    assert (plain.kind, "content_policy_violation" in str(plain)) == ("refused", True)
    assert reply.refusal(Refused(413, "<html>too large</html>")).kind == "413"
    assert reply.read(b'{"data": [{"b64_json": "data:image/png;base64,QUJD"}]}') == b"ABC"
