"""README and docs: every command is run here or by a test that is named here, or its program can at least read it.

A command in a code block that no line of COMMANDS (test_docs.yaml) knows fails: say there how it is tested."""

import json
import os
import re
import runpy
import shlex
import subprocess
import sys
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

import dvc.cli
import forks
import numpy as np
import program
import pytest
import yaml
from cases import yaml_beside
from clone import ROOT, Clone

from editjudge.cli import main
from editjudge.core import images, params
from editjudge.core import main as stages_main

PAGES = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "stages/README.md")] + sorted(ROOT.glob("docs/*.md"))
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.M | re.S)
PROGRAMS = r"(?:[A-Z_]+=\S+ )*(?:python|dvc|make|pytest|editjudge)\s"
INLINE = re.compile(rf"`({PROGRAMS}[^`]*)`")
MODULE = re.compile(r"python -m ((?:editjudge\.\w+|tools(?:\.trials)?)\.[a-z_]+)|editjudge ([a-z-]+)")
RUN = "here"
COMMANDS = yaml_beside(__file__)["COMMANDS"]
STAGES = yaml.safe_load((ROOT / "dvc.yaml").read_text())["stages"]
VALUES = params.load(ROOT / "params.yaml")


def blocks(page: Path) -> list[tuple[str, str]]:
    return BLOCK.findall(page.read_text())


def commands(page: Path) -> list[str]:
    """The lines of its blocks, those with && apart, without their comments."""
    lines = [line for kind, text in blocks(page) if kind in ("", "sh") for line in text.splitlines()]
    parts = [part for line in lines for part in re.split(r" && ", re.sub(r"\s+#\s.*", "", line))]
    return [part.strip() for part in parts if part.strip()]


def how(command: str) -> str | None:
    return next((how for pattern, how in COMMANDS.items() if re.match(pattern, command)), None)


WRITTEN = [(page, command) for page in PAGES for command in commands(page)]
NAMES = [f"{page.relative_to(ROOT)}: {command}" for page, command in WRITTEN]


class Read(BaseException):
    """The words were read, and nothing was done."""


def _stop_after_reading(patched: pytest.MonkeyPatch) -> None:
    """Whatever a module does, it does it after `parse_args`, or in `guarded`."""
    plain = ArgumentParser.parse_args

    def parse_args(self: ArgumentParser, *given: Any, **more: Any) -> None:
        plain(self, *given, **more)
        raise Read

    def guarded(*_: object) -> None:
        raise Read

    patched.setattr(ArgumentParser, "parse_args", parse_args)
    patched.setattr(stages_main, "guarded", guarded)


def check(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fails where the command's program would not take it, and where it names what is not there."""
    words = shlex.split(command)
    while re.fullmatch(r"[A-Z_]+=\S*", words[0]):
        words = words[1:]
    if words[0] == "python":
        python(words, monkeypatch)
    elif words[0] == "editjudge":
        main.program().parse_args(words[1:], exit_on_error=False, print_error=False)
    elif words[0] == "dvc":
        of_dvc(words)
    elif words[0] == "make":
        subprocess.run([*make(words), "--dry-run"], cwd=ROOT, capture_output=True, check=True)
    elif words[0] == "pytest":
        assert all((ROOT / word).exists() for word in words[1:] if "/" in word)
    elif words[0] == "gto":
        said = subprocess.run([*words[:2], "--help"], capture_output=True, text=True, check=True).stdout
        assert all(word in said for word in words if word.startswith("--"))
    else:
        assert words[0] in ("git", "source", "export", "ray", "docker"), "no such program is known here"


def python(words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """`python -m MODULE` until its command line is read; of `python FILE` that the file has these options."""
    name, given = (words[2], words[3:]) if words[1] == "-m" else (words[1], words[2:])
    if words[1] != "-m":
        text = (ROOT / name).read_text()
        assert all(word in text for word in given if word.startswith("--"))
        return
    with monkeypatch.context() as patched:
        _stop_after_reading(patched)
        patched.setattr(sys, "argv", [name, *given])
        patched.delitem(sys.modules, name, raising=False)
        with pytest.raises((Read, SystemExit)) as left:
            runpy.run_module(name, run_name="__main__")
        assert left.type is Read or (left.value.code == 0 and "--help" in given)


def of_dvc(words: list[str]) -> None:
    given = dvc.cli.parse_args(words[1:])
    targets = given.targets if given.cmd in ("repro", "exp") and getattr(given, "targets", None) else []
    assert all(target.partition("@")[0] in STAGES for target in targets)
    for setting in getattr(given, "set_param", None) or []:
        params.leaf(VALUES, setting.partition("=")[0])


def make(words: list[str]) -> list[str]:
    """make with the environment that the tests run in, which it leaves as it is."""
    here = [f"VENV={sys.prefix}", "TORCH_INDEX=none", "-o", f"{sys.prefix}/.graph", "-o", f"{sys.prefix}/.dev"]
    return [*words, *here]


@pytest.mark.parametrize(("page", "command"), WRITTEN, ids=NAMES)
def test_a_command_is_known_and_its_program_takes_it(page: Path, command: str, monkeypatch) -> None:
    told = how(command)
    assert told, f"say in COMMANDS how this is tested: {command}"
    if told != RUN:
        check(command, monkeypatch)
    if told.startswith("tests/"):
        text = (ROOT / told).read_text()
        named = MODULE.match(command)
        assert named is None or (named[1] or named[2]).rpartition(".")[2] in text, f"{told} does not run it"


SENTENCES = {command for page in PAGES for command in INLINE.findall(BLOCK.sub("", page.read_text()))}
INLINES = sorted(command for command in SENTENCES if not re.search(r"\b(NAME|FILE|X)\b|<|\.\.\.", command))


@pytest.mark.parametrize("command", INLINES)
def test_a_command_in_a_sentence_names_what_there_is(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its module, target or file; options are read where it has any."""
    for part in command.replace("\n", " ").split(" && "):
        words = shlex.split(part)
        named = MODULE.match(part)
        if named and not any(word.startswith("--") for word in words):
            file = f"{(named[1] or '').replace('.', '/')}.py"
            there = (ROOT / "src" / file).is_file() or (ROOT / file).is_file()
            assert there or any(named[2] in commands for commands in main.COMMANDS.values())
        elif words[0] == "dvc" and words[1:] in (["metrics"], ["exp"], ["exp", "run", "-S"]):
            continue  # their names
        else:
            check(part, monkeypatch)


# --- what is run


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Clone:
    """A repository of two commits with what is published, and the pictures and match files that the pages speak of."""
    found = Clone(tmp_path_factory.mktemp("docs") / "copy", warm=True)
    for command in ("git add -A -f", "git commit -qm one", "git commit -qm two --allow-empty"):
        found.run(*command.split())
    pixels = np.random.default_rng(0).integers(0, 256, (72, 96, 3), dtype=np.uint8)
    for name, image in {"s": pixels, "a": pixels, "b": pixels // 2}.items():
        (found.folder / f"{name}.png").write_bytes(images.encode_png(image))
    for name in ("if", "vq", "vc"):
        lines = [f'{{"key": "p{n}_pair_x_vs_y", "winner": "Image {"AB"[n % 3 == 0]}"}}' for n in range(9)]
        (found.folder / f"{name}.jsonl").write_text("\n".join(lines))
    found.run(*make(["make", "pull"]))
    return found


@pytest.mark.parametrize("command", sorted({command for _, command in WRITTEN if how(command) == RUN}))
def test_a_command_runs(command: str, copy: Clone, monkeypatch: pytest.MonkeyPatch) -> None:
    words = shlex.split(command)
    try:
        if words[0] == "editjudge":
            monkeypatch.chdir(copy.folder)
            program.run(words[1:])
        else:
            copy.run(*(make(words) if words[0] == "make" else words))
    finally:
        copy.run("git", "checkout", "-q", "params.yaml", "dvc.yaml")


PYTHON = [(page, text) for page in PAGES for kind, text in blocks(page) if kind == "python"]
PYTHON = [(page, text) for page, text in PYTHON if page.name != "own_edits.md"]  # tests/test_own_edits.py runs it


@pytest.mark.parametrize(("page", "text"), PYTHON, ids=[page.name for page, _ in PYTHON])
def test_python_runs_as_it_stands(page: Path, text: str, copy: Clone) -> None:
    """In a process of its own, as a reader's: of what the page forgets nothing is there."""
    (copy.folder / "example.py").write_text(text)
    assert copy.run(sys.executable, "example.py").strip()


def test_readme_begins_with_five_lines_of_python_and_fits() -> None:
    readme = (ROOT / "README.md").read_text()
    assert len(readme.encode()) <= 8192
    first = next(text for kind, text in blocks(ROOT / "README.md") if kind == "python")
    assert len(first.splitlines()) <= 5
    for picture in re.findall(r"!\[[^]]+\]\(([^)]+)\)", readme):
        assert (ROOT / picture).stat().st_size <= 200_000


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_somewhere(page: Path) -> None:
    text = BLOCK.sub("", page.read_text())
    for target, heading in re.findall(r"\]\((?!https?:)([^)#]*)#?([^)]*)\)", text):
        file = page.parent / target if target else page
        assert file.exists(), target
        titles = re.findall(r"^#+ (.*)$", file.read_text(), re.M) if heading else []
        assert not heading or heading in {re.sub(r"[^\w -]", "", t).lower().replace(" ", "-") for t in titles}, heading


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_blocks_are_of_a_kind_that_is_looked_at(page: Path) -> None:
    for kind, text in blocks(page):
        assert kind in ("", "sh", "text", "python", "yaml", "mermaid")
        if kind == "yaml":
            assert set(yaml.safe_load(text)) <= {*VALUES, "over"}, "sections of params.yaml, or a profile"
        if kind == "mermaid":
            words = set(re.findall(r"\b[a-z_]+\b", re.sub(r'\["[^"]*"\]', "", text))) - {"flowchart"}
            assert words <= set(STAGES)


def test_experiments_are_shown_in_fewer_than_twenty_columns(copy: Clone) -> None:
    [line] = (command for _, command in WRITTEN if command.startswith("dvc exp show"))
    header, *rows = copy.run(*shlex.split(line), "--csv").splitlines()
    assert 8 < header.count(",") < 20
    assert rows


def test_the_tour_runs_and_has_no_outputs(workdir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(workdir))
    text, names = (ROOT / "docs/tour.ipynb").read_text(), {}
    cells = [cell for cell in json.loads(text)["cells"] if cell["cell_type"] == "code"]
    assert not any(cell["outputs"] or cell["execution_count"] for cell in cells)
    for cell in cells:
        exec("".join(cell["source"]), names)
    assert names["compared"].winner == names["told"].winner == "Image B"
    assert [row["model"] for row in names["board"].models] == ["careful", "darker", "moved"]
    assert names["before"] + 0.1 < names["after"]
    assert all((ROOT / "docs" / target).is_file() for target in re.findall(r"\]\((\w+\.md)\)", text))


def test_the_site_builds_without_a_warning_and_its_index_leads_to_every_page(tmp_path: Path) -> None:
    pytest.importorskip("sphinx")
    command = [forks.python(), *["-m", "sphinx", "-q", "-W", "--keep-going", "-c", "docs", "."], str(tmp_path)]
    env = os.environ | {"PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
