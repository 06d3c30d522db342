"""dvc.yaml and params.yaml say what the code says."""

import ast
import shutil
import subprocess
import sys
from pathlib import Path

import grimp
import pytest
import yaml
from ruamel.yaml import YAML

from editjudge.commands import graph
from editjudge.core import params

ROOT = graph.ROOT
STAGES = sorted(yaml.safe_load((ROOT / "dvc.yaml").read_text())["stages"])
LEAVES = {
    "grounded",
    "images",
    "lined_yaml",
    "params",
    "progress",
    "records",
    "regions",
    "resume",
    "workers",
    "schemas",
}
NEED_TORCH = {"base_model", "train_judge", "merge_judge"}


def body(stage: str) -> dict:
    entry = yaml.safe_load((ROOT / "dvc.yaml").read_text())["stages"][stage]
    return entry.get("do", entry)


@pytest.mark.parametrize("stage", STAGES)
def test_deps_are_what_the_stage_imports_and_collects(stage: str) -> None:
    deps = body(stage)["deps"]
    assert deps == graph.wanted(stage, deps, params.load(ROOT / "params.yaml")), "run `make graph`"


def test_imports_go_from_stages_to_domain_to_leaves() -> None:
    imports = grimp.build_graph("editjudge", cache_dir=None)
    stages = {f"editjudge.{stage}" for stage in STAGES}
    leaves = {f"editjudge.{leaf}" for leaf in LEAVES}
    for module in imports.modules:
        imported = imports.find_modules_directly_imported_by(module)
        assert not imported & stages, f"{module} imports a stage"
        if module in leaves:
            assert imported <= leaves, f"the leaf {module} imports {imported - leaves}"


@pytest.mark.parametrize("stage", STAGES)
def test_every_stage_has_a_description_and_runs_its_own_module(stage: str) -> None:
    entry = body(stage)
    assert entry["desc"]
    assert f"python -m editjudge.{stage}" in entry["cmd"]


@pytest.mark.parametrize("stage", STAGES)
def test_main_is_short(stage: str) -> None:
    tree = ast.parse((ROOT / f"src/editjudge/{stage}.py").read_text())
    main = next(node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == "main")
    assert main.end_lineno is not None
    assert main.end_lineno - main.lineno < 25


def test_the_judges_plot_has_every_judge() -> None:
    dvc, values = yaml.safe_load((ROOT / "dvc.yaml").read_text()), params.load(ROOT / "params.yaml")
    assert not graph.mend_plot(dvc, values), "run `make graph`"
    assert graph.mend_plot(dvc, values | {"judges": {"new": {}}})
    [plot] = [entry[graph.JUDGES_PLOT] for entry in dvc["plots"] if graph.JUDGES_PLOT in entry]
    assert plot["y"] == {"plots/psychometric/probe.csv": ["new", "new_fit"]}


def test_a_new_benchmarks_files_become_deps_and_go_with_it() -> None:
    deps, values = body("judge_benchmark")["deps"], params.load(ROOT / "params.yaml")
    local = {"form": "editscore", "path": "data/benchmarks/editscore", "shuffle": "data/benchmarks/shuffle.json"}
    more = values | {"benchmarks": values["benchmarks"] | {"a": local, "b": {"form": "genai", "hub": "owner/name"}}}
    added = graph.wanted("judge_benchmark", deps, more)
    assert set(added) - set(deps) == {"data/benchmarks/editscore", "data/benchmarks/shuffle.json"}
    assert graph.wanted("judge_benchmark", added, values) == deps
    empty = {"a": {"form": "genai", "hub": "owner/name", "path": None, "images": ""}, "b": None}
    more = values | {"benchmarks": values["benchmarks"] | empty}
    assert graph.wanted("judge_benchmark", deps, more) == deps


def test_files_that_params_name_become_deps_wherever_they_lie_and_go_with_them() -> None:
    values = params.load(ROOT / "params.yaml")
    raw, embed, filter = values["raw_pairs"], values["embed"], values["filter"]
    sources = {"color_alter": {"a": {"format": "plain", "path": "/elsewhere/t.csv", "images": "pictures"}}}
    changes = {
        "raw_pairs": (raw | {"sources": sources}, {"/elsewhere/t.csv", "pictures"}),
        "embed": (embed | {"backend": "precomputed", "vectors": "v/{task}.npy"}, {"v/${key}.npy"}),
        "filter": (filter | {"already_selected": "kept.npy"}, {"kept.npy"}),
        "gedit_bench": (values["gedit_bench"] | {"path": "bench", "images": "pictures"}, {"bench", "pictures"}),
    }
    for stage, (section, files) in changes.items():
        deps = body(stage)["deps"]
        added = graph.wanted(stage, deps, values | {stage: section})
        assert set(added) - set(deps) == files
        assert graph.wanted(stage, added, values) == deps


@pytest.mark.parametrize(
    "sources",
    [
        None,
        "probe",
        ["a"],
        {"x": None},
        {"color_alter": "probe"},
        {"color_alter": {"a": None, "b": "probe"}},
        {"color_alter": {"a": {"format": "plain", "path": 3, "images": None}, "b": {"path": ""}}},
    ],
)
def test_sources_without_a_path_give_no_dep(sources: object) -> None:
    values = params.load(ROOT / "params.yaml")
    assert graph.collected("raw_pairs", values | {"raw_pairs": {"sources": sources}}) == []


def test_a_model_that_is_imported_stands_in_the_arena() -> None:
    deps, values = body("compare_models")["deps"], params.load(ROOT / "params.yaml")
    added = graph.wanted("compare_models", deps, values | {"imported": {"nano": {"path": "elsewhere"}}})
    assert set(added) - set(deps) == {"data/gallery/nano.parquet"}
    assert graph.wanted("compare_models", added, values | {"imported": None}) == deps
    assert "${item.path}" in body("import_gallery")["deps"]


def test_every_task_has_thresholds_and_a_recipe() -> None:
    values = params.load(ROOT / "params.yaml")
    for task, folder in values["tasks"].items():
        assert (ROOT / f"pipelines/{folder}/{task}.yaml").is_file()
        assert folder == "vlm_as_a_judge" or task in values["train_pairs"]["thresholds"]


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


@pytest.mark.parametrize("profile", sorted((ROOT / "profiles").iterdir()), ids=lambda file: file.name)
def test_profiles_override_keys_that_exist(profile: Path) -> None:
    """But for those marked by ++, which add a field to a section that exists."""
    values, words = params.load(ROOT / "params.yaml"), profile.read_text().split()
    assert set(words[::2]) == {"-S"}
    for override in words[1::2]:
        key, _, value = override.partition("=")
        if key.startswith("++"):
            assert isinstance(params.leaf(values, key[2:].rpartition(".")[0]), dict), key
        else:
            assert isinstance(yaml.safe_load(value), type(params.leaf(values, key))), key


def test_params_survive_a_round_trip_of_yaml(tmp_path: Path) -> None:
    text = (ROOT / "params.yaml").read_text()
    loaded = YAML(typ="safe").load(text)
    assert loaded == yaml.safe_load(text)


@pytest.mark.parametrize("stage", [stage for stage in STAGES if stage not in NEED_TORCH])
def test_a_stage_without_torch_imports_none(stage: str) -> None:
    code = f"import sys, editjudge.{stage}; sys.exit('torch' in sys.modules or 'transformers' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_name_with_a_dot_is_one_that_dvc_cannot_find() -> None:
    dvc, values = yaml.safe_load((ROOT / "dvc.yaml").read_text()), params.load(ROOT / "params.yaml")
    assert graph.dotted(dvc, values) == []
    values["editors"] |= {"qwen-2.5": {}}
    values["imported"] = {"gpt.1": {}, "gpt_1": {}}
    assert sorted(graph.dotted(dvc, values)) == ["editors.qwen-2.5", "imported.gpt.1"]
