"""The program and every stage: --help does nothing else, a user's mistake is one line, a wheel works anywhere."""

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import cv2
import forks
import numpy as np
import pytest
import yaml
from cases import each_row, yaml_beside

from editjudge.cli import printing
from editjudge.cli.main import COMMANDS, main

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.usefixtures("workdir")
STAGES = sorted(file.stem for file in (ROOT / "src/editjudge/stages").glob("[!_]*.py"))
PROGRAM = sorted(name for commands in COMMANDS.values() for name in commands)
HELP = yaml_beside(__file__)["HELP"]
TAKING = {
    "--task": ("annotate", "raw_pairs"),
    "--model": ("candidates", "import_gallery"),
    "--suite": ("suite", "rate"),
}
TAKING |= {"--name": ("scorer_data", "train_scorer", "learning_curve"), "--benchmark": ("judge_benchmark",)}
OPTIONS = {stage: [option, "x"] for option, stages in TAKING.items() for stage in stages}
OPTIONS["merge_judge"] = ["--base", "b", "--adapter", "a", "--out", "o", "--dtype", "base"]
SEVERAL = "import sys; from editjudge.cli.main import main; [main(words.split()) for words in sys.argv[1:]]"
NEED_TORCH = {"stages.train_judge", "stages.merge_judge", "stages.learning_curve"}


@pytest.mark.parametrize("name", [*dict.fromkeys([*PROGRAM, *HELP]), *(f"stages.{stage}" for stage in STAGES)])
def test_help_is_told_and_nothing_done_without_torch(workdir: Path, name: str) -> None:
    is_stage = name.startswith("stages.")
    done = forks.run(name, "--help") if is_stage else forks.program(*name.split(), "--help")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("usage: ") if is_stage else done.stdout.split() == HELP[name].split()
    assert not done.loaded.strip() or name in NEED_TORCH
    assert not list(workdir.iterdir())


@pytest.mark.parametrize("name", [name for name in STAGES if name != "code"])  # which reads no file of the user's
def test_a_stage_in_a_wrong_folder_ends_in_one_line(name: str) -> None:
    done = forks.run(f"stages.{name}", *OPTIONS.get(name, []))
    assert done.returncode == 1
    assert done.stderr.startswith(f"{name}: ")
    assert len(done.stderr.splitlines()) == 1


@each_row("words, said")
def test_a_wrong_command_line_is_one_line(words: list[str], said: str, capsys: pytest.CaptureFixture) -> None:
    with pytest.raises(SystemExit) as stop:
        main(words)
    told = capsys.readouterr().err or str(stop.value.code)
    assert told.startswith(said)
    assert len(told.splitlines()) == 1


def test_a_table_is_plain_lines_or_a_rich_one_on_a_terminal(capsys: pytest.CaptureFixture, monkeypatch) -> None:
    rows = [("[b]one[/b]", 1.0, None), ("two", -22.5, "x")]
    printing.table(("name", "value", "why"), rows, digits=1)
    plain = capsys.readouterr().out.splitlines()
    cells = ["name value why", "[b]one[/b] 1.0 -", "two -22.5 x"]
    assert [line.split() for line in plain] == [line.split() for line in cells]
    assert len({line.index(cell) + len(cell) for line, cell in zip(plain, ("value", "1.0", "-22.5"), strict=True)}) == 1
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    printing.table(("name", "value", "why"), rows, digits=1)
    drawn = capsys.readouterr().out
    assert "[b]one[/b]" in drawn
    assert "─" in drawn


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package as a wheel has it, unpacked."""
    folder = tmp_path_factory.mktemp("wheel")
    copy = folder / "copy"
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in filter(None, listed.split("\0")):
        kept = ("src/", "pipelines/", "stages/", "params.yaml", "setup.py", "pyproject.toml", "README.md", "LICENSE")
        if name.startswith(kept) and (ROOT / name).is_file():
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            (copy / name).write_bytes((ROOT / name).read_bytes())
    command = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", folder, copy]
    subprocess.run(command, check=True)
    zipfile.ZipFile(next(folder.glob("*.whl"))).extractall(folder / "unpacked")
    return folder / "unpacked"


def test_a_wheel_has_the_settings_recipes_and_contracts_of_the_repository(wheel: Path) -> None:
    shipped = {file.relative_to(wheel / "editjudge/shipped").as_posix() for file in wheel.rglob("shipped/**/*.*")}
    own = [ROOT / "params.yaml", *ROOT.glob("pipelines/**/*.*"), *ROOT.glob("stages/*.json")]
    assert shipped == {file.relative_to(ROOT).as_posix() for file in own}
    assert all((wheel / "editjudge/shipped" / name).read_bytes() == (ROOT / name).read_bytes() for name in shipped)
    source = ROOT / "src/editjudge"
    data = {file.relative_to(source) for file in source.rglob("*.*") if file.suffix not in (".py", ".pyc")}
    assert all((wheel / "editjudge" / name).is_file() for name in data), "package-data of pyproject.toml"


def test_a_wheel_compares_in_an_empty_folder(wheel: Path, workdir: Path, photo: np.ndarray) -> None:
    near = photo.copy()
    near[20:52, 30:66] = 255 - near[20:52, 30:66]
    for name, pixels in {"s": photo, "a": near, "b": 255 - photo}.items():
        cv2.imwrite(f"{name}.png", pixels)

    def run(*words: str) -> str:
        env = os.environ | {"PYTHONPATH": str(wheel)}
        done = subprocess.run([sys.executable, *words], env=env, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    pair = "compare --source s.png --a a.png --b b.png --instruction Recolour --task color_alter --box 30 20 66 52"
    said = run("-m", "editjudge", *f"{pair} --judge measures".split())
    assert said.splitlines()[1].split() == ["measures", "Image", "A", "-"]
    Path("own.yaml").write_text(yaml.safe_dump({"judges": {"mine": {"backend": "measures", "rule": "agreement"}}}))
    Path("m.jsonl").write_text(json.dumps({"key": "p_pair_x_vs_y", "winner": "Image A"}) + "\n")
    score = "score --scorer dino_i --source s.png --edit a.png --instruction Go"
    said = run("-c", SEVERAL, f"{pair} --params own.yaml", "rank m.jsonl", score)
    assert [words in said for words in ("mine", "1 matches", "overall")] == [True] * 3
