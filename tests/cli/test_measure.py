"""Measures of own edits without the graph: folders in, a table out; and two arrays in Python."""

import json
from pathlib import Path

import cv2
import numpy as np
import pandas as pd
import program
import pytest

from editjudge import measure
from editjudge.core import images
from editjudge.core.errors import UserError
from editjudge.engine.resume import RecordCache

BOX = (30, 20, 66, 52)


@pytest.fixture
def folders(tmp_path: Path, photo: np.ndarray, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Three sources; `good` edits in the box alone, `bad` all of it; one of its edits is broken, one not there."""
    monkeypatch.chdir(tmp_path)
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
    return tmp_path


def run(words: str) -> str:
    return program.run(f"measure {words}")


GIVEN = "--source source --edited good bad"


def test_a_table_of_values_by_task_and_by_name(folders: Path, capsys: pytest.CaptureFixture) -> None:
    said = run(f"{GIVEN} --task color_alter --boxes boxes.csv --out out/v.csv")
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
    assert "6 edits, 2 failed" in said
    assert "1 no image for this key: bad/k2" in said
    assert "1 keys of edits have no source: stray" in said
    assert "lpips is left out: measures.lpips is none" in capsys.readouterr().err
    run(f"{GIVEN} --measures ssim unedit_area.delta_e --masks masks --out v.jsonl --limit 2")
    rows = [json.loads(line) for line in Path("v.jsonl").read_text().splitlines()]
    assert [row["key"] for row in rows] == ["k0", "k0", "k1", "k1"]
    assert rows[0]["unedit_area.delta_e"] == 0
    assert rows[0]["image.ssim"] < 1


def test_what_is_measured_is_kept(folders: Path) -> None:
    file = Path("work/measure/records.sqlite")

    def records() -> dict[str, tuple[dict, bytes | None]]:
        with RecordCache(file) as cache:
            return dict(cache.all())

    run(f"{GIVEN} --measures delta_e --out v.parquet --limit 1")
    first, kept = pd.read_parquet("v.parquet"), records()
    assert len(kept) == 2
    file.unlink()
    with RecordCache(file) as cache:  # what was kept is taken, not measured again
        for key, (meta, data) in kept.items():
            cache.put(key, meta | {"change": meta["change"] + 1000}, data)
    run(f"{GIVEN} --measures delta_e --out v.parquet")
    assert set(kept) < set(records())
    assert (pd.read_parquet("v.parquet")["change"][:2] > first["change"]).all()


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("--task color_alter", "these measures need to know where the edit is"),
        ("--task colour_alter --boxes boxes.csv", "did you mean color_alter"),
        ("--measures sim", "did you mean ssim"),
        ("--measures unedit_area.iou --masks masks", "iou can be taken in"),
        ("--measures lpips", "no measure is left"),
        ("--measures ssim --boxes boxes.txt", "is none of .csv"),
        ("--measures ssim --masks nowhere", "nowhere not found"),
    ],
)
def test_a_mistake_is_one_line(words: str, told: str, folders: Path) -> None:
    with pytest.raises(UserError, match=told):
        run(f"{GIVEN} {words} --out v.csv")
    with pytest.raises(UserError, match=r"--out v\.xlsx"):
        run(f"{GIVEN} --measures ssim --out v.xlsx")


def test_two_arrays_give_the_values_of_the_table(folders: Path) -> None:
    source, edited = (images.decode(Path(folder, "k0.png").read_bytes()) for folder in ("source", "bad"))
    names = ["unedit_area.ssim", "edit_area.L_channel_ssim"]
    values = measure(source, edited, names, boxes=[BOX]).values
    run(f"{GIVEN} --measures {' '.join(names)} --boxes boxes.csv --out v.parquet")
    table = pd.read_parquet("v.parquet").set_index(["key", "model"])
    assert values == dict(table.loc[("k0", "bad"), names])
    mask = images.decode(Path("masks/k0.png").read_bytes())[..., 0] > 0
    assert measure(source, edited, names, masks=[mask]).values == values, "a mask of the box's own pixels"
    with pytest.raises(UserError, match=r"lpips is not configured: measures\.lpips is none"):
        measure(source, edited, ["lpips"])
    found = measure(source, edited, ["face_ID_sim"], boxes=[BOX])
    assert found.values == {"image.face_ID_sim": None}
    assert found.reasons["image.face_ID_sim"]
