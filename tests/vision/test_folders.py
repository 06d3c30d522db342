"""The folders of the measures' models: all that can be wrong is an error that names the params field."""

import json
from collections.abc import Callable
from pathlib import Path

import huggingface_hub
import pytest
import tiny_models
from safetensors.torch import load_file, save_file

from editjudge.core.params import ParamsError
from editjudge.vision import folders
from editjudge.vision.encoders import ClipEncoder

WHERE = "measures.clip.model"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tiny_models.save(tiny_models.clip(), tmp_path / "clip", tiny_models.CLIP_PROCESSOR)


def rewritten(name: str, **values: object) -> Callable[[Path], None]:
    """Changes fields of a JSON file of the folder."""

    def change(folder: Path) -> None:
        file = folder / name
        content = json.loads(file.read_text()) if file.exists() else {}
        file.write_text(json.dumps(content | values))

    return change


def sharded(*names: str) -> Callable[[Path], None]:
    """Weights of which an index names the files."""

    def change(folder: Path) -> None:
        (folder / "model.safetensors").unlink()
        weights = {f"w{n}": name for n, name in enumerate(names)}
        (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weights}))

    return change


def pickled(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")


def without_a_weight(name: str) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        weights = load_file(folder / "model.safetensors")
        del weights[name]
        save_file(weights, folder / "model.safetensors", {"format": "pt"})

    return change


def with_a_smaller_weight(folder: Path) -> None:
    weights = load_file(folder / "model.safetensors")
    weights["visual_projection.weight"] = weights["visual_projection.weight"][:5].contiguous()
    save_file(weights, folder / "model.safetensors", {"format": "pt"})


WRONG: dict[str, tuple[Callable[[Path], object], str]] = {
    "no_config": (lambda folder: (folder / "config.json").unlink(), "has no config.json"),
    "broken_config": (lambda folder: (folder / "config.json").write_text("{"), "config.json is not JSON"),
    "config_of_another_coding": (lambda folder: (folder / "config.json").write_bytes(b"\xff\xfe{}"), "is not JSON"),
    "config_no_object": (lambda folder: (folder / "config.json").write_text("[1]"), "holds no JSON object"),
    "another_model": (rewritten("config.json", model_type="dinov2"), "type 'dinov2', not clip or clip_vision_model"),
    "no_processor": (lambda folder: (folder / "preprocessor_config.json").unlink(), "has no preprocessor_config.json"),
    "no_projection": (without_a_weight("visual_projection.weight"), "hold no visual_projection.weight"),
    "pickled": (
        pickled,
        "has no model.safetensors; .* name a revision of the hub that has them, as in owner/name@refs",
    ),
    "broken_weights": (
        lambda folder: (folder / "model.safetensors").write_bytes(b"x" * 99),
        "not readable as safetens",
    ),
    "empty_weights": (lambda folder: (folder / "model.safetensors").write_bytes(b""), "not readable as safetensors"),
    "mean_missing": (rewritten("preprocessor_config.json", image_mean=None), "image_mean must be three numbers"),
    "std_of_0": (rewritten("preprocessor_config.json", image_std=[0.2, 0, 0.2]), "image_std must be above 0"),
    "resample_unknown": (rewritten("preprocessor_config.json", resample=77), "resample is 77"),
    "a_shard_missing": (sharded("model-00001-of-00002.safetensors"), "no file .*model-00001"),
    "a_shard_elsewhere": (sharded("../secret.safetensors"), "no weight_map of file names"),
    "no_weight_map": (
        lambda f: (sharded()(f), rewritten("model.safetensors.index.json", weight_map=3)(f)),
        "weight_map",
    ),
}


@pytest.mark.parametrize("wrong", sorted(WRONG))
def test_a_wrong_folder_is_an_error_that_names_the_field(wrong: str, folder: Path) -> None:
    change, words = WRONG[wrong]
    assert folders.find(WHERE, str(folder), folders.CLIP) == folder
    change(folder)
    with pytest.raises(ParamsError, match=rf"^measures\.clip\.model: .*{words}"):
        folders.find(WHERE, str(folder), folders.CLIP)


LOADED: dict[str, tuple[Callable[[Path], object], str]] = {
    "a_weight_missing": (without_a_weight("vision_model.post_layernorm.bias"), "post_layernorm.bias"),
    "a_weight_of_another_shape": (with_a_smaller_weight, "visual_projection.weight"),
    "size_no_number": (rewritten("config.json", hidden_size="wide"), "config.json: .*hidden_size"),
    "heads_do_not_divide": (
        rewritten("config.json", num_attention_heads=5),
        "not a multiple of the number of attention heads",
    ),
    "size_not_square": (rewritten("config.json", image_size=[64, 32]), "image_size"),
}


@pytest.mark.parametrize("wrong", sorted(LOADED))
def test_wrong_weights_are_an_error_not_filled_by_chance(wrong: str, folder: Path) -> None:
    change, words = LOADED[wrong]
    change(folder)
    with pytest.raises(ParamsError, match=rf"^measures\.clip\.model: .*{words}"):
        ClipEncoder(WHERE, str(folder))


@pytest.mark.parametrize(
    "model", ["@main", "a/b@", "models/none", "openai/clip", "/models/none", "../none", "none", "a/b/c", "a b/c", "~/x"]
)
def test_a_model_that_is_nowhere_is_an_error_that_says_what_to_do(model: str) -> None:
    with pytest.raises(ParamsError, match=r"measures\.clip\.model: no folder .*such as openai/clip-vit-base-patch32"):
        folders.find(WHERE, model, folders.CLIP)


@pytest.mark.parametrize("device", ["cuda:99", "abacus", "xla"])
def test_a_device_that_is_not_there_is_an_error_that_names_the_field(device: str, folder: Path) -> None:
    with pytest.raises(ParamsError, match=rf"^measures\.clip\.model: its device '{device}' cannot be used here"):
        ClipEncoder(WHERE, str(folder), device)


def test_a_hub_id_in_the_cache_is_found(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # models.lock lies there
    commit = "0123456789abcdef0123456789abcdef01234567"
    snapshot = tmp_path / "hub/models--owner--clip/snapshots" / commit
    snapshot.parent.mkdir(parents=True)
    folder.rename(snapshot)
    (tmp_path / "hub/models--owner--clip/refs").mkdir()
    (tmp_path / "hub/models--owner--clip/refs/main").write_text(commit)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    assert folders.find(WHERE, "owner/clip", folders.CLIP) == snapshot
    request = tmp_path / "hub/models--owner--clip/refs/refs/pr/7"
    request.parent.mkdir(parents=True)
    request.write_text(commit)
    assert folders.find(WHERE, "owner/clip@refs/pr/7", folders.CLIP) == snapshot
    assert folders.find(WHERE, f"owner/clip@{commit}", folders.CLIP) == snapshot
    with pytest.raises(ParamsError, match="no folder owner/clip@refs/pr/8"):
        folders.find(WHERE, "owner/clip@refs/pr/8", folders.CLIP)
    with pytest.raises(ParamsError, match="no folder owner/other"):
        folders.find(WHERE, "owner/other", folders.CLIP)
