"""A version of code moves with what it computes, and with nothing else."""

import re
import sys
from pathlib import Path

import pytest

from editjudge.core import code

MODULE = '''"""A module."""

import json  # for reading


class Reader:
    """Reads."""

    def read(self, text: str) -> dict:
        """What the text says."""
        # A comment.
        return json.loads(text)
'''


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """src/editjudge with the modules a and b, of which a uses b and starts c."""
    monkeypatch.setattr(code, "SOURCE", tmp_path)
    package = tmp_path / "editjudge"
    (package / "room").mkdir(parents=True)
    files = {"__init__": "", "room/__init__": "", "room/b": MODULE, "c": "X = 1\n", "d": "Y = 2\n"}
    files["a"] = "def run():\n    from editjudge.room import b\n    return [b, 'editjudge.c']\n"
    files["room/b"] += "\n\nTABLE = 'table.json'\n"
    for name, text in files.items():
        (package / f"{name}.py").write_text(text)
    (package / "room/table.json").write_text("{}")
    forget()
    yield tmp_path
    forget()


def forget() -> None:
    """As a new process knows no code yet."""
    code._known.clear()
    code._files.cache_clear()
    code.identity.cache_clear()


def change(source: Path, name: str, old: str, new: str) -> None:
    file = source / f"editjudge/{name}.py"
    assert old in file.read_text()
    file.write_text(file.read_text().replace(old, new))
    forget()


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("# A comment.", ""),
        ("  # for reading", "  # for writing"),
        ("Reads.", "Writes."),
        ('"""What the text says."""', ""),
        ('"""A module."""', ""),
        ("(self, text: str)", "(\n        self, text: str\n    )"),
    ],
)
def test_what_only_reads_differently_moves_no_version(source: Path, old: str, new: str) -> None:
    before = code.version(["editjudge.room.b"])
    change(source, "room/b", old, new)
    assert code.version(["editjudge.room.b"]) == before


@pytest.mark.parametrize(
    ("old", "new"),
    [("json.loads(text)", "json.loads(text) or {}"), ("text: str", "text: bytes"), ("'table.json'", "'tables.json'")],
)
def test_what_computes_differently_moves_the_version(source: Path, old: str, new: str) -> None:
    before = code.version(["editjudge.room.b"])
    change(source, "room/b", old, new)
    assert code.version(["editjudge.room.b"]) != before


def test_upstream_has_lazy_imports_packages_and_what_is_started(source: Path) -> None:
    used = {"editjudge.a", "editjudge.room", "editjudge.room.b", "editjudge.c"}
    assert code.upstream("editjudge.a") == used
    assert code.upstream("editjudge.a", frozenset({"editjudge.room.b"})) == {
        "editjudge.a",
        "editjudge.room",
        "editjudge.c",
    }
    assert code.upstream("editjudge.d") == {"editjudge.d"}
    with pytest.raises(ModuleNotFoundError, match=r"no module 'editjudge\.e'"):
        code.upstream("editjudge.e")


def test_files_beside_the_modules_and_contracts_that_are_named_count(source: Path) -> None:
    contracts = source / "contracts"
    contracts.mkdir()
    schema = contracts / "pools.schema.json"
    schema.write_text('{"title": "t", "properties": {"description": {"description": "words", "type": "string"}}}')
    change(source, "d", "Y = 2", "Y = 'pools'")
    described = code.describe("editjudge.d", contracts)
    assert list(described["files"]) == ["contracts/pools.schema.json"]
    schema.write_text('{"properties": {"description": {"description": "other", "type": "string"}}}')
    forget()
    assert code.describe("editjudge.d", contracts) == described
    schema.write_text('{"properties": {"description": {"type": "integer"}}}')
    forget()
    assert code.describe("editjudge.d", contracts) != described
    files = code.describe("editjudge.a", contracts)["files"]
    assert [Path(name).name for name in files] == ["table.json"]


def test_a_prompt_counts_by_its_content_for_those_who_name_it_or_its_folder(source: Path) -> None:
    folder = source / "editjudge/judges/prompts/comparisons"
    folder.mkdir(parents=True)
    (folder / "one.yaml").write_text("user: hello\n")
    (folder / "two.yaml").write_text("user: hello\n")
    change(source, "c", "X = 1", "X = 'judges/prompts/comparisons/one.yaml'")
    change(source, "d", "Y = 2", "def y(name):\n    return f'judges/prompts/comparisons/{name}.yaml'")

    def versions() -> list:
        forget()
        described = [code.describe(f"editjudge.{name}", source)["files"] for name in ("a", "d")]
        return [*described, code.version(["editjudge.c"]), code.version(["editjudge.d"])]

    a, d, *of_code = versions()
    assert [Path(name).name for name in a] == ["one.yaml", "table.json"]
    assert [Path(name).name for name in d] == ["one.yaml", "two.yaml"]
    (folder / "one.yaml").write_text("# A comment.\nuser: 'hello'\n")
    assert versions() == [a, d, *of_code]
    (folder / "two.yaml").write_text("user: bye\n")
    assert versions()[0] == a
    assert versions()[1] != d
    assert versions()[2] == of_code[0]
    assert versions()[3] != of_code[1]
    (folder / "one.yaml").write_text("user: bye\n")
    assert versions()[0] != a
    assert versions()[2] != of_code[0]


@pytest.mark.parametrize(
    ("stage", "some"),
    [
        ("train_judge", ["comparisons/pvc"]),
        ("train_pairs", []),
        ("merge_judge", []),
        ("judge_benchmark", ["comparisons/decision", "scores/viescore", "dimensions/visual_quality"]),
        ("annotate", ["comparisons/decision", "parsers/edited_objects", "grounders/objects"]),
    ],
)
def test_stages_depend_on_the_prompts_that_they_use(stage: str, some: list[str]) -> None:
    files = code.describe(f"editjudge.stages.{stage}", Path("stages").absolute())["files"]
    paths = (name.removesuffix(".yaml") for name in files if re.search("/prompts/|/(parsers|grounders)/", name))
    found = {"/".join(path.split("/")[-2:]) for path in paths}
    assert set(some) <= found
    assert bool(found) == bool(some)
    assert "comparisons/pvc" not in some or found == set(some)


def test_every_module_that_is_imported_at_run_time_is_known_upstream() -> None:
    """The imports that Python really does for a stage are among those that were read from its text."""
    import subprocess

    script = "import sys, editjudge.stages.leaderboard; print(*[m for m in sys.modules if m.startswith('editjudge')])"
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.split()
    assert set(loaded) - {"editjudge"} <= code.upstream("editjudge.stages.leaderboard")
