"""A copy of this repository, as a fresh clone is: what is published comes with one command, and nothing has to run."""

import re
import subprocess
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler
from pathlib import Path

import program
import pytest
import yaml
from clone import ROOT, Clone
from http_handler import served

from editjudge.core import images, records
from tools import example, publish

STAGES = re.search(r"^PUBLISHED \?= (.*)$", (ROOT / "Makefile").read_text(), re.M).group(1).split()  # type: ignore[union-attr]


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Clone:
    found = Clone(tmp_path_factory.mktemp("published") / "clone", warm=True)
    found.run("git", "add", "-A", "-f")
    found.run("git", "commit", "-qm", "state")
    found.run("dvc", "pull", "-q", "-r", "published", *STAGES)
    return found


@pytest.fixture
def pictures(clone: Clone, photo, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """s.png, a.png as it and a brighter b.png in the clone, which is the working directory."""
    monkeypatch.chdir(clone.folder)
    files = {Path(f"{name}.png"): shift for name, shift in (("s", 0), ("a", 0), ("b", 60))}
    for file, shift in files.items():
        file.write_bytes(images.encode_png(photo.clip(shift, 255)))
    yield
    for file in files:
        file.unlink()


def test_what_is_published_is_pulled_and_git_sees_nothing(clone: Clone) -> None:
    """After a change of dvc.lock: make publish"""
    lock = yaml.safe_load((ROOT / "dvc.lock").read_text())["stages"]
    outs = [out for name, stage in lock.items() if name.partition("@")[0] in STAGES for out in stage["outs"]]
    assert all((clone.folder / out["path"]).exists() for out in outs)
    assert clone.run("git", "status", "--porcelain") == ""
    clone.run("dvc", "checkout", "-q", "models/judge", "models/adapter")
    assert clone.run("git", "status", "--porcelain") == ""


def test_the_judge_comes_from_a_git_address_too(clone: Clone, tmp_path: Path) -> None:
    """As docs/publishing.md says it, with the folder published/ behind http."""
    with served(partial(SimpleHTTPRequestHandler, directory=clone.folder / "published")) as server:
        words = ["--remote", "web", "--remote-config", f"url=http://127.0.0.1:{server.server_port}"]
        clone.run("dvc", "get", "-q", f"file://{clone.folder}", "models/judge", *words, "-o", str(tmp_path / "judge"))
    assert (tmp_path / "judge/model.safetensors").stat().st_size > 1_000_000


def test_readmes_sentence_is_what_the_judges_say(clone: Clone) -> None:
    rows = records.read(clone.folder / example.VERDICTS, "verdicts")
    said = example.sentence({row["judge"]: row for row in rows if row["key"] == example.KEY})
    assert said in " ".join((ROOT / "README.md").read_text().split()), "python -m tools.example"


def test_then_there_is_nothing_to_run(clone: Clone) -> None:
    said = clone.run("dvc", "repro", "--dry", "--allow-missing", check=False)
    if "Running stage 'code'" in said:
        pytest.skip("the code has changed since the graph was run")
    assert "Running stage" not in said
    assert "up to date" in said


@pytest.mark.usefixtures("pictures")
def test_then_the_pulled_judge_compares() -> None:
    words = ["--source", "s.png", "--a", "a.png", "--b", "b.png", "--instruction", "Brighten", "--measures", "ssim"]
    said = program.run(["compare", *words])
    header, verdict, *orders, empty, measures, ssim = said.splitlines()
    assert header.split() == ["judge", "winner", "p(A)"]
    assert re.match(r"pvc_judge +(Image A|Image B|Tie|undecided: .*) +0\.\d{4}$", verdict)
    assert [line.partition("  Image")[0].strip() for line in orders] == ["asked as A, B", "asked as B, A"]
    assert not empty
    assert measures.split() == ["measure", "A", "B", "better"]
    assert re.match(r"image.ssim +1\.0000 +0\.\d{4} +Image A$", ssim)


@pytest.mark.usefixtures("pictures")
def test_then_the_pulled_scorer_scores() -> None:
    said = program.run("score --scorer editreward --source s.png --edit b.png --instruction Brighten")
    assert {"instruction_following", "visual_quality", "overall"} <= set(said.split())


def tracked(folder: str) -> list[str]:
    """The paths below `folder` that git tracks."""
    return subprocess.check_output(["git", "ls-files", folder], cwd=ROOT, text=True).split()


def test_the_folder_is_small_and_has_no_images() -> None:
    assert 0 < sum((ROOT / name).stat().st_size for name in tracked("published")) <= publish.MOST_BYTES


def test_committed_figures_and_the_lock_name_only_stages_that_there_are() -> None:
    stages = yaml.safe_load((ROOT / "dvc.yaml").read_text())["stages"]
    locked = yaml.safe_load((ROOT / "dvc.lock").read_text())["stages"]
    assert {name.partition("@")[0] for name in locked} <= set(stages)
    outs = {out["path"] for stage in locked.values() for out in stage["outs"]}
    assert set(tracked("metrics") + tracked("plots")) <= outs
