"""The folders of the measures' models: all that can be wrong is an error that names the params field."""

import functools
import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import tiny_models
import tiny_people
from safetensors.torch import load_file, save_file

from editjudge.core.params import ParamsError
from editjudge.vision import folders
from editjudge.vision.detectors import GroundingDino
from editjudge.vision.encoders import ClipEncoder
from editjudge.vision.segmenters import FaceParser

WHERE = "measures.clip.model"
CONFIG, PROCESSOR = "config.json", "preprocessor_config.json"
MADE: dict[str, tuple[Callable[[Path], Path], folders.Architecture]] = {
    "clip": (functools.partial(tiny_models.write, "clip"), folders.CLIP),
    "depth": (functools.partial(tiny_models.write, "depth"), folders.DEPTH_ANYTHING),
    "parser": (tiny_people.write_parser, folders.SEGFORMER),
    "pose": (lambda at: tiny_people.write_pose(at, 1), folders.VITPOSE),
    "detector": (tiny_models.save_detector, folders.GROUNDING_DINO),
    "towers": (tiny_models.clip_folder, folders.CLIP_TOWERS),
    "dinov2": (tiny_models.dinov2_folder, folders.DINOV2),
}


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    return functools.cache(lambda kind: MADE[kind][0](tmp_path_factory.mktemp(kind)))


@pytest.fixture
def own(sound: Callable[[str], Path], tmp_path: Path) -> Callable[[str], Path]:
    """A folder of a kind, of which the test may change what it likes."""
    return lambda kind: Path(shutil.copytree(sound(kind), tmp_path / kind))


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
        (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": weights}))

    return change


def without(name: str) -> Callable[[Path], None]:
    return lambda folder: (folder / name).unlink()


def written(name: str, data: bytes) -> Callable[[Path], object]:
    return lambda folder: (folder / name).write_bytes(data)


def with_rows(name: str, count: int) -> Callable[[Path], None]:
    """So many rows of a weight are left; of 0, the file lacks it."""

    def change(folder: Path) -> None:
        weights = load_file(folder / "model.safetensors")
        cut = weights.pop(name)[:count].contiguous()
        save_file(weights | ({name: cut} if count else {}), folder / "model.safetensors", {"format": "pt"})

    return change


PICKLED = "has no model.safetensors; .* name a revision of the hub that has them, as in owner/name@refs"


def unnamed(folder: Path) -> None:
    names = json.loads((folder / CONFIG).read_text())["id2label"]
    rewritten(CONFIG, id2label={n: f"LABEL_{n}" for n in names})(folder)


WRONG: list[tuple[str, Callable[[Path], object], str]] = [
    ("clip", without(CONFIG), "has no config.json"),
    ("clip", written(CONFIG, b"{"), "config.json is not JSON"),
    ("clip", written(CONFIG, b"\xff\xfe{}"), "is not JSON"),
    ("clip", written(CONFIG, b"[1]"), "holds no JSON object"),
    ("clip", rewritten(CONFIG, model_type="dinov2"), "type 'dinov2', not clip or clip_vision_model"),
    ("clip", without(PROCESSOR), "has no preprocessor_config.json"),
    ("clip", lambda at: (at / "model.safetensors").rename(at / "pytorch_model.bin"), PICKLED),
    ("clip", rewritten(PROCESSOR, image_mean=None), "image_mean must be a list, not None"),
    ("clip", rewritten(PROCESSOR, image_std=[0.2, 0, 0.2]), "image_std.1 must be above 0"),
    ("clip", rewritten(PROCESSOR, resample=77), "resample must be at most 5, not 77"),
    ("depth", rewritten(PROCESSOR, keep_aspect_ratio=False), "keep_aspect_ratio must be True, not False"),
    ("depth", rewritten(PROCESSOR, ensure_multiple_of=None), "ensure_multiple_of must be a whole number, not None"),
    ("depth", rewritten(PROCESSOR, size={"height": 70, "width": 84}), "size must be a whole number, not {"),
    ("depth", rewritten(PROCESSOR, size=None), "size must be a whole number, not None"),
    ("parser", rewritten(CONFIG, model_type="vitpose"), "holds a model of type 'vitpose', not segformer"),
    ("parser", unnamed, "has no hair: not a model such as jonathandinu/face-parsing"),
    ("parser", rewritten(CONFIG, id2label=None), "id2label must have fields"),
    ("parser", rewritten(PROCESSOR, size={"shortest_edge": 64}), "size.* must be height or width"),
    ("pose", unnamed, "has no L_Shoulder, R_Shoulder, L_Elbow"),
    ("detector", rewritten(CONFIG, model_type="clip"), "holds a model of type 'clip', not grounding-dino"),
    ("detector", rewritten(PROCESSOR, size=800), "size must have fields of its own, not 800"),
    ("detector", without("tokenizer.json"), "has no tokenizer.json"),
    ("towers", rewritten(CONFIG, model_type="dinov2"), "type 'dinov2', not clip"),
    ("dinov2", rewritten(PROCESSOR, crop_size=None), "crop_size must be a whole number, not None"),
]


@pytest.mark.parametrize(("kind", "change", "words"), WRONG, ids=lambda value: value if isinstance(value, str) else "")
def test_a_wrong_folder_is_an_error_that_names_the_field(kind, change, words, own) -> None:
    folder = own(kind)
    assert folders.find(WHERE, str(folder), MADE[kind][1]) == folder
    change(folder)
    with pytest.raises(ParamsError, match=rf"^measures\.clip\.model: .*{words}"):
        folders.find(WHERE, str(folder), MADE[kind][1])


LOADED: list[tuple[str, Callable[[Path], object], str]] = [
    ("clip", written("model.safetensors", b"x" * 99), "cannot be loaded"),
    ("clip", written("model.safetensors", b""), "cannot be loaded"),
    ("clip", sharded("model-00001-of-00002.safetensors"), "cannot be loaded: .*model-00001"),
    ("clip", sharded("../secret.safetensors"), "names ../secret.safetensors, which is no file of the folder"),
    ("clip", rewritten("model.safetensors.index.json", weight_map=3), "is no index of weights"),
    ("clip", with_rows("vision_model.post_layernorm.bias", 0), "post_layernorm.bias"),
    ("clip", with_rows("visual_projection.weight", 0), "lacks 1 weights .*visual_projection.weight"),
    ("clip", with_rows("visual_projection.weight", 5), "visual_projection.weight"),
    ("clip", rewritten(CONFIG, hidden_size="wide"), "cannot be loaded: .*hidden_size"),
    ("clip", rewritten(CONFIG, num_attention_heads=5), "not a multiple of the number of attention heads"),
    ("clip", rewritten(CONFIG, image_size=[64, 32]), "cannot be loaded"),
    ("parser", rewritten(CONFIG, depths=[2, 1, 1, 1]), "lacks [0-9]+ weights"),
    ("detector", written("tokenizer.json", b'{"version": "1.0", "model": {}}'), "no tokenizer that can be used"),
]


@pytest.mark.parametrize(("kind", "change", "words"), LOADED, ids=lambda value: value if isinstance(value, str) else "")
def test_wrong_weights_are_an_error_not_filled_by_chance(kind, change, words, own) -> None:
    change(folder := own(kind))
    with pytest.raises(ParamsError, match=rf"^measures\.clip\.model: .*{words}"):
        {"clip": ClipEncoder, "parser": FaceParser, "detector": GroundingDino}[kind](WHERE, str(folder))


def test_stages_look_into_folders_without_torch(sound: Callable[[str], Path]) -> None:
    code = (
        "import sys; from editjudge.stages import annotate; from editjudge.vision import folders;"
        "[folders.find('a', f, k) for f, k in zip(sys.argv[1:], (folders.SEGFORMER, folders.VITPOSE), strict=True)];"
        "sys.exit('torch' in sys.modules or 'transformers' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code, sound("parser"), sound("pose")], check=False).returncode == 0


@pytest.mark.parametrize("model", ["@main", "a/b@", "openai/clip", "/models/none", "~/x"])
def test_a_model_that_is_nowhere_is_an_error_that_says_what_to_do(model: str) -> None:
    with pytest.raises(ParamsError, match=r"measures\.clip\.model: no folder .*such as openai/clip-vit-base-patch32"):
        folders.find(WHERE, model, folders.CLIP)


@pytest.mark.parametrize("device", ["cuda:99", "abacus", "xla"])
def test_a_device_that_is_not_there_is_an_error_that_names_the_field(device: str, sound) -> None:
    with pytest.raises(ParamsError, match=rf"^measures\.clip\.model: its device '{device}' cannot be used here"):
        ClipEncoder(WHERE, str(sound("clip")), device)
