"""The pool of photographs: filters, duplicates, sources, and what is refused."""

import json
from pathlib import Path

import numpy as np
import pytest
import yaml
from PIL import Image

from editjudge.core import images, params, records
from editjudge.core.errors import FileError
from editjudge.core.settings import read
from editjudge.photos.settings import Instructions
from editjudge.sources.builtin import photos
from editjudge.stages import photo_pool
from editjudge.vision import aesthetics

ROOT = Path(__file__).parents[2]
SECTION = params.load(ROOT / "params.yaml")["photo_pool"]


def run(**changes: object) -> tuple[list[dict], dict, list[list[str]]]:
    """The pool's rows, its metrics, and the lines of what was refused."""
    Path("params.yaml").write_text(yaml.safe_dump({"photo_pool": SECTION | changes}))
    photo_pool.run()
    refused = Path("data/refused/photo_pool.csv").read_text().splitlines()[1:]
    rows = records.read(Path("data/photos/pool.parquet"), "photo_pool")
    return rows, json.loads(Path("metrics/photo_pool.json").read_text())[0], [line.split(",") for line in refused]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, photo: np.ndarray) -> Path:
    """Photographs of which two can be kept."""
    monkeypatch.chdir(tmp_path)
    own = Path("photos/sub")
    own.mkdir(parents=True)
    (own.parent / "a.png").write_bytes(images.encode_png(photo))
    (own.parent / "again.png").write_bytes(images.encode_png(photo))
    Image.fromarray(photo[::-1, ::-1]).save(own / "turned.jpg", quality=95)
    (own.parent / "broken.png").write_bytes(b"\x89PNG junk")
    (own.parent / "flat.png").write_bytes(images.encode_png(np.full((80, 80, 3), 90, np.uint8)))
    (own.parent / "small.png").write_bytes(images.encode_png(photo[:40]))
    (own.parent / "notes.txt").write_text("none")
    Image.fromarray(photo).save(own.parent / "scan.TIFF")
    return own.parent


def test_what_passes_and_why_others_do_not(folder: Path, photo: np.ndarray) -> None:
    filters = {"side_above": 71, "aesthetic_above": 0.0, "near_bits": 4}
    rows, metrics, refused = run(photos=str(folder), filters=filters)
    assert [row["path"] for row in rows] == ["a.png", "sub/turned.jpg"]
    assert rows[0]["aes"] == aesthetics.colour_sharpness(photo)
    assert rows[0]["tags"] == {"background": [], "object": [], "summary": None}
    assert (rows[0]["height"], rows[0]["width"]) == (72, 96)
    reasons = {name: reason for name, reason, *_ in refused}
    assert reasons == {"again.png": "duplicate", "broken.png": "broken image"} | {
        "flat.png": "aesthetic score", "small.png": "short side", "scan.TIFF": "broken image"
    }  # fmt: skip
    assert (metrics["photos"], metrics["records"], metrics["refused"]) == (7, 2, 5)
    before = Path("data/photos/pool.parquet").read_bytes()
    run(photos=str(folder), filters=filters)
    assert Path("data/photos/pool.parquet").read_bytes() == before


def test_the_published_bounds_are_outside(folder: Path) -> None:
    with pytest.raises(ValueError, match="no photograph was kept"):
        run(photos=str(folder), filters={"side_above": 1280, "aesthetic_above": 4.75, "near_bits": 4})
    assert json.loads(Path("metrics/photo_pool.json").read_text())[0]["refused"] == 7


def test_a_list_names_photographs_from_where_it_lies(folder: Path) -> None:
    (folder / "list.txt").write_text("sub/turned.jpg\n\na.png\na.png\n../secret.png\nnone.png\n")
    filters = {"side_above": 8, "aesthetic_above": 0.0, "near_bits": 4}
    rows, _, refused = run(photos=str(folder / "list.txt"), filters=filters)
    assert [row["path"] for row in rows] == ["sub/turned.jpg", "a.png"]
    assert [line[:2] for line in refused] == [
        ["../secret.png", "path leaves the folder"],
        ["none.png", "image missing"],
    ]


def test_the_probes_photos_have_the_labels_of_their_regions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    rows, _, refused = run()
    assert {row["path"] for row in rows} == (photos.TRAIN | photos.BENCHMARK).keys() - {"moon"}
    assert [line[:2] for line in refused] == [["moon", "aesthetic score"]]
    [cat] = [row for row in rows if row["path"] == "chelsea"]
    assert cat["tags"]["object"][:2] == ["cat", "cat head"]
    assert cat["tags"]["background"] == ["background"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"photos": "none/such"}, "photo_pool.photos: none/such not found"),
        ({"aesthetic": {"backend": "taste"}}, "photo_pool.aesthetic.backend is 'taste'; known: colour_sharpness"),
        ({"aesthetic": {"backend": "laion", "model": "m"}}, "photo_pool.aesthetic.head is missing"),
        ({"captioner": {"backend": "endpoint"}}, "photo_pool.captioner.model is missing"),
        ({"filters": {"side_above": -1}}, "photo_pool.filters"),
        ({"side": 3}, "photo_pool.side is unknown"),
    ],
)
def test_settings_are_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: dict, message: str) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises((params.ParamsError, FileError), match=message):
        run(**change)


def test_templates_are_asked_for_what_they_have() -> None:
    section = params.load(ROOT / "params.yaml")["instructions"]
    with pytest.raises(params.ParamsError, match=r"instructions.types style needs a writer: templates have add"):
        read("instructions", Instructions, section | {"types": ["style"]})
    with pytest.raises(
        params.ParamsError, match=r"instructions.images the folder of the records' photographs is missing"
    ):
        read("instructions", Instructions, section | {"records": "r.jsonl"})
