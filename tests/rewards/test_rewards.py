"""The reward service over HTTP: batches, failures, limits, its key, its end, and the trainers' forms."""

import asyncio
import base64
import io
import json
import math
import pickle
import socket
import threading
import weakref
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import aiohttp
import httpx2
import numpy as np
import pytest
import requests
from cases import each_row
from killing import wait_until
from pictures import many_scans, picture
from PIL import Image
from pixel_scorer import SETTING, PixelScorer, Running, Served
from pydantic import ValidationError
from reward_trial import trial

from editjudge.core import images, params
from editjudge.core.params import ParamsError
from editjudge.core.settings import read, section
from editjudge.engine import serving
from editjudge.judges.protocol import Edit, Score, Unscored
from editjudge.rewards.reward_forms import FORMS, RewardForm, edit_of
from editjudge.rewards.reward_settings import RewardSetting
from editjudge.rewards.rewards import RewardService
from tools import reward_client

BROKEN = picture(1)[:40]
NO_BYTES = pickle.dumps({"images": ["x"], "prompts": ["x"]})


@pytest.fixture(scope="module")
def running() -> Iterator[Running]:
    with Running() as running:
        yield running


def text(image: bytes) -> str:
    return base64.b64encode(image).decode()


def own(*edits: tuple[bytes, bytes]) -> dict[str, Any]:
    return {"edits": [{"instruction": "x", "source": text(one), "edited": text(other)} for one, other in edits]}


def expected(source: bytes, edited: bytes) -> Score:
    score = PixelScorer().one(Edit("x", source, edited))
    assert isinstance(score, Score)
    return score


def test_of_many_requests_none_is_lost_and_none_is_answered_0() -> None:
    """Every 20th has a broken image, or none."""
    bad = [BROKEN, b"", b"no image", picture(0) + b"x"]
    edits = [(picture(n % 7), bad[n // 20 % 3] if n % 20 == 0 else picture(100 + n % 50)) for n in range(300)]

    async def ask_all(url: str) -> list[dict]:
        limits = httpx2.Limits(max_connections=64)
        async with httpx2.AsyncClient(timeout=60, limits=limits) as client:
            replies = await asyncio.gather(*(client.post(f"{url}/score", json=own(edit)) for edit in edits))
        assert {reply.status_code for reply in replies} == {200}
        return [reply.json()["results"][0] for reply in replies]

    with Running() as running:
        results = asyncio.run(ask_all(running.url))
        told = requests.get(f"{running.url}/metrics", timeout=60).text
    assert running.service.scorers == [None], "let go of at the end"
    assert len(results) == 300
    for n, (result, edit) in enumerate(zip(results, edits, strict=True)):
        if n % 20 == 0:
            assert result["overall"] is None
            assert result["reason"]
        else:
            assert result | {"said": None} == asdict(expected(*edit)) | {"reason": None}, "values by name, and no words"
            assert "said" not in result
    assert max(running.scorer.batches) > 1
    assert max(running.scorer.batches) <= 16
    lines = told.splitlines()
    assert 'editjudge_reward_requests_total{form="score",status="200"} 300.0' in lines
    assert 'editjudge_reward_edits_total{form="score",result="scored"} 285.0' in lines
    assert 'editjudge_reward_edits_total{form="score",result="unscored"} 15.0' in lines
    assert f"editjudge_reward_batches_total {len(running.scorer.batches)}.0" in lines
    assert f"editjudge_reward_batch_edits_total {sum(running.scorer.batches)}.0" in lines
    assert "editjudge_reward_pending 0.0" in lines
    assert 'editjudge_reward_seconds_bucket{le="+Inf"} 300.0' in lines
    assert "editjudge_reward_seconds_count 300.0" in lines


def test_hostile_requests_take_nothing_from_the_others() -> None:
    """As `benchmarks/test_reward_trial.py`, which sends 10,000 and up to 10 MB."""
    edits = [Edit(f"make it red {n}", picture(n), picture(n + 1)) for n in range(300)]
    with Running() as running:
        found = trial(running.url, "pixels", edits, 1_000_000, 16)
        assert running.pending == 0
    assert [score.overall for score in found.answers] == [PixelScorer().one(edit).overall for edit in edits]
    assert found.statuses.total() == 15
    assert {status for _, status in found.statuses} == {0, 200, 400}


@pytest.mark.parametrize("wrong", ["nan", "None"])
def test_a_scorer_whose_numbers_are_not_finite_has_no_score(wrong: str) -> None:
    class Wrong(PixelScorer):
        def one(self, edit: Edit) -> Score | Unscored:
            return Score(math.nan if wrong == "nan" else 1.0, {"likeness": 0.5, "brightness": 1.0})

    with Running(Wrong(), reward="overall" if wrong == "nan" else "calibrated") as running:
        [result] = reward_client.score(running.url, [("x", picture(1), picture(2))])
        assert result["overall"] is None
        assert "not finite" in result["reason"] or "no value calibrated" in result["reason"]


def test_a_failing_scorer_is_an_error_and_not_the_end() -> None:
    class Failing(PixelScorer):
        def one(self, edit: Edit) -> Score | Unscored:
            if edit.instruction == "fail":
                raise RuntimeError("out of memory")
            return super().one(edit)

    with Running(Failing()) as running:
        body = own((picture(1), picture(2)))
        body["edits"][0]["instruction"] = "fail"
        failed = requests.post(f"{running.url}/score", json=body, timeout=60)
        assert (failed.status_code, failed.json()) == (500, {"error": "RuntimeError: out of memory"})
        assert reward_client.score(running.url, [("x", picture(1), picture(2))])[0]["overall"]


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_a_list_of_wrong_items_is_a_few_errors_and_not_one_an_item(form: type[RewardForm]) -> None:
    """Nine megabytes of `[]` took 3 GB."""
    with pytest.raises(ValidationError) as raised:
        form.model_validate({field.alias or name: [[]] * 1000 for name, field in form.model_fields.items()})
    assert raised.value.error_count() < 10


@pytest.mark.parametrize(
    ("status", "words", "path", "body"),
    [
        (400, "not JSON", "/score", b"{"),
        (400, "not JSON", "/score", b"[" * 100_000),
        (400, "the body: ", "/score", b"[]"),
        (400, "edits: Field required", "/score", b"{}"),
        (400, "edits.0.edited: Field required", "/score", b'{"edits": [{"instruction": "x", "source": "x"}]}'),
        (400, "edits.0.mask: Extra", "/score", b'{"edits":[{"instruction":"x","source":"","edited":"","mask":1}]}'),
        (400, "requests.0.history: Input", "/score", b'{"requests": [{"history": 1, "required_rewards": []}]}'),
        (400, "1025 edits in a request", "/score", json.dumps({"edits": own((b"", b""))["edits"] * 1025}).encode()),
        (413, "more than 8388608 bytes", "/score", b" " * (8 * 2**20 + 1)),
        (400, "1 image, 2 prompt", "/compute", json.dumps({"prompt": ["x", "y"], "image": ["x"]}).encode()),
        (400, "the pickle: it is broken", "/", b"\x80\x04x"),
        (400, "prompts: Field required", "/flow_grpo", pickle.dumps({"images": []})),
        (400, "images.0: Input should be a valid bytes", "/flow_grpo", NO_BYTES),
        (404, "Not Found", "/nothing", b""),
    ],
)
def test_bad_input_is_refused_in_one_line(running: Running, status: int, words: str, path: str, body: bytes) -> None:
    reply = requests.post(running.url + path, data=body, timeout=60)
    assert reply.status_code == status
    if path == "/flow_grpo":  # it unpickles whatever comes, and has no place for an error
        with pytest.raises(AttributeError) as raised:
            pickle.loads(reply.content)
        told = str(raised.value)
    else:
        answer = pickle.loads(reply.content) if path == "/" else reply.json()
        assert list(answer) == ["error"]
        told = answer["error"]
    assert words in told
    assert len(told.splitlines()) == 1


def test_an_instruction_that_takes_all_memory_is_not_scored_and_the_others_are(running: Running) -> None:
    edits = [("make it red " * 50_000, picture(1), picture(2)), ("make it red", picture(1), picture(2))]
    long, other = reward_client.score(running.url, edits)
    assert (long["overall"], long["reason"]) == (None, "the instruction has 600000 characters, more than 4000")
    assert other["overall"] == expected(picture(1), picture(2)).overall


def test_an_image_that_takes_minutes_is_not_scored() -> None:
    refused = Unscored("edited image: 1010 scans, more than the limit of 100")
    assert edit_of("x", picture(1), many_scans(3000, 1000)) == refused


def test_images_that_are_missing_or_not_base64_fail_alone(running: Running) -> None:
    body = own((picture(1), picture(2)), (picture(1), b""), (picture(1), picture(2)))
    body["edits"][2]["source"] = "***"
    body["edits"][0]["source"] = f"data:image/png;base64,{body['edits'][0]['source']}"
    results = requests.post(f"{running.url}/score", json=body, timeout=60).json()["results"]
    assert results[0]["overall"] == expected(picture(1), picture(2)).overall
    assert [each["overall"] for each in results[1:]] == [None, None]
    assert results[1]["reason"] == "no edited image"
    assert "not base64" in results[2]["reason"]


def test_whoever_finds_it_full_is_told_to_come_back() -> None:
    with Running(most_waiting=4) as running, ThreadPoolExecutor(8) as threads:
        running.scorer.go.clear()
        edits = [("x", picture(n), picture(9)) for n in range(4)]
        first = [threads.submit(reward_client.score, running.url, [edit]) for edit in edits]
        wait_until(lambda: running.pending == 4)
        reply = requests.post(f"{running.url}/score", json=own((picture(1), picture(2))), timeout=60)
        assert (reply.status_code, reply.headers["Retry-After"]) == (503, "1")
        assert reply.json() == {"error": "4 edits are waiting: ask again later"}
        later = threads.submit(reward_client.score, running.url, edits)
        refused = {"form": "score", "status": "503"}
        told = running.service.metrics.registry.get_sample_value
        wait_until(lambda: told("editjudge_reward_requests_total", refused) == 2)
        running.scorer.go.set()
        assert [each.result()[0]["overall"] for each in first] == [each["overall"] for each in later.result()]
        wait_until(lambda: running.pending == 0)


def test_who_hangs_up_is_not_scored() -> None:
    with Running() as running:
        running.scorer.go.clear()
        first = threading.Thread(target=reward_client.score, args=(running.url, [("x", picture(1), picture(2))]))
        first.start()
        wait_until(lambda: running.scorer.begun == 1)
        with pytest.raises(requests.ReadTimeout):
            requests.post(f"{running.url}/score", json=own(*[(picture(1), picture(2))] * 5), timeout=0.3)
        running.scorer.go.set()
        first.join()
        wait_until(lambda: running.pending == 0)
        assert running.scorer.batches == [1]


def test_the_key_is_a_token_or_the_password_of_the_address(monkeypatch: pytest.MonkeyPatch) -> None:
    async def posted_by_aiohttp(address: str, body: Any) -> int:
        async with aiohttp.ClientSession() as session, session.post(address, json=body) as reply:
            return reply.status

    monkeypatch.setenv("REWARD_KEY", "sesame")
    with Running(api_key_env="REWARD_KEY") as running:
        body, address = own((picture(1), picture(2))), f"{running.url}/score"
        for wrong in ({}, {"Authorization": "Bearer ü"}, {"Authorization": "Basic ***"}, {"Authorization": "sesame"}):
            sent = {name: value.encode() for name, value in wrong.items()}
            refused = requests.post(address, json=body, headers=sent, timeout=60)
            assert refused.status_code == 401
            assert "key" in refused.json()["error"]
        assert requests.get(f"{running.url}/metrics", timeout=60).status_code == 401
        assert requests.get(f"{running.url}/health", timeout=60).status_code == 200
        edit = ("x", picture(1), picture(2))
        assert reward_client.score(running.url, [edit], key="sesame")[0]["overall"]
        with pytest.raises(OSError, match="401"):
            reward_client.score(running.url, [edit], key="open")
        assert requests.post(address.replace("//", "//any:sesame@"), json=body, timeout=60).ok
        assert asyncio.run(posted_by_aiohttp(address.replace("//", "//any:sesame@"), body)) == 200


def test_who_sends_too_slowly_holds_no_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "BODY_SECONDS", 0.2)
    with Running() as running, socket.create_connection(("127.0.0.1", running.port), 10) as client:
        client.sendall(b"POST /score HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 100\r\n\r\n{")
        answer = b"".join(iter(lambda: client.recv(4096), b""))
        assert answer.startswith(b"HTTP/1.1 408 ")
        assert answer.endswith(b'{"error":"the request is not here after 0.2 seconds"}')
        assert running.pending == 0


def test_pickles_are_read_only_where_they_are_switched_on() -> None:
    with Running(allow_pickle=False) as running:
        for path in ("/", "/mode/score_continue", "/flow_grpo", "/verl_omni"):
            reply = requests.post(running.url + path, data=pickle.dumps({}), timeout=60)
            assert reply.status_code == 403
            assert b"--allow-pickle" in reply.content


def test_who_sends_pickles_comes_back_to_a_full_service_and_ends_with_the_reason_at_a_refusal() -> None:
    """As flow_grpo and Edit-R1 ask: urllib3's retries, and no look at the status."""
    with requests.Session() as client, Running(most_waiting=2) as running, ThreadPoolExecutor(2) as threads:
        retries = requests.adapters.Retry(
            total=1000, backoff_factor=0.01, status_forcelist=[500], allowed_methods=False
        )
        client.mount("http://", requests.adapters.HTTPAdapter(max_retries=retries))

        def ask(count: int, path: str = "/mode/score_continue") -> Any:
            some = {"images": [jpeg(4)] * count, "ref_images": [jpeg(1)] * count, "prompts": ["x"] * count}
            return pickle.loads(client.post(running.url + path, data=pickle.dumps(some), timeout=60).content)

        running.scorer.go.clear()
        first = threads.submit(ask, 2)
        wait_until(lambda: running.pending == 2)
        later = threads.submit(ask, 1)
        refused = {"form": "edit_r1", "status": "503"}
        told = running.service.metrics.registry.get_sample_value
        wait_until(lambda: told("editjudge_reward_requests_total", refused))
        running.scorer.go.set()
        assert later.result()["scores"] == first.result()["scores"][:1] == [expected(jpeg(1), jpeg(4)).overall]
        with pytest.raises(AttributeError, match="3 edits in a request, more than the limit of 2"):
            ask(3)
        assert "more than the limit of 2" in ask(3, "/verl_omni")["error"]


def jpeg(seed: int) -> bytes:
    return picture(seed, "JPEG")


def unpickled(reply: requests.Response) -> Any:
    assert reply.status_code == 200, reply.text
    return pickle.loads(reply.content)


def same(got: list[float], edits: list[tuple[bytes, bytes] | None]) -> None:
    """The rewards of these edits, NaN in the place of None."""
    wanted = [math.nan if edit is None else expected(*edit).overall for edit in edits]
    np.testing.assert_array_equal(got, wanted)
    assert all(type(each) is float for each in got)


def test_edit_r1(running: Running) -> None:
    """Its sources, prompts and metadata come as tuples of a collated batch; it does not unpickle what is not 200."""
    data = {
        "ref_images": [jpeg(1), jpeg(2), jpeg(3)],
        "images": [jpeg(4), b"broken", jpeg(6)],
        "prompts": ("make it red", "make it blue", "make it night"),
        "metadatas": tuple({"prompt": "p", "requirement": "r", "image": "a.png"} for _ in range(3)),
    }
    reply = unpickled(requests.post(f"{running.url}/mode/score_continue", data=pickle.dumps(data), timeout=60))
    assert list(reply) == ["scores"]
    same(reply["scores"], [(jpeg(1), jpeg(4)), None, (jpeg(3), jpeg(6))])
    data["prompts"] *= 2  # all prompts with a part of the images, as it sends more than 64
    refused = requests.post(f"{running.url}/mode/score_continue", data=pickle.dumps(data), timeout=60)
    assert (refused.status_code, "3 images, 6 prompts" in refused.text) == (400, True)


@pytest.mark.parametrize("protocol", [4, 5])
def test_flow_grpo(running: Running, protocol: int) -> None:
    """Its prompts are NumPy arrays of text; sources are two lines more."""
    [prompts] = np.array_split(["make it red", "make it blue"], 1)
    data = {"images": [jpeg(4), jpeg(5)], "prompts": prompts}
    refused = requests.post(f"{running.url}/flow_grpo", data=pickle.dumps(data, protocol), timeout=60)
    assert (refused.status_code, "no ref_images" in refused.text) == (400, True)
    data["ref_images"] = [jpeg(1), b""]
    reply = unpickled(requests.post(f"{running.url}/flow_grpo", data=pickle.dumps(data, protocol), timeout=60))
    assert list(reply) == ["outputs"]
    same(reply["outputs"], [(jpeg(1), jpeg(4)), None])


def shown(data: bytes) -> Image.Image:
    return Image.open(io.BytesIO(data)).convert("RGB")


@pytest.mark.parametrize("sent", ["bytes", "images"])
def test_editscore_proxy(running: Running, sent: str) -> None:
    """Its images are bytes or PIL images, its metadata JSON."""
    sources: list[Any] = [[picture(1)], [picture(1), picture(2)], [picture(3)], [picture(4)]]
    edited: list[Any] = [picture(5), picture(6), picture(7), picture(8)]
    if sent == "images":
        sources, edited = [list(map(shown, some)) for some in sources], list(map(shown, edited))
        edited[2] = edited[2].resize((5, 5))
    else:
        edited[2] = b"broken"
    meta = [json.dumps({"instruction": f"edit {n}", "task": "x"}) for n in range(4)]
    sources, edited, meta = [*sources, sources[0]], [*edited, edited[0]], [*meta, '{"instruction": "a \\ud800"}']
    data = {"input_images": sources, "output_image": edited, "meta_datas": meta, "server_type": "vlm"}
    headers = {"Content-Type": "application/octet-stream"}
    reply = unpickled(requests.post(running.url, data=pickle.dumps(data), headers=headers, timeout=60))
    wanted = [(picture(1), picture(5)), None, None, (picture(4), picture(8)), None]
    for name in ("scores", "rewards", "strict_rewards"):
        same(reply[name], wanted)
    assert [bool(words) for words in reply["reasoning"]] == [False, True, True, False, True]
    assert "not valid Unicode" in reply["reasoning"][4]
    assert reply["reasoning"][1] == "2 source images: a scorer takes one"
    assert reply["meta_data"][0] == {"instruction": "edit 0", "task": "x", "original_index": 0}
    assert reply["meta_data"][2]["error"] == reply["reasoning"][2]
    assert requests.get(f"{running.url}/ping", timeout=60).status_code == 200


def test_unirl(running: Running) -> None:
    """Two turns, the source and the edit; the roster is asked for first."""

    def asked(*turns: bytes, reward: str = "pixels") -> dict[str, Any]:
        history = [{"text": "make it red", "image_b64": text(image)} for image in turns]
        return {"history": history, "required_rewards": [reward], "metadata": None, "sample_id": "s1"}

    assert "pixels" in requests.get(f"{running.url}/health", timeout=60).json()["rewards"]
    body = {"requests": [asked(jpeg(1), jpeg(2)), asked(jpeg(1), b"broken"), asked(jpeg(2))]}
    reply = requests.post(f"{running.url}/score", json=body, timeout=60).json()
    score = expected(jpeg(1), jpeg(2))
    assert reply["results"] == [{"pixels": {"reward": score.overall} | score.dimensions}, {}, {}]
    assert list(reply["results"][0]["pixels"]) == ["reward", "likeness", "brightness"], "the first one is taken"
    assert reply["errors"][0] == {}
    assert "cannot be used" in reply["errors"][1]["pixels"]
    assert "1 turns in the history" in reply["errors"][2]["pixels"]
    assert [each["sample_id"] for each in reply["identities"]] == ["s1"] * 3
    refused = requests.post(f"{running.url}/score", json={"requests": [asked(b"", reward="clip")]}, timeout=60)
    assert (refused.status_code, "'clip' is not served; served is 'pixels'" in refused.text) == (400, True)


def test_flow_factory(running: Running) -> None:
    """Its replies are read with NaN, as Python's json does."""
    body: dict[str, Any] = {
        "prompt": ["make it red", "make it blue", "make it night"],
        "image": [text(picture(n)) for n in (4, 5, 6)],
        "video": None,
        "condition_images": [[text(picture(1))], [text(BROKEN)], [text(picture(2))] * 2],
        "condition_videos": None,
        "kwargs": None,
    }
    reply = requests.post(f"{running.url}/compute", json=body, timeout=60).json()
    assert list(reply) == ["rewards"]
    same(reply["rewards"], [(picture(1), picture(4)), None, None])
    refused = requests.post(f"{running.url}/compute", json=body | {"condition_images": None}, timeout=60)
    assert (refused.status_code, "required_fields" in refused.text) == (400, True)


def test_verl_omni(tmp_path: Path) -> None:
    """One image and a text; the text names the source, a file of the service's folder."""
    (tmp_path / "cup.png").write_bytes(picture(1))

    def asked(prompt: Any, image: bytes = b"") -> requests.Response:
        data = {"images": [image or jpeg(4)], "prompts": [prompt], "metadata": {}}
        return requests.post(f"{running.url}/verl_omni", data=pickle.dumps(data), timeout=60)

    with Running(sources=str(tmp_path)) as running:
        named = json.dumps({"instruction": "make it red", "source": "cup.png"})
        same(unpickled(asked(named))["scores"], [(picture(1), jpeg(4))])
        assert "cannot be used" in unpickled(asked(named, b"broken"))["error"]
        assert "no source other.png" in unpickled(asked(named.replace("cup", "other")))["error"]
        (tmp_path / "folder.png").mkdir()
        assert "no source folder.png" in unpickled(asked(named.replace("cup", "folder")))["error"]
        for wrong in ("make it red", named.replace("cup", "../cup"), "[]", '{"instruction": 1, "source": "cup.png"}'):
            refused = asked(wrong)
            assert (refused.status_code, "prompts: not " in refused.text) == (400, True)


def test_the_reward_of_one_number_is_the_one_that_is_chosen(running: Running) -> None:
    data = {"images": [jpeg(4)], "prompts": ["x"], "ref_images": [jpeg(1)]}
    score = expected(jpeg(1), jpeg(4))
    for name, value in (("calibrated", score.calibrated), ("brightness", score.dimensions["brightness"])):
        with Running(reward=name) as other:
            reply = requests.post(f"{other.url}/flow_grpo", data=pickle.dumps(data), timeout=60)
            assert unpickled(reply)["outputs"] == [value]


def test_a_win_rate_is_that_within_the_edits_of_one_source_and_instruction() -> None:
    sources, edited = [1, 1, 1, 1, 1, 2, 3, 3], [4, 5, 5, 6, 0, 4, 7, 8]
    data = {"images": [jpeg(n) for n in edited], "ref_images": [jpeg(n) for n in sources], "prompts": ["x"] * 8}
    data["images"][4], data["prompts"][7] = b"broken", "y"
    scores = [expected(jpeg(1), jpeg(n)).overall for n in (4, 5, 5, 6)]
    wins = [(np.sign([one - other for other in scores]).sum() + 3) / 6 for one in scores]
    with Running(reward="win_rate") as running:
        reply = requests.post(f"{running.url}/flow_grpo", data=pickle.dumps(data), timeout=60)
        alone = reward_client.score(running.url, [("x", jpeg(1), jpeg(4))])
    assert sum(wins) == 2
    assert alone[0]["overall"] == pytest.approx(scores[0]), "a number of its own"
    assert unpickled(reply)["outputs"][:4] == pytest.approx(wins)
    np.testing.assert_array_equal(unpickled(reply)["outputs"][4:], [math.nan] * 4, "broken, or alone")


def test_a_sleep_waits_for_what_was_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    with Running() as other, ThreadPoolExecutor(2) as threads:
        other.scorer.go.clear()
        asked = threads.submit(reward_client.score, other.url, [("x", picture(1), picture(2))])
        wait_until(lambda: other.scorer.begun == 1)
        slept = threads.submit(requests.post, f"{other.url}/sleep", timeout=60)
        wait_until(lambda: requests.get(f"{other.url}/is_sleeping", timeout=60).json()["is_sleeping"])
        assert not slept.done()
        other.scorer.go.set()
        assert slept.result().status_code == 200
        assert asked.result()[0]["overall"]
        monkeypatch.setattr(other.service, "opened", [lambda: Path("gone").read_text()])
        failed = requests.post(f"{other.url}/wake_up", timeout=60)
        assert (failed.status_code, "FileNotFoundError" in failed.text) == (500, True)
        assert requests.get(f"{other.url}/is_sleeping", timeout=60).json()["is_sleeping"], "still"


def test_a_full_batch_is_made_ready_while_the_scorer_is_busy() -> None:
    class Ahead(PixelScorer):
        ready: ClassVar[list[int]] = []
        batch_size = 12  # fewer than the service's 16: more would be made ready in vain

        def prepare(self, edit: Edit) -> Edit:
            return edit

        def together(self, edits: Sequence[Edit]) -> tuple[Edit, ...]:
            self.ready.append(len(edits))
            return tuple(edits)

        def score(self, edits: Sequence[Edit]) -> list[Score | Unscored]:
            assert isinstance(edits, tuple)
            return super().score(edits)

    with Running(Ahead(), gathering=0.1) as other, ThreadPoolExecutor(3) as threads:
        other.scorer.go.clear()
        edits = [("x", picture(n), picture(n + 1)) for n in range(40)]
        asked = threads.submit(reward_client.score, other.url, edits)
        wait_until(lambda: other.scorer.ready == [12, 12] and other.scorer.begun == 1)
        other.scorer.go.set()
        assert [each["overall"] for each in asked.result()] == [expected(*edit[1:]).overall for edit in edits]
        assert other.scorer.ready == other.scorer.batches == [12, 12, 12, 4]


def test_copies_answer_beside_each_other() -> None:
    """Whichever is free has the next batch; all sleep and wake."""
    copies = [PixelScorer(), PixelScorer()]
    opened: list[Any] = [partial(copies.__getitem__, n) for n in range(2)]
    service = RewardService(opened, "pixels", RewardSetting(**SETTING))
    with Served(service.app()) as served, ThreadPoolExecutor(1) as threads:
        copies[0].go.clear()
        held = threads.submit(reward_client.score, served.url, [("x", picture(1), picture(2))])
        wait_until(lambda: copies[0].begun == 1)
        for n in range(3):
            [answer] = reward_client.score(served.url, [("x", picture(n), picture(n + 1))])
            assert answer["overall"] == expected(picture(n), picture(n + 1)).overall
        assert (copies[0].batches, copies[1].batches, held.done()) == ([], [1, 1, 1], False)
        copies[0].go.set()
        assert held.result()[0]["overall"] == expected(picture(1), picture(2)).overall
        assert requests.post(f"{served.url}/sleep", timeout=60).ok
        assert service.scorers == [None, None]
        opened[1] = lambda: Path("gone").read_text()
        assert requests.post(f"{served.url}/wake_up", timeout=60).status_code == 500
        assert requests.post(f"{served.url}/sleep", timeout=60).ok
        assert service.scorers == [None, None], "the copy that had woken, too"
        opened[1] = partial(copies.__getitem__, 1)
        assert requests.post(f"{served.url}/wake_up", timeout=60).ok
        assert service.scorers == copies


@each_row("change, words")
def test_wrong_settings_are_refused_by_name(change: dict[str, Any], words: str) -> None:
    with pytest.raises(ParamsError, match=words):
        RewardService([PixelScorer], "pixels", read("reward_service", RewardSetting, SETTING | change))


def test_the_pixels_of_a_request_have_room_before_they_are_scored(monkeypatch: pytest.MonkeyPatch) -> None:
    """More than there is room for is scored one after the other."""
    monkeypatch.setattr(serving, "MAX_DECODED", 1)
    with Running() as running:
        results = reward_client.score(running.url, [("x", picture(n), picture(n + 1)) for n in range(5)])
        assert [each["overall"] is None for each in results] == [False] * 5
        assert running.scorer.batches == [1] * 5


def test_the_committed_settings_have_all_fields_and_no_pickles() -> None:
    committed = section(params.load(Path(__file__).parents[2] / "params.yaml"), "reward_service", RewardSetting)
    assert set(vars(committed)) == set(SETTING)
    assert (committed.allow_pickle, committed.host) == (False, "127.0.0.1")


def test_a_checkpoint_answers_as_in_this_process(base_dir: Path, tmp_path: Path) -> None:
    """A scorer saved as a trained one is: 12 edits in batches, one of them with a broken image."""
    import lessons  # loads torch

    from editjudge.judges.scorers import model as scoring
    from editjudge.judges.scorers.checkpoint import CheckpointScorer

    lessons.write_scorer(base_dir, tmp_path)
    scorer = CheckpointScorer.load(tmp_path)
    edits = [("make it red", picture(n), picture(n + 1)) for n in range(11)] + [("x", picture(1), BROKEN)]
    wanted = scorer.score([Edit(*edit) for edit in edits[:11]])
    ready = scorer.together([Edit(*edit) for edit in edits])
    assert scorer.score(ready) == scorer.score([Edit(*edit) for edit in edits])
    assert ready.wrong == [None] * 11 + ["edited: not a PNG, JPEG or WebP image"]
    scorer.source.cache_clear()
    with Running(scorer, batch_size=4) as running:
        results = reward_client.score(running.url, edits)
    assert scorer.source.cache_info().misses <= 12, "a source is decoded once, ahead of the model"
    one = scorer.prepare(Edit("x", picture(1, height=300, width=200), picture(2, height=70, width=90)))
    chats = [scoring.text_of(scorer.processor, scorer.description.questions[0], "x", scorer.description.reply)]
    whole = [images.decode(bytes(each)) for each in (one.source, one.edited)]
    ahead = scoring.batch(scorer.processor, chats, [one.shown])
    scorer.processor.image_processor.do_resize = True
    late = scoring.batch(scorer.processor, chats, [whole])
    assert [bytes(ahead[name].numpy()) for name in ahead] == [bytes(late[name].numpy()) for name in late], "same bytes"
    for score, result in zip(wanted, results[:11], strict=True):
        assert isinstance(score, Score)
        assert result["overall"] == pytest.approx(score.overall, abs=1e-4)
        assert result["std"] == pytest.approx(dict(score.std), abs=1e-4)
        assert result["calibrated"] == score.calibrated
    assert (results[11]["overall"], bool(results[11]["reason"])) == (None, True)
    service = RewardService([partial(CheckpointScorer.load, tmp_path)] * 2, "tiny", RewardSetting(**SETTING))
    weights = [weakref.ref(each.model) for each in service.scorers]
    with Served(service.app()) as served:
        for to_sleep, path in ((True, "sleep"), (True, "sleep"), (False, "wake_up"), (False, "wake_up")):
            assert requests.post(f"{served.url}/{path}", timeout=60).status_code == 200
            assert requests.get(f"{served.url}/is_sleeping", timeout=60).json() == {"is_sleeping": to_sleep}
            assert [each() for each in weights] == [None] * 2, "nothing holds them"
            asked = requests.post(f"{served.url}/score", json=own((picture(1), picture(2))), timeout=60)
            assert (asked.status_code, "Retry-After" in asked.headers) == ((503, True) if to_sleep else (200, False))
        [again] = reward_client.score(served.url, edits[:1])
    assert again["overall"] == pytest.approx(results[0]["overall"], abs=1e-5)
