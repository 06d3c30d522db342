"""Judges are asked about what a benchmark measures."""

from pathlib import Path

import pytest
from chat_client import chat_server, questions, setting

from editjudge.benchmarks.preferences.item import Item
from editjudge.judges import asking
from editjudge.judges.styles import told
from editjudge.stages import judge_benchmark


def item(dimension: str) -> Item:
    [asked] = questions(1)
    return Item(dimension, "add", dimension, "q0", asked.source, asked.a, asked.b, "Image A", "c")


def test_a_judge_is_asked_about_what_the_benchmark_measures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every item about its dimension, in both orders; the verdicts stand in the items' order."""
    monkeypatch.chdir(tmp_path)
    names = {"prompt_following": "instruction_following", "consistency": "visual_consistency", "overall": "overall"}
    names |= {name: name for name in ("visual_quality", "visual_consistency")}
    items = [item(name) for name in names]
    with chat_server(bodies=True) as server:
        found, _ = judge_benchmark.ask_judges(asking.open_judges({"gpt": setting(server.url)}), items)
        bodies = server.log()["bodies"]
    assert len(bodies) == 2 * len({*names.values()}), "the same question once"
    for words in {*names.values()}:
        assert sum(told(words)["criteria"].splitlines()[0] in body for body in bodies) == 2
    assert [row["key"] for row in found["gpt"]] == list(names)
    assert all(row["winner"] == "Tie" for row in found["gpt"])
