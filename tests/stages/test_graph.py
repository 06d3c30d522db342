"""dvc.yaml and params.yaml say what the code says."""

import ast
import copy
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pandas as pd
import params_read
import pytest
import yaml
from cases import each_row, yaml_beside

from editjudge.core import params
from editjudge.stages import code
from tools import graph

ROOT = graph.ROOT
DVC = yaml.safe_load((ROOT / "dvc.yaml").read_text())
VALUES = params.load(ROOT / "params.yaml")
STAGES = sorted(DVC["stages"])


def body(stage: str, dvc: dict = DVC) -> dict:
    entry = dvc["stages"][stage]
    return entry.get("do", entry)


def mended(**sections: object) -> tuple[list[str], dict]:
    """What `make graph` mends where params.yaml has other sections, and dvc.yaml then."""
    dvc = copy.deepcopy(DVC)
    return graph.mend(dvc, VALUES | sections), dvc


def test_the_committed_settings_are_those_of_a_whole_rehearsal() -> None:
    """The trained judge ranks by consistency, and both scorers learn from all edits whose damage the probe knows."""
    assert VALUES["judges"][VALUES["arena"]["visual_consistency"]]["model"] == "models/judge"
    learnt = set(VALUES["tasks"]) - {"object_extraction", "tone_transfer"}
    assert {name: set(own["tasks"]) for name, own in VALUES["scorer_data"].items()} == dict.fromkeys(
        ("editreward", "imgedit_judge"), learnt
    )


def test_all_lists_are_true() -> None:
    assert mended()[0] == [], "run `make graph`"
    assert sorted([*code.stages(), "code"]) == STAGES
    assert not any("serve" in body(stage).get("params", []) for stage in STAGES), "nothing is served"


@pytest.mark.parametrize("stage", STAGES)
def test_every_stage_has_a_description_a_short_module_of_its_own_and_small_results_alone_in_git(stage: str) -> None:
    entry = body(stage)
    assert entry["desc"]
    assert entry["cmd"].startswith(f"PYTHONPATH=src python -m editjudge.stages.{stage}"), "the code of this folder"
    assert (f"data/code/{stage}.json" in entry["deps"]) == (stage != "code")
    small = [each for kind in ("metrics", "plots") for each in entry.get(kind, [])]
    assert all(settings["cache"] is False for each in small for settings in each.values())
    assert all(isinstance(out, str) for out in entry.get("outs", []))
    tree = ast.parse((ROOT / f"src/editjudge/stages/{stage}.py").read_text())
    entries = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name in ("main", "run", "job")]
    assert entries
    assert all(entry.end_lineno is not None and entry.end_lineno - entry.lineno < 25 for entry in entries)


# What a stage reads though no param says so: items, which `make graph` lists as deps and outs, and what a dep says.
APART = yaml_beside(__file__)["APART"]
ELSEWHERE = {"code": {"train_judge.prompt"}, "learning_curve": {"judges.pvc_judge"}}
ELSEWHERE |= {stage: {"scorers"} for stage in ("judge_benchmark", "compare_models")}  # judges.asking loads them


@pytest.mark.parametrize("stage", STAGES)
def test_a_stage_names_the_params_that_it_reads_and_no_others(stage: str) -> None:
    named, read = set(body(stage).get("params", [])), params_read.of_stage(stage) - {"unfinished"}  # which ends it
    assert {key for key in read if not {key, key.partition(".")[0]} & named} == {*APART.get(stage, [])}
    used = {key for key in named for other in read if f"{key}.".startswith(f"{other}.") or other.startswith(f"{key}.")}
    assert named - used == ELSEWHERE.get(stage, set())


@pytest.mark.parametrize("stage", [stage for stage in STAGES if body(stage).get("plots")])
def test_a_plots_axes_are_what_its_template_draws(stage: str) -> None:
    """Where it writes names or steps down one axis, these stand in the file before what was measured."""
    for plot in body(stage)["plots"]:
        [(path, how)] = plot.items()
        template = (ROOT / f".dvc/plots/{how['template']}.json").read_text() if "template" in how else "{}"
        names = '"type": "nominal"' in json.dumps(json.loads(template).get("spec", {}).get("encoding", {}).get("y", {}))
        over, measured = (how["y"], how["x"]) if names else (how["x"], how["y"])
        for file in ROOT.glob(path.replace("${key}", "*")):
            table = pd.read_csv(file)
            assert list(table).index(over) < list(table).index(measured), path
            assert (table[over].dtype.kind not in "fi") == names, path


@each_row("stage, section, change, named")
def test_what_params_name_becomes_a_dep_and_goes_with_it(stage: str, section: str, change: dict, named: list) -> None:
    files = {each.replace("${task}", task) for each in named for task in VALUES["tasks"]}
    stale, dvc = mended(**{section: VALUES[section] | change})
    added = set(body(stage, dvc)["deps"]) - set(body(stage)["deps"])
    assert files <= added
    assert added <= files or section == "tasks"
    assert (f"{stage}.deps" in stale) == bool(files)
    graph.mend(dvc, VALUES)
    assert dvc == DVC


@pytest.mark.parametrize(
    "sources",
    [None, "probe", {"x": None}, {"color_alter": {"a": {"path": 3, "images": None}, "b": {"path": ""}, "c": "probe"}}],
)
def test_sources_without_a_path_give_no_dep(sources: object) -> None:
    found = body("raw_sources", mended(raw_pairs={"sources": sources})[1])["deps"]
    assert found == ["data/code/raw_sources.json"]


def test_an_override_with_the_same_value_leaves_params_as_they_are(tmp_path: Path) -> None:
    file = tmp_path / "params.yaml"
    shutil.copy(ROOT / "params.yaml", file)
    script = (
        "import sys; from pathlib import Path; from dvc.utils.hydra import apply_overrides;"
        "apply_overrides(Path(sys.argv[1]), ['filter.sample_num=30'])"
    )
    assert params.load(file)["filter"]["sample_num"] == 30
    subprocess.run([sys.executable, "-c", script, file], check=True)
    assert file.read_bytes() == (ROOT / "params.yaml").read_bytes()


def test_a_name_with_a_dot_is_one_that_dvc_cannot_find() -> None:
    assert graph.dotted(DVC, VALUES) == []
    values = VALUES | {"editors": VALUES["editors"] | {"qwen-2.5": {}}, "imported": {"gpt.1": {}, "gpt_1": {}}}
    assert sorted(graph.dotted(DVC, values)) == ["editors.qwen-2.5", "imported.gpt.1"]


def test_a_folder_of_edits_is_a_dep_of_its_own_item_alone() -> None:
    stale, dvc = mended(editors=VALUES["editors"] | {"mine": {"kind": "folder", "path": "data/sources/mine"}})
    assert "candidates.foreach" in stale
    given = dvc["stages"]["candidates"]["foreach"]
    assert given.pop("mine") == "data/sources/mine"
    assert given == dict.fromkeys(VALUES["editors"], graph.NO_FOLDER)
    assert "${item}" in body("candidates", dvc)["deps"]


def test_what_scorer_data_is_made_of_is_a_dep() -> None:
    adiee = {"source": "adiee", "tasks": ["subject_add"], "truth": "precise", "bad": ["box"], "clip": "models/clip"}
    entries = {
        "adiee": adiee | {"good": [], "dino": "facebook/dinov2-base", "sequences": "data/sources/turns.jsonl"},
        "ours": {"source": "annotations", "tasks": ["color_alter"]},
        "untrue": {"source": "adiee", "tasks": ["color_alter"], "bad": [], "good": ["leaky"], "clip": "a/clip"},
        "people": {"source": "editreward", "path": "data/sources/train.json", "images": "data/sources/images"},
    }
    stale, dvc = mended(scorer_data=entries)
    assert stale == ["scorer_data.deps", "scorer_data.params"]
    assert body("scorer_data", dvc)["params"] == ["scorer_data.${key}", "train_pairs", "measures", "tasks"]
    assert body("scorer_data", dvc)["deps"] == [
        "data/code/scorer_data.json",
        "data/sources/turns.jsonl",
        "models/clip",
        "data/pools/subject_add.parquet",
        "data/candidates/precise/subject_add.parquet",
        "data/candidates/box/subject_add.parquet",
        f"pipelines/{VALUES['tasks']['color_alter']}/color_alter.yaml",
        "data/pools/color_alter.parquet",
        "data/annotations/color_alter.parquet",
        "data/candidates/leaky/color_alter.parquet",
        "data/sources/train.json",
        "data/sources/images",
    ]


@each_row("what, sections, stale, named")
def test_what_a_stage_names_follows_params(what: str, sections: dict, stale: list, named: dict[str, list]) -> None:
    """named: of stages, what is among their deps, params and outs then, and what is not."""
    mends, dvc = mended(**sections)
    assert {*stale} <= set(mends), what
    for stage, (has, lacks) in named.items():
        entry = body(stage, dvc)
        own = {*entry["deps"], *entry.get("params", []), *entry.get("outs", [])}
        assert ({*has} - own, {*lacks} & own) == (set(), set()), stage
