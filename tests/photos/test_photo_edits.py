"""Photographs: the pool, the edits and dialogues that templates ask for, and the stages with models in all places."""

import contextlib
import csv
import json
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny_hub
import tiny_models
import yaml
from cases import each_row, yaml_beside
from chat_client import grounding_server
from in_process import alone
from PIL import Image

from editjudge.core import images, masks, params, records, tables
from editjudge.core import regions as boxes
from editjudge.core.errors import FileError
from editjudge.core.masks import rle_mask
from editjudge.core.reading import Record
from editjudge.core.settings import read as read_setting
from editjudge.core.tables import RowError
from editjudge.editors import procedural
from editjudge.engine import local, workers
from editjudge.models.chat.forms import Finding
from editjudge.photos import edits, locating, models, writers
from editjudge.photos.settings import BoxesSetting, BuiltIn, Instructions, ObjectThresholds, PhotoModelSetting
from editjudge.sources import importing, photo_records
from editjudge.sources.builtin import photos
from editjudge.sources.photo_records import Photo, PhotoRegion
from editjudge.stages import instructions, photo_pool, regions
from editjudge.vision import aesthetics, segmenters
from editjudge.vision.detectors import GroundingDino

ROOT = Path(__file__).parents[2]
VALUES = params.load(ROOT / "params.yaml")
# The published record, as its authors show it; masks and lists are cut there.
TABLES = yaml_beside(__file__)
PUBLISHED = TABLES["PUBLISHED"]


TYPES = ["add", "remove", "replace", "adjust", "background", "style", "action", "extract", "compose"]
WRITTEN = {"types": TYPES, "writer": {"backend": "endpoint", "model": "m", "base_url": "http://127.0.0.1:1/v1"}}


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


@pytest.fixture(autouse=True)
def in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(models, "Workers", alone)


@pytest.fixture(scope="module")
def photographed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which one process made the pool, regions and edits of the committed settings; read only."""
    folder = tmp_path_factory.mktemp("photographed")
    values = {name: VALUES[name] for name in ("photo_pool", "regions", "instructions")}
    with contextlib.chdir(folder), pytest.MonkeyPatch.context() as patch:
        patch.setattr(models, "Workers", alone)
        Path("params.yaml").write_text(yaml.safe_dump(values))
        staged()
    return folder


@pytest.fixture
def asked(photographed: Path, workdir: Path) -> Callable[..., list[dict]]:
    """In a copy: asked(**changes), the rows that the stage instructions makes with changed settings."""
    shutil.copytree(photographed, workdir, dirs_exist_ok=True)

    def run(**changes: object) -> list[dict]:
        values = {"instructions": VALUES["instructions"] | changes, "photo_pool": VALUES["photo_pool"]}
        Path("params.yaml").write_text(yaml.safe_dump(values))
        instructions.run()
        return records.read(Path("data/photos/edits.parquet"), "photo_edits")

    return run


def test_the_published_record_is_read_and_written(published: dict, tmp_path: Path) -> None:
    photo = read(published)
    assert (photo.key[:8], photo.height, photo.width) == ("00095-00", 72, 96)
    assert photo.caption == PUBLISHED["cap"][0]
    assert photo.object[0].pixels(72, 96).sum() == 36 * 32
    row = photo.row()
    assert [*row["obj_count"].items(), row["bg_count"]] == [("bow tie", 1), ("bride", 1), {"sky": 1}]
    assert photo.object[0].area(72, 96) == 36 * 32 / (72 * 96)
    assert row["segmentation"] == published["segmentation"]
    assert {row[name] == published[name] for name in ("path", "cap", "resolution", "aes", "tags")} == {True}
    assert read(row) == photo
    assert (replace(photo, cap=()).caption, len(read(row | {"key": "a" * 99}).key)) == (row["tags"]["summary"], 90)
    assert read(row | {"tags": {"summary": 3}}).tags == {"background": [], "object": [], "summary": None}
    with pytest.raises(records.ContractError, match=r"no\.jsonl: row 1 "):
        photo_records.write(tmp_path / "no.jsonl", [photo, replace(photo, key="a b")])


def test_a_mask_is_a_list_of_runs_or_has_counts_as_a_list_or_a_packed_text(published: dict) -> None:
    photo = read(published)
    runs = masks.run_lengths(photo.object[0].pixels(72, 96))
    for mask in (runs, {"size": [72, 96], "counts": runs}, {"counts": masks.packed(runs)}):
        published["segmentation"]["object"][0]["mask"] = mask
        assert read(published).object[0] == photo.object[0]


@each_row("place, value, reason, detail")
def test_a_record_that_cannot_be_used_says_why(published, place: tuple, value, reason: str, detail: str) -> None:
    node = published
    for part in place[:-1]:
        node = node[part]
    node[place[-1]] = value
    with pytest.raises(RowError) as error:
        read(published)
    assert (error.value.reason, error.value.detail) == (reason, detail)


def test_published_records_go_straight_to_instructions(published: dict, workdir: Path, photo: np.ndarray) -> None:
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
    assert refused("instructions") == TABLES["REFUSED_RECORDS"]
    assert json.loads(Path("metrics/instructions.json").read_text())[0]["records"] == 8


def refused(stage: str) -> list[list[str]]:
    return [*csv.reader(Path(f"data/refused/{stage}.csv").read_text().splitlines()[1:])]


def gap(a: np.ndarray, b: np.ndarray) -> float:
    return float(np.abs(a.astype(int) - b).mean())


def test_the_probes_edits_can_be_carried_out(asked: Callable[..., list[dict]]) -> None:
    rows = records.read(Path("data/photos/edits.parquet"), "photo_edits")
    single, turns = [row for row in rows if row["turn"] is None], [row for row in rows if row["turn"]]
    assert {row["origin"] for row in rows} == (photos.TRAIN | photos.BENCHMARK).keys() - {"moon"}, "too dull"
    assert all((row["split"] == "test") == (row["origin"] in photos.BENCHMARK) for row in rows)
    [metrics] = json.loads(Path("metrics/instructions.json").read_text())
    assert metrics["test"] == sum(row["split"] == "test" for row in rows)
    assert len({row["key"] for row in rows}) == len(rows)
    dialogues = {row["dialogue"]: [] for row in turns}
    for row in turns:
        dialogues[row["dialogue"]].append(row)
    assert len(dialogues) == len({row["origin"] for row in turns})
    for own in dialogues.values():
        assert [row["turn"] for row in own] == list(range(1, len(own) + 1))
        assert 2 <= len(own) <= 3
        assert {row["type"] for row in own} <= {"add", "remove", "adjust"}
        turn, source = [procedural.parse_edit(row["edit"]) for row in own], images.decode(own[0]["image"])
        after = [source]
        for edit in turn:
            after.append(procedural.carry_out(after[-1], edit).clean)
            assert (after[-1] != after[-2]).any(), "each turn goes on from what the one before gave"
        if "backtracking" in own[0]["dialogue"]:  # as if the second turn had never been
            again = procedural.carry_out(after[1], turn[2]).clean
            assert 2 * gap(after[3], again) < gap(after[3], after[2])
        if "memory" in own[0]["dialogue"]:
            assert len({edit["material"] for edit in turn}) == 1
            assert turn[0]["material"] in own[0]["instruction"]
            assert turn[1]["material"] not in own[1]["instruction"]
    assert {name.rpartition("-")[2] for name in dialogues} == {f"{kind}0" for kind in edits.KINDS}
    rng = np.random.default_rng(0)
    for row in rows:
        source = images.decode(row["image"])
        assert max(source.shape) == 192
        made, damage = procedural.edit_image(source, procedural.parse_edit(row["edit"]), "precise", 0.0, rng)
        assert damage == 0
        assert (made != source).any(), row["key"]
        assert not re.search(r"\ba [aeiou]", row["instruction"])
    before = Path("data/photos/edits.parquet").read_bytes()
    asked()
    assert Path("data/photos/edits.parquet").read_bytes() == before
    assert len(single) > len(asked(per_photo=2, dialogues=0)) > 0


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


@pytest.mark.usefixtures("asked")
def test_edits_are_a_source_of_raw_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "WORTH", 1_000_000)  # all in this process
    rows = records.read(Path("data/photos/edits.parquet"), "photo_edits")
    firsts = [row for row in rows if (row["turn"] or 1) == 1 and row["split"] == "train"]
    said = {(row["origin"], row["instruction"]) for row in firsts}
    taken, again = [], 0  # a dialogue may begin with what a single edit asks for
    for task in VALUES["tasks"]:
        given = {"sources": {task: {"photos": {"format": "photos", "path": "data/photos/edits.parquet"}}}}
        plan = importing.plan(VALUES | {"raw_pairs": VALUES["raw_pairs"] | given}, task)
        kept: list[dict] = []
        report = importing.collect(plan, lambda: [], kept.append, lambda _: None, Path("work"))
        assert {row["name"] for row in report["sources"][0]["unmapped"]} <= {"Later turn", "For suites"}
        assert {each["reason"] for each in report["sources"][0]["reasons"]} <= {"duplicate pair"}
        again += report["sources"][0]["refused"]
        assert {row["task"] for row in kept} <= {task}
        taken += kept
    by_key = {f"{row['task']}.photos.{row['key']}": row for row in firsts}
    assert {row["key"] for row in taken} <= by_key.keys()
    assert {(row["origin"], row["instruction"]) for row in taken} == said
    assert len(taken) == len(said) == len(firsts) - again
    for row in taken:
        assert {row[name] == by_key[row["key"]][name] for name in ("image", "edit", "origin", "instruction")} == {True}
        assert [each["box"] for each in row["regions"]] == [each["box"] for each in by_key[row["key"]]["regions"]]


def photo_of(*objects: PhotoRegion) -> Photo:
    return Photo("k", "p.png", 90, 90, (), None, {"background": [], "object": [], "summary": None}, (), objects)


NOTHING = edits.ScaledPhoto(np.zeros((90, 90, 3), np.uint8), b"", 1.0)


def test_dialogues_have_the_grammar_of_their_kind() -> None:
    """Types by turn, as ImgEdit's tools/5_generate_prompt.py has them."""
    given = VALUES["instructions"] | WRITTEN | {"dialogues": 3, "per_photo": 9}
    setting = read_setting("instructions", Instructions, given)
    apart = (PhotoRegion("a", (0, 0, 30, 30), None, 1.0), PhotoRegion("b", (60, 60, 90, 90), None, 1.0))
    ninths = [(x, y, x + 24, y + 24) for y in (3, 33, 63) for x in (3, 33, 63)]
    assert edits.free_spots(photo_of(*apart)) == ninths[1:-1], "all but where the two are"
    for x1, count in ((21, 9), (22, 8)):  # a tenth may be covered, of 40 x 40 pixels
        tenth = replace(photo_of(PhotoRegion("a", (5, 5, x1, 15), None, 1.0)), height=150, width=150)
        assert len(edits.free_spots(tenth)) == count
    seen = dict[str, set[tuple[str, ...]]]()
    for seed in range(40):
        for kind, turns in edits.dialogues(photo_of(*apart), setting, np.random.default_rng(seed)):
            seen.setdefault(kind, set()).add(tuple(each.type for each in turns))
            one, *others = [each.box for each in turns]
            assert boxes.intersections([one], others).any() == (kind != "content_memory"), "a thing, or two apart"
    two, (first, *last) = ("replace", "adjust"), ("add", "adjust")
    assert seen == {
        "content_memory": {(a, b) for a in two for b in two},
        "content_understanding": {(first, *last, "remove"), (first, *last, "replace")},
        "version_backtracking": {("add", "replace", "adjust")},
    }
    whole = PhotoRegion("a", (0, 0, 90, 90), None, 1.0)
    to, said = records.Refusals((told := list[dict]()).append), ["no", edits.EditText("x", []), "neither"]
    assert len([*edits.planned(photo_of(whole), NOTHING, setting, to)]) == 5
    group = [(photo_of(*apart), images.encode_png(NOTHING.rgb))]
    own = replace(setting, per_photo=0, dialogues=1)
    assert not [*edits.rows(group, own, lambda wanted: said[: len(wanted)], to)], "a dialogue lacks none of its turns"
    assert told == TABLES["REFUSED_EDITS"]


def test_templates_name_an_object_and_edit_its_largest_part() -> None:
    mask = np.zeros((90, 90), bool)
    mask[5:35, 5:35] = mask[70:80, 70:80] = True
    owl = PhotoRegion("owl", (5, 5, 80, 80), masks.packed(masks.run_lengths(mask)), 1.0)
    photo = photo_of(owl, *(PhotoRegion("owl", (0, 60, side, 70), None, 1.0) for side in (5, 4)))
    choices = [edits.Choice("remove", "subject_remove", each) for each in photo.object]
    sky = PhotoRegion("sky", (0, 0, 90, 85), None, 1.0)  # in which all objects lie
    choices.append(edits.Choice("background", "background_change", sky))
    planned = [edits.PlannedEdit(str(n), photo, NOTHING, each, "train") for n, each in enumerate(choices)]
    first, second, third, behind = writers.fill_templates(planned, 0)
    assert boxes.box_around((*point, *point) for point in json.loads(first.edit)["polygon"]) == (5, 5, 34, 34)
    told = ("the owl in the centre", "the owl in the bottom left", "the main subject")
    assert all(words in text.instruction for words, text in zip(told, (first, second, behind), strict=True))
    assert third == "the region is too small to be edited"
    two = [PhotoRegion("owl", (side, 30, side + 40, 60), None, 1.0) for side in (70, 140)]
    wide, shown = replace(photo, width=180, object=tuple(two)), replace(NOTHING, rgb=np.zeros((90, 180, 3), np.uint8))
    wide_choices = [edits.Choice("remove", "subject_remove", each) for each in two]
    texts = writers.fill_templates([edits.PlannedEdit("w", wide, shown, each, "train") for each in wide_choices], 0)
    assert "the owl in the centre" in texts[0].instruction
    assert "the owl in the middle on the right" in texts[1].instruction


def test_two_operations_of_two_objects_far_apart_are_composed() -> None:
    setting = read_setting("instructions", Instructions, VALUES["instructions"] | WRITTEN)
    near, far = (PhotoRegion(name, (n, 0, n + 200, 200), None, 1.0) for name, n in (("cup", 300), ("box", 301)))
    cat = PhotoRegion("cat", (0, 0, 200, 200), None, 1.0)
    mask = boxes.boxes_mask([(301, 0, 501, 100)], 400, 1000)
    far = replace(far, mask=masks.packed(masks.run_lengths(mask)))
    sky, other = PhotoRegion("sky", (0, 0, 1000, 50), None, 1.0), replace(cat, bbox=(800, 0, 1000, 200))
    photo = Photo("k", "p.png", 400, 1000, (), None, {}, (sky,), (cat, near, far, other))
    found = [each.parts for each in edits.subjects(photo, setting, ["compose"])["compose"]]
    assert {each.type for parts in found for each in parts} == {"remove", "replace", "adjust"}
    assert all(a.type != b.type for a, b in found)
    pairs = {tuple(sorted(each.region.bbox[0] for each in parts)) for parts in found}
    assert pairs == {(0, 301), (300, 800), (301, 800)}, "100 pixels are too near, and two of a name one thing"
    shown = edits.ScaledPhoto(np.zeros((200, 500, 3), np.uint8), b"", 0.5)
    choices = [edits.Choice("compose", "", parts=found[0]), edits.Choice("add", "", spot=(40, 0, 80, 60))]
    choices += [edits.Choice("adjust", "color_alter", spot=(40, 0, 80, 60)), edits.Choice("style", "style_transfer")]
    planned, asked = [edits.PlannedEdit(str(n), photo, shown, each, "train") for n, each in enumerate(choices)], []
    said = Finding("k", [{"object": "both", "instruction": "Do both."}], "", None)
    text, added, *_ = writers.write(planned, lambda inquiries, _: asked.extend(inquiries) or [said] * 4)
    assert added.regions == [{"label": "both", "box": [20, 0, 40, 30]}], "what is added, where it will be"
    assert [each["box"][0] for each in text.regions] == [part.region.bbox[0] // 2 for part in found[0]]
    assert np.array_equal(masks.png_mask(text.regions[1]["mask"]), mask[::2, ::2])
    lines = [each.instruction.splitlines() for each in asked]
    told = [[line.partition(": ")[2] for line in own[:4]] for own in lines]
    assert told == [["of cat, cup, box, sky", *each] for each in TABLES["TOLD"]]


@each_row("alive, names")
def test_people_and_animals_are_asked_for_another_action(alive: bool, names: list[str]) -> None:
    assert [name for name in names if edits.is_alive(name) is not alive] == []


def test_thresholds_are_those_of_the_public_tool() -> None:
    """1 % < area <= 60 %, and clip >= 0.8 or (area >= 8 % and score >= 0.8)."""
    own = yaml.safe_load((ROOT / "profiles/paper.yaml").read_text())["instructions"]["objects"]
    limits = read_setting("objects", ObjectThresholds, own)
    for box, score, clip_score, good in TABLES["THRESHOLDS"]:
        region = PhotoRegion("a", tuple(box), None, score, clip_score=clip_score)
        assert edits.passes(region, photo_of(region), limits) is good
    photo = Photo("k", "k", 90, 90, (), None, {}, (PhotoRegion("sky", (0, 0, 90, 45), None, 0.9),))
    cup = photo_of(PhotoRegion("cup", (0, 0, 45, 45), None, 0.9))
    for most, count in ((0.25, 1), (0.24, 0)):
        given = VALUES["instructions"] | WRITTEN | {"objects": own | {"score_least": 0.7, "remove_area_most": most}}
        found = edits.subjects(cup, read_setting("instructions", Instructions, given), ["remove", "replace", "adjust"])
        assert {kind: len(each) for kind, each in found.items()} == {"remove": count, "replace": count, "adjust": 3}
    for least, chosen in ((0.4, 1), (0.5, 0)):
        given = VALUES["instructions"] | {"background": {"area_least": least, "score_least": 0.7}}
        found = edits.subjects(photo, read_setting("instructions", Instructions, given), ["background"])
        assert len(found["background"]) == chosen


def test_a_region_alone_is_on_white_and_a_photograph_made_smaller_or_left_as_it_is(photo: np.ndarray) -> None:
    rgb, mask = np.full((90, 90, 3), 7, np.uint8), np.zeros((90, 90), bool)
    mask[10:20, 30:50] = True
    region = PhotoRegion("a", (25.0, 10.0, 50.0, 30.0), masks.packed(masks.run_lengths(mask)), 1.0)
    shown = locating.on_white(rgb, region)
    assert shown.shape == (20, 25, 3)
    assert (shown[:10, 5:] == 7).all()
    assert (shown[10:] == 255).all()
    assert (shown[:, :5] == 255).all()
    seen = []
    [scored] = locating.scored(rgb, [region], lambda parts: seen.extend(parts) or [3.5])
    assert np.array_equal(seen[0], shown)
    assert scored.aes_score == 3.5
    data, record = images.encode_png(photo), replace(photo_of(), height=72, width=96)
    assert all(edits.scaled_photo(record, data, side).data is data for side in (0, 96, 97))
    small, quarters = edits.scaled_photo(record, data, 24), photo.reshape(18, 4, 24, 4, 3).mean((1, 3))
    assert (np.abs(images.decode(small.data) - quarters).max() <= 1, small.scale) == (True, 0.25)
    with pytest.raises(RowError, match="another size: 96 x 72 pixels, its record has 90 x 72"):
        edits.scaled_photo(replace(record, width=90), data, 0)


@each_row("box, place, size")
def test_places_and_sizes_in_words(box: list[float], place: str, size: str) -> None:
    assert (edits.where(box, 90, 90), edits.rough_size(box, 90, 90)) == (place, size)


def pooled(**changes: object) -> tuple[list[dict], dict, list[list[str]]]:
    """The pool's rows, its metrics, and the lines of what was refused, of a run with changed settings."""
    Path("params.yaml").write_text(yaml.safe_dump({"photo_pool": VALUES["photo_pool"] | changes}))
    photo_pool.run()
    return pool()


def pool() -> tuple[list[dict], dict, list[list[str]]]:
    rows = records.read(Path("data/photos/pool.parquet"), "photo_pool")
    return rows, json.loads(Path("metrics/photo_pool.json").read_text())[0], refused("photo_pool")


@pytest.fixture
def folder(workdir: Path, photo: np.ndarray) -> Path:
    """Photographs of which two can be kept."""
    own = Path("photos/sub")
    own.mkdir(parents=True)
    (own.parent / "a.png").write_bytes(images.encode_png(photo))
    (own.parent / "again.png").write_bytes(images.encode_png(photo))
    Image.fromarray(photo[::-1, ::-1]).save(own / "turned.jpg", quality=95)
    (own.parent / "broken.png").write_bytes(b"\x89PNG junk")
    (own.parent / "flat.png").write_bytes(images.encode_png(np.full((80, 80, 3), 90, np.uint8)))
    (own.parent / "small.png").write_bytes(images.encode_png(photo[:40]))
    (own.parent / "notes.txt").write_text("none")
    for name in TABLES["UNREAD"]:
        (own.parent / name).write_bytes(b"none")
    Image.fromarray(photo).save(own.parent / "scan.TIFF")  # one that could be read
    return own.parent


def test_what_passes_and_why_others_do_not(folder: Path, photo: np.ndarray) -> None:
    filters = {"side_above": 71, "aesthetic_above": 0.0, "near_bits": 4}
    rows, metrics, refused = pooled(photos=str(folder), filters=filters)
    assert [row["path"] for row in rows] == ["a.png", "sub/turned.jpg"]
    assert rows[0]["aes"] == aesthetics.colour_sharpness(photo)
    assert rows[0]["tags"] == {"background": [], "object": [], "summary": None}
    assert (rows[0]["height"], rows[0]["width"]) == (72, 96)
    unread = {name: ["broken image", "not a PNG, JPEG or WebP image"] for name in TABLES["UNREAD"]}
    assert {name: why for name, *why in refused} == unread | TABLES["REFUSED_PHOTOS"]
    assert (metrics["photos"], metrics["records"], metrics["refused"]) == (17, 2, 15)
    before = Path("data/photos/pool.parquet").read_bytes()
    pooled(photos=str(folder), filters=filters)
    assert Path("data/photos/pool.parquet").read_bytes() == before
    # The published side: what was kept by the old one does not count.
    with pytest.raises(ValueError, match="no photograph was kept"):
        pooled(photos=str(folder), filters={"side_above": 1280, "aesthetic_above": -100.0, "near_bits": 4})
    assert json.loads(Path("metrics/photo_pool.json").read_text())[0]["refused"] == 17


def test_any_number_of_workers_gives_the_same_pool_and_regions(workdir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(models, "Workers", workers.Workers)
    monkeypatch.setattr(models, "GROUP", 2)
    monkeypatch.setattr("editjudge.photos.pool.given", lambda _: sorted(photos.TRAIN)[:6])
    Path("params.yaml").write_text(yaml.safe_dump({name: VALUES[name] for name in ("photo_pool", "regions")}))
    found = []
    for count in (1, 2):
        shutil.rmtree("work", ignore_errors=True)
        monkeypatch.setattr(models, "places", lambda _, count=count: ["cpu"] * count)
        photo_pool.run()
        regions.run()
        found.append([Path(f"data/photos/{name}").read_bytes() for name in ("pool.parquet", "records.jsonl")])
    assert found[0] == found[1]


@each_row("devices, places")
def test_models_run_on_each_gpu_or_on_the_one_that_is_named(monkeypatch, devices, places) -> None:
    monkeypatch.setattr(local, "gpus", lambda: 2)
    monkeypatch.setattr(local, "cpus", lambda: 3)
    how = {str(n): PhotoModelSetting(backend="clip", model="m", device=device) for n, device in enumerate(devices)}
    assert models.places(how | {"built in": BuiltIn("none")}) == places


def test_a_list_names_photographs_from_where_it_lies_and_what_is_not_there_is_named(folder: Path) -> None:
    (folder / "list.txt").write_bytes(b"sub/turned.jpg\n\na.png\na.png\n../secret.png\nnone.png\n\xff.png\n")
    filters = {"side_above": 8, "aesthetic_above": 0.0, "near_bits": 4}
    rows, _, refused = pooled(photos=str(folder / "list.txt"), filters=filters)
    assert [row["path"] for row in rows] == ["sub/turned.jpg", "a.png"]
    told = {"../secret.png": "path leaves the folder", "none.png": "image missing", "\ufffd.png": "image missing"}
    assert [tuple(line[:2]) for line in refused] == list(told.items())
    Path("empty").mkdir()
    for name, why in (("none/such", "not found"), ("empty", "has no photograph")):
        with pytest.raises(FileError, match=rf"photo_pool.photos: {name} {why}"):
            pooled(photos=name)


def test_the_probes_photos_have_the_labels_of_their_regions(photographed: Path, monkeypatch) -> None:
    monkeypatch.chdir(photographed)
    rows, _, refused = pool()
    assert {row["path"] for row in rows} == (photos.TRAIN | photos.BENCHMARK).keys() - {"moon"}
    assert refused == [["moon", "aesthetic score", f"{aesthetics.colour_sharpness(photos.load('moon')):g}"]]
    [cat] = [row for row in rows if row["path"] == "chelsea"]
    assert cat["tags"]["object"][:2] == ["cat", "cat head"]
    assert cat["tags"]["background"] == ["background"]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Checkpoints by name."""
    root = tmp_path_factory.mktemp("models")
    made = {
        "dino": tiny_models.save_detector(root / "dino"),
        "clip": tiny_models.clip_folder(root / "clip"),
        "head": tiny_models.laion_head(root / "head.safetensors"),
        "sam2": tiny_models.write("segmenter", root / "sam2"),
    }
    return {name: str(path) for name, path in made.items()}


def write(folders: dict[str, str], url: str, detector: dict[str, Any], **writer: Any) -> None:
    """Photographs of squares, and the settings of models for all that is asked."""
    Path("photos").mkdir(exist_ok=True)
    for n in range(3):
        Path(f"photos/{n}.png").write_bytes(tiny_hub.picture(n))
    asked = {"backend": "endpoint", "model": "m", "base_url": url}
    values = {name: json.loads(json.dumps(VALUES[name])) for name in ("photo_pool", "regions", "instructions")}
    values["photo_pool"] |= {"photos": "photos", "captioner": asked}
    values["photo_pool"]["filters"] = {"side_above": 64, "aesthetic_above": -100.0, "near_bits": -1}
    values["photo_pool"]["aesthetic"] = {"backend": "laion", "model": folders["clip"], "head": folders["head"]}
    own = {"segmenter": "sam2", "clip": "clip"}.items()
    values["regions"] = {role: {"backend": name, "model": folders[name]} for role, name in own} | {"detector": detector}
    every = {"area_least": 0.0, "score_least": 0.0}
    values["instructions"] |= {"types": TYPES, "per_photo": 9, "side": 96, "writer": asked | writer, "objects": every}
    values["instructions"]["background"] = every
    Path("params.yaml").write_text(yaml.safe_dump(values))


def staged() -> list[dict]:
    for stage in (photo_pool, regions, instructions):
        stage.run()
    return records.read(Path("data/photos/edits.parquet"), "photo_edits")


def test_every_place_has_its_model(folders: dict[str, str], workdir: Path) -> None:
    with grounding_server() as server:
        write(folders, server.url, {"backend": "grounding_dino", "model": folders["dino"], "threshold": 0.0, "most": 5})
        rows = staged()
        asked = sum(server.log()["kinds"].values())
        first = {name: Path(f"data/photos/{name}").read_bytes() for name in ("records.jsonl", "edits.parquet")}
        staged()
        assert sum(server.log()["kinds"].values()) == asked, "every answer is kept"
    assert first == {name: Path(f"data/photos/{name}").read_bytes() for name in first}
    counts = json.loads(Path("metrics/resume/regions.json").read_text())
    assert (counts["computed"], counts["reused"] > 0) == (0, True)
    for line in tables.jsonl(Path("data/photos/records.jsonl")):
        assert line["cap"] == ["Squares on a wall."]
        found = [*line["segmentation"]["object"], *line["segmentation"]["background"]]
        assert 0 < len(found) <= 5
        over = boxes.overlaps(*[[region["bbox"] for region in found]] * 2)
        assert (over - np.eye(len(found))).max() <= 0.5 + 1e-3, "whatever they are called"
        for region in found:
            assert rle_mask(region["mask"], tiny_hub.HEIGHT, tiny_hub.WIDTH).any()
            assert 0 <= region["clip_score"] <= 1
            assert isinstance(region["score"], float)
            assert 0 <= region["detector_score"] <= 1 != region["score"]
            assert region["class_name"] in ("red square", "green square", "blue square")
            assert isinstance(region["aes_score"], float)
    assert {row["type"] for row in rows} >= {"style"}
    for row in rows:
        assert row["edit"] is None
        assert images.decode(row["image"]).shape == (72, 96, 3)
        for region in row["regions"]:
            x0, y0, x1, y1 = region["box"]
            assert 0 <= x0 < x1 <= 96
            assert 0 <= y0 < y1 <= 72
    [report] = json.loads(Path("metrics/instructions.json").read_text())
    assert report["cost"][0]["answers"] > 0


def test_a_detector_looks_at_several_photographs_at_once(folders: dict[str, str], monkeypatch) -> None:
    setting = BoxesSetting(backend="grounding_dino", model=folders["dino"], threshold=0.0, most=3, batch_size=2)
    detector, seen = GroundingDino("d", folders["dino"], "cpu", "float32", 2), []
    look = detector._detect
    monkeypatch.setattr(detector, "_detect", lambda rgbs, texts: seen.append(len(rgbs)) or look(rgbs, texts))
    find = locating.Locator(
        setting, detector, segmenters.EachBox(segmenters.grabcut), None, lambda parts: [0.0] * len(parts)
    ).find
    nouns = [["red square", "green square"], [], ["blue square"], ["red square"]]
    rows = [{"image": tiny_hub.picture(n), "tags": {"object": own, "background": []}} for n, own in enumerate(nouns)]
    told = list(locating.told(find, rows))
    assert seen == [1, 2], "of the first two, one names nothing"
    assert told[1]["detail"] == "no nouns to look for: photo_pool.captioner must be a model"
    assert told == [each for row in rows for each in locating.told(find, [row])]
    [halves] = locating.told(find, [rows[0] | {"tags": dict.fromkeys(("object", "background"), TABLES["NOUNS"])}])
    assert (halves["background"], len(halves["object"]) > 0) == ([], True), "what is both is an object"


def test_bad_replies_are_refused_with_a_reason(folders: dict[str, str], workdir: Path) -> None:
    detector = {"backend": "grounding_dino", "model": folders["dino"], "threshold": 0.0, "most": 3}
    with grounding_server() as server:
        write(folders, server.url, detector, reply_tries=1)
        photo_pool.run()
        regions.run()
    with grounding_server(always={"": "refusal"}) as server:
        write(folders, server.url, detector, reply_tries=1, tries=1)
        with pytest.raises(tables.TableError, match="no instruction was written"):
            instructions.run()
        refused = Path("data/refused/instructions.csv").read_text()
        assert 'not written,"writer: the reply holds no JSON object' in refused
        write(folders, server.url, detector)
        values = params.load()
        values["photo_pool"]["captioner"] |= {"model": "other", "reply_tries": 1}
        Path("params.yaml").write_text(yaml.safe_dump(values))
        with pytest.raises(tables.TableError, match="no photograph was kept"):
            photo_pool.run()
        assert 'no caption,"captioner: the reply holds no JSON' in Path("data/refused/photo_pool.csv").read_text()


def test_clip_scores_are_a_softmax_of_a_hundred_cosines() -> None:
    rng = np.random.default_rng(0)
    shown, told = rng.normal(size=(3, 8)), rng.normal(size=(6, 8))
    for n, score in enumerate(locating.clip_scores(shown, told)):
        both = told[2 * n : 2 * n + 2]
        cosines = [shown[n] @ each / np.linalg.norm(shown[n]) / np.linalg.norm(each) for each in both]
        odds = np.exp(100 * np.array(cosines) - 100 * max(cosines))
        assert score == pytest.approx(odds[0] / odds.sum(), abs=1e-6)
    assert locating.clip_scores(shown[:1], np.stack([shown[0], -shown[0]])) == [1.0]
