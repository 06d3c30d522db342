"""ImgEdit's record, and the edits and dialogues that photographs are asked for by templates."""

import json
from pathlib import Path

import numpy as np
import pytest
import yaml

from editjudge.core import images, masks, params, records
from editjudge.core import regions as boxes
from editjudge.core.reading import Record
from editjudge.core.settings import read as read_setting
from editjudge.core.tables import RowError
from editjudge.editors import procedural
from editjudge.photos import edits
from editjudge.photos.settings import Instructions
from editjudge.sources import importing, photo_records
from editjudge.sources.builtin import photos
from editjudge.sources.photo_records import Photo, PhotoRegion
from editjudge.stages import instructions, photo_pool, regions

ROOT = Path(__file__).parents[2]
VALUES = params.load(ROOT / "params.yaml")
# The published record, as its authors show it; masks and lists are cut there.
PUBLISHED = {
    "path": "00095/00019/000197953.png",
    "cap": ["The image depicts a couple dressed in wedding attire."],
    "resolution": {"height": 72, "width": 96},
    "aes": 6.132755279541016,
    "border": [176],
    "tags": {"background": ["ocean", "sky"], "object": ["couple", "bride"], "summary": "A couple on a cliff."},
    "segmentation": {
        "background": [
            {"class_name": "sky", "bbox": [0.5, 1.1, 96.0, 40.0], "score": 0.99, "clip_score": 0.95, "aes_score": 4.3}
        ],
        "object": [
            {"class_name": "bride", "bbox": [30, 20, 66, 52], "score": 0.98, "clip_score": 0.78, "aes_score": 4.4},
            {"class_name": "bow tie", "bbox": [5, 60, 8, 64], "score": 0.8, "clip_score": 0.65, "aes_score": 4.3}
        ],
        "box_format": "xyxy"
    },
    "bg_count": {"ocean": 1, "sky": 1},
    "obj_count": {"bow tie": 2, "bride": 1},
}  # fmt: skip


def packed_box(x0: int, y0: int, x1: int, y1: int) -> str:
    return masks.packed(masks.run_lengths(boxes.boxes_mask([(x0, y0, x1, y1)], 72, 96)))


@pytest.fixture
def published() -> dict:
    value = json.loads(json.dumps(PUBLISHED))
    segmentation = value["segmentation"]
    segmentation["background"][0]["mask"] = packed_box(0, 0, 96, 40)
    for each in segmentation["object"]:
        each["mask"] = packed_box(*map(int, each["bbox"]))
    return value


def read(value: dict) -> Photo:
    return photo_records.read(Record(Path("r.jsonl"), 0, value))


def graph(folder: Path, monkeypatch: pytest.MonkeyPatch, **changes: object) -> list[dict]:
    """The rows that the three stages make."""
    monkeypatch.chdir(folder)
    values = {name: VALUES[name] for name in ("photo_pool", "regions", "instructions")}
    values["instructions"] = values["instructions"] | changes
    Path("params.yaml").write_text(yaml.safe_dump(values))
    for stage in (photo_pool, regions, instructions):
        if stage is instructions or not Path("data/photos/records.jsonl").exists():
            stage.run()
    return records.read(Path("data/photos/edits.parquet"), "photo_edits")


def test_the_published_record_is_read_and_written(published: dict) -> None:
    photo = read(published)
    assert (photo.key[:8], photo.height, photo.width) == ("00095-00", 72, 96)
    assert photo.caption == PUBLISHED["cap"][0]
    assert photo.object[0].pixels(72, 96).sum() == 36 * 32
    row = photo.row()
    assert row["obj_count"] == {"bow tie": 1, "bride": 1}
    assert row["segmentation"] == published["segmentation"]
    assert {row[name] == published[name] for name in ("path", "cap", "resolution", "aes", "tags")} == {True}
    assert read(row) == photo
    published["segmentation"]["object"][0]["mask"] = masks.run_lengths(photo.object[0].pixels(72, 96))
    assert read(published).object[0] == photo.object[0], "runs as a list are the same mask"


@pytest.mark.parametrize(
    ("place", "value", "reason"),
    [
        (("path",), None, "missing field"),
        (("resolution",), [72, 96], "missing field"),
        (("segmentation", "box_format"), "xywh", "wrong type"),
        (("segmentation", "object"), {"a": 1}, "wrong type"),
        (("segmentation", "object", 0, "bbox"), [1, 2, 3], "wrong type"),
        (("segmentation", "object", 0, "bbox"), [300, 300, 400, 400], "empty box"),
        (("segmentation", "object", 0, "bbox"), [40, 40, 20, 20], "empty box"),
        (("resolution",), {"height": 900_000, "width": 900_000}, "wrong type"),
        (("segmentation", "object", 0, "mask"), "iRVV1...", "broken mask"),
        (("segmentation", "object", 0, "mask"), 3, "broken mask"),
        (("segmentation", "object", 0, "class_name"), " ", "empty field"),
        (("segmentation", "object", 0, "score"), "high", "wrong type"),
    ],
)
def test_a_record_that_cannot_be_used_says_why(published: dict, place: tuple, value: object, reason: str) -> None:
    node = published
    for part in place[:-1]:
        node = node[part]
    node[place[-1]] = value
    with pytest.raises(RowError) as error:
        read(published)
    assert error.value.reason == reason


def test_published_records_go_straight_to_instructions(
    published: dict, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, photo: np.ndarray
) -> None:
    monkeypatch.chdir(tmp_path)
    file = Path("photos") / published["path"]
    file.parent.mkdir(parents=True)
    file.write_bytes(images.encode_png(photo))
    other = published | {"path": "none.png"}
    Path("photos/copy.png").write_bytes(images.encode_png(images.jpeg_roundtrip(photo, 90)))
    again, named = published | {"path": "copy.png"}, published | {"path": "flipped.png", "key": "of/others"}
    Path("photos/flipped.png").write_bytes(images.encode_png(np.ascontiguousarray(photo[:, ::-1])))
    lines = [published, other, published, {"path": "x"}, again, named]
    Path("records.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    given = {"records": "records.jsonl", "images": "photos", "side": 0, "per_photo": 4, "dialogues": 0}
    objects = {"area_least": 0.1, "score_least": 0.8}  # as published: the tie is too small
    values = {"photo_pool": VALUES["photo_pool"], "instructions": VALUES["instructions"] | given | {"objects": objects}}
    Path("params.yaml").write_text(yaml.safe_dump(values))
    instructions.run()
    rows = records.read(Path("data/photos/edits.parquet"), "photo_edits")
    assert {row["origin"] for row in rows} == {published["path"], "flipped.png"}, "no photograph stands twice"
    assert rows[-1]["key"].startswith("of-others-")
    assert [row["type"] for row in rows] == ["adjust", "remove", "add", "background"] * 2
    assert [row["regions"][0]["label"] for row in rows[:2]] == ["bride", "bride"]
    assert rows[0]["regions"][0]["box"][0] in range(20, 32)
    refused = Path("data/refused/instructions.csv").read_text()
    for reason in ("image missing", "duplicate key", "bits from pair", "missing field"):
        assert reason in refused
    assert json.loads(Path("metrics/instructions.json").read_text())[0]["records"] == 8


def test_the_probes_edits_can_be_carried_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = graph(tmp_path, monkeypatch)
    single, turns = [row for row in rows if row["turn"] is None], [row for row in rows if row["turn"]]
    assert {row["origin"] for row in rows} == (photos.TRAIN | photos.BENCHMARK).keys() - {"moon"}, "too dull"
    assert all((row["split"] == "test") == (row["origin"] in photos.BENCHMARK) for row in rows)
    assert json.loads(Path("metrics/instructions.json").read_text())[0]["test"] == sum(
        row["split"] == "test" for row in rows
    )
    assert len({row["key"] for row in rows}) == len(rows)
    dialogues = {row["dialogue"]: [] for row in turns}
    for row in turns:
        dialogues[row["dialogue"]].append(row)
    assert len(dialogues) == len({row["origin"] for row in turns})
    for own in dialogues.values():
        assert [row["turn"] for row in own] == list(range(1, len(own) + 1))
        assert 2 <= len(own) <= 3
        assert {row["type"] for row in own} <= {"add", "remove", "adjust"}
    rng = np.random.default_rng(0)
    for row in rows:
        source = images.decode(row["image"])
        assert max(source.shape) == 192
        made, damage = procedural.edit_image(source, procedural.parse_edit(row["edit"]), "precise", 0.0, rng)
        assert damage == 0
        assert (made != source).any(), row["key"]
    before = Path("data/photos/edits.parquet").read_bytes()
    graph(tmp_path, monkeypatch)
    assert Path("data/photos/edits.parquet").read_bytes() == before
    assert len(single) > len(graph(tmp_path, monkeypatch, per_photo=2, dialogues=0)) > 0


def test_a_photographs_split_is_its_own() -> None:
    given = [Photo(f"k{n}", f"{n}.png", 8, 8, (), None, {}) for n in range(400)]
    found = [edits.split_of(photo, 0.25) for photo in given]
    assert 70 < found.count("test") < 130
    assert {edits.split_of(photo, 0.0) for photo in given} == {"train"}
    assert {edits.split_of(photo, 1.0) for photo in given} == {"test"}
    more = [edits.split_of(photo, 0.3) for photo in given]
    assert all(b == "test" for a, b in zip(found, more, strict=True) if a == "test")
    known = {name: edits.split_of(Photo(name, name, 8, 8, (), None, {}), 1.0) for name in ("astronaut", "chelsea")}
    assert known == {"astronaut": "train", "chelsea": "test"}


def test_edits_are_a_source_of_raw_pairs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = graph(tmp_path, monkeypatch)
    firsts = [row for row in rows if (row["turn"] or 1) == 1 and row["split"] == "train"]
    taken = []
    for task in VALUES["tasks"]:
        given = {"sources": {task: {"photos": {"format": "photos", "path": "data/photos/edits.parquet"}}}}
        plan = importing.plan(VALUES | {"raw_pairs": VALUES["raw_pairs"] | given}, task)
        kept: list[dict] = []
        report = importing.collect(plan, lambda: [], kept.append, lambda _: None, Path("work"))
        assert {row["name"] for row in report["sources"][0]["unmapped"]} <= {"Later turn", "For suites"}
        assert report["sources"][0]["refused"] == 0
        assert {row["task"] for row in kept} <= {task}
        taken += kept
    by_key = {f"{row['task']}.photos.{row['key']}": row for row in firsts}
    assert {row["key"] for row in taken} == by_key.keys()
    for row in taken:
        assert {row[name] == by_key[row["key"]][name] for name in ("image", "edit", "origin", "instruction")} == {True}
        assert [each["box"] for each in row["regions"]] == [each["box"] for each in by_key[row["key"]]["regions"]]


def photo_of(*objects: PhotoRegion) -> Photo:
    tags = {"background": [], "object": [], "summary": None}
    return Photo("k", "p.png", 90, 90, (), None, tags, (), objects)


def test_dialogues_are_about_places_apart() -> None:
    from editjudge.photos.settings import Instructions

    setting = read_setting("instructions", Instructions, VALUES["instructions"])
    apart = (PhotoRegion("a", (0, 0, 30, 30), None, 1.0), PhotoRegion("b", (60, 60, 90, 90), None, 1.0))
    for seed in range(20):
        chosen = edits.dialogue(photo_of(*apart), setting, np.random.default_rng(seed))
        found = [each.box for each in chosen]
        assert all(not boxes.intersections([one], found[n + 1 :]).any() for n, one in enumerate(found[:-1]))
    whole = PhotoRegion("a", (0, 0, 90, 90), None, 1.0)
    with pytest.raises(RowError, match="fewer than two"):
        edits.dialogue(photo_of(whole), setting, np.random.default_rng(0))


def test_thresholds_are_of_box_and_score() -> None:
    from editjudge.photos.settings import RegionThresholds

    limits = RegionThresholds(area_least=0.1, score_least=0.8, clip_least=0.5)
    sides = (0, 0, 30, 27)  # exactly a tenth of 90 x 90
    for region, good in (
        (PhotoRegion("a", sides, None, 0.8), True),
        (PhotoRegion("a", sides, None, 0.79), False),
        (PhotoRegion("a", (0, 0, 30, 26.9), None, 0.9), False),
        (PhotoRegion("a", sides, None, 0.9, clip_score=0.4), False),
        (PhotoRegion("a", sides, None, 0.9, clip_score=0.5), True),
    ):
        assert edits.passes(region, photo_of(region), limits) is good


def test_a_backgrounds_thresholds_are_those_that_are_set() -> None:
    behind = PhotoRegion("sky", (0, 0, 90, 45), None, 0.9)
    photo = Photo("k", "k", 90, 90, (), None, {}, (behind,))
    for least, chosen in ((0.5, 1), (0.6, 0)):
        given = VALUES["instructions"] | {"background": {"area_least": least, "score_least": 0.7}}
        found = edits.subjects(photo, read_setting("instructions", Instructions, given), ["background"])
        assert len(found["background"]) == chosen


def test_places_and_sizes_in_words() -> None:
    assert edits.where((0, 0, 30, 30), 90, 90) == "in the top left"
    assert edits.where((30, 30, 60, 60), 90, 90) == "in the centre"
    assert edits.where((60, 30, 90, 60), 90, 90) == "in the middle on the right"
    assert edits.where((30, 80, 60, 90), 90, 90) == "in the bottom centre"
    assert [edits.rough_size((0, 0, side, side), 90, 90) for side in (45, 30, 9)] == ["large", "medium-sized", "small"]
