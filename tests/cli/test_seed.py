"""A colleague pulls into a folder without work/ and adds an editor: only that one's records are computed."""

import json
import shutil
from pathlib import Path

import pytest
import yaml

from editjudge.cli import publish
from editjudge.core import records
from editjudge.core.errors import UserError
from editjudge.engine import resume
from editjudge.sources.builtin import scenes
from editjudge.stages import annotate, candidates

ROOT = Path(__file__).parents[2]
TASK = "color_alter"


@pytest.fixture
def graph(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a pool of four pairs, one prompt of the arena, and the settings of two editors."""
    folder = tmp_path / "first"
    (folder / "data").mkdir(parents=True)
    (folder / "pipelines").symlink_to(ROOT / "pipelines")
    pairs = scenes.make_pairs(TASK, "train", 5, 48, 0)
    records.write(folder / f"data/pools/{TASK}.parquet", pairs[:4], "pools")
    prompt = pairs[4] | {"source_image": {"bytes": pairs[4]["image"], "path": None}}
    row = {name: prompt[name] for name in records.schema_of("gedit_bench")["properties"] if name in prompt}
    records.write(folder / "data/gedit_bench.parquet", [row], "gedit_bench")
    monkeypatch.delenv("EDITJUDGE_WORK", raising=False)
    monkeypatch.chdir(folder)
    settings(["precise", "box"])
    return folder


def settings(editors: list[str]) -> None:
    values = yaml.safe_load((ROOT / "params.yaml").read_text())
    values["tasks"] = {TASK: values["tasks"][TASK]}
    values["editors"] = {name: values["editors"][name] for name in editors}
    values["suites"] = {}
    Path("params.yaml").write_text(yaml.safe_dump(values))


def counted(file: str) -> tuple[int, int]:
    found = json.loads(Path(f"metrics/resume/{file}.json").read_text())
    return found["computed"], found["reused"]


def test_who_pulls_and_adds_an_editor_pays_for_that_editor(
    graph: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for model in ("precise", "box"):
        candidates.run(model)
    annotate.run(TASK)
    assert counted(f"annotate_{TASK}") == (8, 0)
    first = records.read(Path(f"data/annotations/{TASK}.parquet"), "annotations")
    assert publish.write_records() == 8

    colleague = tmp_path / "second"
    shutil.copytree(graph, colleague, ignore=shutil.ignore_patterns("work"), symlinks=True)  # what a pull brings
    monkeypatch.chdir(colleague)
    assert publish.read_records() == publish.read_records() == 8
    settings(["precise", "box", "leaky"])
    candidates.run("leaky")
    annotate.run(TASK)
    assert counted("candidates_leaky") == (5, 0)
    assert counted(f"annotate_{TASK}") == (4, 8)
    rows = records.read(Path(f"data/annotations/{TASK}.parquet"), "annotations")
    assert [row for row in rows if row["model"] != "leaky"] == first
    monkeypatch.setattr(annotate.batch, "identity", lambda *_, **__: "other code")
    annotate.run(TASK)
    assert counted(f"annotate_{TASK}") == (12, 0), "code decides, too"


def test_what_is_no_resume_state_is_named_and_what_is_gone_from_work_goes_from_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert publish.read_records() == publish.write_records() == 0
    assert not list(tmp_path.iterdir())
    (tmp_path / "published/resume/judge").mkdir(parents=True)
    (tmp_path / "published/resume/judge/j.parquet").write_bytes(b"PAR1 no more")
    with pytest.raises(UserError, match=r"^published/resume/judge/j.parquet: no resume state: "):
        publish.read_records()
    with resume.RecordCache(tmp_path / "work/annotate/t.sqlite") as cache:
        cache.add([("a", {"n": 1}, None), ("b", {"n": 2}, b"an image")])
    assert publish.write_records() == 1
    (tmp_path / "work/annotate/t.sqlite").rename(tmp_path / "work/annotate/u.sqlite")
    assert publish.write_records() == 1
    assert [file.name for file in (tmp_path / publish.RECORDS).rglob("*.parquet")] == ["u.parquet"]
