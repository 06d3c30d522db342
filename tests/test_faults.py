"""Faults in a graph that runs, and damage to what it has kept."""

import random
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from cases import yaml_beside
from clone import Clone

from tools.trials import at_rest, faults

GRAPH = pytest.mark.nightly(
    "tools/trials", "dvc.yaml", "params.yaml", "profiles/small.yaml",
    *(f"src/editjudge/{room}" for room in ("core", "engine", "stages")),
)  # fmt: skip


@pytest.fixture
def repository(small_graph: Path, tmp_path: Path) -> Iterator[Clone]:
    yield Clone(tmp_path / "copy", of=small_graph)
    shutil.rmtree(tmp_path / "copy")


@GRAPH
def test_faults_are_survived(repository: Clone) -> None:
    """Ten of the kinds of tools/trials/faults.py; the long form tries a hundred."""
    before = faults.results(repository.folder)
    said = ""
    for seed, (name, target) in enumerate(yaml_beside(__file__)["TRIED"].items()):
        run = faults.Run(repository.folder, target, random.Random(seed))
        faults.FAULTS[name][1](run)
        assert not faults.left_over(repository.folder), name
        said += run.said + faults.obey(repository.folder, run.said)
    said += faults.repro(repository.folder)
    assert faults.results(repository.folder) == before
    assert "Traceback" not in said


@GRAPH
def test_damage_at_rest_is_found(repository: Clone, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of every kind of kept file, a flipped bit and a cut; the long form tries five hundred."""
    monkeypatch.chdir(repository.folder)
    assert at_rest.main(32, 0, 0, repository.folder)
