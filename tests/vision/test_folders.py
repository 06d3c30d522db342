"""The folders of the measures' models: all that can be wrong is an error that names the params field."""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cases import each_row
from safetensors.torch import load_file, save_file

from editjudge.core.params import ParamsError
from editjudge.vision import folders
from editjudge.vision.detectors import GroundingDino
from editjudge.vision.encoders import ClipEncoder
from editjudge.vision.segmenters import FaceParser

WHERE = "measures.clip.model"
Tiny = Callable[[str], Path]
ARCHITECTURES: dict[str, folders.Architecture] = {
    "clip": folders.CLIP,
    "depth": folders.DEPTH_ANYTHING,
    "parser": folders.SEGFORMER,
    "pose": folders.VITPOSE,
    "detector": folders.GROUNDING_DINO,
    "towers": folders.CLIP_TOWERS,
    "dinov2": folders.DINOV2,
}


@pytest.fixture
def own(tiny: Tiny, tmp_path: Path) -> Tiny:
    """A folder of a kind, of which the test may change what it likes."""
    return lambda kind: Path(shutil.copytree(tiny(kind), tmp_path / kind))


def rewritten(folder: Path, name: str, values: dict[str, Any]) -> None:
    """Changes fields of a JSON file."""
    file = folder / name
    content = json.loads(file.read_text()) if file.exists() else {}
    file.write_text(json.dumps(content | values))


def sharded(folder: Path, name: str) -> None:
    """Weights of which an index names the file."""
    (folder / "model.safetensors").unlink()
    index = {"metadata": {}, "weight_map": {"w0": name}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))


def without(folder: Path, name: str) -> None:
    (folder / name).unlink()


def renamed(folder: Path, name: str, other: str) -> None:
    (folder / name).rename(folder / other)


def written(folder: Path, name: str, data: str) -> None:
    (folder / name).write_bytes(data.encode("latin-1"))


def with_rows(folder: Path, name: str, count: int) -> None:
    """So many rows of a weight are left; of 0, the file lacks it."""
    weights = load_file(folder / "model.safetensors")
    cut = weights.pop(name)[:count].contiguous()
    save_file(weights | ({name: cut} if count else {}), folder / "model.safetensors", {"format": "pt"})


def unnamed(folder: Path) -> None:
    names = json.loads((folder / "config.json").read_text())["id2label"]
    rewritten(folder, "config.json", {"id2label": {n: f"LABEL_{n}" for n in names}})


CHANGES = {change.__name__: change for change in (rewritten, sharded, without, renamed, written, with_rows, unnamed)}


@each_row("kind, change, words")
def test_a_wrong_folder_is_an_error_that_names_the_field(kind, change, words, own) -> None:
    folder = own(kind)
    assert folders.find(WHERE, str(folder), ARCHITECTURES[kind]) == folder
    CHANGES[change[0]](folder, *change[1:])
    with pytest.raises(ParamsError, match=rf"^measures\.clip\.model: .*{words}"):
        folders.find(WHERE, str(folder), ARCHITECTURES[kind])


@each_row("kind, change, words")
def test_wrong_weights_are_an_error_not_filled_by_chance(kind, change, words, own) -> None:
    CHANGES[change[0]](folder := own(kind), *change[1:])
    with pytest.raises(ParamsError, match=rf"^measures\.clip\.model: .*{words}"):
        {"clip": ClipEncoder, "parser": FaceParser, "detector": GroundingDino}[kind](WHERE, str(folder))


def test_stages_look_into_folders_without_torch(tiny: Tiny) -> None:
    code = (
        "import sys; from editjudge.stages import annotate; from editjudge.vision import folders;"
        "[folders.find('a', f, k) for f, k in zip(sys.argv[1:], (folders.SEGFORMER, folders.VITPOSE), strict=True)];"
        "sys.exit('torch' in sys.modules or 'transformers' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code, tiny("parser"), tiny("pose")], check=False).returncode == 0


@pytest.mark.parametrize("model", ["@main", "a/b@", "openai/clip", "/models/none", "~/x"])
def test_a_model_that_is_nowhere_is_an_error_that_says_what_to_do(model: str) -> None:
    with pytest.raises(ParamsError, match=r"measures\.clip\.model: no folder .*such as openai/clip-vit-base-patch32"):
        folders.find(WHERE, model, folders.CLIP)


@pytest.mark.parametrize("device", ["cuda:99", "abacus", "xla"])
def test_a_device_that_is_not_there_is_an_error_that_names_the_field(device: str, tiny) -> None:
    with pytest.raises(ParamsError, match=rf"^measures\.clip\.model: its device '{device}' cannot be used here: \S"):
        ClipEncoder(WHERE, str(tiny("clip")), device)
