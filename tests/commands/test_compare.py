"""One comparison without the graph."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest

from editjudge.commands import compare as command
from editjudge.core import images, params

ROOT = Path(__file__).parents[2]
PARAMS = """
judges:
  pixels: {backend: measures, rule: agreement}
  tiny: {backend: transformers, model: BASE, prompt: pvc, dtype: float32, batch_size: 2, rule: probability}
measures: MEASURES
"""
WORDS = "--source source.png --a near.png --b far.png --instruction Recolour"


@pytest.fixture
def here(tmp_path: Path, photo: np.ndarray, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("EDITJUDGE_WORK", str(tmp_path / "work"))
    near, far = photo.copy(), 255 - photo
    near[20:52, 30:66] = 255 - near[20:52, 30:66]
    for name, pixels in {"source": photo, "near": near, "far": far}.items():
        Path(f"{name}.png").write_bytes(images.encode_png(pixels))
    Path("params.yaml").write_text(
        PARAMS.replace("BASE", str(ROOT / "models/tiny_base")).replace(
            "MEASURES", str(params.load(ROOT / "params.yaml")["measures"])
        )
    )
    return tmp_path


def run(words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["compare", *WORDS.split(), *words.split()])
    command.main()


def test_by_measures_of_a_task(here: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    run("--task color_alter --box 30 20 66 52", monkeypatch)
    lines = capsys.readouterr().out.splitlines()
    assert [line.split("  ")[-1].strip() for line in lines[:3]] == ["Image A"] * 3
    assert lines[0].startswith("pixels")
    assert "unedit_area.delta_e  A 0.0000" in "\n".join(lines)


def test_a_checkpoint_says_how_sure_it_is_in_both_orders(here: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    run("--judge tiny", monkeypatch)
    both, forward, backward = capsys.readouterr().out.splitlines()
    sure = [float(line.rpartition("p(A) ")[2]) for line in (both, forward, backward)]
    assert sure[0] == pytest.approx((sure[1] + sure[2]) / 2, abs=0.001)


def test_html_is_a_page_of_the_pair_with_its_images(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run("--task color_alter --box 30 20 66 52 --html out/pair.html", monkeypatch)
    text = (here / "out/pair.html").read_text()
    data = json.loads(text.partition('id="data">')[2].partition("</script>")[0])
    [prompt], [judge] = data["prompts"], data["judges"]
    [pair] = prompt["pairs"]
    assert (judge, prompt["instruction"], prompt["layers"]["boxes"]) == ("pixels", "Recolour", [[30, 20, 66, 52]])
    assert [set(edit["layers"]) >= {"boxes", "area"} for edit in prompt["edits"]] == [True, True]
    assert [edit["model"] for edit in prompt["edits"]] == ["near.png", "far.png"]
    assert pair["judged"][0][2:5] == ["A", "A", "A"]
    assert [image["file"].partition(",")[0] for image in data["images"]] == ["data:image/png;base64"] * 5
    names = [f"{each['area']}.{each['measure']}" for each in data["tasks"][""]["measures"]]
    assert prompt["edits"][0]["values"][names.index("unedit_area.delta_e")] == 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--judge nobody", "compare: --judge nobody: "),
        ("--measures nothing", "compare: unknown measure 'nothing'"),
        ("--measures unedit_area.ssim", "compare: these measures need to know where the edit is: --box"),
        ("--measures ssim unedit_area.ssim --box 900 900 950 950", "compare: measures: source: box"),
    ],
)
def test_mistakes_are_one_line(here: Path, monkeypatch: pytest.MonkeyPatch, words: str, said: str) -> None:
    with pytest.raises(SystemExit) as stop:
        run(words, monkeypatch)
    assert str(stop.value).startswith(said)
    assert "\n" not in str(stop.value)


def test_files_are_compared_in_five_lines(here: Path) -> None:
    found = command.compare_files(
        "source.png", "near.png", "far.png", "Recolour", "pixels", task="color_alter", boxes=[(30, 20, 66, 52)]
    )
    assert (found.forward.winner, found.backward.winner, found.combined.winner) == ("Image A", "Image B", "Image A")
    without = command.compare_files("source.png", "near.png", "far.png", "Recolour", "pixels")
    assert without.combined.winner is None
    assert without.combined.reason
    with pytest.raises(params.ParamsError, match=r"no judge 'pixel'; .*pixels"):
        command.compare_files("source.png", "near.png", "far.png", "Recolour", "pixel")
