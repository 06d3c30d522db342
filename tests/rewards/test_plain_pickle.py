"""Pickles of trainers are read as plain values; hostile ones are refused, and nothing of them runs."""

import io
import os
import pickle
import struct
from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from editjudge.core import images
from editjudge.rewards import plain_pickle
from editjudge.rewards.plain_pickle import PickleError

PIXELS = np.random.default_rng(0).integers(0, 256, (6, 5, 3), dtype=np.uint8)


def image(mode: str = "RGB") -> Image.Image:
    return Image.fromarray(PIXELS).convert(mode)


def file(form: str) -> Image.Image:
    """As a trainer has it that opened a file: a class of the form's plugin, not yet decoded."""
    buffer = io.BytesIO()
    image().save(buffer, form)
    return Image.open(io.BytesIO(buffer.getvalue()))


@pytest.mark.parametrize("protocol", [3, 4, 5])
def test_plain_values_come_as_they_are(protocol: int) -> None:
    shared = [1, "ü", b"\x00"]
    values = {
        "a": [shared, shared],
        "n": (None, True, False, -(2**80), 1.5, 70_000, ()),
        "3": {"x": {}},
        "b": b"x" * 999,
    }
    assert plain_pickle.loads(pickle.dumps(values, protocol)) == values
    assert plain_pickle.loads(pickle.dumps(bytearray(b"xy"), 5)) == b"xy"


@pytest.mark.parametrize("protocol", [3, 4, 5])
@pytest.mark.parametrize("mode", sorted(plain_pickle.BITS))
def test_images_are_re_encoded_from_their_pixels(protocol: int, mode: str) -> None:
    sent = image(mode)
    [first, second] = plain_pickle.loads(pickle.dumps([sent, sent], protocol))
    assert first == second
    with Image.open(io.BytesIO(first)) as read:
        assert read.format == "PNG"
        assert (read.convert("RGBA").tobytes(), read.size) == (sent.convert("RGBA").tobytes(), sent.size)


@pytest.mark.parametrize("form", ["PNG", "JPEG", "WEBP"])
def test_opened_files_are_images_too(form: str) -> None:
    [read] = plain_pickle.loads(pickle.dumps([file(form)]))
    np.testing.assert_array_equal(images.decode(read), np.asarray(file(form)))


@pytest.mark.parametrize("protocol", [3, 4, 5])
def test_arrays_of_text_numbers_and_pixels(protocol: int) -> None:
    words = np.array_split(["make it red", "ü", ""], 2)
    sent = [words, np.float32(1.5), np.str_("x"), np.arange(6).reshape(2, 3), PIXELS, np.stack([PIXELS] * 2)]
    data = pickle.dumps(sent, protocol)
    numpy_1 = data.replace(b"cnumpy._core.multiarray\n", b"cnumpy.core.multiarray\n")  # as it names its functions
    assert (numpy_1 != data) == (protocol == 3)
    for read in map(plain_pickle.loads, (data, numpy_1)):
        assert read[:4] == [[["make it red", "ü"], [""]], 1.5, "x", [[0, 1, 2], [3, 4, 5]]]
        for each in (read[4], *read[5]):
            np.testing.assert_array_equal(images.decode(each), PIXELS)


class Runs:
    """Makes a folder when it is unpickled."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.folder),)


class State:
    """Pickles as an image of this state."""

    def __init__(self, state: Any) -> None:
        self.state = state

    def __reduce__(self) -> tuple[Any, ...]:
        return Image.Image, (), self.state


@pytest.mark.parametrize("protocol", range(6))
def test_a_call_is_refused_and_does_not_happen(tmp_path: Path, protocol: int) -> None:
    folder = tmp_path / "made"
    hostile = Runs(folder)
    sent = [hostile, {"images": [b"x", hostile]}, State([{"k": hostile}, "RGB", (1, 1), None, b"xyz"])]
    sent.append(np.array([hostile, 1], dtype=object))
    for each in sent:
        with pytest.raises(PickleError, match=r"mkdir|object|dtype|_codecs|_reconstructor|opcode"):
            plain_pickle.loads(pickle.dumps(each, protocol))
    assert not folder.exists()
    pickle.loads(pickle.dumps(hostile, protocol))
    assert folder.exists(), "what it would have done"


@pytest.mark.parametrize(
    ("words", "data"),
    [
        ("posix system", b"cposix\nsystem\n(S'touch x'\ntR."),
        ("opcode INST", b"(\x8c\x07touch xios\nsystem\n."),
        ("opcode OBJ", b"(cPIL.Image\nImage\no."),
        ("a call of a str", b"\x8c\x01x)R."),
        ("a bare image", b"cPIL.Image\nImage\n."), ("a bare image", b"cPIL.Image\nImage\n)\x81."),
        ("this call of a dtype", b"cnumpy\ndtype\n(\x8c\x05f4,f4tR."),
        ("this call of a image", b"cPIL.Image\nImage\n(K\x01K\x02tR."),
        ("PIL.Image open", b"cPIL.Image\nopen\n(S'/etc/passwd'\ntR."),
        ("PIL.EpsImagePlugin", b"cPIL.EpsImagePlugin\nEpsImageFile\n)\x81."),
        ("opcode EXT1", b"\x82\x01."), ("opcode PERSID", b"Px\n."), ("opcode NEXT_BUFFER", b"\x97."),
        ("opcode DUP", b"K\x012."), ("not numbered in order", b"K\x01r\xff\xff\xff\x7f."),
        *(("broken", kind + struct.pack("<Q", 2**62) + b"x.") for kind in (b"\x8e", b"\x96")),
        *(("broken", data) for data in (b"\x8a\xffx.", b"h\x07.", b"", b"\x80\x04", b"\xff", b"e.")),
        *(("end with one value", data) for data in (b".", b"K\x01K\x01.", b"(K\x01.")),
        ("takes what it did not give", b"(a."), ("APPEND to a int", b"K\x01K\x02a."),
        ("items of a list", b"]K\x01K\x02s."), ("a key that is a tuple", b"})K\x02s."),
        ("a key that is a int", b"}K\x01K\x02s."), ("a key that is a bytes", b"}C\x01xK\x02s."),
        ("deeper than", b"]" * 20 + b"a" * 19 + b"."), ("deeper than", b"]q\x00h\x00a."),
        ("state of a image", pickle.dumps(State({"_im": 1}))),
    ],
)  # fmt: skip
def test_what_else_is_refused(words: str, data: bytes) -> None:
    with pytest.raises(PickleError, match=words):
        plain_pickle.loads(data)


def test_bombs_are_refused_soon() -> None:
    """The first is tuples in tuples, as a key: to hash it recursively would end the process."""
    for data in (b"})" + b"\x85" * 50_000 + b"K\x01s.", b"]" * 400_000 + b"."):
        with pytest.raises(PickleError):
            plain_pickle.loads(data)
    with pytest.raises(PickleError, match="more than"):
        plain_pickle.loads(pickle.dumps(list(range(250_000))))
    small: Any = [0] * 60
    for _ in range(6):
        small = [small] * 60  # 60 ** 7 values
    with pytest.raises(PickleError, match="more than"):
        plain_pickle.loads(pickle.dumps(small))


def test_an_image_is_filled_once_and_pixels_cannot_multiply() -> None:
    colours = State([{}, "P", (1, 1), [2**70] * 3, b"x"])
    assert plain_pickle.loads(pickle.dumps(colours)).startswith(b"\x89PNG"), "colours count modulo 256"
    pixels = b"x" * 3000
    twice = [State([{}, "RGB", (10, 100), None, pixels]) for _ in range(5)]
    least = 5 * len(pixels) - len(pickle.dumps([twice, bytes(999)])) + 999  # more bytes make it as long as its pixels
    assert len(plain_pickle.loads(pickle.dumps([twice, bytes(least)]))[0]) == 5
    with pytest.raises(PickleError, match="more pixels than it has bytes"):
        plain_pickle.loads(pickle.dumps([twice, bytes(least - 1)]))
    once = pickle.dumps(State([{}, "RGB", (1, 1), None, b"xxx"]), 3)
    with pytest.raises(PickleError, match="the state of a image"):
        plain_pickle.loads(once[:-1] + b"]b.")


@pytest.mark.parametrize(
    "sent",
    [
        np.array([{}], dtype=object), np.zeros(3, dtype=[("a", "i4")]), np.zeros(3, dtype="datetime64[s]"),
        np.zeros(3, dtype=">i4"), np.zeros(20_000), np.zeros((1, 1, 1, 1, 1)), np.asfortranarray(np.zeros((3, 4))),
        np.array([b"x"]), np.ma.masked_array([1], [True]), OrderedDict(a=1), {1, 2}, 1j, slice(1),
        State([{}, "RGB", (100_000, 100_000), None, b"x"]), State([{}, "RGB", (2, 2), None, b"x" * 13]),
        State([{}, "RGB", (-2, -2), None, b"x" * 12]), State([{}, "RGB", (0, 5), None, b""]),
        State([{}, "F", (1, 1), None, b"xxxx"]), State([{}, "RGB\x00", (1, 1), None, b"xxx"]),
        State([{}, "RGB", (1.0, 1), None, b"xxx"]), State([{}, "RGB", (1, 1), None, "xxx"]),
        State([{}, "P", (1, 1), "palette", b"x"]), State([{}, "P", (1, 1), [0] * 769, b"x"]),
        State([{}, "P", (1, 1), [None] * 3, b"x"]), State({"_im": None}), State((None, {"im": 1})),
    ],
)  # fmt: skip
def test_other_arrays_classes_and_states_of_an_image_are_refused(sent: Any) -> None:
    for protocol in (3, 4, 5):
        with pytest.raises(PickleError):
            plain_pickle.loads(pickle.dumps(sent, protocol))
