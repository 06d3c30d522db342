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


@pytest.mark.parametrize(
    ("dimension", "words"),
    [
        ("prompt_following", "instruction_following"),
        ("visual_quality", "visual_quality"),
        ("consistency", "visual_consistency"),
        ("visual_consistency", "visual_consistency"),
        ("overall", "overall"),
    ],
)
def test_a_judge_is_asked_about_the_benchmarks_dimension(
    dimension: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with chat_server(bodies=True) as server:
        judges = {"gpt": setting(server.url)}
        found, _ = judge_benchmark.ask_judges(asking.open_judges(judges), [item(dimension)])
        bodies = server.log()["bodies"]
    assert len(bodies) == 2
    assert all(told(words)["criteria"].splitlines()[0] in body for body in bodies)
    assert found["gpt"][0]["winner"] == "Tie"


def test_items_of_several_dimensions_keep_their_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    items = [item(name) for name in ("prompt_following", "consistency", "visual_quality")]
    with chat_server() as server:
        judges = {"gpt": setting(server.url)}
        found, _ = judge_benchmark.ask_judges(asking.open_judges(judges), items)
    assert [row["key"] for row in found["gpt"]] == [each.key for each in items]
    assert all(row["winner"] for row in found["gpt"])
