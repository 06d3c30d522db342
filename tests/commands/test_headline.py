"""The headline figures: the committed ones, a judge that was not heard, and a graph that has not run."""

import json
import sys
from pathlib import Path

import pytest

from editjudge.commands import headline

ROOT = Path(__file__).parents[2]


def test_the_committed_figures_stand_in_a_short_table(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(sys, "argv", ["headline"])
    headline.main()
    rows = capsys.readouterr().out.splitlines()
    assert len(rows) <= 20
    assert max(map(len, rows)) < 100
    for judge, figure in json.loads(Path("metrics/summary.json").read_text())["accuracy"]["probe"].items():
        [row] = [row for row in rows if row.startswith(f"accuracy on probe: {judge} ")]
        assert row.split()[-4:] == [f"{figure[end]:.3f}" if end else "to" for end in ("value", "low", "", "high")]


def test_what_is_not_known_is_a_dash() -> None:
    none = dict.fromkeys(("value", "low", "high"))
    summary = {"accuracy": {"b": {"mute": none}}, "gain": {"held_out": none}, "position_bias": {"b": none}}
    summary |= {"kendall_tau": {"mute": None}, "rating": {}}
    found = list(headline.lines(summary, {"pairs": 0, "known_truth": [{"share_right": None}]}))
    assert found[0] == ("training pairs", "0", "-")
    assert [row[1:] for row in found[1:]] == [("-", "-")] * 4
    assert headline.table(found).splitlines()[0].split() == ["value", "95", "%", "interval"]


def test_without_a_run_it_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["headline"])
    with pytest.raises(SystemExit, match=r"headline: metrics/summary\.json is not there: run `make repro`"):
        headline.main()
