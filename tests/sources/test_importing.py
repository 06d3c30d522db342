"""Published data sets, written here by hand in their own forms; and what becomes of rows and files that are broken."""

import contextlib
import csv
import io
import json
import os
import shutil
import sys
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from cases import each_row, yaml_beside
from http_handler import Handler, served
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from pictures import bomb, many_scans
from PIL import Image
from table_files import jsonl, parquet

from editjudge.core import images, main, params, records, tables
from editjudge.core.reading import READERS, Record
from editjudge.core.tables import RowError, TableError
from editjudge.engine import workers
from editjudge.sources import formats, importing, settings
from editjudge.sources.builtin import scenes
from editjudge.sources.duplicates import Seen
from editjudge.stages import raw_pairs

ROOT = Path(__file__).parents[2]
SHARED = Path(os.environ.get("EDITJUDGE_SHARED", ROOT.parent / "shared")) / "data/instructions"
PROBE = {"per_task": 2, "image_side": 48, "seed": 1}
FILTERS = {"instruction_least": 10, "instruction_most": 300, "side_least": 16, "side_most": 512, "aspect_most": 4.0}
DOWNLOADS = {"at_once": 4, "megabytes": 0.5, "seconds": 5.0, "attempts": 1, "private_hosts": False}
TASKS = dict.fromkeys(("background_change", "color_alter", "motion_change", "object_extraction"), "p")
TASKS |= {"subject_add": "p", "subject_remove": "p"}
TABLE = {"format": "plain", "path": "x"}
TEXT = "Remove the red flag from the upper right."


def png(seed: int, width: int = 32, height: int = 24) -> bytes:
    """A picture of broad patches, so that its perceptual hash is far from other seeds' and survives JPEG."""
    small = np.random.default_rng(seed).integers(0, 256, (8, 8, 3), dtype=np.uint8)
    return images.encode_png(np.asarray(Image.fromarray(small).resize((width, height), Image.Resampling.BICUBIC)))


def save(folder: Path, *paths: str) -> None:
    """ImageChecker in a folder, each its own."""
    for path in paths:
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(png(zlib.crc32(path.encode())))


class Imported:
    """What became of one source: rows that fit the contract, refused rows, counts."""

    def __init__(self, work: Path, task: str, filters: dict, sources: dict) -> None:
        values = {"filters": FILTERS | filters, "downloads": DOWNLOADS, "sources": {task: sources}}
        self.rows: list[dict] = []
        self.refused: list[dict] = []
        plan = importing.plan({"tasks": TASKS, "raw_pairs": PROBE | values}, task)
        self.report = importing.collect(plan, list, self.rows.append, self.refused.append, work)
        records.check("raw_pairs", self.rows, "rows")
        for counts in self.report["sources"]:
            unmapped = sum(entry["rows"] for entry in counts["unmapped"])
            assert counts["rows"] == counts["kept"] + counts["refused"] + counts["other_task"] + unmapped
            assert counts["refused"] == sum(entry["rows"] for entry in counts["reasons"])
            assert counts["reasons"] == sorted(counts["reasons"], key=lambda entry: entry["reason"])

    @property
    def reasons(self) -> list[tuple[int, str]]:
        return [(row["row"], row["reason"]) for row in self.refused]

    @property
    def instructions(self) -> list[str]:
        return [row["instruction"] for row in self.rows]


Importer = Callable[..., Imported]


@pytest.fixture
def load(tmp_path: Path) -> Importer:
    """`load(task, format, path, **options)`."""

    def one(task: str, form: str, path: Path, filters: dict | None = None, **options: object) -> Imported:
        bounds = {"near_bits": -1} | (filters or {})
        return Imported(tmp_path / "work", task, bounds, {"s": {"format": form, "path": str(path)} | options})

    return one


TABLES = yaml_beside(__file__)
FORMS = TABLES["FORMS"]
[PICO, *_] = FORMS["pico_banana"]["files"]["sft.jsonl"]


def written(file: Path, rows: Any) -> dict[bytes, int]:
    """The rows in a file, with the pictures in the place of {png: n}; their numbers."""
    numbers: dict[bytes, int] = {}

    def shown(value: Any) -> Any:
        if not isinstance(value, dict) or set(value) != {"png"}:
            return value
        numbers[data := png(value["png"])] = value["png"]
        return {"bytes": data, "path": None}

    file.parent.mkdir(parents=True, exist_ok=True)
    if file.suffix == ".json":
        file.write_text(json.dumps(rows, indent=1))
    else:
        rows = [{name: shown(value) for name, value in row.items()} for row in rows]
        parquet(file, rows) if file.suffix == ".parquet" else jsonl(file, *rows)
    return numbers


@pytest.mark.parametrize("form", FORMS)
def test_rows_of_each_published_form_become_pairs(form: str, load: Importer, tmp_path: Path) -> None:
    case: dict[str, Any] = {"pictures": []} | FORMS[form]
    save(tmp_path, *case["pictures"])
    names: dict[bytes, Any] = {(tmp_path / path).read_bytes(): path for path in case["pictures"]}
    for name, rows in case["files"].items():
        names |= written(tmp_path / name, rows)
    for each in case["loads"]:
        task, path, images = each["with"]["task"], tmp_path / each["with"]["path"], each["with"].get("images")
        options = {name: value for name, value in each["with"].items() if name not in ("task", "path", "images")}
        found = load(task, form, path, **options | ({"images": str(tmp_path / images)} if images else {}))
        rows, [counts] = found.rows, found.report["sources"]
        assert (counts["source"], counts["format"]) == ("s", form)
        assert {(row["task"], row["source"], row["edit"]) for row in rows} <= {(task, "s", None)}
        told = {
            "keys": [row["key"].removeprefix(f"{task}.s.") for row in rows],
            "instructions": found.instructions,
            "origins": [row["origin"] for row in rows],
            "pictures": [names[row["image"]] for row in rows],
            "boxes": [[region["box"] for region in row["regions"]] for row in rows],
            "labels": [[region["label"] for region in row["regions"]] for row in rows],
            "more": [len(records.references(row)) for row in rows],
            "counts": {name: counts[name] for name in ("rows", "kept", "other_task", "refused")},
            "unmapped": {kind["name"]: kind["listed"] for kind in counts["unmapped"]},
            "reasons": [list(reason) for reason in found.reasons],
        }
        assert {name: told[name] for name in each["gives"]} == each["gives"], each["with"]
        most = params.load(ROOT / "params.yaml")["raw_pairs"]["filters"]["instruction_most"]
        assert max(map(len, found.instructions), default=0) <= most, "of the committed filters"
        assert [*told["unmapped"]] == sorted(told["unmapped"])


def unicedit(key: str, subtask: str, seed: int) -> dict:
    row = {"key": key, "edit_task": "Object Editing", "edit_subtask": subtask, "prompt_cn": "移除柠檬。"}
    row |= {"src_image": {"bytes": png(seed), "path": None}, "edit_image": {"bytes": png(99), "path": None}}
    return row | {"prompt_en": f"Remove the lemon of picture {seed}."}


def test_unicedit_reads_no_image_of_other_tasks(load, tmp_path, monkeypatch) -> None:
    rows = [unicedit("a" * 32, "Subject Removal", 1)] + [unicedit(f"b{n}", "Color Alteration", 5) for n in range(9)]
    rows += [unicedit("c" * 32, "Subject Removal", 2), unicedit("d" * 32, "修复精灵球的破裂部分", 3)]
    file = parquet(tmp_path / "train-00000-of-00681.parquet", rows, row_group_size=4)
    read = []
    batches = tables._batches
    monkeypatch.setattr(tables, "_batches", lambda t, group, c: read.append((group, len(c))) or batches(t, group, c))
    found = load("subject_remove", "unicedit", file)
    assert [row["key"] for row in found.rows] == [f"subject_remove.s.{letter * 32}" for letter in "ac"]
    assert found.rows[0]["image"] == png(1)
    assert found.rows[0]["origin"] == "train-00000-of-00681.parquet: row 0"
    assert found.report["sources"][0]["unmapped"] == [{"name": "修复精灵球的破裂部分", "rows": 1, "listed": False}]
    whole = [group for group, columns in read if columns == 5]
    assert whole == [0, 2], "of the row group without a row of the task the text alone"
    chinese = load("subject_remove", "unicedit", file, instruction="prompt_cn")
    assert chinese.reasons == [(0, "instruction too short"), (10, "instruction too short")]


def cut_out(side: int, box: tuple[int, int, int, int], white: bool = False) -> bytes:
    """An image with a part cut out of it, transparent or white."""
    array = np.full((side, side, 4), (90, 120, 60, 255), np.uint8)
    array[box[1] : box[3], box[0] : box[2]] = 255 if white else 0
    buffer = io.BytesIO()
    Image.fromarray(array).convert("RGB" if white else "RGBA").save(buffer, "PNG")
    return buffer.getvalue()


@pytest.mark.parametrize("white", [False, True])
def test_magicbrush_from_the_hub(load: Importer, tmp_path: Path, white: bool) -> None:
    """Two turns of a photo and one of another, with the masks that inpainting takes."""
    shown = {"mask_img": cut_out(32, (4, 6, 20, 30), white), "target_img": png(9)}
    rows = [
        {"img_id": photo, "turn_index": turn, "instruction": TEXT}
        | {name: {"bytes": data, "path": "x.png"} for name, data in (shown | {"source_img": png(n, 32, 32)}).items()}
        for n, (photo, turn) in enumerate([("242679", 1), ("242679", 2), ("7", 1)])
    ]
    found = load("subject_remove", "magicbrush", parquet(tmp_path / "dev-00000-of-00004.parquet", rows))
    keys = [f"subject_remove.s.magicbrush_{end}" for end in ("242679_1", "242679_2", "7_1")]
    assert ([row["key"] for row in found.rows], found.refused) == (keys, [])
    assert [[r["box"] for r in row["regions"]] for row in found.rows] == [[[4, 6, 20, 30]]] * 3


def test_magicbrush_as_its_sessions(load: Importer, tmp_path: Path) -> None:
    (tmp_path / "images/242679").mkdir(parents=True)
    for name in ("242679-input.png", "242679-output1.png"):
        (tmp_path / "images/242679" / name).write_bytes(png(zlib.crc32(name.encode()), 32, 32))
    (tmp_path / "images/242679/242679-mask1.png").write_bytes(cut_out(32, (0, 0, 8, 16)))
    turns = [
        {"input": f"242679-{image}.png", "mask": f"242679-mask{n}.png", "output": f"242679-output{n}.png"}
        | {"instruction": TEXT}
        for n, image in ((1, "input"), (2, "output1"))
    ]
    (tmp_path / "edit_sessions.json").write_text(json.dumps({"242679": [*turns, 3]}))
    found = load("subject_remove", "magicbrush", tmp_path / "edit_sessions.json")
    [row] = found.rows
    assert (row["key"], row["regions"][0]["box"]) == ("subject_remove.s.magicbrush_242679_1", [0, 0, 8, 16])
    assert found.reasons == [(1, "image missing"), (2, "wrong type")], "the second turn's mask is not there"


def test_published_keys_that_are_not_unique_lose_no_row(load: Importer, tmp_path: Path) -> None:
    for length, longest in ((32, 49), (150, 120)):  # with the task and the source, and of no more than 120
        rows = [unicedit("a" * length, "Subject Removal", n) for n in (1, 2, 1)]
        found = load("subject_remove", "unicedit", parquet(tmp_path / "t.parquet", rows))
        [first, second] = [row["key"] for row in found.rows]
        assert first.startswith(f"subject_remove.s.{'a' * 32}")
        assert (len(first), second[:-9], second[-9]) == (longest, first[:111], "-")
        assert found.reasons == [(2, "duplicate pair")]


def test_what_refuses_more_than_a_twentieth_is_said(load: Importer, tmp_path: Path) -> None:
    save(tmp_path, *(f"{n}.png" for n in range(20)))
    rows = [plain(f"k{n}", f"Remove the flag of picture {n}.", f"{n}.png") for n in range(20)]
    rows[3]["instruction"] = rows[4]["instruction"] = "a" * 301
    rows[5]["image"] = "none.png"
    found = load("subject_remove", "plain", jsonl(tmp_path / "t.jsonl", *rows))
    lines = importing.refusals(found.report)
    assert lines == ["s: 2 of 20 rows refused: instruction too long (raw_pairs.filters.instruction_most)"]


def in_every_form(folder: Path, rows: list[dict]) -> tuple[Path, Path, Path]:
    """As CSV, where lists are JSON, as JSON lines and as Parquet."""
    with (file := folder / "t.csv").open("w", newline="", encoding="utf-8-sig") as out:
        writer = csv.DictWriter(out, rows[0])
        writer.writeheader()
        writer.writerows({k: json.dumps(v) if isinstance(v, list) else v for k, v in row.items()} for row in rows)
    return file, jsonl(folder / "t.jsonl", *rows), parquet(folder / "t.parquet", rows)


def test_ones_own_table_in_every_form(load: Importer, tmp_path: Path) -> None:
    save(tmp_path, "i/a.png", "i/b.png")
    rows = [{"key": "1", "instruction": "Make the cup, the one on the left, green", "image": "i/a.png"}]
    rows.append({"key": "Größe/2", "instruction": "Paint the “door” in\nblue", "image": "i/b.png"})
    found = [load("color_alter", "plain", file).rows for file in in_every_form(tmp_path, rows)]
    assert found[0] == found[1] == found[2]
    assert found[0][0]["key"] == "color_alter.s.1"
    assert found[0][1]["key"].startswith("color_alter.s.Gr-")
    renamed = jsonl(tmp_path / "u.jsonl", {"id": 7, "say": "Paint the door in blue", "file": "i/b.png"})
    [row] = load("color_alter", "plain", renamed, key="id", instruction="say", image="file").rows
    assert (row["key"], row["instruction"]) == ("color_alter.s.7", "Paint the door in blue")


def test_a_row_may_have_several_sources_in_every_form(load: Importer, tmp_path: Path) -> None:
    """The first is the image, and the others tell pairs apart; one alone is as an image."""
    save(tmp_path, "a.png", "b.png", "c.png")
    lists = {"1": ["a.png", "b.png"], "2": ["a.png", "c.png", "b.png"], "3": ["a.png", "b.png"], "4": ["c.png"]}
    rows = [{"key": key, "instruction": TEXT, "image": None, "sources": shown} for key, shown in lists.items()]
    rows.append({"key": "5", "instruction": TEXT, "image": "b.png", "sources": None})
    files = {name: (tmp_path / name).read_bytes() for name in ("a.png", "b.png", "c.png")}
    for file in in_every_form(tmp_path, rows):
        found = load("color_alter", "plain", file, {"near_bits": 4})
        shown = [[row["image"], *records.references(row).values()] for row in found.rows]
        assert shown == [[files[name] for name in lists[key]] for key in ("1", "2", "4")] + [[files["b.png"]]]
        assert [row["key"].rpartition(".")[2] for row in found.rows if "shown" in row] == ["1", "2"]
        assert found.reasons == [(2, "duplicate pair")]
    row = {"key": "1", "instruction": TEXT, "image": "a.png"}
    beside = (jsonl(tmp_path / "v.jsonl", row | {"sources": own}) for own in ("flickr", [], ["b.png"]))
    told = [load("color_alter", "plain", file) for file in beside]
    assert [each.reasons for each in told] == [[], [], [(0, "image and sources")]], "a column that says something else"
    held = rows[0] | {"sources": "mine", "pictures": [{"bytes": files[name]} for name in lists["1"]]}
    [row] = load("color_alter", "plain", parquet(tmp_path / "u.parquet", [held]), sources="pictures").rows
    assert (row["image"], row["shown"]) == (files["a.png"], [{"name": "source_2", "image": files["b.png"]}])


def test_sources_behind_addresses(load: Importer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Pictures(Handler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(png(int(self.path[1:])))

    monkeypatch.setitem(DOWNLOADS, "private_hosts", True)
    with served(Pictures) as server:
        urls = [f"http://127.0.0.1:{server.server_port}/{n}" for n in range(3)]
        rows = [{"key": str(n), "instruction": f"{TEXT} {n}", "sources": urls[: n + 1]} for n in range(3)]
        (tmp_path / "beside.png").write_bytes(png(9))
        rows.append({"key": "3", "instruction": TEXT, "sources": ["beside.png", urls[1]]})
        found = load("color_alter", "plain", jsonl(tmp_path / "t.jsonl", *rows))
    shown = [[row["image"], *records.references(row).values()] for row in found.rows]
    assert shown == [[png(n) for n in each] for each in ([0], [0, 1], [0, 1, 2], [9, 1])]
    assert [row["origin"] for row in found.rows] == [*urls[:1] * 3, "beside.png"]


def test_a_data_set_on_disk(load: Importer, tmp_path: Path) -> None:
    from datasets import Dataset, DatasetDict, Features, Value
    from datasets import Image as CheckedImage

    texts = dict.fromkeys(("img_id", "instruction", "task"), Value("string"))
    told = {"instruction": TEXT, "task": "subject_add"}
    rows = [{"img_id": str(n), "source_img": {"bytes": png(n), "path": None}} | told for n in range(3)]
    features = Features(texts | {"source_img": CheckedImage()})
    parts = {name: Dataset.from_list(rows[a:b], features) for name, a, b in (("train", 0, 2), ("dev", 2, 3))}
    DatasetDict(parts).save_to_disk(str(tmp_path / "d"))
    found = load("subject_remove", "datasets", tmp_path / "d", image="source_img")
    assert not found.report["sources"][0]["other_task"], "a column `task` of a saved data set says nothing"
    assert [row["image"] for row in found.rows] == [png(2), png(0), png(1)], "bytes as they were; splits by name"
    assert [row["key"] for row in found.rows] == [f"subject_remove.s.{n:08d}" for n in range(3)]
    [row] = load("subject_remove", "datasets", tmp_path / "d", image="source_img", key="img_id", files="dev").rows
    assert row["key"] == "subject_remove.s.2"
    Dataset.from_list([rows[0] | {"key": "own"}]).save_to_disk(tmp_path / "e")
    assert (
        load("subject_remove", "datasets", tmp_path / "e", image="source_img").rows[0]["key"] == "subject_remove.s.own"
    )
    with pytest.raises(TableError, match="no split test; it has dev, train"):
        load("subject_remove", "datasets", tmp_path / "d", files="test")
    with pytest.raises(TableError, match="not a folder that datasets saved"):
        load("subject_remove", "datasets", tmp_path)


def plain(key: str = "x", instruction: object = TEXT, image: object = "good.png", **more: object) -> dict:
    return {"key": key, "instruction": instruction, "image": image, **more}


BROKEN: dict[str, tuple[object, str, str]] = {  # rows, why they are refused, and how the detail begins
    **{name: (plain(**change), *why) for name, (change, *why) in TABLES["BROKEN"].items()},
    **{name: (line.encode("latin-1"), *why) for name, (line, *why) in TABLES["BROKEN_LINES"].items()},
    "utf-16": (json.dumps(plain()).encode("utf-16"), "not UTF-8", ""),
    "nested": (b"[" * 200000, "not JSON", ""),
    "long": (plain(instruction="a" * 301), "instruction too long", "301 characters"),
    "deep": (plain(image="/a" * 65), "image missing", "65 folders deep"),
    "less deep": (plain(image="/a" * 64), "image missing", "a/a"),
    "long name": (plain(image="a" * 5000), "image missing", f"'{'a' * 199}"),
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Images of every broken kind."""
    inside = tmp_path / "in"
    save(inside, "good.png", "folder/a.png")
    (tmp_path / "secret.png").write_bytes(png(7))
    (inside / "link.png").symlink_to("../secret.png")
    (inside / "up").symlink_to("..")
    (inside / "loop.png").symlink_to("loop.png")
    (inside / "same.png").symlink_to("good.png")
    buffer = io.BytesIO()
    Image.new("P", (32, 32)).save(buffer, "GIF")
    kinds = {"page.png": b"<html>", "moving.gif": buffer.getvalue(), "empty.png": b""}
    kinds |= {"cut.png": png(1, 200, 200)[:-500], "bomb.png": bomb(60_000)}
    kinds |= {"scans.jpg": many_scans(3000, 1000), "widest.png": png(2, 512, 128), "least.png": png(3, 64, 16)}
    kinds |= {"small.png": png(1, 32, 15), "wide.png": png(1, 200, 40), "large.png": png(1) + bytes(600_000)}
    kinds |= {"largest.png": png(4).ljust(500_000, b"\0")}
    for name, data in kinds.items():
        (inside / name).write_bytes(data)
    return inside


def test_broken_rows_are_refused_by_their_number_and_the_others_go_on(load: Importer, folder: Path) -> None:
    rows, last = [row for row, *_ in BROKEN.values()], [plain("last", "Another thing to ask for", "same.png")]
    last += [plain(name, f"Make it {name} of all", f"{name}.png") for name in ("widest", "least", "largest")]
    last += [plain("shortest", "Just fits!"), plain("longest", "a" * 300)]  # what just fits
    last.append(plain("five", "Put all five side by side", None, sources=["good.png"] * 5))
    found = load("color_alter", "plain", jsonl(folder / "t.jsonl", plain("first"), *rows, *last), {"near_bits": 4})
    for row, (number, (case, (_, reason, detail))) in zip(found.refused, enumerate(BROKEN.items(), 1), strict=True):
        told = {"source": "s", "file": "t.jsonl", "row": number, "reason": reason, "detail": row["detail"][:200]}
        assert (row, row["detail"][: len(detail)]) == (told, detail), case
    assert [kept["key"].rpartition(".")[2] for kept in found.rows] == ["first", *(row["key"] for row in last)]


def test_broken_rows_of_a_comma_separated_table(load: Importer, folder: Path) -> None:
    lines = [b"key,instruction,image", b"a,Make it much redder,good.png", b"b,Make it much redder", b"c,1,2,3,4"]
    lines += ["d,Mach es viel größer,good.png".encode("latin-1"), b"", b'e,"closed" too early,good.png']
    (folder / "t.csv").write_bytes(b"\n".join([*lines, b'f,"never closed']))
    found = load("color_alter", "plain", folder / "t.csv")
    reasons = ["missing field", "wrong type", "not UTF-8", "not CSV", "not CSV"]
    assert found.reasons == list(enumerate(reasons, 1))
    for rest in ([b"g,x,y"], [b'g,"x",y'], [b"g,%d,y" % n for n in range(20_000)]):  # to the end, a quote, the limit
        (folder / "t.csv").write_bytes(b"\n".join([*lines, b'f,"never closed', *rest]))
        with pytest.raises(TableError, match=r"t\.csv: row 5, lines 8 to \d+: not CSV, a quote is not closed"):
            load("color_alter", "plain", folder / "t.csv")
    (folder / "t.csv").write_bytes(lines[0] + b'\nx,"' + b"a" * 200_000 + b'",good.png\n' + lines[1])
    found = load("color_alter", "plain", folder / "t.csv")
    assert (found.reasons, len(found.rows)) == ([(0, "not CSV")], 1)


WHOLE = TABLES["WHOLE"]  # a row with the fields of every form


@each_row("form, change, reason", ("imgedit_grounded", {"resolution": {"width": 10**400, "height": 9}}, "wrong type"))
def test_every_form_refuses_fields_that_are_missing_or_of_a_wrong_type(load, tmp_path, form, change, reason) -> None:
    save(tmp_path, "good.png")
    if form in ("unicedit", "imgedit"):
        file = parquet(tmp_path / "remove_part1.parquet", [WHOLE | change])
    else:
        file = jsonl(tmp_path / "remove_cleaned.jsonl", WHOLE | change)
    assert load("subject_remove", form, file).reasons == [(0, reason)]


NUMBERS = st.booleans() | st.integers() | st.just(10**400) | st.floats()
ANY = st.recursive(
    st.none() | NUMBERS | st.text(max_size=5) | st.binary(max_size=3),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(["bytes", "object", "width"]), inner),
)


@hypothesis_settings(max_examples=150)
@given(st.sampled_from(sorted(formats.FORMATS)), st.dictionaries(st.sampled_from(sorted(WHOLE)), ANY, max_size=3))
def test_whatever_a_field_holds_a_row_is_a_pair_or_refused(form: str, change: dict) -> None:
    source = settings.SourceSetting(form, "x")
    record = Record(Path("remove_part0.parquet"), 0, WHOLE | change)
    with contextlib.suppress(RowError):
        formats.FORMATS[form].name(record)
        draft = formats.FORMATS[form].build(record, source, "subject_remove")
        assert isinstance(draft.instruction, str)
        assert draft.key
        assert isinstance(draft.image, (str, bytes))


@each_row(
    "form, name, content, error",
    ("magicbrush", "t.json", "[" * 100_000, "t.json: not readable as JSON"),
    ("unicedit", "t.parquet", "PAR1" + "\0" * 100 + "PAR1", "t.parquet: not readable as Parquet"),
)
def test_a_file_that_cannot_be_read_is_named(load, tmp_path, form, name, content, error) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content.encode("latin-1"))
    with pytest.raises(TableError, match=error):
        load("color_alter", form, tmp_path / name)


NO_VALUES = {"no UTF-8": pa.array([b"\xff\xfe"]).view(pa.string()), "no time": pa.array([10**15], pa.timestamp("ms"))}


@pytest.mark.parametrize("column", NO_VALUES.values(), ids=NO_VALUES)
def test_a_parquet_file_with_values_that_are_none_is_named(load: Importer, tmp_path: Path, column: pa.Array) -> None:
    from datasets import Dataset

    pq.write_table(pa.table({"key": ["a"], "instruction": column}), tmp_path / "t.parquet")
    with pytest.raises(TableError, match=r"t\.parquet: not readable as Parquet"):
        load("color_alter", "plain", tmp_path / "t.parquet")
    Dataset(pa.table({"instruction": column})).save_to_disk(tmp_path / "saved")
    with pytest.raises(TableError, match=r"arrow: not readable as an Arrow stream"):
        load("color_alter", "datasets", tmp_path / "saved")


def test_a_parquet_file_that_swells_or_takes_minutes_is_refused(tmp_path: Path) -> None:
    swollen, wide = {"image": [bytes(100_000_000)]}, {f"c{n}": ["x"] for n in range(1_001)}
    swells = r"row group 0 takes 100,000,\d+ bytes in memory, the file"
    for columns, words in ((swollen, swells), (wide, "1,001 columns, more than 1,000")):
        pq.write_table(pa.table(columns), tmp_path / "t.parquet", compression="zstd")
        with pytest.raises(TableError, match=words):
            next(READERS[".parquet"](tmp_path / "t.parquet"))
    del wide["c0"]
    pq.write_table(pa.table(wide), tmp_path / "t.parquet")
    assert len(next(READERS[".parquet"](tmp_path / "t.parquet"))) == 1_000


def test_a_glob_that_is_none_and_a_missing_folder_of_images_are_named(load: Importer, folder: Path) -> None:
    file = jsonl(folder / "t.jsonl", plain("a"))
    for glob in ("**a", "."):
        with pytest.raises(TableError, match=r"files: .* is no glob"):
            load("color_alter", "plain", folder, files=glob)
    with pytest.raises(TableError, match="none not found: no such folder of images"):
        load("color_alter", "plain", file, images=str(folder / "none"))


def test_empty_files_have_no_rows_and_a_line_without_end_is_skipped(load, folder, monkeypatch) -> None:
    for name in ("t.csv", "t.jsonl"):
        (folder / name).write_bytes(b"")
        assert load("color_alter", "plain", folder / name).report["sources"][0]["rows"] == 0
    (folder / "t.json").write_bytes(b" [ ] ")
    assert load("color_alter", "magicbrush", folder / "t.json").report["records"] == 0
    monkeypatch.setattr(tables, "LONGEST", 1_000)
    found = load("color_alter", "plain", jsonl(folder / "t.jsonl", plain("a", "a" * 5_000), plain("b")))
    assert (found.reasons, len(found.rows)) == ([(0, "line too long")], 1)
    assert found.refused[0]["detail"] == "more than 1000 bytes"


def test_the_same_image_with_another_instruction_is_another_pair(load: Importer, folder: Path) -> None:
    buffer = io.BytesIO()
    Image.open(folder / "good.png").resize((64, 48)).save(buffer, "JPEG", quality=90)
    (folder / "near.jpg").write_bytes(buffer.getvalue())
    rows = [plain("a"), plain("b", "Another thing to ask for"), plain("c", image="near.jpg")]
    file = jsonl(folder / "t.jsonl", plain("d", image="folder/a.png"), *rows)
    [why] = load("color_alter", "plain", file, {"near_bits": 4}).refused
    assert (why["row"], why["reason"], why["detail"]) == (3, "near duplicate", "0 bits from pair 1"), "and not from 2"
    assert load("color_alter", "plain", file, {"near_bits": -1}).reasons == []


@pytest.mark.parametrize("bits", [0, 3, 4, 7])
def test_near_duplicates_are_those_that_all_pairs_show(bits: int) -> None:
    """Against the plain comparison of every two, with many hashes near one another."""
    rng = np.random.default_rng(bits)
    centres = rng.integers(0, 2**64, 20, dtype=np.uint64)
    hashes = []
    for _ in range(400):
        flips = rng.choice(64, rng.integers(0, 2 * bits + 3), replace=False)
        hashes.append(int(rng.choice(centres)) ^ sum(1 << int(flip) for flip in flips))
    kept: list[int] = []
    for value in hashes:
        if all((value ^ other).bit_count() > bits for other in kept):
            kept.append(value)
    found = []
    with Seen(bits) as seen:
        for number, value in enumerate(hashes):
            with contextlib.suppress(RowError):
                seen.add(f"k{number}", "the same", b"%d" % number, value)
                found.append(value)
    assert found == kept
    assert 20 <= len(kept) < 400


def test_rows_come_in_the_order_of_the_source_whoever_decodes_them(load, tmp_path, monkeypatch) -> None:
    for n in range(60):
        save(tmp_path, f"{n}.png")
    file = jsonl(tmp_path / "t.jsonl", *(plain(str(n), image=f"{n}.png") for n in range(60)))
    first = load("color_alter", "plain", file, {"near_bits": 4})
    monkeypatch.setattr(importing, "GROUP", 4)
    monkeypatch.setattr(workers, "WORTH", 1)
    second = load("color_alter", "plain", file, {"near_bits": 4})
    assert [row["key"] for row in first.rows] == [f"color_alter.s.{n}" for n in range(60)]
    assert (first.rows, first.refused, first.report) == (second.rows, second.refused, second.report)


def test_every_name_of_ours_maps_to_itself_and_no_name_stands_twice() -> None:
    assert len(formats.NAMES) == 24
    names = sum(map(len, formats.NAMES.values()))
    assert names == 62, "of UnicEdit, Pico-Banana, GEdit, ImgEdit and Nano-Consistent: one is lost or new"
    assert all(formats.task_of(task) == task for task in formats.NAMES)
    every = [formats.plain_name(name) for task, more in formats.NAMES.items() for name in {task, *more}]
    every += [formats.plain_name(name) for name in formats.UNMAPPED]
    doubles = {name for name in every if every.count(name) > 1}
    assert all(len({formats.TASK_OF[name]}) == 1 for name in doubles)
    assert not any(formats.TASK_OF.get(formats.plain_name(name)) for name in formats.UNMAPPED)


@each_row("name, task")
def test_names_are_told_by_their_words(name: str, task: str | None) -> None:
    assert formats.task_of(name) == task


@each_row("file, form, rows, field, words, image")
def test_the_published_instruction_sets_import(load, tmp_path, file, form, rows, field, words, image) -> None:
    """Every name is known; with pictures where the sets say theirs lie, all rows of a task are kept."""
    if not (path := SHARED / file).is_file():
        pytest.skip(f"{path} not found; EDITJUDGE_SHARED names the shared folder")
    text, lines = path.read_text(), path.suffix == ".jsonl"
    published = [json.loads(line) for line in text.splitlines()] if lines else list(json.loads(text).values())
    assert {formats.plain_name(row[field]) for row in published} <= set(formats.TASK_OF)
    own = [row for row in published if formats.task_of(row[field]) == "subject_remove"]
    bare = load("subject_remove", form, path)
    [counts] = bare.report["sources"]
    assert (counts["rows"], counts["refused"]) == (rows, len(own))
    assert {reason for _, reason in bare.reasons} == {"image missing"}, "the sets come without images"
    assert all(entry["listed"] for entry in counts["unmapped"])
    save(tmp_path, *(row[image] for row in own))
    found = load("subject_remove", form, path, {"near_bits": 4}, images=str(tmp_path))
    assert found.instructions == [row[words].strip() for row in own]


@each_row("change, error")
def test_sources_and_filters_that_make_no_sense_are_named(change: dict, error: str) -> None:
    filters = FILTERS | {"near_bits": 0} | change.get("filters", {})
    values = PROBE | {"downloads": DOWNLOADS} | change | {"filters": filters}
    with pytest.raises(params.ParamsError, match=error):
        importing.plan({"tasks": TASKS, "raw_pairs": values}, "color_alter")
    values |= {"filters": FILTERS | {"near_bits": 0}, "sources": {"sref": {"own": TABLE}}}
    plan = importing.plan({"tasks": {"color_alter": "x"}, "raw_pairs": values}, "color_alter")
    assert [source.format for source in plan.sources.values()] == ["probe"], "a task that does not run may have some"


Stage = Callable[..., None]


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stage:
    """`stage(task, **changes)`: the stage in a folder of its own, with the section raw_pairs of params.yaml changed."""

    def run(task: str, **changes: object) -> None:
        values = yaml.safe_load((ROOT / "params.yaml").read_text())
        values["raw_pairs"] |= changes
        (tmp_path / "params.yaml").write_text(yaml.safe_dump(values, sort_keys=False))
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(sys, "argv", ["raw_pairs", "--task", task])
        main.stage(raw_pairs.__doc__, raw_pairs.run, "task")

    return run


def test_without_sources_the_stage_gives_the_probe_set(stage: Stage, tmp_path: Path) -> None:
    stage("color_alter", per_task=4, image_side=48)
    rows = records.read(tmp_path / "data/raw_pairs/color_alter.parquet", "raw_pairs")
    made = scenes.make_pairs("color_alter", "train", 4, 48, 1)
    unmasked = [[region | {"mask": None} for region in row["regions"]] for row in made]
    assert rows == [row | {"source": "probe", "regions": own} for row, own in zip(made, unmasked, strict=True)]
    assert (tmp_path / "data/refused/color_alter.csv").read_text() == "source,file,row,reason,detail\n"
    assert json.loads((tmp_path / "metrics/raw_pairs/color_alter.json").read_text())[0]["records"] == 4


def test_a_task_takes_several_sources_and_the_probe_set(stage: Stage, tmp_path: Path) -> None:
    (tmp_path / "data/sources").mkdir(parents=True)
    (tmp_path / "data/sources/a.png").write_bytes(png(1, 96, 72))
    file = jsonl(tmp_path / "data/sources/t.jsonl", plain("a", image="a.png"), plain("b", image="none.png"), b"{")
    mine = {"format": "plain", "path": str(file.relative_to(tmp_path))}
    shutil.copy(file, file.with_name("u.jsonl"))
    also = mine | {"path": "data/sources/u.jsonl"}
    sources = {"color_alter": {"mine": mine, "also": also, "probe": {"format": "probe"}}}
    stage("color_alter", per_task=2, image_side=48, sources=sources)
    rows = records.read(tmp_path / "data/raw_pairs/color_alter.parquet", "raw_pairs")
    probe = [(f"color_alter-train-0000{number}", "probe") for number in range(2)]
    assert [(row["key"], row["source"]) for row in rows] == [("color_alter.mine.a", "mine"), *probe]
    with (tmp_path / "data/refused/color_alter.csv").open() as lines:
        refused = [(row["source"], row["row"], row["reason"]) for row in csv.DictReader(lines)]
    mine = [("mine", "1", "image missing"), ("mine", "2", "not JSON")]
    assert refused == [*mine, ("also", "0", "duplicate pair"), *(("also", *rest) for _, *rest in mine)]


def test_a_task_without_a_pair_fails_and_its_counts_say_why(stage: Stage, tmp_path: Path) -> None:
    file = jsonl(tmp_path / "t.jsonl", plain("a", image="none.png"), plain("b", image="another.png"))
    stage("color_alter", per_task=2, image_side=48)
    before = (tmp_path / "data/raw_pairs/color_alter.parquet").read_bytes()
    error = (
        r"^raw_pairs: color_alter: no pair was kept; data/refused/color_alter\.csv says why: image missing: none.png"
    )
    with pytest.raises(SystemExit, match=error):
        stage("color_alter", sources={"color_alter": {"mine": {"format": "plain", "path": str(file)}}})
    [counts] = json.loads((tmp_path / "metrics/raw_pairs/color_alter.json").read_text())[0]["sources"]
    assert counts["reasons"] == [{"reason": "image missing", "rows": 2}]
    assert (tmp_path / "data/raw_pairs/color_alter.parquet").read_bytes() == before, "the pairs there were stay"


def test_downloads_that_failed_above_the_share_end_the_stage_and_the_next_run_asks_for_these_alone(stage, tmp_path):
    broken, asked = ["/1.png"], []

    class Images(Handler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_response(503 if self.path in broken else 200)
            self.end_headers()
            if self.path not in broken:
                self.wfile.write(png(int(self.path[1]), 96, 72))

    with served(Images) as server:
        address = f"http://127.0.0.1:{server.server_port}"
        rows = [plain(f"k{n}", image=f"{address}/{n}.png", instruction=f"{TEXT} {n}") for n in range(4)]
        file = jsonl(tmp_path / "t.jsonl", *rows)
        mine = {"sources": {"color_alter": {"mine": {"format": "plain", "path": str(file)}}}}
        mine |= {"downloads": DOWNLOADS | {"private_hosts": True}}
        words = r"1 of 4 rows of mine are missing \(download failed: 1\)\. What is finished is kept\. To go on, run"
        words = rf"^raw_pairs: {words} `dvc repro` again, or allow more by unfinished\.raw"
        with pytest.raises(SystemExit, match=words):
            stage("color_alter", **mine)
        broken.clear()
        stage("color_alter", **mine)
    assert sorted(asked) == ["/0.png", "/1.png", "/1.png", "/2.png", "/3.png"]
