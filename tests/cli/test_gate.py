"""`editjudge gate`: it finds each planted cheat, passes an oracle, and asks services and chat models over loopback."""

import json
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path

import cv2
import numpy as np
import program
import pytest
from chat_client import chat_server
from pictures import picture
from pixel_scorer import PixelScorer, Running

from editjudge.benchmarks.gate import CHEATS, examine
from editjudge.cli.gate import known_case
from editjudge.core import images
from editjudge.core.errors import UserError
from editjudge.judges import protocol
from editjudge.judges.protocol import BothOrders, Dimension, Edit, Judge, Question, Score, Unscored, Verdict
from editjudge.measures.annotation.slot_settings import SlotSetting
from editjudge.rewards.reward_endpoint import RewardEndpoint
from editjudge.rewards.reward_forms import FORMS
from editjudge.sources.builtin import photos

PLACES = [(photo, number) for number in range(3) for photo in sorted(photos.BENCHMARK)]
CASES = [known_case(*place, 96, SlotSetting()) for place in PLACES]
BEST = {(edit.instruction, edit.source): edit.edited for case in CASES for edit in (case.right, case.other)}
AWAY = -1000.0  # of an edit that nobody asked for


def pixels(image: object) -> np.ndarray:
    return images.decode(bytes(image)).astype(float)  # type: ignore[call-overload]


def far(a: object, b: object) -> float:
    one, other = pixels(a), pixels(b)
    return float(abs(one - other).mean()) if one.shape == other.shape else 255.0


def right_of(edit: Edit) -> object:
    """The edit that was asked for, also where orders stand behind what was asked."""
    own = [
        best for (words, source), best in BEST.items() if source == edit.source and edit.instruction.startswith(words)
    ]
    return own[0] if own else None


def oracle(edit: Edit) -> float:
    best = right_of(edit)
    return AWAY - far(edit.edited, edit.source) if best is None else -far(edit.edited, best)


def any_right(edit: Edit) -> float:
    return -min([far(edit.edited, best) for (_, source), best in BEST.items() if source == edit.source] or [255.0])


def coarse(edit: Edit) -> float:
    best = right_of(edit)
    small = [cv2.resize(pixels(each), (4, 4), interpolation=cv2.INTER_AREA) for each in (edit.edited, best) if each]
    return AWAY if best is None else -float(round(abs(small[0] - small[1]).mean() / 8))


def sharp(edit: Edit) -> float:
    return float(cv2.Laplacian(pixels(edit.edited), cv2.CV_64F).var())


def lit(edit: Edit) -> float:
    return float((pixels(edit.edited) == 255).all(-1).mean() > (pixels(edit.source) == 255).all(-1).mean() + 0.002)


class Planted:
    """A scorer that is a function of an edit."""

    dimensions = ("overall",)

    def __init__(self, of: Callable[[Edit], float]) -> None:
        self.of = of

    def score(self, edits: Sequence[Edit]) -> list[Score | Unscored]:
        return [Score(self.of(edit), {}) for edit in edits]


class InOrder(Planted):
    def score(self, edits: Sequence[Edit]) -> list[Score | Unscored]:
        return [Score(float(n), {}) for n in range(len(edits))]


class Comparing(Judge):
    """A judge that only compares: by the oracle, or the image that is shown first."""

    identity, dimensions = "planted", ()

    def __init__(self, first: bool) -> None:
        self.first = first

    def compare(self, questions: Sequence[Question], dimension: Dimension = "overall") -> list[BothOrders]:
        if self.first:
            said = [Verdict(each.key, "Image A", 0.75) for each in protocol.in_both_orders(questions)]
            return protocol.combine_all(said, "agreement")
        scores = Planted(oracle).score([edit for each in questions for edit in each.edits])
        return [replaced(each) for each in protocol.compare_by_scores(questions, scores, 0.0, dimension)]


def replaced(answer: BothOrders) -> BothOrders:
    return BothOrders(answer.forward, answer.backward, answer.combined)


@pytest.mark.parametrize("judge", [Planted(oracle), Comparing(first=False)], ids=["scores", "compares"])
def test_an_oracle_passes(judge: Planted | Comparing) -> None:
    found, fooled = examine(judge, CASES)
    assert [row["verdict"] for row in found["cheats"]] == ["pass"] * len(CHEATS)
    assert (found["passes"], found["unscored"], fooled) == (True, 0, [])
    assert all(row["moves"] > 0.02 for row in found["sensitivity"])
    assert [(row["size"], row["groups"]) for row in found["groups"]] == (
        [(4, 76), (8, 38), (16, 19)] if isinstance(judge, Planted) else []
    )


PLANTED: dict[str, tuple[Planted | Comparing, set[str]]] = {
    "blind": (Planted(lambda edit: zlib.crc32(edit.instruction.encode())), {"source unchanged", "black or white"}),
    "constant": (Planted(lambda edit: 0.5), set(CHEATS[:-1])),
    "likes the source": (Planted(lambda edit: -far(edit.edited, edit.source)), {"source unchanged", "wrong instruction"}),
    "likes what is new": (Planted(lambda edit: far(edit.edited, edit.source)), {"another photo", "black or white"}),
    "likes sharpness": (Planted(sharp), {"blur or noise"}),
    "likes light": (Planted(lambda edit: float(pixels(edit.edited).mean())), {"black or white"}),
    "ignores the instruction": (Planted(any_right), {"other edit", "wrong instruction", "no instruction"}),
    "likes long instructions": (Planted(lambda edit: oracle(edit) + 9 * len(edit.instruction)), {"injection"}),
    "obeys orders": (Planted(lambda edit: oracle(edit) + 999 * ("perfect" in edit.instruction)), {"injection"}),
    "reads text in the picture": (Planted(lambda edit: oracle(edit) + 999 * lit(edit)), {"text over it"}),
    "sees little": (Planted(coarse), {"JPEG quality 10", "text over it"}),
    "reads the file": (Planted(lambda edit: len(bytes(edit.edited))), {"blur or noise", "wrong instruction"}),
    "reads the name": (Planted(lambda edit: zlib.crc32(edit.key.encode())), set(CHEATS[:-1])),
    "goes by the order": (InOrder(oracle), set(CHEATS)),
    "first image": (Comparing(first=True), set(CHEATS)),
}  # fmt: skip


@pytest.mark.parametrize("name", PLANTED)
def test_each_planted_cheat_is_found(name: str) -> None:
    judge, wanted = PLANTED[name]
    found, fooled = examine(judge, CASES)
    failed = {row["cheat"] for row in found["cheats"] if row["verdict"] == "fail"}
    assert wanted <= failed
    assert not found["passes"]
    assert wanted - {CHEATS[-1]} <= {trial.what for trial, _ in fooled}
    if name == "constant":
        assert [(row["zero_variance"], row["tied_pairs"]) for row in found["groups"]] == [(1.0, 1.0)] * 3
        assert [row["moves"] for row in found["sensitivity"]] == [0.0] * 3
    if name == "ignores the instruction":
        assert found["sensitivity"][0]["moves"] == 0
    if name == "first image":
        assert found["position"]["first_side_preference"] == 1
        assert found["calibration"]["ece"] > 0.2 or found["calibration"]["n"]


def test_what_is_unscored_is_neither_0_nor_a_tie() -> None:
    class Refusing(Planted):
        def score(self, edits: Sequence[Edit]) -> list[Score | Unscored]:
            return [
                Unscored("too dark") if not pixels(edit.edited).any() else Score(oracle(edit), {}) for edit in edits
            ]

    found, _ = examine(Refusing(oracle), CASES)
    [row] = [row for row in found["cheats"] if row["verdict"] != "pass"]
    assert (row["cheat"], row["share"], row["unscored"], row["ties"]) == ("black or white", 1.0, 29, 0)
    assert (row["verdict"], found["reasons"][0]["reason"]) == ("too few to tell", "Image B: too dark")


@pytest.mark.parametrize("form", FORMS)
def test_a_service_answers_in_each_form_as_its_scorer(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    edits = [Edit("make it red", picture(1), picture(n)) for n in range(2, 22)]
    edits.insert(3, Edit("make it red", picture(1), b"broken"))
    monkeypatch.setenv("REWARD_KEY", "sesame")
    with Running(api_key_env="REWARD_KEY") as running:
        found = RewardEndpoint(running.url, form, "pixels", "sesame").score(edits)
        [refused, *_] = RewardEndpoint(running.url, form, "pixels", "open").score(edits)
    wanted = [getattr(PixelScorer().one(edit), "overall", None) for edit in edits]
    assert [getattr(each, "overall", None) for each in found] == wanted
    assert isinstance(refused, Unscored)
    assert "401" in refused.reason


def test_the_command_tells_shows_and_ends_with_an_error(workdir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(photos, "BENCHMARK", sorted(photos.BENCHMARK)[:2])
    (workdir / "params.yaml").write_text("raw_pairs: {image_side: 64}\njudges: {}\nscorers: {dino_i: {kind: dino_i}}\n")
    with pytest.raises(UserError, match="dino_i did not pass all"):
        program.run("gate dino_i --cases 1 --json found.json --page page.html")
    [row] = json.loads(Path("found.json").read_text())["judges"]
    assert row["cheats"][0] | {"ties": 0} == row["cheats"][0]
    assert "data:image/png;base64," in Path("page.html").read_text()
    with chat_server(brightest=True) as server, pytest.raises(UserError, match="m did not pass"):
        program.run(["gate", "m", "--base-url", server.url, "--cases", "1", "--json", "found.json"])
    [row] = json.loads(Path("found.json").read_text())["judges"]
    assert (row["asked"], row["unscored"]) == ("compares", 0)
    with pytest.raises(UserError, match="--form is chat or"):
        program.run("gate dino_i --form score")
