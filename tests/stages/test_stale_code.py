"""DVC is never told that code made what other code made: a small repository with the stages `code` and `toy`."""

import shlex
import shutil
from pathlib import Path

import forks
import pytest
import small_repro
import yaml
from killing import wait_until

ROOT = Path(__file__).parents[2]
TOY = '''"""Stage toy: writes how many numbers below 1 are beyond the margin and the tolerance."""

import time
from pathlib import Path

from editjudge.core import params
from editjudge.core.main import stage
from editjudge.labels.tiers import PARETO_TOLERANCE


def run() -> None:
    margin = params.load()["margin"]
    Path("begun").touch()
    while Path("hold").exists():
        time.sleep(0.02)
    Path("kept").write_text(str(sum(n / 100 > margin + PARETO_TOLERANCE for n in range(100))))


if __name__ == "__main__":
    stage(__doc__, run)
'''
STAGES = {
    "code": {"deps": ["src/editjudge"], "outs": ["data/code/toy.json"]},
    "toy": {"deps": ["data/code/toy.json"], "params": ["margin"], "outs": ["kept"]},
}


class Repository:
    def __init__(self, folder: Path) -> None:
        self.folder, self.tiers = folder, folder / "src/editjudge/labels/tiers.py"
        shutil.copytree(ROOT / "src", folder / "src", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
        shutil.copy(ROOT / ".dvcignore", folder)  # bytecode is no code
        for file in (folder / "src/editjudge/stages").glob("*.py"):
            if file.stem not in ("__init__", "code"):
                file.unlink()
        (folder / "src/editjudge/stages/toy.py").write_text(TOY)
        (folder / ".dvc").mkdir()
        (folder / ".dvc/config").write_text("[core]\n    no_scm = true\n    analytics = false\n")
        (folder / "stages").mkdir()
        for name, entry in STAGES.items():
            entry["cmd"] = f"PYTHONPATH=src {shlex.quote(str(forks.python()))} -m editjudge.stages.{name}"
        (folder / "dvc.yaml").write_text(yaml.safe_dump({"stages": STAGES}))
        self.margin(0.3)

    def margin(self, value: float) -> None:
        (self.folder / "params.yaml").write_text(f"margin: {value}\n")

    def tolerance(self, value: float) -> None:
        lines = self.tiers.read_text().splitlines()
        place = next(n for n, line in enumerate(lines) if line.startswith("PARETO_TOLERANCE ="))
        lines[place] = f"PARETO_TOLERANCE = {value or 0}"  # another size: bytecode is of a second and a size
        self.tiers.write_text("\n".join(lines) + "\n")

    def dvc(self, *words: str) -> tuple[int, str]:
        run = small_repro.dvc(self.folder, *words)
        said, _ = run.communicate(timeout=120)
        return run.returncode, said

    def kept(self) -> int:
        return int((self.folder / "kept").read_text())


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Repository:
    return Repository(tmp_path_factory.mktemp("stale"))


@pytest.fixture
def repository(made: Repository) -> Repository:
    made.margin(0.3)
    made.tolerance(0.0)
    assert made.dvc("repro")[0] == 0
    assert made.kept() == 69
    return made


def test_forced_with_stale_code_a_stage_ends_and_the_run_cache_stays_right(repository: Repository) -> None:
    repository.tolerance(0.2)
    status, said = repository.dvc("repro", "-s", "toy")
    assert (status, repository.kept()) == (0, 69)
    assert "didn't change" in said, "it is still what data/code/toy.json says"
    status, said = repository.dvc("repro", "-f", "-s", "toy")
    assert status != 0
    assert "toy: editjudge.labels.tiers is not as data/code/toy.json has it: run `dvc repro code`" in said
    repository.tolerance(0.0)
    for margin, expected in ((0.4, 59), (0.3, 69)):
        repository.margin(margin)
        assert repository.dvc("repro", "-s", "toy")[0] == 0
        assert repository.kept() == expected
    repository.tolerance(0.2)
    assert repository.dvc("repro", "code")[0] == 0
    assert repository.dvc("repro", "-f", "-s", "toy")[0] == 0
    assert repository.kept() == 49
    assert "up to date" in repository.dvc("status")[1]


@pytest.mark.parametrize("computes", [True, False], ids=["another constant", "a comment"])
def test_code_that_changes_while_a_stage_runs_ends_it(repository: Repository, computes: bool) -> None:
    lock = (repository.folder / "dvc.lock").read_text()
    hold = repository.folder / "hold"
    hold.touch()
    begun = repository.folder / "begun"
    begun.unlink(missing_ok=True)
    repository.margin(0.5 if computes else 0.6)  # that no run had before
    run = small_repro.repro(repository.folder, "-s", "toy")
    wait_until(begun.exists)
    if computes:
        repository.tolerance(0.2)
    else:
        repository.tiers.write_text(repository.tiers.read_text() + "\n# Later.\n")
    hold.unlink()
    said = run.stdout.read()
    assert (run.wait(60) != 0) == computes
    assert ("has changed since this run began" in said) == computes
    assert ((repository.folder / "dvc.lock").read_text() == lock) == computes
