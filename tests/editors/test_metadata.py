"""metadata.jsonl: what is read, merged and written; unknown fields stay."""

import json
import string

import pytest
from cases import each_row
from hypothesis import given, settings
from hypothesis import strategies as st

from editjudge.core.keys import plain
from editjudge.editors.galleries import metadata
from editjudge.editors.galleries.metadata import GalleryError, GalleryLine

TEXT = st.text(max_size=12)  # surrogates too: JSON can say them
NAMES = st.text(string.ascii_letters + string.digits + " .[]()-é", min_size=1, max_size=8)
KEYS = st.text(string.ascii_letters + string.digits + "._-", min_size=1, max_size=8)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=5,
)


@st.composite
def lines(draw: st.DrawFn) -> list[dict]:
    """Lines of a gallery with fields that nobody knows, in any order."""
    rows = []
    for key in draw(st.lists(KEYS, unique=True, max_size=5)):
        models = draw(st.lists(NAMES, unique_by=plain, max_size=3))
        candidates = [draw(st.dictionaries(TEXT, JSON, max_size=2)) | {"model": m, "image": draw(TEXT)} for m in models]
        known = {"key": key, "candidates": candidates}
        row = draw(st.dictionaries(TEXT, JSON, max_size=3)) | known
        rows.append(dict(draw(st.permutations(list(row.items())))))
    return rows


def written(rows: list[dict], ascii_only: bool = True) -> bytes:
    return "".join(json.dumps(row, ensure_ascii=ascii_only) + "\n" for row in rows).encode()


@settings(max_examples=150)
@given(lines(), NAMES, st.data())
def test_a_merge_adds_one_model_and_changes_nothing_else(rows: list[dict], model: str, data: st.DataObject) -> None:
    before = metadata.parse(written(rows), "m")
    assert metadata.dump(before) == metadata.dump(metadata.merge(before, "m", {})) == written(rows)
    free = [line.key for line in before if line.image(model) is None and data.draw(st.booleans())]
    images = {key: f"{model}/{key}.png" for key in free} | {"nowhere": "x"}
    merged = metadata.merge(before, model, images)
    after = metadata.parse(metadata.dump(merged), "m")
    assert after == merged
    assert [line.key for line in after] == [row["key"] for row in rows]
    for row, old, new in zip(rows, before, after, strict=True):
        assert list(new.values) == list(row) or "candidates" not in row
        assert new.values | {"candidates": []} == row | {"candidates": []}
        own = row["key"] in images
        added = [{"model": model, "image": images[row["key"]]}] if own else []
        assert new.candidates() == [*row["candidates"], *added]
        if not own:
            assert new.raw == old.raw


def test_order_spelling_and_foreign_fields_stay_as_they_were() -> None:
    kept = '{"task": "hybrid", "key": "a", "candidates": [{"model": "X", "score": 1.50, "image": "X/a.png"}], "n":1e3}'
    other = '{"key": "b", "instruction": "加 \\u2028 \\ud83d\\ude00", "candidates": []}'
    raw = f"\ufeff{kept}\r\n\n{other}\n".encode()
    lines = metadata.parse(raw, "m")
    merged = metadata.dump(metadata.merge(lines, "new", {"b": "new/b.png"})).decode()
    first, second, _ = merged.split("\n")
    assert first == kept
    assert json.loads(second) == {
        "key": "b", "instruction": "加 \u2028 😀", "candidates": [{"model": "new", "image": "new/b.png"}]
    }  # fmt: skip
    assert "加" in second
    [line] = metadata.merge(metadata.parse(b'{"key": "b", "i": "\\u52a0"}', "m"), "new", {"b": "x"})
    assert metadata.dump([line]).isascii(), "as the line was"
    assert line.values == {"key": "b", "i": "加", "candidates": [{"model": "new", "image": "x"}]}


def test_a_model_that_is_there_is_a_conflict() -> None:
    lines = [GalleryLine("a", {"key": "a", "candidates": [{"model": "GPT Image 1.5", "image": "old.png"}]})]
    for model in ("GPT Image 1.5", plain("GPT Image 1.5")):
        with pytest.raises(GalleryError, match="has candidates already, in 1 lines, 'a' the first"):
            metadata.merge(lines, model, {"a": "new.png"})


@each_row("raw, words", ("[" * 100_000, "not JSON"))
def test_a_file_that_is_none_is_named_with_its_line(raw: str, words: str) -> None:
    with pytest.raises(GalleryError, match=words):
        metadata.parse(raw.encode("latin-1"), "m")
