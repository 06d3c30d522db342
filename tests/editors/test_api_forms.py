"""The forms of providers' APIs, each against a server that answers as its documentation says."""

import base64
import functools
import io
import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import Any, get_args

import numpy as np
import pytest
from cases import yaml_beside
from http_handler import Handler, served
from PIL import Image, ImageOps

from editjudge.core import images
from editjudge.core.settings import read
from editjudge.editors import making
from editjudge.editors.api import form
from editjudge.editors.api.editor import ApiEditor
from editjudge.editors.protocol import Outcome, Request
from editjudge.editors.settings import CHOOSES_FIELD, Api, ApiSetting, ProceduralSetting, decides
from editjudge.models.endpoint import client
from editjudge.models.endpoint.client import Refused, TryFailed

KEY = "key-0123456789abcdef"
SOURCE = images.encode_png(np.random.default_rng(0).integers(0, 255, (96, 128, 3), np.uint8))


def negative(source: bytes, size: tuple[int, int] | None = None) -> bytes:
    buffer = io.BytesIO()
    image = ImageOps.invert(Image.open(io.BytesIO(source)).convert("RGB"))
    (image.resize(size) if size else image).save(buffer, "PNG")
    return buffer.getvalue()


def encoded(data: bytes) -> str:
    return base64.b64encode(data).decode()


CASES: dict[str, Any] = {
    api: told | {"header": told["header"].replace("$KEY", KEY)} for api, told in yaml_beside(__file__).items()
}


def filled(told: Any, **marks: str) -> Any:
    """What a provider's table says, with these in the place of its marks."""
    text = json.dumps(told)
    for mark, value in marks.items():
        text = text.replace(f"${mark}", value)
    return json.loads(text)


FORMS = pytest.mark.parametrize("api", CASES)


class Provider:
    """behave: of each prompt what it meets the first, second, ... time, then the last: good, refused, square, 429,
    malformed, never (work without an end), lost (whose address has expired), stranger (another host is named)."""

    def __init__(self, api: str, behave: dict[str, list[str]]) -> None:
        self.told, self.behave = CASES[api], behave
        self.header, _, self.key = self.told["header"].partition(": ")
        self.came, self.polls, self.last = Counter[str](), Counter[str](), {}
        self.jobs: dict[str, tuple[str, bytes]] = {}

    def answer(self, name: str, source: bytes) -> tuple[int, Any]:
        if name == "429":
            return 429, {"error": {"message": "slow down"}}
        if name == "malformed":
            return 200, {"hello": 1}
        if name == "refused":
            return tuple(self.told["refused"])
        made = encoded(negative(source, (640, 640) if name == "square" else None))
        return 200, filled(self.told["made"], URL=f"data:image/png;base64,{made}", DATA=made)

    def post(self, path: str, headers: Any, body: Any, url: str) -> tuple[int, Any]:
        assert (path, headers[self.header]) == (self.told["path"], self.key)
        prompt = re.search(r"p\d+ [a-z0-9]+", json.dumps(body))
        assert prompt is not None
        self.came[prompt[0]] += 1
        self.last = body
        meets = self.behave.get(prompt[0], ["good"])
        meets = meets[min(self.came[prompt[0]], len(meets)) - 1]
        places = self.told["source"].split(".")
        text = functools.reduce(lambda at, part: at[int(part) if part.isdigit() else part], places, body)
        source = base64.b64decode(text.removeprefix("data:image/png;base64,"))
        if "queue" not in self.told or meets == "429":
            return self.answer(meets, source)
        self.jobs[str(len(self.jobs))] = meets, source
        job = f"{'https://example.com' if meets == 'stranger' else url}/job/{len(self.jobs) - 1}"
        return 201, filled(self.told["queue"]["started"], JOB=job)

    def get(self, path: str, headers: Any, url: str) -> tuple[int, Any]:
        assert headers[self.header] == self.key
        _, _, number, *more = path.split("/")
        meets, source = self.jobs[number]
        self.polls[number] += 1
        if meets == "lost":
            return 404, {"detail": "Task not found"}
        if self.polls[number] == 1:
            return 500, {"detail": "worker died"}  # asks for nothing anew
        if meets == "never" or self.polls[number] == 2:
            return 200, filled(self.told["queue"]["working"], JOB=f"{url}/job/{number}")
        if more:
            return 200, {"status": "COMPLETED", "response_url": f"{url}/job/{number}"}
        return self.answer(meets, source)


@contextmanager
def provider(api: str, **behave: list[str]) -> Iterator[tuple[Provider, str]]:
    own = Provider(api, {f"p{n} {name}": meets for n, (name, meets) in enumerate(behave.items())})

    class Answers(Handler):
        def reply(self, status: int, value: Any) -> None:
            raw = json.dumps(value).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(raw)))
            self.end_headers()
            self.wfile.write(raw)

        def url(self) -> str:
            return f"http://{self.headers['Host']}"

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            self.reply(*own.post(self.path, self.headers, body, self.url()))

        def do_GET(self) -> None:
            self.reply(*own.get(self.path, self.headers, self.url()))

    with served(Answers) as server:
        yield own, f"http://127.0.0.1:{server.server_port}/v1"


def edited(
    api: str, url: str, prompts: list[str], more: Sequence[bytes] = (), **changes: Any
) -> tuple[list[Outcome], ApiEditor]:
    plain = {"kind": "api", "api": api, "base_url": url, "model": "m", "seed": 1, "timeout": 2.0, "tries": 2}
    how = read("editors.a", ApiSetting, plain | {"api_key_env": "EDIT_KEY"} | CASES[api].get("settings", {}) | changes)
    editor, kept = ApiEditor(how, "a"), {}
    requests = [Request(f"k{n}", prompt, SOURCE, None, "data", n, tuple(more)) for n, prompt in enumerate(prompts)]
    editor.edit_many(enumerate(requests), kept.__setitem__)
    return [kept[n] for n in range(len(prompts))], editor


@pytest.fixture(autouse=True)
def key_and_pace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EDIT_KEY", KEY)
    monkeypatch.setattr(client, "FIRST_PAUSE", 0.02)


@FORMS
def test_an_edit_is_made_and_what_else_comes_is_a_failure_of_its_kind(api: str) -> None:
    meets = {
        "good": ["good"], "slow": ["429", "good"], "square": ["square"], "refused": ["refused"],
        "malformed": ["malformed"],
    }  # fmt: skip
    queue = "queue" in CASES[api]
    meets |= {name: [name] for name in ("never", "lost", "stranger") if queue}
    prompts = [f"p{n} {name}" for n, name in enumerate(meets)]
    with provider(api, **meets) as (server, url):
        kept, _ = edited(api, url, prompts, send_seed=True)
    kinds = dict(zip(meets, (outcome.kind for outcome in kept), strict=True))
    late = {"never": "timeout", "lost": "lost", "stranger": "stranger"} if queue else {}
    broken = "timeout" if queue else "malformed"
    assert kinds == {"good": None, "slow": None, "square": None, "refused": "refused", "malformed": broken, **late}
    good, square = kept[0], kept[2]
    assert np.array_equal(images.decode(good.image), 255 - images.decode(SOURCE))
    assert images.decode(square.image).shape == (640, 640, 3), "another shape has been paid for, and is kept"
    again = {prompt for prompt, count in server.came.items() if count > 1}
    assert again == ({"p1 slow"} if queue else {"p1 slow", "p4 malformed"}), "work is not asked for anew"
    assert not any(KEY in str(outcome.reason) for outcome in kept)
    sent = json.dumps(server.last)
    assert '"seed": ' in sent
    for name, value in CASES[api].get("settings", {}).get("data", {}).items():
        assert f'"{name.rpartition(".")[2]}": "{value}"' in sent


@FORMS
def test_several_sources_are_sent_in_their_order_to_who_takes_them(api: str) -> None:
    pictures = [SOURCE, negative(SOURCE), negative(SOURCE, (64, 48))]
    field = "image_urls[]" if api in ("fal", "replicate") else None
    with provider(api) as (server, url):
        (one,), _ = edited(api, url, ["p0 x"], more=pictures[1:])
        assert (one.kind, one.reason) == ("several_sources", "3 source images: this editor takes 1")
        assert not server.came
    shown = [SOURCE, b"\xff\xd8\xff1", b"RIFF2"]
    asked = form.Asked(shown, "p0 x", "m", {"q.of": 2, "k": True}, field)
    sent = import_module(f"editjudge.editors.api.forms.{api}").FORM.write(asked).decode()
    for n, each in enumerate(shown):
        sent = sent.replace(encoded(each), f"${n}")
    assert json.loads(sent) == CASES[api]["asked"]


@pytest.mark.parametrize(("api", "value", "told"), [(api, *each) for api in CASES for each in CASES[api]["reads"]])
def test_an_answer_is_an_image_its_address_more_work_or_a_refusal(api: str, value: Any, told: str) -> None:
    try:
        found = import_module(f"editjudge.editors.api.forms.{api}").FORM.read(json.dumps(value).encode())
        found = f"later {found.url}" if isinstance(found, client.Later) else found
    except (TryFailed, Refused) as error:
        found = f"refused {error.status}: {error.text}" if isinstance(error, Refused) else error.kind
    assert (found.decode() if isinstance(found, bytes) else found) == told


def test_every_form_is_tried_and_changes_no_name_of_what_openai_was_paid_for() -> None:
    assert {*CASES, "openai"} == set(get_args(Api))
    plain = {"kind": "api", "base_url": "http://127.0.0.1:9/v1", "model": "m", "seed": 1}
    old = read("editors.a", ApiSetting, plain)
    assert not {"api", "image_field"} & set(decides(old, "data"))
    drawn = [read("editors.a", ApiSetting, plain | {"send_seed": each}) for each in (True, False)]
    drawn += [read("editors.a", ProceduralSetting, {"kind": "leaky", "amount": 2.0, "seed": 1})]
    assert ["seed" in decides(each, "data") for each in drawn] == [True, False, True], "where it is sent"
    several = plain | {"sources": 2, "image_field": "image_urls[]"}
    assert all(read("editors.a", ApiSetting, several | {"api": api}) for api in CHOOSES_FIELD)
    codes = {api: making.code(read("editors.a", ApiSetting, plain | {"api": api})) for api in get_args(Api)}
    assert len(set(codes.values())) == len(codes)


@FORMS
@pytest.mark.parametrize("raw", [b"", b"[]", b"3", b"{}", b"<html>", b'{"status": 5}', b'{"choices": [3]}'])
def test_answers_that_are_none_are_tried_again_or_refused(api: str, raw: bytes) -> None:
    with pytest.raises((TryFailed, Refused)):
        import_module(f"editjudge.editors.api.forms.{api}").FORM.read(raw)
