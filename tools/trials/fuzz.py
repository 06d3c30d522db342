"""Files and replies from strangers, mutated: each ends in a value or in an error that we name, never otherwise.

python -m tools.trials.fuzz [--count 2000] [--classes NAME ...]: of each class, so many mutants of a good one are read
in a process of its own, with 1 GB beyond what it has and SECONDS for each. Printed: handled of tried, and what was not.
hostile.py has those that come over a network or name files.
"""

import argparse
import io
import json
import multiprocessing
import os
import pickle
import random
import resource
import signal
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq

from editjudge.core import images, params, tables
from editjudge.core.errors import UserError
from editjudge.models.endpoint.client import TryFailed, read_completion
from editjudge.models.weights.adapter import read_config
from editjudge.models.weights.merge import read_header
from editjudge.rewards import plain_pickle
from tools.trials import hostile

SECONDS, MORE = 10, 1 << 30
NAMED = (UserError, tables.RowError, images.ImageError, TryFailed, plain_pickle.PickleError)
PIXELS = np.random.default_rng(0).integers(0, 256, (24, 32, 3), dtype=np.uint8)
TABLE = pa.table({"key": ["a", "b"], "image": [bytes(50), b"x"], "n": [1.0, None], "l": [[1, 2], []]})
BITS = (b"[" * 30_000, b"{" * 500, b"\x00" * 8, b"\xff" * 8, b'"', b"\n", b"&a [*a]", b"NaN", b"-1", b"1e999", b"null")
PATHS = (
    b"../",
    b"/",
    b"\\",
    b"..\\",
    b"\xef\xbc\x8e\xef\xbc\x8e/",
    b"%2e%2e/",
    b"~/",
    b"a" * 300,
    b"CON",
    b"up/",
    b"secret",
)
PATHS += (b"out", b"loop", b"/etc/passwd", b"\xed\xa0\x80", b"e\xcc\x81", b"file://", b".")
HEADERS = (
    b"\r\n",
    b": ",
    b"9" * 25,
    b"HTTP/1.1 100 Continue\r\n\r\n",
    b"Transfer-Encoding: chunked\r\n",
    b"x" * 200_000,
)
NUMBERS = (b"9" * 5000, b"\\ud800", b'"x":', b"a" * 20_000, b"1.0", b"{}", b"[],", b"true")
OWN = {"path": PATHS, "download": HEADERS, "chat": NUMBERS, "reward": NUMBERS}  # what is put in, beside BITS


def encoded(kind: str) -> bytes:
    from PIL import Image

    out = io.BytesIO()
    Image.fromarray(PIXELS).save(out, kind)
    return out.getvalue()


def parquet() -> bytes:
    out = io.BytesIO()
    pq.write_table(TABLE, out)
    return out.getvalue()


def arrow() -> bytes:
    out = io.BytesIO()
    with pa.ipc.new_stream(out, TABLE.schema) as stream:
        stream.write_table(TABLE)
    return out.getvalue()


def weights() -> bytes:
    import torch
    from safetensors.torch import save

    return save({"a": torch.ones(4, 4), "b": torch.zeros(2)})


def rows(reader: tables.Reader) -> Callable[[Path], object]:
    return lambda path: list(reader(path))


def adapter(path: Path) -> object:
    path.replace(path.with_name("adapter_config.json"))
    path.with_name("adapter_model.safetensors").touch()
    return read_config(path.parent)


CONFIG = {"peft_type": "LORA", "r": 8, "lora_alpha": 16, "target_modules": ["q_proj"], "rank_pattern": {}}
REPLY = {"choices": [{"message": {"content": "x"}, "logprobs": {"content": []}}], "usage": {"prompt_tokens": 1}}
PICKLED = {"images": [b"x"], "prompts": ["a"], "n": (1, 2.5, None, True)}
# Each class: a good one, or several, and what reads it.
CLASSES: dict[str, tuple[Callable[[], bytes | list[bytes]], Callable[[Path], object]]] = {
    "PNG": (lambda: encoded("PNG"), lambda path: images.decode(path.read_bytes())),
    "JPEG": (lambda: encoded("JPEG"), lambda path: images.decode(path.read_bytes())),
    "WebP": (lambda: encoded("WEBP"), lambda path: images.decode(path.read_bytes())),
    "Parquet": (parquet, rows(tables.parquet)),
    "Arrow": (arrow, rows(tables.arrow)),
    "JSONL": (lambda: b'{"key": "a", "n": [1, {"b": null}]}\n' * 5, rows(tables.jsonl)),
    "JSON": (lambda: b'[{"key": "a"}, {"key": "b"}]', rows(tables.json_list)),
    "CSV": (lambda: b'key,text\na,"x, y"\nb,"z"\n' * 3, rows(tables.delimited)),
    "params": (lambda: b"a: {b: [1, 2.5, x]}\nc: &d [1]\ne: *d\n", params.load),
    "recipe": (lambda: b"task: x\nareas:\n  image: [ssim, emd]\n", lambda path: params.read_lined(path, {})),
    "safetensors": (weights, read_header),
    "adapter": (lambda: json.dumps(CONFIG).encode(), adapter),
    "reply": (lambda: json.dumps(REPLY).encode(), lambda path: read_completion(path.read_bytes())),
    "pickle": (lambda: pickle.dumps(PICKLED), lambda path: plain_pickle.loads(path.read_bytes())),
    "path": (lambda: [b"image.png", b"image", b"in/../image.png", b"up/secret.png"], hostile.inside),
    "download": (hostile.answers, hostile.download),
    "chat": (hostile.chats, lambda path: hostile.asked("chat", "/v1/chat/completions", path)),
    "reward": (hostile.rewards, lambda path: hostile.asked("reward", "/score", path)),
}
THREADS = ("download", "chat", "reward")  # whose memory is measured: address space is reserved for each thread


def mutated(data: bytes, rng: random.Random, bits: tuple[bytes, ...] = BITS) -> bytes:
    """One to four changes: bytes flipped, cut, doubled, or put in."""
    found = bytearray(data)
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(len(found) + 1)
        kind = rng.randrange(5)
        if kind == 0 and found:
            found[at % len(found)] ^= 1 << rng.randrange(8)
        elif kind == 1:
            del found[at : at + rng.randint(1, 40)]
        elif kind == 2:
            found[at:at] = found[at : at + rng.randint(1, 200)]
        elif kind == 3:
            found[at:at] = rng.choice(bits)
        else:
            found[at : at + 4] = rng.randbytes(4)
    return bytes(found)


def handled(name: str, data: bytes, folder: Path) -> str:
    """ "value", "named", or the error that is not one of ours."""
    path = folder / "file"
    path.write_bytes(data)
    try:
        CLASSES[name][1](path)
    except NAMED as error:
        return "named" if str(error).strip() else "named without a word"
    except Exception as error:  # noqa: BLE001 - to be told
        return f"{type(error).__name__}: {error!s:.100}"
    return "value"


def _many(name: str, count: int, more: Sequence[bytes], pipe: "multiprocessing.connection.Connection") -> None:
    good = CLASSES[name][0]()
    goods = good if isinstance(good, list) else [good]
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place, "in")
        folder.mkdir()
        for each in goods:
            handled(name, each, folder)  # imports
        before = psutil.Process().memory_info()
        if name not in THREADS:
            resource.setrlimit(resource.RLIMIT_AS, (before.vms + MORE,) * 2)
        for number in range(count + len(more)):
            rng = random.Random(f"{name} {number}")
            data = more[number] if number < len(more) else mutated(rng.choice(goods), rng, BITS + OWN.get(name, ()))
            signal.alarm(SECONDS)
            ended = handled(name, data, folder)
            signal.alarm(0)
            pipe.send("a file outside of its folder" if os.listdir(place) != ["in"] else ended)
        if resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 > before.rss + MORE:
            pipe.send("more than 1 GB beyond what it had")
    pipe.close()
    os._exit(0)  # servers in threads are not waited for


def tried(name: str, count: int, more: Sequence[bytes] = ()) -> Counter[str]:
    """How so many mutants of a class ended, and `more` before them; a signal ends the rest of them."""
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_many, args=(name, count, more, theirs))
    process.start()
    theirs.close()
    ended: Counter[str] = Counter()
    try:
        while True:
            ended[ours.recv()] += 1
    except EOFError:
        process.join()
    if process.exitcode:
        ended[f"the process ended with {process.exitcode}"] += 1
    return ended


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--classes", nargs="+", choices=list(CLASSES), default=list(CLASSES))
    given = parser.parse_args()
    for name in given.classes:
        more = [hostile.huge(name)] * 2 if name in ("chat", "reward") else []
        ended = tried(name, given.count, more)
        fine = ended.pop("value", 0) + ended.pop("named", 0)
        print(
            f"{name}: {fine} of {given.count + len(more)} handled",
            *(f"  {n} {how}" for how, n in ended.items()),
            sep="\n",
            flush=True,
        )


if __name__ == "__main__":
    main()
