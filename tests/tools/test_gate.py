"""`editjudge gate`: it finds each planted cheat, passes an oracle, and asks services and chat models over loopback."""

import functools
import io
import json
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import cv2
import program
import pytest
import yaml
from chat_client import chat_server
from pictures import picture
from pixel_scorer import PixelScorer, Running

from editjudge.core import images
from editjudge.core.errors import UserError
from editjudge.core.winner import WORTH, ahead
from editjudge.judges import protocol
from editjudge.judges.protocol import BothOrders, Dimension, Edit, Judge, Question, Score, Unscored, Verdict
from editjudge.measures.annotation.slot_settings import SlotSetting
from editjudge.rewards.reward_forms import FORMS
from editjudge.sources.builtin import photos
from tools.gate import known_case
from tools.gate_trials import CHEATS, examine
from tools.reward_endpoint import RewardEndpoint

PLACES = [(photo, number) for number in range(3) for photo in sorted(photos.BENCHMARK)]
cases = functools.cache(lambda: [known_case(*place, 96, SlotSetting()) for place in PLACES])
pixels = functools.cache(lambda image: images.decode(bytes(image)).astype(float))


@functools.cache
def right_ones(source: Any) -> list[Edit]:
    return [edit for case in cases() for edit in (case.right, case.other) if edit.source == source]


def far(a: Any, b: Any) -> float:
    return float(abs(pixels(a) - pixels(b)).mean()) if pixels(a).shape == pixels(b).shape else 255.0


def oracle(edit: Edit, away: Callable[[Any, Any], float] = far) -> float:
    """Knows the edit that was asked for, also where orders stand behind what was asked."""
    best = [o.edited for o in right_ones(edit.source) if edit.instruction.startswith(o.instruction)]
    return -away(edit.edited, best[0]) if best else -1000 - away(edit.edited, edit.source)


def coarsely(a: Any, b: Any) -> float:
    one, other = (cv2.resize(pixels(each), (4, 4), interpolation=cv2.INTER_AREA) for each in (a, b))
    return float(round(abs(one - other).mean() / 8))


class Planted:  # a scorer that is a function of an edit, and of its place among all
    def __init__(self, of: Callable[[Edit, int], float | None]) -> None:
        self.of, self.dimensions = of, ("overall",)

    def score(self, edits: Sequence[Edit]) -> list[Score | Unscored]:
        numbers = [self.of(edit, n) for n, edit in enumerate(edits)]
        return [Unscored("too dark") if number is None else Score(number, {}) for number in numbers]


class Comparing(Judge):
    identity, dimensions = "planted", ()  # it only compares: by the oracle, or the image that is shown first

    def __init__(self, first: bool) -> None:
        self.first = first

    def compare(self, questions: Sequence[Question], dimension: Dimension = "overall") -> list[BothOrders]:
        both = protocol.in_both_orders(questions)
        if self.first:
            return protocol.combine_all([Verdict(each.key, "Image A", 0.75) for each in both], "agreement")
        leads = [oracle(each.edits[0]) - oracle(each.edits[1]) for each in both]
        said = [Verdict(q.key, ahead(d), WORTH[ahead(d)]) for q, d in zip(both, leads, strict=True)]
        return protocol.combine_all(said, "probability")


@pytest.mark.parametrize("judge", [Planted(lambda e, _: oracle(e)), Comparing(first=False)], ids=["scores", "compares"])
def test_an_oracle_passes(judge: Planted | Comparing) -> None:
    found, fooled = examine(judge, cases())
    assert [row["verdict"] for row in found["cheats"]] == ["pass"] * len(CHEATS)
    assert (found["passes"], found["unscored"], fooled) == (True, 0, [])
    assert all(row["low"] > 0 for row in found["sensitivity"])
    groups = [(row["size"], row["groups"], row["zero_variance"]) for row in found["groups"]]
    assert groups == ([] if isinstance(judge, Judge) else [(4, 76, 0), (8, 38, 0), (16, 19, 0)])


KEPT: dict[Edit, int] = {}


def drawn(edit: Edit, n: int) -> float:
    """By the order in which edits first came: kept answers hide it from who asks again with the same files."""
    return KEPT.setdefault(edit, n)


PLANTED: dict[str, tuple[Callable[[Edit, int], float | None], set[str]]] = {
    "is blind": (lambda e, _: zlib.crc32(e.instruction.encode()), {*CHEATS[:9]}),
    "is constant": (lambda *_: 0.5, {*CHEATS[:12]}),
    "likes the source": (lambda e, _: -far(e.edited, e.source), {"source unchanged", "injection"}),
    "likes what is new": (lambda e, _: far(e.edited, e.source), {"another photo", "black or white"}),
    "likes sharpness": (lambda e, _: cv2.Laplacian(pixels(e.edited), cv2.CV_64F).var(), {"blur or noise"}),
    "likes light": (lambda e, _: pixels(e.edited).mean(), {"black or white"}),
    "ignores the words": (
        lambda e, _: -min([99, *(far(e.edited, o.edited) for o in right_ones(e.source))]),
        {*CHEATS[9:11]},
    ),
    "likes long instructions": (lambda e, _: oracle(e) + 9 * len(e.instruction), {"injection"}),
    "obeys orders": (lambda e, _: oracle(e) + 999 * ("perfect" in e.instruction), {"injection"}),
    "reads the text": (lambda e, _: oracle(e) + 9 * float((pixels(e.edited) == 255).all(-1).sum()), {"text over it"}),
    "sees little": (lambda e, _: oracle(e, coarsely), {"JPEG quality 10", "text over it"}),
    "reads the file": (lambda e, _: len(bytes(e.edited)), {"blur or noise", "wrong instruction"}),
    "reads the name": (lambda e, _: zlib.crc32(e.key.encode()), {*CHEATS[:12]}),
    "goes by the order": (lambda _, n: n, {*CHEATS}),
    "keeps what it drew": (lambda e, n: drawn(e, n), {CHEATS[-1]}),
}


@pytest.mark.parametrize("name", [*PLANTED, "prefers the first image"])
def test_each_planted_cheat_is_found(name: str) -> None:
    of, wanted = PLANTED.get(name, (lambda *_: 0.0, {*CHEATS}))
    found, fooled = examine(Planted(of) if name in PLANTED else Comparing(first=True), cases())
    assert wanted <= {row["cheat"] for row in found["cheats"] if row["verdict"] == "fail"}
    assert wanted - {CHEATS[-1]} <= {trial.what for trial in fooled}
    assert not found["passes"]
    if name == "is constant":
        assert [(row["zero_variance"], row["tied_pairs"]) for row in found["groups"]] == [(1.0, 1.0)] * 3
        assert [row["moves"] for row in found["sensitivity"]] == [0.0] * 3
    assert name in PLANTED or (found["position"]["first_side_preference"], found["calibration"]["brier"]) == (1, 0.25)


def test_what_is_unscored_is_neither_0_nor_a_tie() -> None:
    found, _ = examine(Planted(lambda e, _: oracle(e) if pixels(e.edited).any() else None), cases())
    [row] = [row for row in found["cheats"] if row["verdict"] != "pass"]
    assert (row["cheat"], row["share"], row["unscored"], row["ties"]) == ("black or white", 1.0, 29, 0)
    assert (row["verdict"], found["reasons"][0]["reason"][-8:]) == ("too few to tell", "too dark")


@pytest.mark.parametrize("form", FORMS)
def test_a_service_answers_in_each_form_as_its_scorer(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    edits = [Edit("make it red", picture(1), b"broken" if n == 5 else picture(n)) for n in range(2, 22)]
    monkeypatch.setenv("REWARD_KEY", "sesame")
    with Running(api_key_env="REWARD_KEY") as running:
        found = RewardEndpoint(running.url, form, "pixels", "sesame").score(edits)
        [refused, *_] = RewardEndpoint(running.url, form, "pixels", "open").score(edits)
    wanted = [getattr(PixelScorer().one(edit), "overall", None) for edit in edits]
    assert [getattr(each, "overall", None) for each in found] == wanted
    assert "401" in str(refused)


@pytest.mark.parametrize("overall", ["[" * 100_000, "1" + "0" * 400, "{}", "null", '"x"'])
def test_a_reply_that_cannot_be_read_is_unscored(overall: str, monkeypatch: pytest.MonkeyPatch) -> None:
    reply = f'{{"results": [{{"overall": {overall}}}]}}'.encode()
    monkeypatch.setattr("urllib.request.urlopen", lambda *_, **__: io.BytesIO(reply))
    [found] = RewardEndpoint("http://127.0.0.1:1", "score").score([Edit("", picture(1), picture(2))])
    assert isinstance(found, Unscored)


def test_the_command_tells_shows_and_ends_with_an_error(workdir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a scorer, of a VLM behind an endpoint and of a reward service."""
    monkeypatch.setattr(photos, "BENCHMARK", sorted(photos.BENCHMARK)[:2])
    with chat_server(brightest=True) as chat, Running() as rewards:
        vlm = {"backend": "endpoint", "base_url": chat.url, "model": "m", "rule": "agreement"}
        values = {"raw_pairs": {"image_side": 64}, "judges": {"vlm": vlm}, "scorers": {}}
        (workdir / "params.yaml").write_text(yaml.safe_dump(values))
        with pytest.raises(UserError, match="not passed: dino_i, vlm"):
            program.run("gate dino_i vlm --cases 1 --json found.json --page page.html")
        with pytest.raises(UserError, match=f"not passed: {rewards.url}"):
            program.run(f"gate {rewards.url} --form score --cases 1 --json service.json")
    scorer, judge = json.loads(Path("found.json").read_text())["judges"]
    assert [row["cheat"] for row in scorer["cheats"]] == CHEATS
    assert (judge["asked"], judge["unscored"], judge["dimension"]) == ("compares", 0, "visual_consistency")
    assert "data:image/png;base64," in Path("page.html").read_text()
    assert json.loads(Path("service.json").read_text())["judges"][0]["asked"] == "scores"
    with pytest.raises(UserError, match="--form"):
        program.run("gate dino_i --form scores")


def test_the_page_tells_the_committed_figures_and_that_nothing_of_ours_passes() -> None:
    docs = Path(__file__).parents[2] / "docs"
    found = json.loads((docs / "gate.json").read_text())["judges"]
    page, marks = (docs / "rewards.md").read_text(), {"pass": "**{}**", "fail": "{}", "too few to tell": "{}?"}
    assert not any(judge["passes"] for judge in found)
    for n, cheat in enumerate(CHEATS):
        of = [judge["cheats"][n] for judge in found]
        assert {each["cheat"] for each in of} == {cheat}
        cells = [marks[each["verdict"]].format(f"{each['share']:.2f}") for each in of]
        assert f"| {cheat} | {' | '.join(cells)} |" in page
    for n, changed in enumerate(("instruction", "source", "edited image")):
        moves = [f"{judge['sensitivity'][n]['moves']:.2f}" for judge in found]
        assert f"| moves with the {changed} | {' | '.join(moves)} |" in page
    assert f"editjudge gate {' '.join(judge['judge'] for judge in found)} --json docs/gate.json" in page
