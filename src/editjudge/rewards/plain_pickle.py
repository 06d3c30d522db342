"""Pickles of reward clients, read without unpickling: no class is looked up, nothing is called.

The opcodes come from pickletools, which only reads them. What they build is bytes, str, numbers, bool, None, lists,
tuples and dicts with texts as keys. PIL images become PNG bytes, of their mode, size, palette and pixels alone; NumPy's
arrays of text and numbers become lists, and those of pixels PNG bytes. Everything else is refused by name."""

import io
import math
import pickletools
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from editjudge.core import images, params

MOST_OPCODES = 300_000
MOST_VALUES = 200_000  # of the result, those that several places share counted at each
DEEPEST = 16
TABLES = params.load(Path(__file__).with_suffix(".yaml"))
BITS, VALUES, TAKEN, NAMES = (TABLES[name] for name in ("bits", "values", "taken", "names"))
DTYPE = re.compile(r"b1|[iu][1248]|f[248]|U[1-9]\d{0,5}")
MOST_NUMBERS = 10_000  # of an array
CONSTANTS: dict[str, Callable[[], Any]] = {
    **{"NONE": lambda: None, "NEWTRUE": lambda: True, "NEWFALSE": lambda: False},
    **{"EMPTY_LIST": list, "EMPTY_DICT": dict},
}
# What pickletools, PIL and NumPy raise for bytes that are no pickle, image or array.
BROKEN = (ValueError, IndexError, OverflowError, AssertionError, SyntaxError, OSError, RecursionError)


class PickleError(ValueError):
    """A pickle that is not read; the message says why."""


@dataclass(frozen=True)
class PickledName:
    """A class or function that the pickle names. kind: which stand-in a call of it makes."""

    kind: str


@dataclass
class StandIn:
    """An image, array or dtype that the pickle fills in later. value: what it then is."""

    kind: str
    value: Any = None


class Reader:
    """The stack machine of a pickle. pixels: bytes of images that may still be built, as many as the pickle has."""

    def __init__(self, data: bytes) -> None:
        self.data, self.pixels = data, len(data)
        self.stack: list[Any] = []
        self.marks: list[int] = []
        self.memo: list[Any] = []

    def read(self) -> Any:
        for number, (opcode, argument, _) in enumerate(pickletools.genops(self.data)):
            if number == MOST_OPCODES:
                raise PickleError(f"more than {MOST_OPCODES} opcodes")
            if opcode.name == "STOP":
                break
            self.step(opcode.name, argument)
        if len(self.stack) != 1 or self.marks:
            raise PickleError("it does not end with one value")
        return plain(self.stack[0])

    def step(self, name: str, argument: Any) -> None:
        """Carries out one opcode: values, containers, and the few objects that stand for images and arrays."""
        stack, taken = self.stack, self.take(TAKEN[name]) if name in TAKEN else []
        if name in VALUES:
            stack.append(bytes(argument) if isinstance(argument, bytearray) else argument)
        elif name in CONSTANTS:
            stack.append(CONSTANTS[name]())
        elif "TUPLE" in name:
            stack.append(tuple(taken))
        elif name == "MARK":
            self.marks.append(len(stack))
        elif name in ("BINPUT", "LONG_BINPUT", "MEMOIZE"):
            if argument not in (None, len(self.memo)):  # picklers number what they remember from 0 on
                raise PickleError(f"what it remembers is not numbered in order: {argument}")
            self.memo.append(stack[-1])
        elif name in ("BINGET", "LONG_BINGET"):
            stack.append(self.memo[argument])
        elif name in ("GLOBAL", "STACK_GLOBAL"):
            stack.append(named(argument or "{} {}".format(*taken)))
        elif name in ("APPEND", "APPENDS"):
            if not isinstance(stack[-1], list):
                raise refused(f"{name} to a {type(stack[-1]).__name__}")
            stack[-1].extend(taken)
        elif name in ("SETITEM", "SETITEMS"):
            set_items(stack[-1], taken)
        elif name in ("REDUCE", "NEWOBJ"):
            stack.append(self.call(*taken))
        elif name == "BUILD":
            self.fill(stack[-1], *taken)
        elif name not in ("PROTO", "FRAME"):
            raise refused(f"the opcode {name}")

    def take(self, count: int | None) -> list[Any]:
        """So many values from the stack, or all above the mark."""
        start = self.marks.pop() if count is None else len(self.stack) - count
        if start < (self.marks[-1] if self.marks else 0):
            raise PickleError("it takes what it did not give")
        taken = self.stack[start:]
        del self.stack[start:]
        return taken

    def call(self, function: Any, given: Any) -> Any:
        """The stand-in for the object that calling a class or function with `given` would make."""
        if not isinstance(function, PickledName):
            raise refused(f"a call of a {type(function).__name__}")
        match function.kind, given:
            case "image", ():
                return StandIn("image")
            case "_reconstruct", (PickledName(kind="array"), (0,), _):
                return StandIn("array")
            case "dtype", (str(code), *_) if DTYPE.fullmatch(code):
                return StandIn("dtype", np.dtype(f"<{code}"))
            case "scalar", (StandIn(kind="dtype", value=dtype), bytes(data)):
                return array(dtype, (), data)
            case "_frombuffer", (bytes(data), StandIn(kind="dtype", value=dtype), tuple(shape), "C"):
                return self.show(array(dtype, shape, data))
        raise refused(f"this call of a {function.kind}")

    def fill(self, made: Any, state: Any) -> None:
        """The state of an image, array or dtype, as PIL and NumPy write it."""
        kind = made.kind if isinstance(made, StandIn) else type(made).__name__
        match kind, state:
            case "dtype", (3, "<" | "|", None, None, None, *_):
                return
            case ("image", [_, str(mode), (int(width), int(height)), palette, bytes(data), *_]) if made.value is None:
                made.value = self.picture(mode, width, height, palette, data)
            case ("array", (1, tuple(shape), StandIn(kind="dtype", value=dtype), False, bytes(data))) if (
                made.value is None
            ):
                made.value = self.show(array(dtype, shape, data))
            case _:
                raise refused(f"the state of a {kind}")

    def picture(self, mode: str, width: int, height: int, palette: Any, data: bytes) -> bytes:
        """An image's PNG, from its raw pixels."""
        row = -(-BITS.get(mode, 0) * width // 8)
        if not 0 < width * height <= images.MAX_PIXELS or width < 0 or row == 0 or len(data) != row * height:
            raise refused(f"an image of mode {mode!r:.20}, {width} x {height}, with {len(data)} bytes")
        self.spend(len(data))
        image = Image.frombytes(mode, (width, height), data)
        if mode == "P":
            if not (isinstance(palette, list) and len(palette) <= 768 and set(map(type, palette)) == {int}):
                raise refused("an image's palette")
            image.putpalette([value & 255 for value in palette])
        return encoded(image)

    def show(self, values: np.ndarray) -> Any:
        """Pixels, uint8 (H, W, 3) or (N, H, W, 3), as PNG; other arrays as lists."""
        if values.dtype == np.uint8 and values.ndim in (3, 4) and values.shape[-1] == 3 and values.size:
            self.spend(values.size)
            if math.prod(values.shape[-3:-1]) > images.MAX_PIXELS:
                raise refused(f"an array of shape {values.shape}")
            shown = [encoded(Image.fromarray(pixels)) for pixels in values.reshape(-1, *values.shape[-3:])]
            return shown[0] if values.ndim == 3 else shown
        if values.size > MOST_NUMBERS:
            raise refused(f"an array of {values.size} values")
        return values.tolist()

    def spend(self, size: int) -> None:
        """Counts bytes of pixels. PickleError: more than the pickle has, since it uses some of them several times."""
        self.pixels -= size
        if self.pixels < 0:
            raise PickleError("more pixels than it has bytes")


def loads(data: bytes) -> Any:
    """The plain values of a pickle. PickleError: it is broken, too large, or has anything else in it."""
    try:
        return Reader(data).read()
    except PickleError:
        raise
    except BROKEN as error:
        raise PickleError(f"it is broken: {str(error)[:200]}") from None


def refused(what: str) -> PickleError:
    return PickleError(f"{what} is not read: only bytes, text, numbers, lists, tuples, dicts, images and plain arrays")


def named(name: str) -> PickledName:
    if name not in NAMES:
        raise refused(repr(name)[:100])
    return PickledName(NAMES[name])


def set_items(target: Any, items: list[Any]) -> None:
    """Only texts are keys: numbers can be chosen so that all collide, and to hash a tuple may end the process."""
    if not isinstance(target, dict) or len(items) % 2:
        raise refused(f"items of a {type(target).__name__}")
    for key, value in zip(items[::2], items[1::2], strict=True):
        if not isinstance(key, str):
            raise refused(f"a key that is a {type(key).__name__}")
        target[key] = value


def array(dtype: Any, shape: tuple[Any, ...], data: bytes) -> Any:
    """An array of the bytes that are there, or its one value where the shape is ()."""
    if len(shape) > 4 or not all(isinstance(side, int) and 0 <= side <= len(data) for side in shape):
        raise refused("an array of this shape")
    if math.prod(shape) * dtype.itemsize != len(data):
        raise refused(f"an array of shape {shape} and {len(data)} bytes")
    values = np.frombuffer(data, dtype).reshape(shape)
    return values if shape else values.item()


def encoded(image: Image.Image) -> bytes:
    out = io.BytesIO()
    image.save(out, "PNG", compress_level=1)
    return out.getvalue()


def plain(top: Any) -> Any:
    """The value with what stands for images and arrays replaced. PickleError: too deep, endless, or too many values."""
    count = 0

    def copied(value: Any, depth: int) -> Any:
        nonlocal count
        count += 1
        if count > MOST_VALUES or depth > DEEPEST:
            raise PickleError(f"it is deeper than {DEEPEST}, or has more than {MOST_VALUES} values")
        if isinstance(value, (list, tuple)):
            return type(value)(copied(each, depth + 1) for each in value)
        if isinstance(value, dict):
            return {key: copied(each, depth + 1) for key, each in value.items()}
        if isinstance(value, StandIn) and value.value is not None and value.kind != "dtype":
            return value.value
        if isinstance(value, (StandIn, PickledName)):
            raise refused(f"a bare {value.kind}")
        return value

    return copied(top, 0)
