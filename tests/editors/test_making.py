"""A pipeline of diffusers and an API behind the same table as the embedded editors: what is kept, and made again."""

from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
from chat_client import edit_server
from hypothesis import given
from hypothesis import strategies as st

from editjudge.core import code, images, params
from editjudge.core.params import ParamsError
from editjudge.editors import making, protocol, settings
from editjudge.editors.protocol import ASPECT_MOST, EditFailed
from editjudge.engine import local, resume
from editjudge.engine.unfinished import Unfinished, check
from editjudge.stages import candidates

ROOT = Path(__file__).parents[2]
KLEIN = "Flux2KleinPipeline"


def source(seed: int) -> bytes:
    """A smooth colour picture, 96 x 64."""
    corners = np.random.default_rng(seed).integers(0, 256, (2, 2, 3)).astype(np.float32)
    return images.encode_png(cv2.resize(corners, (96, 64)).astype(np.uint8))


def prompts(*instructions: str) -> list[candidates.EditPrompt]:
    """One prompt each, the last of them the arena's."""
    rows = [
        {"key": f"k{n}", "task": "t", "instruction": words, "image": source(n), "edit": None}
        for n, words in enumerate(instructions)
    ]
    return [candidates.EditPrompt("data" if n < len(rows) - 1 else "benchmark", row) for n, row in enumerate(rows)]


def run(
    entry: dict[str, Any], wanted: list[candidates.EditPrompt], cache: Path
) -> tuple[list[bytes | None], list[candidates.Candidate], dict[str, Any], int]:
    """The images, what was made, the run's figures, and how many of them were computed by this run."""
    with resume.RecordCache(cache) as open_cache:
        made, figures = candidates.edit_all(wanted, "m", settings.read({"editors": {"m": entry}}, "m"), open_cache)
        rows = candidates.rows(made, "m", open_cache.data)
        return [row["image"] for row in rows], made, figures, open_cache.computed


def test_a_diffusers_pipeline_is_loaded_once_and_only_what_changed_is_made_again(entry, tmp_path) -> None:
    wanted = prompts("make it green", 'say "别动"\n🎨', "make it red", "make it blue")
    first, made, figures, computed = run(entry(KLEIN), wanted, tmp_path / "c")
    assert [c.meta["reason"] for c in made] == [None] * 4
    assert (computed, figures["workers"], figures["workers_replaced"]) == (4, 1, 0)
    assert len(set(first)) == 4
    again, _, figures, computed = run(entry(KLEIN, timeout=77.0), wanted, tmp_path / "c")
    assert (again, computed, figures) == (first, 0, {})


def test_an_api_is_asked_within_its_budget_and_never_twice_for_what_was_paid(tmp_path: Path) -> None:
    wanted = prompts("one", "blocked", "three", "down", "five")
    with edit_server(behave={"blocked": ["blocked"], "down": ["500", "good"]}) as server:
        api = {"kind": "api", "base_url": server.url, "model": "painter", "seed": 1, "tries": 1, "max_in_flight": 1}
        _, first, figures, computed = run(api | {"budget": {"images": 2}}, wanted, tmp_path / "c")
        assert [c.meta["kind"] for c in first][:2] == [None, "refused"]
        assert "budget" in {c.meta["kind"] for c in first}
        assert figures["left"] > 0
        gap = candidates.gap(first, "m")
        with pytest.raises(Unfinished, match=r"edits of m are missing .*again, with more editors\.m\.budget, or allow"):
            check({}, "candidates", "candidates@m", [gap])
        check({"unfinished": {"candidates": 1.0}}, "candidates", "candidates@m", [gap])
        _, second, _, computed_then = run(api, wanted, tmp_path / "c")
        found, third, _, computed_last = run(api | {"budget": {"images": 9}}, wanted, tmp_path / "c")
        other, _, _, computed_anew = run(api | {"benchmark": {"size": "auto"}}, wanted, tmp_path / "c")
        asked = server.log()["came"]
    assert [c.meta["kind"] for c in third] == [None, "refused", None, None, None]
    assert computed + computed_then + computed_last == 5
    assert (other[:4], computed_anew) == (found[:4], 1)
    assert asked == {"one": 1, "blocked": 1, "three": 1, "down": 2, "five": 2}
    assert [np.array_equal(255 - images.decode(source(n)), images.decode(found[n])) for n in (0, 2, 3, 4)] == [True] * 4
    assert candidates.counts(second)["kinds"][-1] == {"kind": "refused", "records": 1}


def test_the_quality_that_is_asked_for_is_sent_and_only_then_an_image_is_made_again(tmp_path: Path) -> None:
    with edit_server() as server:
        api = {"kind": "api", "base_url": server.url, "model": "painter", "seed": 1, "tries": 1}
        run(api, prompts("one", "two"), tmp_path / "c")
        _, _, _, again = run(api, prompts("one", "two"), tmp_path / "c")
        _, made, _, anew = run(api | {"ask": 5}, prompts("one", "two"), tmp_path / "c")
        asked = server.log()["came"]
    assert (again, anew) == (0, 2)
    words = "The image quality is 5 out of five."
    assert set(asked) == {"one", "two", f"one. {words}", f"two. {words}"}
    assert [candidate.meta["status"] for candidate in made] == ["done", "done"]


def test_what_diffusers_cannot_run_is_told_before_any_worker_is_started(entry, tmp_path) -> None:
    """Though it is looked up in a process of its own."""
    with pytest.raises(ParamsError, match=r"editors\.m\.pipeline: .* needs the pipeline class Flux9Pipeline") as told:
        run(entry(KLEIN, pipeline="Flux9Pipeline"), prompts("one", "two"), tmp_path / "c")
    assert "Traceback" in told.value.__notes__[0], "that process's"


def test_an_image_is_made_again_where_the_code_of_its_editor_changes() -> None:
    made_by = {"leaky": "procedural", "flux2_dev": "diffusers.editor", "gpt_image_1_5": "api.reply"}
    made_by |= {"nano_banana_2": "api.forms.gemini", "flux2_pro": "api.forms.bfl", "seedream_4_5": "api.forms.seedream"}
    ready = params.load(ROOT / "params.yaml")["editors"] | params.load(ROOT / "configs/editors.yaml")
    for name, module in made_by.items():
        version = making.code(settings.read({"editors": ready}, name))
        assert version == code.identity(f"editjudge.editors.{module}", protocol.__name__), name


def test_workers_get_the_gpus_that_the_stage_may_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert [local.visible(place) for place in ("cuda:0", "cuda:1,2", "cpu", "cpu:0")] == ["0", "1,2", "", ""]
    for seen, found in {"7,6": ["7", "7,6"], "GPU-8f,GPU-3a,-1,2": ["GPU-8f", "GPU-8f,GPU-3a"]}.items():
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", seen)
        assert [local.visible(place) for place in ("cuda:0", "cuda:0,1")] == found


# What an edited image must be like.

SOURCE = np.full((768, 1024, 3), 200, np.uint8)


def kind_of(edited: Any, source: np.ndarray = SOURCE) -> str | None:
    try:
        protocol.check(source, edited)
    except EditFailed as error:
        return error.kind
    return None


def grey(height: int, width: int) -> np.ndarray:
    return np.full((height, width, 3), 90, np.uint8)


@given(st.integers(16, 400), st.integers(16, 400), st.floats(0.3, 3.0))
def test_a_scaled_image_is_never_of_the_wrong_size(height: int, width: int, scale: float) -> None:
    source = np.broadcast_to(np.uint8(200), (height, width, 3))
    scaled = np.broadcast_to(np.uint8(90), (max(round(height * scale), 8), max(round(width * scale), 8), 3))
    stretch = scaled.shape[1] / scaled.shape[0] * height / width
    expected = None if 1 / ASPECT_MOST <= stretch <= ASPECT_MOST else "wrong_size"
    assert kind_of(scaled, source) == expected


@pytest.mark.parametrize(
    ("edited", "kind"),
    [
        *(
            (each, "wrong_output")
            for each in (np.full(SOURCE.shape, np.nan), SOURCE[..., :1], SOURCE[None], SOURCE[:0])
        ),
        (SOURCE.astype(np.int64), "wrong_output"),
        (np.zeros_like(SOURCE), "all_black"),
        (np.full_like(SOURCE, 2), "all_black"),
        (np.full_like(SOURCE, 3), None),
        (np.pad([[[255] * 3]], ((5, 762), (5, 1018), (0, 0))).astype(np.uint8), None),  # one light pixel is enough
        # Its own size, snapped to multiples of 16 near a megapixel, 3:2 for 4:3 (a step of an API's sizes), a quarter.
        *((grey(*size), None) for size in ((768, 1024), (880, 1184), (832, 1248), (192, 256))),
        *((grey(*size), "wrong_size") for size in ((1024, 1024), (1024, 768), (96, 128), (1, 1))),
    ],
)
def test_what_is_no_edited_image_of_its_source_is_refused(edited: object, kind: str | None) -> None:
    assert kind_of(edited) == kind
    assert kind_of(np.zeros((64, 64, 3), np.uint8), np.zeros((64, 64, 3), np.uint8)) is None, "a black one may stay so"
