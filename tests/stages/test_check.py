"""What is wrong in params.yaml and the recipes is listed before anything runs, all at once."""

import shutil
import subprocess
from functools import reduce
from pathlib import Path
from typing import Any

import forks
import pytest
import yaml
from cases import each_row

from editjudge.core import params
from tools import check, settings

ROOT = Path(__file__).parents[2]
COMMITTED = yaml.safe_load((ROOT / "params.yaml").read_text())
MISTAKES = yaml.safe_load(Path(__file__).with_name("mistakes.yaml").read_text())


def lines_of(where: str, entry: dict[str, Any]) -> list[str]:
    """What is wrong in the committed settings with an entry at its place."""
    section, _, name = where.partition(".")
    given = {**COMMITTED[section], name: entry} if name else entry
    return check.read_what_is_right(check.Params, COMMITTED | {section: given})[1]


@pytest.mark.parametrize(
    ("where", "change", "told"), [(where, *each) for where, entry in MISTAKES.items() for each in entry["wrong"]]
)
def test_a_mistake_in_any_section_is_a_line(where: str, change: dict[str, Any], told: str) -> None:
    right = MISTAKES[where].get("right") or params.leaf(COMMITTED, where)
    assert lines_of(where, right) == []
    found = lines_of(where, right | change)
    assert any(line.startswith(where) for line in found)
    assert told in "\n".join(found)
    assert not any("sk-secret" in line for line in found), "a key is not repeated"


@pytest.fixture
def values(workdir: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The committed parameters, in a folder with copies of the recipes and the graph."""
    shutil.copytree(ROOT / "pipelines", workdir / "pipelines")
    shutil.copy(ROOT / "dvc.yaml", workdir)
    (workdir / "models/tiny_base").mkdir(parents=True)  # which no stage makes
    monkeypatch.delenv("NO_SUCH_KEY", raising=False)
    return yaml.safe_load((ROOT / "params.yaml").read_text())


def found(values: dict[str, Any], capsys: pytest.CaptureFixture) -> list[str]:
    Path("params.yaml").write_text(yaml.safe_dump(values, sort_keys=False))
    with pytest.raises(SystemExit) as ended:
        settings.check()
    lines = capsys.readouterr().out.splitlines()
    assert ended.value.code == (0 if lines == ["params.yaml and the recipes: nothing is wrong"] else 1)
    return lines


def test_the_committed_settings_are_right_and_read_without_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    assert forks.program("check") == (0, "params.yaml and the recipes: nothing is wrong\n", "", "\n")


def place(values: dict[str, Any], name: str) -> tuple[dict[str, Any], str]:
    """The section that has the value of a dotted name, and its key there."""
    *sections, key = name.split(".")
    return reduce(lambda node, section: node[section], sections, values), key


@each_row("what, changes, gone, folders, told")
def test_all_that_is_wrong_is_told(what, changes, gone, folders, told, values, capsys) -> None:
    """changes, gone: values by their dotted names, HERE being the folder. folders: that are made. told: the lines."""
    for folder in folders:
        Path(folder).mkdir(parents=True)
    for name, value in changes.items():
        section, key = place(values, name)
        section[key] = value.replace("HERE", str(Path.cwd())) if isinstance(value, str) else value
    for name in gone:
        section, key = place(values, name)
        del section[key]
    lines = found(values, capsys)
    assert len(lines) == len(told), what
    for wanted in told:
        start, dots, end = wanted.partition("...")
        fits = [line.startswith(start) and line.endswith(end) if dots else line == start for line in lines]
        assert sum(fits) == 1, f"{wanted} in {lines}"


def test_a_recipe_with_a_measure_that_there_is_not_is_named(values: dict[str, Any], capsys) -> None:
    recipe = Path("pipelines/object_centric/color_alter.yaml")
    recipe.write_text(recipe.read_text().replace("  - lpips", "  - lpipz"))
    [line] = found(values, capsys)
    assert line.startswith(f"tasks.color_alter: {recipe}:")


def test_a_lock_that_was_cut_is_named(values: dict[str, Any], capsys: pytest.CaptureFixture) -> None:
    """At every line between entries; where it is no list of stages any more; and where it is gone."""
    shutil.copy(ROOT / "dvc.lock", "dvc.lock")
    whole = Path("dvc.lock").read_text()
    assert check.cut_lock() == [], "outside of git nothing is known"
    me = ["-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "commit.gpgsign=false"]
    for words in (["init", "-q"], ["add", "dvc.lock"], [*me, "commit", "-qm", "lock"]):
        subprocess.run(["git", *words], check=True)
    assert check.cut_lock() == []
    stages = list(yaml.safe_load(whole)["stages"])
    for number in (1, len(stages) - 1):
        Path("dvc.lock").write_text(whole[: whole.index(f"\n  {stages[number]}:\n") + 1])
        [line] = check.cut_lock()
        assert line.startswith(f"dvc.lock lacks {len(stages) - number} stages that git's HEAD has (")
        assert line.endswith("): git restore dvc.lock")
    assert f"({stages[-1]})" in line
    assert line in found(values, capsys)
    for rest in ("", whole[: len(whole) // 2] + "\n {", "stages:\n"):
        Path("dvc.lock").write_text(rest)
        assert "cannot be read" in check.cut_lock()[0]
    Path("dvc.lock").unlink()
    assert "cannot be read" in check.cut_lock()[0]
