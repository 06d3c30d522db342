"""A copy of this repository, as a fresh clone is: what is published comes with one command, and nothing has to run."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from editjudge.cli import publish
from editjudge.core import images

ROOT = Path(__file__).parents[1]
STAGES = re.search(r"^PUBLISHED \?= (.*)$", (ROOT / "Makefile").read_text(), re.M).group(1).split()  # type: ignore[union-attr]


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("published") / "clone"
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in filter(None, listed.split("\0")):
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / name)
    assert run(folder, "git", "init", "-q").returncode == 0
    assert run(folder, "git", "add", "-A", "-f").returncode == 0
    assert run(folder, "git", "-c", "user.name=t", "-c", "user.email=t", "commit", "-qm", "state").returncode == 0
    return folder


def run(folder: Path, *command: str) -> subprocess.CompletedProcess:
    env = os.environ | {"DVC_NO_ANALYTICS": "true", "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    env |= {"PYTHONPATH": str(folder / "src")}
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)


def test_what_is_published_is_pulled_and_git_sees_nothing(clone: Path) -> None:
    done = run(clone, "dvc", "pull", "-q", "-r", "published", *STAGES)
    assert done.returncode == 0, f"{done.stderr}\nafter a change of dvc.lock: make publish"
    lock = yaml.safe_load((ROOT / "dvc.lock").read_text())["stages"]
    outs = [out for name, stage in lock.items() if name.partition("@")[0] in STAGES for out in stage["outs"]]
    assert all((clone / out["path"]).exists() for out in outs)
    assert run(clone, "git", "status", "--porcelain").stdout == ""
    assert run(clone, "dvc", "checkout", "-q", "models/judge", "models/adapter").returncode == 0
    assert run(clone, "git", "status", "--porcelain").stdout == ""


def test_then_there_is_nothing_to_run(clone: Path) -> None:
    said = run(clone, "dvc", "repro", "--dry", "--allow-missing").stdout
    if "Running stage 'code'" in said:
        pytest.skip("the code has changed since the graph was run")
    assert "Running stage" not in said
    assert "up to date" in said


def test_then_the_pulled_judge_compares(clone: Path, photo, recolour) -> None:
    for name, shift in (("s", 0), ("a", 0), ("b", 60)):
        (clone / f"{name}.png").write_bytes(images.encode_png(photo.clip(shift, 255)))
    words = ["--source", "s.png", "--a", "a.png", "--b", "b.png", "--instruction", "Brighten", "--measures", "ssim"]
    done = run(clone, sys.executable, "-m", "editjudge", "compare", *words)
    assert done.returncode == 0, done.stderr
    header, verdict, *orders, empty, measures, ssim = done.stdout.splitlines()
    assert header.split() == ["judge", "winner", "p(A)"]
    assert re.match(r"pvc_judge +(Image A|Image B|Tie) +0\.\d{4}$", verdict)
    assert [line.partition("  Image")[0].strip() for line in orders] == ["asked as A, B", "asked as B, A"]
    assert not empty
    assert measures.split() == ["measure", "A", "B", "better"]
    assert re.match(r"image.ssim +1\.0000 +0\.\d{4} +Image A$", ssim)


def test_then_the_pulled_scorer_scores(clone: Path) -> None:
    words = ["--scorer", "editreward", "--source", "s.png", "--edit", "b.png", "--instruction", "Brighten"]
    done = run(clone, sys.executable, "-m", "editjudge", "score", *words)
    assert done.returncode == 0, done.stderr
    assert {"instruction_following", "visual_quality", "overall"} <= set(done.stdout.split())


def test_the_folder_is_small_and_has_no_images() -> None:
    tracked = subprocess.run(
        ["git", "ls-files", "published"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    sizes = [(ROOT / name).stat().st_size for name in tracked.split()]
    assert 0 < sum(sizes) <= publish.MOST_BYTES
