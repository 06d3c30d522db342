"""A version of code moves with what it computes, with nothing else, and with every module that results depend on."""

import re
import sys
from pathlib import Path
from typing import get_args

import grimp
import pytest
from cases import each_row

from editjudge.core import code, files, params
from editjudge.editors import making, protocol
from editjudge.editors.procedural import ProceduralEditor
from editjudge.editors.settings import Api
from editjudge.judges import asking
from editjudge.judges.scorers import features
from editjudge.measures.annotation import batch
from editjudge.models.chat import forms, models
from editjudge.models.chat.settings import EndpointSetting, TransformersSetting
from editjudge.models.endpoint import pictures
from editjudge.photos import locating
from editjudge.sources.selection import embedders
from editjudge.stages import train_judge, train_scorer
from editjudge.vision import aesthetics, detectors

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
    code._read_before.cache_clear()
    code._files.cache_clear()
    code.identity.cache_clear()


def change(source: Path, name: str, old: str, new: str) -> None:
    file = source / f"editjudge/{name}.py"
    assert old in file.read_text()
    file.write_text(file.read_text().replace(old, new))
    forget()


@each_row("old, new, moves")
def test_what_computes_differently_moves_the_version_and_nothing_else(source, old, new, moves) -> None:
    before = code.version(["editjudge.room.b"])
    change(source, "room/b", old, new)
    assert (code.version(["editjudge.room.b"]) != before) == moves


def test_upstream_has_lazy_imports_packages_and_what_is_started(source: Path) -> None:
    used = {"editjudge.a", "editjudge.room", "editjudge.room.b", "editjudge.c"}
    assert code.upstream("editjudge.a") == used
    assert code.upstream("editjudge.a", frozenset({"editjudge.room.b"})) == used - {"editjudge.room.b"}
    assert code.upstream("editjudge.d") == {"editjudge.d"}
    with pytest.raises(ModuleNotFoundError, match=r"no module 'editjudge\.e'"):
        code.upstream("editjudge.e")


def test_what_was_read_is_not_read_again_unless_it_changes(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(files.WORK, str(source / "work"))
    known, read = code.describe("editjudge.a"), code._read
    code.keep_read()
    forget()
    again: list[str] = []
    monkeypatch.setattr(code, "_read", lambda file: again.append(file.stem) or read(file))
    assert (code.describe("editjudge.a"), again) == (known, [])
    change(source, "c", "X = 1", "X = 2")
    assert code.describe("editjudge.a") != known
    assert again == ["c"]
    files.work(code.READ).write_text("{")
    forget()
    assert len(code.describe("editjudge.a")["modules"]) == 4


def test_files_beside_the_modules_and_contracts_that_are_named_count(source, monkeypatch) -> None:
    contracts = source / "contracts"
    contracts.mkdir()
    monkeypatch.setattr(params, "CONTRACTS", contracts)
    schema = contracts / "pools.schema.json"
    schema.write_text('{"title": "t", "properties": {"description": {"description": "words", "type": "string"}}}')
    change(source, "d", "Y = 2", "Y = 'pools'")
    described = code.describe("editjudge.d")
    assert list(described["files"]) == ["stages/pools.schema.json"]
    schema.write_text('{"properties": {"description": {"description": "other", "type": "string"}}}')
    forget()
    assert code.describe("editjudge.d") == described
    schema.write_text('{"properties": {"description": {"type": "integer"}}}')
    forget()
    assert code.describe("editjudge.d") != described
    files = code.describe("editjudge.a")["files"]
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
        described = [code.describe(f"editjudge.{name}")["files"] for name in ("a", "d")]
        return [*described, code.version(["editjudge.c"]), code.version(["editjudge.d"])]

    before = versions()
    assert [Path(name).name for name in before[0]] == ["one.yaml", "table.json"]
    assert [Path(name).name for name in before[1]] == ["one.yaml", "two.yaml"]
    (folder / "one.yaml").write_text("# A comment.\nuser: 'hello'\n")
    assert versions() == before
    (folder / "two.yaml").write_text("user: bye\n")
    assert [new == old for new, old in zip(versions(), before, strict=True)] == [True, False, True, False]
    (folder / "one.yaml").write_text("user: bye\n")
    assert not any(new == old for new, old in zip(versions(), before, strict=True))


@each_row("stage, some")
def test_stages_depend_on_the_prompts_that_they_use(stage: str, some: list[str]) -> None:
    files = code.describe(f"editjudge.stages.{stage}")["files"]
    paths = (name.removesuffix(".yaml") for name in files if re.search("/prompts/|/(parsers|grounders)/", name))
    found = {"/".join(path.split("/")[-2:]) for path in paths}
    assert set(some) <= found
    assert bool(found) == bool(some)
    if stage == "train_judge":  # its question is chosen by name
        assert [name for name in found if name.startswith("comparisons")] == some
        assert {name.split("/")[0] for name in found} == {"comparisons", "dimensions", "tasks"}


@pytest.mark.parametrize("stage", ["train_judge", "train_scorer"])
@pytest.mark.parametrize("name", ["comparisons/pvc", "comparisons/decision", "rubrics/brief/any"])
def test_no_other_prompt_trains_again(stage: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    root, file = f"editjudge.stages.{stage}", code.SOURCE / f"editjudge/judges/prompts/{name}.yaml"
    but = code.unused(root)

    def versions() -> list[object]:
        code._files.cache_clear()
        return [code.identity.__wrapped__(root, but=but), code.describe(root)]

    before = versions()
    with monkeypatch.context() as patch:
        patch.setitem(code._known, file, (b"", code.Source("another")))
        moved = [new != old for new, old in zip(versions(), before, strict=True)]
    assert versions() == before
    assert moved == [(stage, name) in (("train_judge", "comparisons/pvc"), ("train_scorer", "rubrics/brief/any"))] * 2


def test_every_module_that_is_imported_at_run_time_is_known_upstream() -> None:
    """The imports that Python really does for a stage are among those that were read from its text."""
    import subprocess

    script = "import sys, editjudge.stages.leaderboard; print(*[m for m in sys.modules if m.startswith('editjudge')])"
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.split()
    assert set(loaded) - {"editjudge"} <= code.upstream("editjudge.stages.leaderboard")


ROOTS = {
    "a judge, rater, parser, grounder or captioner in process": [models.LOCAL],
    "one behind an endpoint": [pictures.__name__, forms.__name__],
    "a scorer": [asking.CHECKPOINT],
    "a scorer of features": [features.__name__],
    "measures": [batch.__name__],
    "an embedder": [embedders.__name__],
    "a detector": [detectors.__name__],
    "a predictor of aesthetics": [aesthetics.__name__],
    "regions": [locating.__name__],
    "an embedded editor": [ProceduralEditor.__module__, protocol.__name__],
    "a diffusers editor": [making.DIFFUSERS, protocol.__name__],
    "an editor behind OpenAI's form": [making.OPENAI, protocol.__name__],
    **{
        f"an editor behind {api}": [f"editjudge.editors.api.forms.{api}", protocol.__name__]
        for api in get_args(Api)
        if api != "openai"
    },
    "a judge's training": [train_judge.__name__],
    "a scorer's training": [train_scorer.__name__],
}
EXCEPTIONS = {f"editjudge.{path.replace('/', '.')}" for path in code.NO_RESULT}
GRAPH = grimp.build_graph("editjudge", cache_dir=None)  # who imports whom, by another reader of imports
for exception in EXCEPTIONS:  # which lead nowhere
    for other in GRAPH.find_modules_directly_imported_by(exception):
        GRAPH.remove_import(importer=exception, imported=other)


def changed(module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The module computes something else, as far as its text says."""
    file = code.file_of(module)
    state, source = code._known.get(file) or (None, code._read(file))
    monkeypatch.setitem(code._known, file, (state, source._replace(version="another")))


@pytest.mark.parametrize("kind", ROOTS)
def test_each_module_that_is_imported_moves_the_identity(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    roots = ROOTS[kind]
    used = {each for root in roots for each in (root, *GRAPH.find_upstream_modules(root))} - {"editjudge"}
    plain = code.identity(*roots)
    for module in sorted(used):
        with monkeypatch.context() as patch:
            changed(module, patch)
            moved = code.identity.__wrapped__(*roots) != plain
        assert moved == (module not in EXCEPTIONS), module


def test_transparency_laid_on_black_makes_other_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kept p(A) outlived that change once: the modules were listed by hand, without core.images."""
    (tmp_path / "config.json").write_text("{}")
    here = TransformersSetting(model=str(tmp_path), dtype="float32", batch_size=4)
    there = EndpointSetting(base_url="http://127.0.0.1:1/v1", model="m", api_key_env="none")
    before = [models.model_of(here), models.model_of(there)]
    code.identity.cache_clear()
    changed("editjudge.core.images", monkeypatch)
    after = [models.model_of(here), models.model_of(there)]
    code.identity.cache_clear()
    assert all(old != new for old, new in zip(before, after, strict=True))


def test_only_identities_name_records_and_every_exception_is_a_module_with_a_reason() -> None:
    """Nobody makes a version of a list of modules of its own."""
    assert GRAPH.modules >= EXCEPTIONS
    assert all(code.NO_RESULT.values())
    for module in GRAPH.modules - {"editjudge.core.code"}:
        assert "code.version(" not in code.file_of(module).read_text(), module
