"""Without the graph: comparisons, scores, rankings from match files, and measures of own edits."""

import json
import re
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pandas as pd
import program
import pytest
from cases import each_row, yaml_beside
from cyclopts import CycloptsError
from PIL import Image

import editjudge
from editjudge import measure
from editjudge.core import images, params
from editjudge.core.errors import UserError
from editjudge.engine.resume import RecordCache
from editjudge.judges.protocol import Score

ROOT = Path(__file__).parents[2]
PARAMS = """
judges:
  pixels: {backend: measures, rule: agreement}
  tiny: {backend: transformers, model: models/tiny_base, prompt: pvc, dtype: float32, batch_size: 2, rule: probability}
train_judge: {base: models/tiny_base}
measures: MEASURES
"""
SAID = yaml_beside(__file__)["SAID"]
WORDS = "--source source.png --a near.png --b far.png --instruction Recolour"


@pytest.fixture
def here(workdir: Path, photo: np.ndarray) -> Path:
    near, far = photo.copy(), 255 - photo
    near[20:52, 30:66] = 255 - near[20:52, 30:66]
    for name, pixels in {"source": photo, "near": near, "far": far}.items():
        Path(f"{name}.png").write_bytes(images.encode_png(pixels))
    own = params.load(ROOT / "params.yaml")["measures"]
    Path("models").symlink_to(ROOT / "models")
    Path("params.yaml").write_text(PARAMS.replace("MEASURES", str(own)))
    return workdir


def run(words: str) -> str:
    return program.run(f"compare {WORDS} {words}")


def test_by_measures_of_a_task(here: Path) -> None:
    assert run("--task color_alter --box 30 20 66 52").splitlines() == SAID["compare"].splitlines()


def test_a_checkpoint_says_how_sure_it_is_in_both_orders_and_that_it_is_tiny(here: Path, capsys) -> None:
    sure = [float(line.split()[-1]) for line in run("--judge tiny").splitlines()[1:]]
    assert sure[0] == pytest.approx((sure[1] + sure[2]) / 2, abs=0.001)
    assert "compare: tiny is a tiny judge for demonstration, it sees how much changed" in capsys.readouterr().err
    run("--task color_alter --box 30 20 66 52")
    assert "tiny" not in capsys.readouterr().err


def test_orders_that_disagree_decide_nothing_and_no_verdict_is_an_error(here: Path) -> None:
    """The untrained tiny judge prefers one place, whatever is there; of an image that is none it says nothing."""
    words = "compare --judge tiny --source source.png --instruction Recolour --b source.png"
    said = program.run(f"{words} --a source.png --html page.html")
    _, *lines = [re.split("  +", line.strip()) for line in said.splitlines()]
    both, *orders = [line[1] for line in lines]
    assert both == "undecided: the verdict changes with the order"
    assert set(orders) == {"Image A", "Image B"}
    assert editjudge.compare("source.png", "source.png", "source.png", "Recolour", judge="tiny").undecided
    assert page_data("page.html")["prompts"][0]["pairs"][0]["judged"][0][6] == "the verdict changes with the order"
    Path("broken.png").write_bytes(b"no image")
    with pytest.raises(UserError, match="no judge gave a verdict"):
        program.run(f"{words} --a broken.png")


def page_data(file: str) -> dict[str, Any]:
    return json.loads(Path(file).read_text().partition('id="data">')[2].partition("</script>")[0])


def test_html_is_a_page_of_the_pair_with_its_images(here: Path) -> None:
    run("--task color_alter --box 30 20 66 52 --html out/pair.html")
    data = page_data("out/pair.html")
    [prompt], [judge] = data["prompts"], data["judges"]
    [pair] = prompt["pairs"]
    assert (judge, prompt["instruction"], prompt["layers"]["boxes"]) == ("pixels", "Recolour", [[30, 20, 66, 52]])
    assert [set(edit["layers"]) >= {"boxes", "area"} for edit in prompt["edits"]] == [True, True]
    assert [edit["model"] for edit in prompt["edits"]] == ["near.png", "far.png"]
    assert pair["judged"][0][2:5] == ["A", "A", "A"]
    assert [pair[name] for name in ("a", "b", "truth", "winner")] == [0, 1, None, None], "which is better is not known"
    assert [image["file"].partition(",")[0] for image in data["images"]] == ["data:image/png;base64"] * 5
    names = [f"{each['area']}.{each['measure']}" for each in data["tasks"][""]["measures"]]
    assert prompt["edits"][0]["values"][names.index("unedit_area.delta_e")] == 0


@each_row("words, said")
def test_mistakes_are_one_line(here: Path, words: str, said: str) -> None:
    with pytest.raises(UserError, match=re.escape(said)) as stop:
        run(words)
    assert "\n" not in str(stop.value)


def test_a_loaded_judge_answers_many_times_and_takes_files_arrays_and_pil_images(here: Path, photo: np.ndarray) -> None:
    near, far = (images.decode(Path(f"{name}.png").read_bytes()) for name in ("near", "far"))
    given = {"task": "color_alter", "boxes": [(30, 20, 66, 52)]}
    with editjudge.load_judge("pixels") as judge:
        found = [judge.compare(*three, "Recolour", **given) for three in (
            ("source.png", "near.png", "far.png"),
            (photo, near, far),
            (Image.fromarray(photo), Image.fromarray(near).convert("RGBA"), far),
        )]  # fmt: skip
        assert found[0] == found[1] == found[2]
        assert (found[0].winner, found[0].forward.winner, found[0].backward.winner) == ("Image A",) * 3
        without = judge.compare(photo, near, far, "Recolour")
        assert (without.winner, bool(without.reason)) == (None, True)
        broken = judge.compare(b"no image", near, far, "Recolour", **given)
        assert (broken.winner, "not a PNG" in str(broken.reason)) == (None, True)
        with pytest.raises(UserError, match=r"RGB, uint8, \(H, W, 3\), not float64"):
            judge.compare(photo / 255, near, far, "Recolour")
        with pytest.raises(UserError, match=r"missing\.png: no such file"):
            judge.compare("missing.png", near, far, "Recolour")
        with pytest.raises(UserError, match="no recipe"):
            judge.compare(photo, near, far, "Recolour", task="colour")
    assert editjudge.compare(photo, near, far, "Recolour", judge="pixels", **given) == found[0]
    with pytest.raises(UserError, match=r"no judge, scorer or rater 'pixel'; did you mean pixels"):
        editjudge.load_judge("pixel")


def test_a_ranking_of_match_files_leaves_failed_ones_out(workdir: Path) -> None:
    winners = ["Image A", "Image B", "Failed", None, "Tie", "Image A"]
    rows = [{"key": f"p{n}_pair_a_vs_b", "winner": winner} for n, winner in enumerate(winners)]
    Path("m.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    Path("published.csv").write_text("model,rating\na,1\nb,2\n")
    said = program.run("rank m.jsonl --json board.json --out board.md --against published.csv --by dimension")
    assert said.splitlines() == SAID["rank"].splitlines()
    board = json.loads(Path("board.json").read_text())
    assert (board["matches"], board["unscored"], board["models"][0]["rank"]) == (6, 2, 1)
    assert [part["dimension"] for part in board["by_dimension"]] == ["m"]
    assert Path("board.md").read_text().startswith("| rank | model | rating |")
    for words, message in yaml_beside(__file__)["RANK"]:
        with pytest.raises(UserError, match=message):
            program.run(words)


def test_the_score_of_one_edit(workdir: Path, base_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import lessons  # loads torch

    lessons.write_scorer(base_dir, workdir / "scorer")
    entry = {"kind": "checkpoint", "model": str(workdir / "scorer"), "dtype": "float32", "batch_size": 2}
    (workdir / "params.yaml").write_text(json.dumps({"scorers": {"tiny": entry}}))
    Path("a.png").write_bytes(images.encode_png(np.full((64, 64, 3), 99, np.uint8)))
    Path("b.png").write_bytes(b"nothing")
    words = "score --scorer tiny --source a.png --instruction Go. --edit"
    said = program.run(f"{words} a.png --json out.json").splitlines()
    found = json.loads(Path("out.json").read_text())
    assert set(found["dimensions"]) == set(found["std"]) == {"instruction_following", "visual_quality"}
    assert found["calibrated"] == pytest.approx(1 / 3 if found["overall"] < 0 else 2 / 3)
    assert said[3].split()[:2] == ["overall", f"{found['overall']:.4f}"]
    assert said[4].startswith("calibrated ")
    least = Score(0.5, {}, calibrated=0.0)
    with monkeypatch.context() as patch:
        patch.setattr("editjudge.api.score", lambda *_, **__: least)
        assert program.run(f"{words} a.png").splitlines()[-1].split()[:2] == ["calibrated", "0.0000"]
    for given, message in (
        (f"{words} b.png", "b.png is unscored: edited: not a PNG"),
        (f"{words} c.png", "c.png: no such file"),
        (f"{words} a.png --scorer tinny".replace("--scorer tiny ", ""), "'tinny'; did you mean tiny"),
    ):
        with pytest.raises(UserError, match=message):
            program.run(given)
    with pytest.raises(CycloptsError, match="--edit"):
        program.run("score --scorer tiny --source a.png --instruction Go.")


BOX = (30, 20, 66, 52)


@pytest.fixture
def folders(workdir: Path, photo: np.ndarray) -> Path:
    """Three sources; `good` edits in the box alone, `bad` all of it; one of its edits is broken, one not there."""
    for n in range(3):
        source, x0, y0, x1, y1 = np.roll(photo, 7 * n, axis=1), *BOX
        good, mask = source.copy(), np.zeros(photo.shape[:2], np.uint8)
        good[y0:y1, x0:x1] = 255 - good[y0:y1, x0:x1]
        mask[y0:y1, x0:x1] = 255
        bad = cv2.resize(255 - source, None, fx=0.5, fy=0.75)
        for folder, pixels in {"source": source, "good": good, "bad": bad, "masks": np.dstack([mask] * 3)}.items():
            Path(folder).mkdir(exist_ok=True)
            Path(folder, f"k{n}.png").write_bytes(images.encode_png(pixels))
    Path("bad/k2.png").unlink()
    Path("bad/k1.png").write_bytes(Path("bad/k1.png").read_bytes()[:-50])
    Path("good/stray.png").write_bytes(b"")
    Path("boxes.csv").write_text("key,boxes\n" + "".join(f'k{n},"{list(BOX)}"\n' for n in range(3)))
    return workdir


def measured(words: str) -> str:
    return program.run(f"measure {words}")


EDITED = "--source source --edited good bad"


def test_a_table_of_values_by_task_and_by_name(folders: Path, capsys: pytest.CaptureFixture) -> None:
    said = measured(f"{EDITED} --task color_alter --boxes boxes.csv --out out/v.csv")
    table = pd.read_csv("out/v.csv").set_index(["key", "model"])
    assert list(table.index) == [(f"k{n}", model) for n in range(3) for model in ("good", "bad")]
    assert list(table.columns[5:-1]) == [
        *(f"unedit_area.{name}" for name in ("ssim", "emd_both_sides", "delta_e")),
        *(f"edit_area.{name}" for name in ("L_channel_ssim", "L_channel_ssim_in_region", "structure_similarity")),
    ]
    assert table.loc[("k0", "good"), "unedit_area.delta_e"] == 0 < table.loc[("k0", "bad"), "unedit_area.delta_e"]
    assert table.loc[("k0", "good"), "change"] > 5
    assert np.isnan(table.loc[("k0", "good"), "aspect_change"])
    assert table.loc[("k0", "bad"), "aspect_change"] == pytest.approx(48 / 54 * 72 / 96, abs=1e-4)
    assert table.loc[("k2", "bad"), "reason"] == "no image for this key"
    assert table.loc[("k1", "bad"), "reason"].startswith("broken image")
    assert np.isnan(table.loc[("k2", "bad"), "unedit_area.ssim"]), "unscored is not zero"
    assert said.splitlines() == SAID["measure"].splitlines()
    assert "lpips is left out: measures.lpips is none" in capsys.readouterr().err
    measured(f"{EDITED} --measures ssim unedit_area.delta_e --masks masks --out v.jsonl --limit 2")
    rows = [json.loads(line) for line in Path("v.jsonl").read_text().splitlines()]
    assert [row["key"] for row in rows] == ["k0", "k0", "k1", "k1"]
    assert rows[0]["unedit_area.delta_e"] == 0
    assert rows[0]["image.ssim"] < 1


def test_what_is_measured_is_kept(folders: Path) -> None:
    file = Path("work/measure/records.sqlite")

    def records() -> dict[str, tuple[dict, bytes | None]]:
        with RecordCache(file) as cache:
            return dict(cache.all())

    measured(f"{EDITED} --measures delta_e --out v.parquet --limit 1")
    first, kept = pd.read_parquet("v.parquet"), records()
    assert len(kept) == 2
    file.unlink()
    with RecordCache(file) as cache:  # what was kept is taken, not measured again
        for key, (meta, data) in kept.items():
            cache.put(key, meta | {"change": meta["change"] + 1000}, data)
    measured(f"{EDITED} --measures delta_e --out v.parquet")
    assert set(kept) < set(records())
    assert (pd.read_parquet("v.parquet")["change"][:2] > first["change"]).all()


@each_row("words, told")
def test_a_mistake_is_one_line(words: str, told: str, folders: Path) -> None:
    with pytest.raises(UserError, match=told):
        measured(f"{EDITED} {words} --out v.csv")
    with pytest.raises(UserError, match=r"--out v\.xlsx"):
        measured(f"{EDITED} --measures ssim --out v.xlsx")


def test_two_arrays_give_the_values_of_the_table(folders: Path) -> None:
    source, edited = (images.decode(Path(folder, "k0.png").read_bytes()) for folder in ("source", "bad"))
    names = ["unedit_area.ssim", "edit_area.L_channel_ssim"]
    values = measure(source, edited, names, boxes=[BOX]).values
    measured(f"{EDITED} --measures {' '.join(names)} --boxes boxes.csv --out v.parquet")
    table = pd.read_parquet("v.parquet").set_index(["key", "model"])
    assert values == dict(table.loc[("k0", "bad"), names])
    mask = images.decode(Path("masks/k0.png").read_bytes())[..., 0] > 0
    assert measure(source, edited, names, masks=[mask]).values == values, "a mask of the box's own pixels"
    with pytest.raises(UserError, match=r"lpips is not configured: measures\.lpips is none"):
        measure(source, edited, ["lpips"])
    found = measure(source, edited, ["face_ID_sim"], boxes=[BOX])
    assert found.values == {"image.face_ID_sim": None}
    assert found.reasons["image.face_ID_sim"]
