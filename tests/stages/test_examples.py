"""Pictures of example pairs: which, what is drawn, and the files of a run."""

import sys
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
import yaml
from PIL import Image

from editjudge.benchmarks.preferences.item import Item
from editjudge.core import records
from editjudge.core.main import stage
from editjudge.sources.builtin import scenes
from editjudge.stages import examples, probe_bench


def item(key: str, png, task: str = "t", **more: object) -> Item:
    made = {"instruction": "Make it red", "source": png(0), "a": png(1), "b": png(2), "verdict": "Image A"} | more
    return Item(key=key, task=task, dimension="visual_consistency", cluster=key, **made)


def row(judge: str, answer: str | None, p_a: float | None = None) -> dict:
    return {"judge": judge, "answer": answer, "label": "Image A", "p_a": p_a}


def test_each_task_shows_its_first_pair_that_can_be_shown(png) -> None:
    items = [item("c", png), item("b", png), item("a", png, failed="broken", verdict=None), item("z", png, "u")]
    assert [i.key for i in examples.first_of_each_task(items)] == ["b", "z"]
    assert examples.first_of_each_task(reversed(items))[0].key == "b", "the order of the rows does not matter"


def test_what_is_said_has_its_colour(png) -> None:
    said = examples.lines(item("k", png), [row("r", "Image A", 0.9), row("w", "Tie"), row("n", None)])
    assert said == [
        ("better: Image A", examples.INK),
        ("r: Image A   p(A) 0.90", examples.RIGHT),
        ("w: Tie", examples.WRONG),
        ("n: no verdict", examples.NONE),
    ]
    known = item("k", png, models=("precise", "leaky"), damages=(0.0, 1.55))
    assert examples.captions(known) == ["source", "A: precise, damage 0.0", "B: leaky, damage 1.6"]
    assert examples.captions(item("k", png)) == ["source", "A", "B"]


@pytest.mark.parametrize("words", ["Make it red", "x" * 5000, "اجعلها حمراء <script>", ""])
def test_any_instruction_and_size_is_drawn(png, words: str) -> None:
    drawn = examples.draw(item("k", png, instruction=words, a=png(1, 900, 40)), [row("r", "Image A")])
    assert drawn == examples.draw(item("k", png, instruction=words, a=png(1, 900, 40)), [row("r", "Image A")])
    with Image.open(BytesIO(drawn)) as image:
        assert image.width == examples.GAP + 3 * (examples.SIDE + examples.GAP)


def test_the_images_stand_side_by_side() -> None:
    def plain(value: int) -> bytes:
        out = BytesIO()
        Image.new("RGB", (256, 256), (value,) * 3).save(out, "PNG")
        return out.getvalue()

    made = Item("k", "t", "d", "", *(plain(value) for value in (10, 120, 230)), "Tie", "c")
    pixels = np.asarray(Image.open(BytesIO(examples.draw(made, []))).convert("L")).astype(int)
    for number, value in enumerate((10, 120, 230)):
        left = examples.GAP + number * (examples.SIDE + examples.GAP)
        part = pixels[examples.GAP + examples.LINE + 8 : examples.SIDE, left + 8 : left + examples.SIDE - 8]
        assert abs(part - value).max() < 4


def test_the_stage_draws_a_picture_a_task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("params.yaml").write_text(
        yaml.safe_dump({"benchmarks": {"small": {"form": "vcreward", "path": "data/small.parquet"}}})
    )
    prompts = scenes.make_pairs("color_alter", "benchmark", 2, 96, seed=0)
    amounts = {"precise": 0.0, "leaky": 2.0, "shifted": 8.0}
    rows = [probe_bench.make_pair(prompt, amounts, 1.0, seed=1) for prompt in prompts]
    records.write(Path("data/small.parquet"), rows, "vcreward_bench")
    said = dict.fromkeys(("forward", "backward", "p_a", "score_a", "score_b", "reason"))
    said |= dict.fromkeys(("truth", "label", "winner", "answer"), "Image A") | {"cluster": "c", "task": "color_alter"}
    records.write(Path("data/verdicts/small.parquet"), [said | {"key": rows[0]["key"], "judge": "j"}], "verdicts")
    monkeypatch.setattr(sys, "argv", ["examples", "--benchmark", "small"])
    stage(examples.__doc__, examples.run, "benchmark")
    assert [file.name for file in Path("plots/examples/small").iterdir()] == ["color_alter.jpg"]
    assert Path("plots/examples/small/color_alter.jpg").stat().st_size > 3000
