"""Profiles: what they make of params.yaml and dvc.yaml, and what they say beforehand that they need."""

import contextlib
import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import program
import pytest
import yaml
from cases import yaml_beside
from ruamel.yaml import YAML

from editjudge.core import hub, params
from editjudge.core.params import ParamsError
from editjudge.core.settings import section
from editjudge.editors import settings as editors
from editjudge.editors.settings import DiffusersSetting
from editjudge.judges import styles
from editjudge.judges.protocol import CONSISTENCY
from editjudge.judges.styles import TASKS, style
from editjudge.measures.annotation.recipe import load_recipes
from editjudge.stages.graph.check import wrong
from editjudge.training.settings import TrainJudgeSetting
from tools import plan, settings

ROOT = Path(__file__).parents[2]
NAMES = sorted(path.stem for path in (ROOT / "profiles").iterdir())
READY = yaml.safe_load((ROOT / "configs/editors.yaml").read_text())


def applied(name: str) -> dict[str, Any]:
    values = YAML().load((ROOT / "params.yaml").read_text())
    with contextlib.chdir(ROOT):
        settings.apply(values, name)
    return json.loads(json.dumps(values))


def test_null_takes_away_and_new_keys_stand_first() -> None:
    values = YAML().load("a: {b: 1, c: [1, 2]}\nd: 2\n# of e\ne: 3\n")
    settings.merge(values, {"a": {"b": None, "c": [3]}, "f": {"g": {"h": 4}}, "d": 5, "none": None})
    assert json.loads(json.dumps(values)) == {"f": {"g": {"h": 4}}, "a": {"c": [3]}, "d": 5, "e": 3}
    assert list(values) == ["f", "a", "d", "e"]


@pytest.mark.parametrize("name", NAMES)
def test_a_profile_is_one_that_every_stage_reads(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    outs = [r"models/(judge|tiny_base|adapter)", r"data/probe_bench\.parquet"]
    brought = ("not found", "no file models/")  # before a profile runs
    assert [line for line in wrong(applied(name), outs) if not any(word in line for word in brought)] == []


def test_the_papers_profile_is_whole() -> None:
    values = applied("paper")
    assert len(values["tasks"]) == 18
    assert set(values["raw_pairs"]["sources"]) == set(values["tasks"])
    pools, arena = (set(editors.used(values["editors"], use)) for use in editors.USES)
    assert pools < arena == set(values["editors"])
    assert pools == set(applied("published")["editors"]), "the seven of the published pools"
    for name, given in values["editors"].items():
        assert {key: value for key, value in given.items() if key != "use"} == READY[name]
    assert not [given for given in values["judges"].values() if given["backend"] == "measures"]
    assert [given["form"] for given in values["benchmarks"].values()] == ["vcreward", "editscore"]
    assert values["gedit_bench"]["hub"]
    sources = [source for own in values["raw_pairs"]["sources"].values() for source in own.values()]
    assert "probe" not in {source["format"] for source in sources}
    assert min(source["most"] for source in sources if "most" in source) >= values["filter"]["sample_num"] == 1500
    training = section(values, "train_judge", TrainJudgeSetting)
    assert (training.augmentation, training.launch.processes) == ("none", 0), "0: one for each GPU"
    assert "@" in values["measures"]["clip"], "its main revision has no safetensors"
    asked = [*values["judges"].values(), *values["pairwise"]["judges"].values()]
    assert all("prompt" not in given for given in asked), "what was learnt; of others the recipe's, or the general one"
    assert training.prompt == "full"
    with contextlib.chdir(ROOT):
        recipes = load_recipes(values["tasks"])
    for task in TASKS:
        judging = recipes[task].judge
        assert judging is not None
        assert judging.dimension == CONSISTENCY
        for name in (judging.prompt, training.prompt):
            assert styles.told(task, "judges/prompts/tasks")["criteria"] in style(name, task=task).user
    served = [given for given in (*asked, *values["raters"].values()) if given["backend"] == "served"]
    assert values["serve"]["data_parallel"] == 0, "a copy on each GPU"
    at_once = 8 * values["serve"]["max_num_seqs"]
    assert {given.get("max_in_flight") for given in served} == {at_once}, "fewer leave GPUs idle"


def test_what_is_published_needs_nothing_that_nobody_has() -> None:
    values, paper = applied("published"), applied("paper")
    assert len(values["editors"]) == 7
    assert set(values["tasks"]) == set(values["raw_pairs"]["sources"]) < set(paper["raw_pairs"]["sources"])
    sources = [each for task in values["tasks"] for each in values["raw_pairs"]["sources"][task].values()]
    assert {each["format"] for each in sources} == {"nano_consistent", "unicedit", "pico_banana"}
    brought = [need.name for need in plan.needs(values) if need.data and not hub.is_id(need.name)]
    assert all("how" in plan.FACTS["models"][name] for name in brought), "each is told how to get"
    for name in ("train_judge", "benchmarks", "measures", "arena", "embed", "pairwise", "serve"):
        assert values[name] == paper[name], name


def test_the_rehearsal_is_the_papers_profile_but_for_numbers_and_the_engine() -> None:
    """No name of a model, data set, class, prompt or measure is another."""

    def leaves(node: Any, where: tuple[str, ...] = ()) -> dict[tuple[str, ...], Any]:
        if isinstance(node, dict):
            return {key: value for name, each in node.items() for key, value in leaves(each, (*where, name)).items()}
        return {where: node}

    paper, rehearsal = applied("paper"), applied("rehearsal")
    kinds = [{given.get("pipeline") for given in values["editors"].values()} for values in (paper, rehearsal)]
    assert kinds[0] == kinds[1], "an editor of each pipeline class, and one behind an API"
    paper, rehearsal = leaves(paper), leaves(rehearsal)
    assert {key[0] for key in set(paper) - set(rehearsal)} == {"editors"}
    numbers = {"private_hosts", "log_every", "pixels", "multiple"}
    assert {key[-1] for key in set(rehearsal) - set(paper)} == numbers | {"rule"}
    words = {key[-1] for key, value in rehearsal.items() if isinstance(value, str) and value != paper.get(key)}
    assert words == {"engine", "rule"}


def test_a_profile_is_put_into_params_and_dvc_yaml(tmp_path: Path) -> None:
    for name in ("params.yaml", "dvc.yaml", "profiles", "configs", "src", "tools"):
        subprocess.run(["cp", "-r", ROOT / name, tmp_path], check=True)
    command = [sys.executable, "-m", "editjudge", "profile", "paper"]
    subprocess.run(command, cwd=tmp_path, env=os.environ | {"PYTHONPATH": "src"}, check=True)
    text = (tmp_path / "params.yaml").read_text()
    assert yaml.safe_load(text) == applied("paper")
    words = [word for line in text.splitlines() for word in line.partition("#")[0].split()]
    assert not any(word.startswith(("&", "*")) for word in words), "no alias"
    graph = yaml.safe_load((tmp_path / "dvc.yaml").read_text())["stages"]
    assert list(graph["candidates"]["foreach"]) == list(applied("paper")["editors"])
    assert "data/sources/UnicEdit-10M" in graph["raw_sources"]["deps"]


def test_the_plan_says_all_that_is_needed_without_a_network(monkeypatch, capsys) -> None:
    def no_network(*given: Any) -> None:
        raise AssertionError("the network is asked")

    monkeypatch.setattr(socket.socket, "connect", no_network)
    monkeypatch.delenv("HF_TOKEN", raising=False)
    monkeypatch.chdir(ROOT)
    plan.plan("paper")
    said = capsys.readouterr().out
    values = applied("paper")
    for name in ("clip", "dinov3", "segmenter", "lpips", "depth", "parsing", "pose"):
        assert said.count(values["measures"][name]) >= 2, "its size and its memory"
    for entry in values["editors"].values():
        assert entry["model"] in said
    assert "HF_TOKEN: NOT SET" in said
    assert "accept it at huggingface.co/facebook/dinov3-vitb16-pretrain-lvd1689m" in said
    assert "by hand: hf download xiaotanhua/UnicEdit-10M" in said
    assert "http://127.0.0.1:25941/v1" in said
    assert "http://127.0.0.1:25932/v1" not in said, "stages start parsers and grounders"
    jobs = {job.stage: job for job in plan.jobs(values)}
    assert jobs["candidates@glm_image"].pieces == 1200 + 737 + 47 + 90 + 1212, "the arena and the suites, no pool"
    assert jobs["questions of the arena"].pieces == 1200 * 91 * 2, "91 pairs of 14 models, both orders, one judge"


def test_each_figure_of_the_published_profile_is_known_and_names_its_source(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    values = applied("published")
    said, jobs = plan.text(values), {job.stage: job for job in plan.jobs(values)}
    assert "unknown" not in said
    ours = params.load()
    assert "unknown" not in plan.text(ours), "of the shipped setting, too"
    made = json.loads(Path("metrics/suite_cases/imgedit_probe.json").read_text())[0]["records"]
    most = plan.questions(ours)["suite imgedit_probe"] / len(editors.used(ours["editors"], "benchmark"))
    assert made <= most == 19 * (6 + 3), "a reply an edit: of single ones, and of a dialogue's turns"
    for name in {job.rate for job in jobs.values()} | {"memory", "picture"}:
        given = plan.RATES[name]
        assert given["kind"] in ("measured", "published", "estimated")
        assert f"  {name}: {given['kind']}: {given['source']}" in said
    assert set(values["editors"]) == {stage[11:] for stage in jobs if stage.startswith("candidates@")}
    kontext, trained = jobs["candidates@flux1_kontext_dev"], jobs["train_judge"]
    pools = 14 * 1500
    assert kontext.pieces == pools + 1200
    assert kontext.hours == pytest.approx((pools * 28 + 1200 * 50) * 165 / (989 * 0.4) / 3600)
    assert (kontext.gpu, kontext.host, round(kontext.disk or 0)) == (34, 8 * 34, 42)
    assert trained.pieces == pytest.approx(pools * 128_000 / 27_000 * 3, rel=1e-3)
    assert 117 < (trained.hours or 0) * 3600 * 989 * 0.21 / (trained.pieces or 1) < 151, "TFLOP a pair, counted by hand"
    values["editors"]["qwen_image_edit"]["use"] = ["benchmark"]
    fewer = {job.stage: job for job in plan.jobs(values)}
    assert fewer["candidates@qwen_image_edit"].pieces == 1200
    assert fewer["annotate"].pieces == (jobs["annotate"].pieces or 0) * 6 / 7
    values["editors"]["flux1_kontext_dev"]["model"] = "nobody/heard-of-it"
    assert {job.stage: job.hours for job in plan.jobs(values)}["candidates@flux1_kontext_dev"] is None
    full = {"train_scorer": {"s": {**values["train_judge"], "data": "d", "lora_rank": 0, "deepspeed": "zero3"}}}
    job = [*plan.jobs(values | full | {"scorer_data": {"d": {"per_task": 10, "tasks": ["a"]}}})][-1]
    assert (job.stage, job.gpu, job.host) == ("train_scorer.s", 3 * 17.5, 3 * 8 * 17.5)


def test_what_is_not_known_is_said_to_be_unknown_and_the_shipped_setting_fetches_nothing() -> None:
    with contextlib.chdir(ROOT), pytest.raises(ParamsError, match=r"no profile 'papper'; did you mean paper"):
        list(settings.patches("papper"))
    values = applied("paper")
    values["measures"]["clip"] = "nobody/heard-of-it"
    values["benchmarks"] = {"own": {"form": "vcreward", "hub": "nobody/bench"}}
    with contextlib.chdir(ROOT):
        lines = plan.text(values).splitlines()
        assert "  in all 0 GB\n" in plan.text(params.load())
    assert [line.split()[1] for line in lines if "nobody/heard-of-it" in line and "clip" in line] == ["unknown"] * 2
    assert next(line for line in lines if "benchmark own" in line).split()[5:7] == ["unknown", "unknown"]


def test_facts_are_of_models_that_settings_name_and_have_a_source() -> None:
    here = [entry for entry in READY.values() if "api_key_env" not in entry]  # the others are their providers'
    named = {entry["model"].partition("@")[0] for entry in here} | {
        e["lora"]["model"] for e in READY.values() if "lora" in e
    }
    named |= {need.name.partition("@")[0] for need in plan.needs(applied("paper"))}
    named = {name for name in named if not name.startswith("data/sources/own/")} | {"models/tiny_base"}
    assert set(plan.FACTS["models"]) == named, "each is known or said to be unknown, and none is left over"
    for name, facts in plan.FACTS["models"].items():
        assert ("source" in facts) == ("gb" in facts or "memory" in facts), name
    assert all(hub.ID.fullmatch(name) or Path(name).parts[0] in ("models", "data") for name in plan.FACTS["models"])
    for name in READY:
        setting = editors.read({"editors": READY}, name)
        if isinstance(setting, DiffusersSetting) and setting.gpus_per_worker == 1:
            assert (plan.FACTS["models"][setting.model.partition("@")[0]].get("memory") or 0) <= 80, (
                f"{name} needs more than one GPU"
            )


PARAMS = yaml_beside(__file__)["PARAMS"]


def test_ready_editors_are_added_and_all_else_stays_as_it_was(workdir: Path) -> None:
    with pytest.raises(ParamsError, match=r"^params\.yaml not found"):
        program.run("add-editor flux3")
    Path("configs").symlink_to(ROOT / "configs")
    names = ["flux2_dev_turbo", "instruct_pix2pix"]
    Path("params.yaml").write_text(PARAMS)
    program.run(f"add-editor {' '.join(names)}")
    text = Path("params.yaml").read_text()
    before, after = yaml.safe_load(PARAMS), yaml.safe_load(text)
    assert after == before | {"editors": before["editors"] | {name: READY[name] for name in names}}
    kept = iter(text.splitlines())
    assert all(line in kept for line in PARAMS.splitlines()), "a line of the old text is gone or out of order"
    for values, name, told in (
        (PARAMS, "flux3", "no entry flux3; it has qwen_image_edit"),
        (PARAMS, "box", "no entry box"),
        (text, "instruct_pix2pix", "editors.instruct_pix2pix is in params.yaml already"),
        ("seed: 1\n", "glm_image", "no section editors"),
    ):
        Path("params.yaml").write_text(values)
        with pytest.raises(ParamsError, match=told):
            program.run(f"add-editor {name}")
        assert Path("params.yaml").read_text() == values


def test_the_ready_editors_of_a_form_are_added_by_its_name(workdir: Path) -> None:
    Path("configs").symlink_to(ROOT / "configs")
    for form, names in (("gemini", {"nano_banana_pro", "nano_banana_2"}), ("bfl", {"flux2_pro"})):
        Path("params.yaml").write_text(PARAMS)
        program.run(f"add-editor --api {form}")
        editors = yaml.safe_load(Path("params.yaml").read_text())["editors"]
        assert set(editors) == {"box", *names}
        assert {editors[name]["api"] for name in names} == {form}
