"""What the gallery holds: pairs with the rule that made them, z-scores, verdicts, and a bounded number of images."""

import io
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import report_data
from PIL import Image

from editjudge.core import images, masks, records
from editjudge.labels import explained
from editjudge.report import gallery
from editjudge.report.figures import Files, ReportSetting
from editjudge.stages import report

TASK = report_data.TASK


@pytest.fixture(scope="module")
def state(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("state")
    report_data.write(folder)
    return folder


@pytest.fixture
def prompts(state: Path, monkeypatch: pytest.MonkeyPatch) -> list[gallery.GalleryPrompt]:
    monkeypatch.chdir(state)
    values, files = report_data.values(), Files()
    found, _ = report.prompts_of(values, report.items_of(values, files), files)
    assert files.missing == []
    return list(found)


def test_every_two_edits_are_there_and_the_pairs_made_are_those_of_training(
    prompts: list[gallery.GalleryPrompt], state: Path
) -> None:
    training = [prompt for prompt in prompts if prompt.kind == gallery.TRAINING]
    pairs = [pair for prompt in training for pair in prompt.pairs]
    assert len(pairs) == len(training) * 15
    made = {pair["key"]: pair for pair in pairs if pair["made"]}
    written = records.read(state / "data/train_pairs.parquet", "train_pairs")
    assert set(made) == {row["key"] for row in written}
    for row in written:
        pair = made[row["key"]]
        assert (pair["a"], pair["b"], pair["tiers"]) == (row["model_a"], row["model_b"], row["tiers"])
        assert pair["winner"] == row["winner"]
        assert pair["margin"] == pytest.approx(row["margin"])
    why = Counter(pair["why"] for pair in pairs if not pair["made"])
    assert why["failed"] == 5 * len(training), "the broken edit against each other one"
    assert why["unedited"] == 4 * len(training)


def test_z_is_over_the_edits_that_count_and_higher_is_better(prompts: list[gallery.GalleryPrompt]) -> None:
    edits = prompts[0].edits
    z = np.array([edits[model]["z"] for model in ("precise", "leaky", "box", "shifted")], float)
    np.testing.assert_allclose(z.mean(axis=0), 0, atol=1e-3)
    np.testing.assert_allclose(z.std(axis=0), 1, atol=1e-3)
    assert (z[0] > z[-1]).all(), "less damage, whatever the measure's direction"
    assert edits["unedited"]["z"] == [None] * z.shape[1]
    assert (edits["unedited"]["tier"], edits["broken"]["tier"]) == ("unedited", "failed")


def test_what_judges_said_stands_with_benchmarks_and_matches(prompts: list[gallery.GalleryPrompt], state: Path) -> None:
    by_key = {pair["key"]: pair for prompt in prompts if prompt.kind != gallery.TRAINING for pair in prompt.pairs}
    rows = records.read(state / "data/matches.parquet", "matches")
    assert sum(len(pair["judged"]) for pair in by_key.values()) == len(rows) + 2 * 4
    for row in rows:
        assert row["winner"] in [each["winner"] for each in by_key[row["key"]]["judged"]]
    assert by_key["probe.color_alter-00000"]["truth"] == "Image A"
    written = gallery.as_json(prompts)
    said = {pair["key"]: pair["judged"] for prompt in written["prompts"] for pair in prompt["pairs"]}
    for row in rows:
        found = [dict(zip(gallery.JUDGED, each, strict=True)) for each in said[row["key"]]]
        [own] = [each for each in found if written["judges"][each["judge"]] == row["judge"]]
        assert own["winner"] == gallery.CODES.get(row["winner"])
        assert own["p_a"] == row["p_a"]


def test_a_page_holds_whole_prompts_up_to_its_number_and_of_every_kind(prompts: list[gallery.GalleryPrompt]) -> None:
    assert gallery.chosen(prompts, 10_000) == prompts
    shown = gallery.chosen(prompts, 60)
    assert sum(len(prompt.pairs) for prompt in shown) <= 60
    assert {prompt.kind for prompt in shown} == {gallery.TRAINING, gallery.ARENA, "probe"}
    assert gallery.chosen(prompts[::-1], 60) == shown[::-1]


def test_the_same_input_gives_the_same_bytes(state: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(state)
    first, second = (
        report.report(report_data.values(), Files(), tmp_path / name / "images") for name in ("first", "second")
    )
    assert first == second
    assert len(first.encode()) < 5_000_000
    files = [
        sorted((path.name, path.read_bytes()) for path in (tmp_path / n / "images").iterdir())
        for n in ("first", "second")
    ]
    assert files[0] == files[1]
    assert ReportSetting(**report_data.values()["report"]).pairs >= 5_000


def test_an_image_is_kept_once_and_as_it_came(photo: np.ndarray, tmp_path: Path) -> None:
    data = images.encode_png(photo)
    found = gallery.PageImages(tmp_path / "images", 1024)
    assert [found.add(data), found.add(None), found.add(b"no image"), found.add(data)] == [0, None, None, 0]
    [row], [file] = found.rows, list((tmp_path / "images").iterdir())
    assert file.read_bytes() == data
    assert row["file"] == f"images/{file.name}"
    assert row["thumb"].startswith("data:image/webp;base64,")


def test_a_large_image_is_made_smaller(photo: np.ndarray, tmp_path: Path) -> None:
    found = gallery.PageImages(tmp_path / "images", 48)
    found.add(images.encode_png(photo))
    with Image.open(tmp_path / found.rows[0]["file"]) as written:
        assert (written.format, written.size) == ("JPEG", (48, 36))
    assert (found.rows[0]["width"], found.rows[0]["height"]) == (96, 72), "boxes are in these pixels"


def test_an_image_is_shown_the_way_up_that_it_was_measured(photo: np.ndarray, tmp_path: Path) -> None:
    out = io.BytesIO()
    exif = Image.Exif()
    exif[0x0112] = 6  # lies on its side
    Image.fromarray(photo).save(out, "JPEG", exif=exif)
    found = gallery.PageImages(tmp_path / "images", 1024)
    found.add(out.getvalue())
    with Image.open(tmp_path / found.rows[0]["file"]) as written:
        assert written.size == (72, 96)
        assert not written.getexif()


def test_thumbs_end_where_their_bytes_do(tmp_path: Path, png, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gallery, "THUMB_BYTES", 5_000)
    found = gallery.PageImages(tmp_path / "images", 1024)
    for seed in range(12):
        found.add(png(seed))
    thumbs = [row["thumb"] for row in found.rows]
    assert 0 < sum(len(thumb) for thumb in thumbs if thumb) <= 5_000
    assert None in thumbs


def test_the_outline_of_a_mask_goes_around_it() -> None:
    mask = np.zeros((40, 60), bool)
    mask[10:20, 30:50] = True
    [outline] = gallery.outlines_of(masks.mask_png(mask))
    assert sorted(outline) == [[30, 10], [30, 19], [49, 10], [49, 19]]
    assert gallery.outlines_of(b"no image") == []


@pytest.mark.parametrize(("a", "b", "side"), [(None, 1, None), (1, 1, None), (1, 2, "Image A"), (2, 1, "Image B")])
def test_the_less_damaged_side(a: float | None, b: float, side: str | None) -> None:
    assert explained.less_damaged(a, b) == side
