"""The headline figures: those of the README, and a judge that was not heard."""

import re
from pathlib import Path

import pytest

from tools import headline

ROOT = Path(__file__).parents[2]


def test_readmes_figures_are_those_of_the_committed_graph(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.chdir(ROOT)
    headline.main()
    said = capsys.readouterr().out
    assert said in re.findall(r"^```text\n(.*?)^```$", (ROOT / "README.md").read_text(), re.M | re.S)
    assert max(map(len, said.splitlines())) < 100


def test_what_is_not_known_is_a_dash() -> None:
    none = dict.fromkeys(("value", "low", "high"))
    summary = {"accuracy": {"b": {"mute": none}}, "gain": {"held_out": none}, "position_bias": {"b": none}}
    summary |= {"kendall_tau": {"mute": None}, "rating": {}}
    found = list(headline.rows(summary, {"pairs": 0, "known_truth": [{"share_right": None}]}))
    assert found[0] == ("training pairs", "0", "-")
    assert [row[1:] for row in found[1:]] == [("-", "-")] * 5
    assert headline.table(found).splitlines()[0].split() == ["value", "95", "%", "interval"]
