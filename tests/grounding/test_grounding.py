"""Instruction parser and grounder: against a real HTTP server that finds coloured squares and often misbehaves."""

import shutil
import urllib.request
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cases import each_row
from chat_client import grounded as run
from chat_client import grounding_server
from fake_server import Server
from grounding_server import COLOURS, KINDS, SPOILT
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pictures import bomb, encoded
from PIL import Image

from editjudge.core import images, prompts
from editjudge.core.settings import read
from editjudge.engine import resume
from editjudge.grounding.grounding import Grounded, _pixels, ground, upright_size
from editjudge.grounding.settings import GroundingSetting
from editjudge.measures.annotation.recipe import Recipe, load_recipe
from editjudge.measures.annotation.slot_settings import SlotSetting
from editjudge.models.chat.settings import EmbeddedSetting
from editjudge.models.endpoint.pictures import PixelLimits, data_url
from editjudge.stages import annotate

ROOT = Path(__file__).parents[2]


def recipe(name: str) -> Recipe:
    return load_recipe(ROOT / f"pipelines/{name}.yaml")


REMOVE, ADD = recipe("object_centric/subject_remove"), recipe("object_centric/subject_add")
REPLACE, PORTRAIT = recipe("object_centric/subject_replace"), recipe("human_centric/ps_human")
SIZE, TONE = recipe("object_centric/size_adjustment"), recipe("object_centric/tone_transfer")


def at(url: str, coordinates: str = "thousandths", **more: Any) -> GroundingSetting:
    """Parser and grounder at this address; more: fields of both, or of the grounder where only it has them."""
    both = {"backend": "endpoint", "model": "m", "base_url": url, "timeout": 2.0, "max_in_flight": 16}
    pixels = {name: more.pop(name) for name in ("min_pixels", "max_pixels") if name in more}
    grounder = both | more | pixels | {"coordinates": coordinates}
    return read("grounding", GroundingSetting, {"parser": both | more, "grounder": grounder})


def drawn(squares: dict[str, tuple[int, int, int, int]], height: int = 60, width: int = 80) -> bytes:
    """A grey PNG with coloured rectangles; x1 and y1 exclusive."""
    image = np.full((height, width, 3), 128, np.uint8)
    for colour, (x0, y0, x1, y1) in squares.items():
        image[y0:y1, x0:x1] = COLOURS[colour]
    return images.encode_png(image)


def prompt(n: int, task: str, instruction: str, image: bytes, regions: list | None = None) -> dict[str, Any]:
    return {"key": f"k{n:04d}", "task": task, "instruction": instruction, "image": image, "regions": regions or []}


def candidate(row: dict[str, Any], model: str, image: bytes | None) -> dict[str, Any]:
    return {"key": row["key"], "model": model, "image": image, "status": "done" if image else "failed", "reason": "x"}


BOXES = [(4, 8, 20, 28), (30, 6, 44, 40), (50, 20, 76, 50), (10, 34, 26, 56)]


def pool(count: int, task: str, models: int = 2) -> tuple[list, list, dict[tuple[str, str], tuple]]:
    """Prompts to remove, add or replace squares, their edits, and each one's box in source and edited image."""
    prompts, candidates, truth = [], [], {}
    for n in range(count):
        here, there = BOXES[n % 4], BOXES[(n + 1) % 4]
        words = {
            "subject_remove": f"Please do this {n}: Remove the red square.",
            "subject_add": f"Please do this {n}: Add the blue square.",
            "subject_replace": f"Please do this {n}: Replace the red square by the blue square.",
        }[task]
        row = prompt(n, task, words, drawn({"red": here, "yellow": (0, n % 50, 3, n % 50 + 3)}))
        prompts.append(row)
        for m in range(models):
            edit = drawn({"blue": there, "green": (0, n % 50, 3 + m, n % 50 + 3)})
            candidates.append(candidate(row, f"m{m}", edit))
            sides = () if task == "subject_add" else (here,), () if task == "subject_remove" else (there,)
            truth[row["key"], f"m{m}"] = sides
    return prompts, candidates, truth


# --- what a model is asked, and what becomes of its boxes


@pytest.fixture(scope="module")
def sound() -> Iterator[Server]:
    with grounding_server() as server:
        yield server


@pytest.mark.parametrize("coordinates", ["absolute", "thousandths"])
@pytest.mark.parametrize("rule", [REMOVE, ADD, REPLACE], ids=lambda rule: rule.task)
def test_boxes_are_found_where_the_recipe_seeks_them(sound, tmp_path, rule, coordinates) -> None:
    *rows, truth = pool(3, rule.task)
    found = run(tuple(rows), rule, at(sound.url, coordinates), tmp_path / "c")
    assert {pair: (each.source, each.edited) for pair, each in found.found.items()} == truth
    assert found.failed() == {}
    shown = 3 * (rule is not ADD) + 6 * (rule is not REMOVE)
    assert (found.accounts["parser"].asked, found.accounts["grounder"].asked) == (3, shown)
    assert found.report()["grounded"] == 6


@each_row("box, size, pixels")
def test_a_box_has_the_nearest_whole_pixels_and_at_least_one(box: list, size: list, pixels: list) -> None:
    assert _pixels(box, size) == tuple(pixels)


@pytest.mark.parametrize("coordinates", ["absolute", "thousandths"])
def test_boxes_come_back_in_the_source_s_pixels_whatever_was_sent(sound, tmp_path, coordinates) -> None:
    """The sent images are smaller, the edited one has another shape, and the JPEG source lies on its side."""
    pixels = np.full((300, 400, 3), 128, np.uint8)
    pixels[60:180, 100:220] = COLOURS["red"]
    exif = Image.Exif()
    exif[0x0112] = 6  # to be turned clockwise: upright it is 300 wide and 400 high
    data = encoded(Image.fromarray(pixels), "JPEG", quality=95, exif=exif)
    edit = drawn({"blue": (50, 100, 150, 300)}, 800, 500)
    row = prompt(0, "subject_replace", "Replace the red square by the blue square.", data)
    how = at(sound.url, coordinates, max_pixels=20_000)
    found = run(([row], [candidate(row, "m", edit)]), REPLACE, how, tmp_path / "c").found["k0000", "m"]
    [source], [edited] = found.source, found.edited
    apart = np.abs(np.subtract(source, (120, 100, 240, 220))).max()
    assert apart <= 4, "turned; a pixel of what was sent is 2.5 of these"
    assert np.abs(np.subtract(edited, (30, 50, 90, 150))).max() <= 6, "the edited image laid over the source"


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP"])
@pytest.mark.parametrize("orientation", [None, 1, 3, 6, 8])
def test_the_size_from_the_header_is_that_of_the_decoded_image(kind: str, orientation: int | None) -> None:
    exif = Image.Exif()
    if orientation is not None:
        exif[0x0112] = orientation
    data = encoded(Image.new("RGB", (40, 30)), kind, exif=exif)
    height, width = images.decode(data).shape[:2]
    assert upright_size("source", data) == (width, height)


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 300), st.integers(1, 300), st.integers(0, 40_000), st.integers(0, 40_000))
@example(1, 2, 0, 1)
def test_the_size_in_the_prompt_is_the_size_that_is_sent(width: int, height: int, least: int, most: int) -> None:
    limits = PixelLimits(min(least, most) if most else least, most)
    url = data_url(images.encode_png(np.zeros((height, width, 3), np.uint8)), limits).decode()
    with urllib.request.urlopen(url) as sent, Image.open(sent) as image:
        assert image.size == limits.size(width, height)


def test_a_person_has_one_box_and_the_attributes_that_change(sound: Server, tmp_path: Path) -> None:
    row = prompt(0, "ps_human", "Give the red square blond hair.", drawn({"red": BOXES[0]}))
    rows = ([row], [candidate(row, "m", drawn({"red": BOXES[1]}))])
    found = run(rows, PORTRAIT, at(sound.url), tmp_path / "c").found["k0000", "m"]
    assert found == Grounded((BOXES[0],), (BOXES[1],), ("face_texture", "hair"))


def test_failed_candidates_and_recipes_without_regions_ask_nothing(tmp_path: Path) -> None:
    row = prompt(0, "subject_remove", "Remove the red square.", drawn({"red": BOXES[0]}))
    nowhere = at("http://127.0.0.1:9/v1", tries=1)
    found = run(([row], [candidate(row, "m", None)]), REMOVE, nowhere, tmp_path / "c")
    assert (found.found, found.accounts["parser"].requests) == ({}, 0)
    given = [row], [candidate(row, "m", row["image"])]
    assert run(given, TONE, nowhere, tmp_path / "c").found == {("k0000", "m"): Grounded()}


# --- nothing is lost


def test_every_record_ends_with_its_boxes_or_a_reason_whatever_the_server_does(tmp_path: Path) -> None:
    rows = pool(40, "subject_replace", 3)
    with grounding_server(share=0.45) as server:
        found = run(rows[:2], REPLACE, at(server.url, tries=4, timeout=3.0, max_in_flight=12), tmp_path / "c")
        log = server.log()
    assert found.found.keys() == rows[2].keys()
    assert set(log["kinds"]) == {*KINDS, "200"}, "everything happened"
    outcome = Counter(each.kind for each in found.found.values())
    for pair, each in found.found.items():
        if each.kind is None:
            assert (each.source, each.edited, each.reason) == (*rows[2][pair], None)
        else:
            assert (each.source, each.edited) == ((), ())
            assert each.reason
            assert len(each.reason) < 1000
    assert outcome[None] > 60
    kinds = {"parser: unreadable reply", "parser: no answer"}
    wrong = ("unreadable reply", "no answer")
    kinds |= {f"grounder, {which}: {what}" for which in ("source", "edited") for what in wrong}
    assert set(outcome) - {None} <= kinds
    assert outcome.total() - outcome[None] == sum(found.failed().values())
    for asked in log["asked"].values():
        spoilt = [each for each in asked if each[0] in SPOILT]
        assert len(spoilt) <= 3, "three replies, then it has failed"
    again = [each for asked in log["asked"].values() for each in told_again(asked)]
    assert len(again) > 20
    assert all(temperature > 0 and isinstance(seed, int) for temperature, seed in again)


def told_again(asked: list) -> list[tuple[float, int]]:
    """The temperatures and seeds of what was asked after replies that could not be read; each has another seed."""
    sampled, replies, seeds = [], 0, {}
    for kind, temperature, seed in asked:
        if replies:
            sampled.append((temperature, seed))
            seeds[replies] = seed
        else:
            assert (temperature, seed) == (0.0, None)
        replies += kind in SPOILT
    assert len(set(seeds.values())) == len(seeds)
    return sampled


@pytest.mark.parametrize("kind", [*SPOILT, "429", "500", "cut", "html", "400"])
def test_what_never_gets_better_is_a_failed_record_with_a_reason(tmp_path: Path, kind: str) -> None:
    good, bad = "Remove the red square.", "Please remove the red square."
    rows = [prompt(n, "subject_remove", words, drawn({"red": BOXES[0]})) for n, words in enumerate((good, bad))]
    edits = [candidate(row, "m", row["image"]) for row in rows]
    with grounding_server(always={bad: kind}) as server:
        found = run((rows, edits), REMOVE, at(server.url, tries=2), tmp_path / "c")
        log = server.log()
        again = run((rows, edits), REMOVE, at(server.url, tries=2), tmp_path / "c")
        asked_again = sum(server.log()["kinds"].values()) - sum(log["kinds"].values())
    assert found.found["k0000", "m"] == Grounded((BOXES[0],))
    failed = found.found["k0001", "m"]
    assert (failed.source, failed.edited) == ((), ())
    assert failed.reason is not None
    assert failed.kind == ("parser: unreadable reply" if kind in SPOILT else "parser: no answer")
    assert again.found == found.found
    assert again.accounts["parser"].reused == (2 if kind in SPOILT else 1)
    assert asked_again == (0 if kind in SPOILT else 2), "no answer is asked for again, bad ones not"


def test_metrics_are_the_same_however_an_endpoint_gives_no_answer(tmp_path: Path) -> None:
    words = "Please remove the red square."
    row = prompt(0, "subject_remove", words, drawn({"red": BOXES[0]}))
    edit = candidate(row, "m", row["image"]) | {"task": row["task"], "damage": None}
    written, told, gaps = [], [], []
    for kind in ("500", "cut"):
        with grounding_server(always={words: kind}) as server, resume.RecordCache(tmp_path / kind) as cache:
            found = ground([(row, [edit])], REMOVE, at(server.url, tries=1), cache)
            rows = list(annotate.annotate([(row, [edit])], REMOVE, cache, SlotSetting(), found))
        written.append(annotate.counts(rows, REMOVE, SlotSetting(), found) | {"regions": [found.report()]})
        [run] = found.run_report()["regions_failed"]
        told.append(run["reason"])
        assert rows[0]["reason"] == f"regions: {run['reason']}", "the annotation says all"
        gaps.append(found.accounts["parser"].gap("grounding.parser"))
    assert written[0] == written[1]
    assert written[0]["reasons"] == [{"reason": "regions: parser: no answer", "records": 1}]
    assert "worker died" in told[0] != told[1]
    assert gaps[0].told() == "1 of 1 answers of grounding.parser are missing (500: 1)"


def test_a_second_run_asks_nothing_and_another_prompt_model_or_unit_asks_anew(tmp_path, monkeypatch) -> None:
    rows = pool(4, "subject_replace")
    with grounding_server() as server:
        first = run(rows[:2], REPLACE, at(server.url), tmp_path / "c")
        asked = sum(server.log()["kinds"].values())
        second = run(rows[:2], REPLACE, at(server.url, tries=2, max_in_flight=3), tmp_path / "c")
        assert sum(server.log()["kinds"].values()) == asked == 4 + 4 + 8
        assert second.found == first.found
        assert second.report() == first.report(), "the same replies give the same figures"
        assert [account.reused for account in second.accounts.values()] == [4, 12]
        run(rows[:2], REPLACE, at(server.url, "absolute"), tmp_path / "c")
        assert sum(server.log()["kinds"].values()) == asked + 12, "the labels are known"
        run(rows[:2], REPLACE, at(server.url, model="other"), tmp_path / "c")
        assert sum(server.log()["kinds"].values()) == 2 * asked + 12
        shutil.copytree(prompts.PACKAGE / "grounding", tmp_path / "grounding")
        for file in (tmp_path / "grounding").glob("*ers/*.yaml"):
            file.write_text(file.read_text().replace("user: |-\n", "user: |-\n  Think twice.\n"))
        monkeypatch.setattr(prompts, "PACKAGE", tmp_path)
        run(rows[:2], REPLACE, at(server.url), tmp_path / "c")
        assert sum(server.log()["kinds"].values()) == 3 * asked + 12


def test_the_edits_of_a_source_without_boxes_are_not_asked_about(tmp_path: Path) -> None:
    row = prompt(0, "subject_replace", "Replace the red square by the blue square.", drawn({"green": BOXES[0]}))
    rows = ([row], [candidate(row, f"m{n}", drawn({"blue": BOXES[n]})) for n in range(3)])
    with grounding_server() as server:
        found = run(rows, REPLACE, at(server.url), tmp_path / "c")
        asked = [len(times) for times in server.log()["asked"].values()]
    assert found.failed() == {"grounder, source: unreadable reply": 3}
    assert "no box of 'red square'" in str(found.found["k0000", "m0"].reason)
    assert asked == [1, 3], "the parser once, the source three times, no edit"


def test_unusable_images_fail_by_themselves(tmp_path: Path) -> None:
    good = drawn({"red": BOXES[0]})
    rows = [prompt(n, "subject_replace", f"{n}: Replace the red square by the blue square.", good) for n in range(6)]
    broken = [b"GIF89a", good[: len(good) // 2], bomb(20_000), b"\x00" * 50, good, good]
    rows = [row | {"image": image} for row, image in zip(rows, broken, strict=True)]
    edits = [candidate(row, "m", drawn({"blue": BOXES[1]})) for row in rows]
    edits[4]["image"] = good[: len(good) // 2]
    with grounding_server() as server:
        made = run((rows, edits), REPLACE, at(server.url), tmp_path / "c")
    found, why = made.found, [each["reason"] for each in made.run_report()["regions_failed"]]
    assert why == sorted({str(each.reason) for each in found.values() if each.reason})
    assert found["k0005", "m"] == Grounded((BOXES[0],), (BOXES[1],))
    assert [each.kind is None for each in found.values()] == [False] * 5 + [True]
    assert all(each.reason for each in list(found.values())[:5])
    assert "20000 x 20000" in str(found["k0002", "m"].reason)


# --- the embedded backends


@pytest.mark.parametrize(("rule", "source", "edited"), [(REMOVE, 1, 0), (ADD, 0, 1), (SIZE, 1, 1), (PORTRAIT, 1, 1)])
def test_the_record_s_own_boxes(tmp_path: Path, rule: Recipe, source: int, edited: int) -> None:
    """Those of a person come with what the instruction changes."""
    words = "Give the woman red hair and a blue dress." if rule is PORTRAIT else "Do something."
    regions = [{"label": "woman", "box": [1, 2, 30, 40]}]
    row, bare = prompt(0, rule.task, words, drawn({}), regions), prompt(1, rule.task, words, drawn({}))
    edits = [candidate(each, "m", drawn({})) for each in (row, bare)]
    found = run(([row, bare], edits), rule, GroundingSetting(), tmp_path / "c")
    box = ((1, 2, 30, 40),)
    changed = ("hair", "body_appearance") if rule is PORTRAIT else ()
    assert found.found["k0000", "m"] == Grounded(box * source, box * edited, changed)
    assert found.found["k0001", "m"] == Grounded(reason="the record has no box", kind="no box")
    assert (found.failed(), found.report()["grounded"], found.run_report()) == ({"no box": 1}, 1, {})


def test_own_labels_and_the_grammar_ask_a_grounder(sound: Server, tmp_path: Path) -> None:
    how = replace(at(sound.url), parser=EmbeddedSetting())
    rows = pool(2, "subject_replace", 1)
    rows[0].append(prompt(9, "subject_replace", "Surprise me!", drawn({})))
    rows[1].append(candidate(rows[0][-1], "m0", drawn({})))
    found = run(rows[:2], REPLACE, how, tmp_path / "c")
    unread = found.found.pop(("k0009", "m0"))
    assert unread.kind == "grammar"
    assert "Surprise me!" in str(unread.reason)
    assert {pair: (each.source, each.edited) for pair, each in found.found.items()} == rows[2]
    own = [{"label": label, "box": [0] * 4} for label in ("red one", " ")]
    labelled = prompt(0, "subject_remove", "Surprise me!", drawn({"red": BOXES[2]}), own)
    found = run(([labelled], [candidate(labelled, "m", drawn({}))]), REMOVE, how, tmp_path / "c")
    assert found.found["k0000", "m"] == Grounded((BOXES[2],))
