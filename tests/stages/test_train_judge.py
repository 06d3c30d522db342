"""Stage train_judge: killed and gone on, as one and as two processes, and what it refuses."""

import copy
import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import psutil
import pytest
import torch
import training_pairs
from pictures import png

from editjudge.core import images, params, records
from editjudge.core.files import keep
from editjudge.engine import launch as sft_launch
from editjudge.engine import ray
from editjudge.models.chat.checkpoint import load_processor
from editjudge.models.serve.launch import free_port
from editjudge.stages import train_judge
from editjudge.training import lesson, runs
from editjudge.training.samples import Trained, image_names

ROOT = Path(__file__).parents[2]
SMALL = {"lora_rank": 4, "lora_alpha": 8, "lora_dropout": 0.1, "learning_rate": 1e-3, "max_steps": 12}
SMALL |= {"batch_size": 4, "global_batch": 4, "log_every": 1, "eval_every": 5, "save_every": 2}
SMALL |= {"held_out_share": 0.2, "test_share": 0.1}
OUTPUTS = ["models/adapter/adapter_model.safetensors", "models/adapter/adapter_config.json", "plots/train_loss.csv"]
OUTPUTS += ["plots/train_eval.csv", "metrics/train_judge.json"]
VALUES = params.load(ROOT / "params.yaml")


def pictures(count: int) -> dict[tuple[str, str], bytes | None]:
    """The good edit is the source."""
    first = {"source": 0, "good": 0, "bad": 1000}
    return {(name, f"p{i}"): png(first[name] + i, 32, 32) for i in range(count) for name in first}


Project = Callable[..., Path]
ROOMS = ("core", "engine", "judges/protocol.py", "judges/styles.py", "models", "stages/train_judge.py", "training")
READ = ("configs/deepspeed", "constraints.txt", "models/tiny_base", "params.yaml", "stages")
TRAINING = pytest.mark.nightly(*READ, *(f"src/editjudge/{name}" for name in ROOMS))


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Project]:
    """project(name, images, **settings): a folder with params, pairs and the tiny base, and the working directory."""

    def make(name: str, shown: dict[tuple[str, str], bytes | None], **settings: object) -> Path:
        folder = training_pairs.project(tmp_path / name, values_with(**settings), monkeypatch)
        pairs = [training_pairs.pair(int(key[1:])) for model, key in shown if model == "good"]
        training_pairs.write(folder, pairs, shown)
        return folder

    with training_pairs.one_thread(monkeypatch):
        yield make


def values_with(**settings: object) -> dict:
    values = copy.deepcopy(VALUES)
    launch = {"processes": 1, "port": free_port("127.0.0.1", 0)} | settings.pop("launch", {})
    values["train_judge"] |= SMALL | settings | {"launch": launch}
    return values


def outputs(folder: Path) -> dict[str, bytes]:
    return {name: (folder / name).read_bytes() for name in OUTPUTS}


def losses(folder: Path) -> np.ndarray:
    return np.loadtxt(folder / "plots/train_loss.csv", delimiter=",", skiprows=1, ndmin=2)[:, 1]


@TRAINING
def test_killed_anywhere_it_ends_as_if_it_had_not_been(project: Project):
    """SIGKILL at a random moment after a random checkpoint; of 24 pairs 18 are trained on."""
    pairs, fewer = pictures(24), {"max_steps": 8, "eval_every": 3}
    whole = project("whole", pairs, **fewer)
    runs.carry_out(train_judge.job())
    assert json.loads((whole / "metrics/resume/train_judge.json").read_text())["resumed_from"] is None
    assert not any((whole / "work/train_judge").iterdir()), "nothing is left of a training that has ended"
    folder, rng = project("killed", pairs, **fewer), np.random.default_rng(1)
    step = int(rng.choice([2, 4]))
    training_pairs.kill_after(folder, train_judge.job().command, step, rng.uniform(0.0, 0.1))
    assert not (folder / "metrics/train_judge.json").exists(), "killed too late"
    assert 0 < len(losses(folder)) < 8, "the curve is there while it trains"
    runs.carry_out(train_judge.job())
    assert json.loads((folder / "metrics/resume/train_judge.json").read_text())["resumed_from"] >= step
    assert outputs(folder) == outputs(whole)


@TRAINING
def test_two_processes_train_as_one_does(project: Project, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """By ZeRO-2, the same pairs a step; without dropout, whose random numbers are each process's own."""
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(tmp_path / "compiled"))
    setting = {"lora_dropout": 0.0, "max_steps": 8, "eval_every": 8, "save_every": 8}
    pairs = pictures(24)
    for key in [f"p{i}" for i in range(0, 24, 2)]:  # so that some answers are wrong
        pairs["good", key], pairs["bad", key] = pairs["bad", key], pairs["good", key]
    one = project("one", pairs, **setting)
    runs.carry_out(train_judge.job())
    two = project("two", pairs, **setting, deepspeed="zero2", launch={"processes": 2})
    runs.carry_out(train_judge.job())
    assert len(losses(one)) == 8
    metrics = [records.read_details(folder / "metrics/train_judge.json") for folder in (one, two)]
    assert metrics[0]["test"] == metrics[1]["test"]
    assert metrics[0]["gain"]["n"] == 2
    assert metrics[0]["details"][0]["pairs"] == {"trained_on": 18, "held_out": 4, "tested": 2}
    np.testing.assert_allclose(losses(two), losses(one), rtol=0, atol=1e-4)
    alone = project("alone", pairs, **setting, deepspeed="zero2")
    runs.carry_out(train_judge.job())
    np.testing.assert_allclose(losses(alone), losses(one), rtol=0, atol=1e-4)
    assert not (tmp_path / "compiled").exists(), "nothing is compiled for a CPU, which takes minutes"


@pytest.fixture
def ray_here(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A training on Ray starts a cluster of this machine, which ends here."""
    ray = pytest.importorskip("ray", reason="the extra ray, which the set-up of the tests installs")
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    yield
    ray.shutdown()


@TRAINING
def test_a_ray_cluster_trains_as_torchrun_does_though_a_worker_is_killed(project: Project, ray_here: None):
    setting = {"max_steps": 8, "eval_every": 4, "save_every": 2}
    pairs = pictures(24)
    here = project("here", pairs, **setting, launch={"processes": 2})
    runs.carry_out(train_judge.job())
    folder = project("ray", pairs, **setting, launch={"launcher": "ray", "processes": 2})
    killing = threading.Thread(target=kill_ray_worker, args=(folder, 4), daemon=True)
    killing.start()
    runs.carry_out(train_judge.job())
    killing.join()
    assert json.loads((folder / "metrics/resume/train_judge.json").read_text())["resumed_from"] >= 4
    assert outputs(folder) == outputs(here)
    assert not any((folder / "work/train_judge").iterdir())


def kill_ray_worker(folder: Path, step: int) -> None:
    """SIGKILL to one of Ray Train's workers as soon as there is a checkpoint of the step."""
    while not [*folder.glob(f"work/train_judge/*/checkpoints/checkpoint-{step}/whole")]:
        time.sleep(0.05)
    found = psutil.process_iter(["cmdline"])
    next(each for each in found if "RayTrainWorker" in " ".join(each.info["cmdline"] or [])).kill()


def test_a_process_for_each_of_the_gpus_and_no_more_of_them(monkeypatch: pytest.MonkeyPatch):
    left_open = replace(train_judge.read_setting(VALUES).launch, processes=0)
    for gpus, processes in ((8, 8), (1, 1), (0, 1)):
        monkeypatch.setattr(torch.cuda, "device_count", lambda gpus=gpus: gpus)
        assert runs.started(left_open).processes == processes
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 8)
    assert [sft_launch.device(processes) for processes in (1, 8, 9)] == ["cuda", "cuda", "cpu"]


@TRAINING
def test_one_process_on_a_machine_with_several_gpus_is_launched(project: Project, monkeypatch: pytest.MonkeyPatch):
    """There it would take all GPUs in a way that trl refuses; here the launched process finds none."""
    folder = project("alone", pictures(24), max_steps=1, held_out_share=0.0, test_share=0.0, launch={"processes": 1})
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(runs, "train", None)
    runs.carry_out(train_judge.job())
    assert len(losses(folder)) == 1


@TRAINING
def test_a_process_that_fails_stops_the_others_and_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    code = """import os, time
if os.environ["RANK"] == "0":
    time.sleep(3600)
from editjudge.engine import launch as sft_launch
from editjudge.engine import ray
def fail():
    raise ValueError("training sample k7: a: broken image")
sft_launch.worker(fail)
"""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("DS_ACCELERATOR", "cpu")
    with pytest.raises(sft_launch.TrainingError, match=r"process 1 .* ValueError: training sample k7: a: broken image"):
        sft_launch.start(train_judge.read_setting(values_with(launch={"processes": 2})).launch, ["-c", code])


def test_what_ray_cannot_run_is_told_in_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trainers = pytest.importorskip("ray.train.v2.torch.torch_trainer")
    exceptions = pytest.importorskip("ray.train.v2.api.exceptions")

    def fit(_: object) -> None:
        raise exceptions.ControllerError(RuntimeError("no room"))

    monkeypatch.setattr(trainers.TorchTrainer, "fit", fit)
    monkeypatch.setattr(ray, "gpus", lambda: 0)
    setting = train_judge.read_setting(values_with(launch={"processes": 2, "launcher": "ray"}))
    with pytest.raises(sft_launch.TrainingError, match=r"^Ray could not run the training: [^\n]*\nno room"):
        sft_launch.start(setting.launch, [str(tmp_path)])


def test_a_process_ends_without_its_threads(tmp_path: Path) -> None:
    """Gloo's, alive when Python ends, abort a process that has trained, now and then (pytorch issue 190489)."""
    code = f"""
import torch.distributed as group
from editjudge.engine import launch
launch.worker(lambda: group.init_process_group("gloo", init_method="file://{tmp_path}/met", rank=0, world_size=1))
assert not group.is_initialized()
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_sample_that_cannot_be_shown_stops_the_run_or_is_left_out_and_listed(project: Project):
    project("empty", {})
    with pytest.raises(ValueError, match=r"^data/train_pairs.* has no row that train_judge could learn from"):
        runs.carry_out(train_judge.job())
    shown = pictures(7)
    shown |= {("bad", "p3"): png(3, 32, 32)[:200], ("good", "p5"): images.encode_png(np.zeros((1, 201, 3), np.uint8))}
    shown |= {("bad", "p1"): None}
    del shown["source", "p6"]
    folder = project("broken", shown)
    job = train_judge.job()
    pairs, lenient = job.read_rows(), replace(job, setting=replace(job.setting, skip_failed=True))
    with pytest.raises(ValueError, match=r"4 training samples cannot be used .* k3: a: broken image"):
        runs.list_skipped(job, pairs, folder / "run")
    assert not (folder / "run").exists()
    runs.list_skipped(lenient, pairs, folder / "run")
    skipped = runs.skipped_of(folder / "run")
    assert image_names(vars(job.samples(pairs)[0])) == {
        "source": "data/pools/subject_remove.parquet/p0", "a": "data/candidates/good/subject_remove.parquet/p0",
        "b": "data/candidates/bad/subject_remove.parquet/p0",
    }  # fmt: skip
    reasons = {row["key"]: row["reason"] for row in skipped}
    assert list(reasons) == ["k1", "k3", "k5", "k6"]
    assert reasons["k1"] == "a: not a PNG, JPEG or WebP image"
    assert reasons["k5"] == "b: 201 x 1 pixels, more slender than 1 to 200"
    assert reasons["k6"] == "source: missing from data/pools/subject_remove.parquet"
    prepare = lesson.Prepare(load_processor("models/tiny_base"), job.lesson().columns, shown, 0, False)
    for key, name in (("k3", "bad"), ("k5", "good")):
        with pytest.raises(ValueError, match=f"training sample {key}: a"):
            prepare.resized(key, "a", (name, f"p{key[1]}"))


def test_the_report_has_intervals_over_photos(project: Project, capsys: pytest.CaptureFixture):
    """64 pairs, of which three in four are right: of four photos, or each of its own."""
    row = {"step": 4, "loss": 0.5, "eval_loss": 0.9, "eval_accuracy": None}
    folder, first = project("told", pictures(2)), row | {"step": 0, "loss": None, "eval_loss": 0.8}
    history = [first, row | {"step": 2, "loss": 0.7}, row]
    said = [[[0.0]] * 64, [[float(n % 4 > 0)] for n in range(64)]]
    trained = Trained(history, [f"k{n}" for n in range(64)], said, (9, 2, 64), 5, 200, None, 2.0, 50, 7)
    of_four, alone = ({f"k{n}": f"photo{n // 16 if few else n}" for n in range(64)} for few in (True, False))
    told = train_judge.report(trained, of_four)
    assert (told["test"]["accuracy"], told["test_untrained"]["accuracy"], told["gain"]["difference"]) == (0.75, 0, 0.75)
    assert (told["gain"]["p"], train_judge.report(trained, alone)["gain"]["p"] < 0.001) == (2 / 16, True)
    skipped = [{"key": "k9", "reason": "broken"}]
    keep(folder / "run/skipped.json", json.dumps(skipped).encode())
    keep(folder / "run/trained.json", json.dumps(vars(trained) | {"tested": [], "answers": []}).encode())
    job = train_judge.job()
    runs.write_results(job, job.read_rows(), folder / "run", Path("models/tiny_base"))
    written = records.read_details(folder / "metrics/train_judge.json")
    assert (written["loss"], written["gain"]) == (0.5, None)
    told = {"base": job.setting.base, "skipped": skipped, "steps": 5, "tokens": 200, "kept_step": 0}
    told |= {"pairs": {"trained_on": 9, "held_out": 2, "tested": 64}}
    assert written["details"][0] | told == written["details"][0]
    now = json.loads((folder / "metrics/resume/train_judge.json").read_text())
    assert now == {"resumed_from": None, "seconds": 2.0, "tokens_per_second": 25.0, "peak_memory_bytes": 7}
    assert "train_judge: no step was better than the base on the held-out rows" in capsys.readouterr().err


def test_a_changed_training_has_another_name(tmp_path: Path):
    setting, files = VALUES["train_judge"], [tmp_path / "pairs", tmp_path / "images"]
    for file in files:
        file.write_text("a")

    def named(processes: int = 1, count: int = 2, **changes: object) -> str:
        return runs.fingerprint(setting | changes, processes, files[:count], "editjudge.stages.train_judge")

    name = named()
    assert named(save_every=20, keep_checkpoints=5, launch={"port": 1}) == name
    names = {name, named(learning_rate=1.0), named(processes=2), named(count=1)}
    files[1].write_text("b")
    assert len(names | {named()}) == 5


@pytest.mark.parametrize("name", sorted(file.stem for file in (ROOT / "configs/deepspeed").glob("*.json")))
def test_deepspeed_configurations_are_what_their_names_say(name: str):
    assert train_judge.read_setting(values_with(deepspeed=name)).deepspeed == name
    zero = json.loads((ROOT / f"configs/deepspeed/{name}.json").read_text())["zero_optimization"]
    assert zero["stage"] == int(name[4])
    assert ("offload_optimizer" in zero) == name.endswith("offload")
    assert ("offload_param" in zero) == (name == "zero3_offload")


def test_one_training_a_folder(tmp_path: Path):
    for _ in range(2):
        refused = pytest.raises(sft_launch.TrainingError, match="another process")
        with sft_launch.alone(tmp_path), refused, sft_launch.alone(tmp_path):
            pass
