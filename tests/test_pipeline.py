"""The whole graph on a reduced setting, and what DVC runs again after a change, each in a copy of its own."""

import json
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import small_graph as sharing
from clone import ROOT, Clone
from ruamel.yaml import YAML
from small_graph import SAID, commit, stages_run

from editjudge.core import portable
from tools import verify

TASKS = ("color_alter", "subject_add", "background_change")  # that profiles/small.yaml leaves
PHOTOGRAPHS = {"photo_pool", "regions", "instructions"}
UPSTREAM = PHOTOGRAPHS | {"code", "raw_sources", "raw_pairs", "embed", "probe_bench", "gedit_bench"}
FOLLOWS_PAIRS = {"scorer_data", "train_pairs", "train_judge", "merge_judge", "judge_benchmark", "compare_models"}
FOLLOWS_PAIRS |= {"leaderboard", "summary", "report"}
FOLLOWS_CANDIDATES = FOLLOWS_PAIRS | {"annotate", "rate", "train_scorer"}
EDITORS = ("unedited", "precise", "leaky", "box", "regenerated", "shifted", "style_transfer")


class Repository(Clone):
    """A copy of one with few tasks and small numbers in which the graph has run."""

    def __init__(self, folder: Path, of: Path) -> None:
        super().__init__(folder, of=of, warm=True)
        self.env.pop("PYTHONPATH")  # the commands of dvc.yaml say where the code is

    def edit_params(self, change) -> None:
        yaml, file = YAML(), self.folder / "params.yaml"
        values = yaml.load(file.read_text())
        change(values)
        with file.open("w") as out:
            yaml.dump(values, out)
        self.run("env", "PYTHONPATH=src", sys.executable, "-m", "tools.graph", "--write")

    def append(self, name: str, text: str) -> None:
        """Text at the end of a file."""
        with (self.folder / name).open("a") as file:
            file.write(text)


def rated(board: dict, judge: str) -> set[str]:
    """The models of a judge's leaderboard."""
    return {row["model"] for entry in board["judges"] if entry["judge"] == judge for row in entry["models"]}


def names(stages: set[str]) -> set[str]:
    return {stage.partition("@")[0] for stage in stages}


@pytest.fixture
def repository(small_graph: Path, tmp_path: Path) -> Iterator[Repository]:
    yield Repository(tmp_path / "copy", small_graph)
    shutil.rmtree(tmp_path / "copy")


def test_a_graph_that_does_not_run_is_tried_once_and_an_error_for_all(tmp_path, monkeypatch) -> None:
    tried = list[Path]()

    def fails(folder: Path) -> None:
        tried.append(folder)
        raise AssertionError("stage embed failed")

    monkeypatch.setattr(sharing, "run", fails)
    for _ in range(2):
        with pytest.raises(AssertionError, match="stage embed failed"):
            sharing.built(tmp_path / "graph")
    assert len(tried) == 1


def test_the_graph_runs_from_raw_pairs_to_the_leaderboard(repository: Repository, small_graph: Path) -> None:
    ran = stages_run((small_graph.parent / SAID).read_text())
    assert {"code", "raw_pairs", "leaderboard", "judge_benchmark", "merge_judge", "report"} <= names(ran)
    assert (repository.folder / "report/index.html").is_file()
    assert "up to date" in repository.run("dvc", "repro")
    board, accuracy = repository.json("metrics/leaderboard.json"), repository.json("metrics/benchmarks/probe.json")
    assert all(rated(board, judge) == set(EDITORS) for judge in ("measures", "pvc_judge"))
    assert [judge["accuracy"]["n"] for judge in accuracy["judges"]] == [6, 6, 6, 6]
    assert (repository.folder / "models/judge/model.safetensors").is_file()
    shown = json.loads(repository.run("dvc", "metrics", "show", "--json"))[""]["data"]
    columns = {name for name, found in shown.items() if found["data"]}
    assert columns <= {"metrics/summary.json", "metrics/train_judge.json"}, "details are no columns"
    assert repository.run("git", "status", "--porcelain") == ""


@pytest.mark.skipif(os.environ.get(portable.SWITCH) == "0", reason="the CPU's own last bits are asked for")
def test_the_graph_gives_the_committed_bytes(small_graph: Path) -> None:
    """After a change that means to move them: python -m tools.verify --small --write"""
    lock = YAML(typ="safe").load((small_graph / "dvc.lock").read_text())["stages"]
    text, same = verify.differences(json.loads((ROOT / verify.SMALL_RESULTS).read_text()), lock)
    assert same, text


def test_a_changed_measure_runs_what_measures_and_what_follows_a_comment_nothing(repository: Repository) -> None:
    repository.append("src/editjudge/measures/pixel.py", "\nANOTHER = 1\n")
    repository.run("dvc", "repro", "code")
    changed = json.loads(repository.run("dvc", "status", "--json"))
    measuring = {"probe_bench", "judge_benchmark@probe", "judge_benchmark@probe_easy", "compare_models"}
    measuring |= {f"annotate@{task}" for task in TASKS}
    assert measuring <= set(changed) <= measuring | {"train_pairs"}
    repository.run("git", "checkout", "src")
    for file in (repository.folder / "src").rglob("*.py"):
        file.write_text(file.read_text() + "\n# Nobody is asked again for this line.\n")
    assert stages_run(repository.run("dvc", "repro")) == {"code"}
    assert "up to date" in repository.run("dvc", "status")


def test_another_sample_num_runs_the_filter_and_what_follows_and_going_back_computes_nothing(
    repository: Repository,
) -> None:
    ran = stages_run(repository.run("dvc", "exp", "run", "-S", "filter.sample_num=4", "annotate@color_alter"))
    assert {"filter", "candidates", "annotate"} <= names(ran)
    assert not names(ran) & UPSTREAM
    changed = set(json.loads(repository.run("dvc", "status", "--json")))
    assert names(changed) <= FOLLOWS_CANDIDATES | {"candidates"}
    assert changed.isdisjoint(f"candidates@{name}" for name in EDITORS if name != "style_transfer"), (
        "nothing trains on it"
    )
    assert repository.json("metrics/resume/annotate_color_alter.json")["computed"] == 0, "fewer of the same records"
    commit(repository)
    said = repository.run("dvc", "exp", "run", "-S", "filter.sample_num=5", "annotate@color_alter")
    assert stages_run(said) == set(), "the run-cache has them all"
    assert "filter" in said
    assert "up to date" in repository.run("dvc", "status")


def test_an_experiment_in_a_folder_of_its_own_runs_its_own_code(repository: Repository) -> None:
    file = repository.folder / "src/editjudge/stages/filter.py"
    before = file.read_text()
    assert '"pool": pool,' in before
    file.write_text(before.replace('"pool": pool,', '"mark": 7, "pool": pool,'))
    repository.run("dvc", "exp", "run", "--temp", "-n", "marked", "-S", "filter.sample_num=3", "filter")
    file.write_text(before)
    [ref] = repository.run("git", "for-each-ref", "--format=%(refname)", "refs/exps/*/*/marked").split()
    [report] = json.loads(repository.run("git", "show", f"{ref}:metrics/filter.json"))
    assert [(counts["mark"], counts["records"]) for counts in report.values()] == [(7, 3)] * len(TASKS)
    assert "mark" not in (repository.folder / "metrics/filter.json").read_text(), "this folder is as it was"


def test_another_threshold_runs_train_pairs_and_what_follows(repository: Repository) -> None:
    setting = "+train_pairs.thresholds.color_alter.unedit_area.elite=0.1"
    assert stages_run(repository.run("dvc", "exp", "run", "-S", setting, "train_pairs")) == {"train_pairs"}
    following = names(set(json.loads(repository.run("dvc", "status", "--json"))))
    assert {"train_judge"} <= following <= FOLLOWS_PAIRS


def test_another_editing_model_is_the_only_one_that_edits(repository: Repository) -> None:
    """Ranked by measures alone, for which nothing is trained."""
    folder = repository.folder / "data/candidates"
    before = {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*.parquet")}
    assert len(before) == len(EDITORS) * len(TASKS)

    def add(values: dict) -> None:
        values["editors"]["very_leaky"] = {"kind": "leaky", "amount": 7.0, "seed": 99}
        values["judges"] = {"measures": values["judges"]["measures"]}
        values["arena"] = {"visual_consistency": "measures"}

    repository.edit_params(add)
    ran = stages_run(repository.run("dvc", "repro", "leaderboard", "train_pairs"))
    assert {stage for stage in ran if stage.startswith("candidates@")} == {"candidates@very_leaky"}
    assert before == {name: (folder / name).read_bytes() for name in before}
    for task in TASKS:
        counted = repository.json(f"metrics/resume/annotate_{task}.json")
        assert (counted["computed"], counted["reused"]) == (5, 30)
    assert rated(repository.json("metrics/leaderboard.json"), "measures") == {*EDITORS, "very_leaky"}


def test_a_changed_pool_is_annotated_again_alone(repository: Repository) -> None:
    """A source of its own gives one task another pool; nothing of the other tasks is edited or measured again."""

    def change(values: dict) -> None:
        values["raw_pairs"]["sources"] = {"subject_add": {"own": {"format": "probe", "most": 7}}}

    repository.edit_params(change)
    ran = stages_run(repository.run("dvc", "repro", "--glob", "annotate@*"))
    own = {stage for stage in ran if stage.startswith(("raw_pairs@", "annotate@"))}
    assert own == {"raw_pairs@subject_add", "annotate@subject_add"}
    repository.run("git", "checkout", ".")
    assert stages_run(repository.run("dvc", "repro")) == set(), "the run-cache has them all"
