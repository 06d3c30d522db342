"""A checkpoint behind the OpenAI-compatible chat API, as long as it is needed: by vLLM, or by the embedded server."""

import http.client
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from itertools import takewhile
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urljoin, urlsplit

from pydantic import Field
from pydantic.dataclasses import dataclass as settings_class
from tqdm import tqdm

from editjudge.core import portable
from editjudge.core.errors import UserError
from editjudge.core.files import work
from editjudge.core.settings import FORBID, Count, Positive, Real, Text, Wrong
from editjudge.engine import local
from editjudge.engine.workers import engine, groups
from editjudge.models.chat.settings import LocalSetting, Program
from editjudge.models.weights.adapter import image_settings, image_sizes, read_config

LAST_LINES = 15
PROCESSORS = ("preprocessor_config.json", "processor_config.json")  # one of which shows that a model sees images
LORA_RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)  # that vLLM can reserve for an adapter
# vLLM fetches no weights and reports nothing; on Ray it puts as many copies on each node as there is room for.
ENVIRONMENT = {"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1"}
ENVIRONMENT |= {"VLLM_RAY_DP_PACK_STRATEGY": "fill"}


class ServingError(UserError, RuntimeError):
    """A server that cannot be started, or that ended by itself."""


@settings_class(frozen=True, config=FORBID)
class Serving:
    """The section `serve` of params.yaml: how a checkpoint is served. At which sizes images are shown, the checkpoint
    says, or the entry whose model it is.

    engine: transformers is the embedded server. program: of vLLM, what `make vllm` makes, or a name on the PATH. host:
    the address that it listens at. port: 0: a free one. dtype: of a checkpoint that has no setting of its own.
    tensor_parallel: GPUs of each copy of the model; data_parallel: copies of it (the embedded server has one); 0: as
    many as there are GPUs for. devices: numbers of the GPUs that it may use, of those that the stage sees; none: all,
    with the engine ray the cluster's. gpu_memory_utilization: share of each GPU's memory that vLLM takes at most.
    max_model_len: tokens of a chat and its reply; max_num_seqs: chats at a time. images: of a request, at most.
    start_seconds: until it must be ready; stop_seconds: between SIGTERM and SIGKILL. arguments: more flags of vLLM."""

    engine: Literal["transformers", "vllm"] = "transformers"
    program: Text = ".vllm/bin/vllm"
    host: Text = "127.0.0.1"
    port: Annotated[Count, Field(le=65_535)] = 25930
    dtype: Literal["float32", "bfloat16"] = "bfloat16"
    tensor_parallel: Annotated[Positive, Field(le=1024)] = 1
    data_parallel: Annotated[Count, Field(le=1024)] = 1
    devices: Sequence[Count] = ()
    gpu_memory_utilization: Annotated[Real, Field(gt=0, le=1)] = 0.9
    max_model_len: Annotated[Positive, Field(le=10_000_000)] = 48_000
    max_num_seqs: Annotated[Positive, Field(le=10_000)] = 32
    images: Annotated[Positive, Field(le=1000)] = 3
    arguments: Sequence[Text] = ()
    start_seconds: Annotated[Real, Field(ge=0.1, le=86_400)] = 900.0
    stop_seconds: Annotated[Real, Field(ge=0, le=86_400)] = 15.0

    def __post_init__(self) -> None:
        gpus = max(self.data_parallel, 1) * self.tensor_parallel
        if self.engine == "transformers" and gpus > 1:
            raise Wrong("data_parallel", "and tensor_parallel must be 1: the embedded server runs one copy on one GPU")
        if self.devices and len(self.devices) < gpus:
            raise Wrong("devices", f"names {len(self.devices)} GPUs: {gpus} are needed")


@dataclass(frozen=True)
class Running:
    """A server that runs. url: of its API, with /v1. model: what requests call the model."""

    url: str
    model: str
    process: subprocess.Popen
    log: Path


@contextmanager
def running(checkpoint: LocalSetting, how: Serving) -> Iterator[Running]:
    """Serves a checkpoint as long as the block lasts; the model's name there is its folder, or its adapter's.

    The server is stopped when the block ends, however it does, SIGTERM included (so this needs the main thread). Where
    this process is killed, Linux tells the server to end, which would hold its GPUs and its port.
    FileNotFoundError: no such folder. ServingError: no vLLM is there, the port is taken, or the server ends, or is
    not healthy after `start_seconds`, with the last lines of its log."""
    if not Path(checkpoint.model, "config.json").is_file():
        raise FileNotFoundError(f"no checkpoint in {checkpoint.model}")
    port = free_port(how.host, how.port)
    words, name = command(checkpoint, how, port), f"{Path(checkpoint.model).resolve().name}-{port}"
    with started(name, words, environment(how), how.stop_seconds) as (process, log):
        wait_until_healthy(process, how.engine, f"http://{how.host}:{port}/health", how.start_seconds, log)
        yield Running(f"http://{how.host}:{port}/v1", checkpoint.lora or checkpoint.model, process, log)


@contextmanager
def started(
    name: str, words: list[str], env: Mapping[str, str], stop_seconds: float
) -> Iterator[tuple[subprocess.Popen, Path]]:
    """A program as long as the block lasts, and its log, work/serve/<name>.log; it ends as `running` says."""
    ends = partial(local.end_with_parent, signal.SIGTERM)  # which they clean up after
    log = work("serve", f"{name}.log")
    log.parent.mkdir(parents=True, exist_ok=True)
    with ended_by_sigterm(), log.open("wb") as out:
        own: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": out, "stderr": out, "start_new_session": True}
        process = subprocess.Popen(words, env=env, preexec_fn=ends, **own)
        try:
            yield process, log
        finally:  # SIGTERM to the server and its children; after a while, or if interrupted, SIGKILL to what is left
            try:
                with suppress(ProcessLookupError, subprocess.TimeoutExpired):
                    os.killpg(process.pid, signal.SIGTERM)
                    process.wait(stop_seconds)
            finally:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()


@contextmanager
def copies(name: str, url: str, model: str, how: Program, places: Sequence[str]) -> Iterator[list[str]]:
    """The addresses of a program's copies, `url` and the ports behind it: one at each place (`workers.groups`), of
    which it sees the GPUs alone. All load at the same time, and end as `running` says. ServingError as there."""
    address, urls, begun = urlsplit(url), list[str](), list[Any]()
    host, first = address.hostname or "", address.port or 80
    with ExitStack() as opened:
        for n, place in enumerate(places):
            port, gpus = free_port(host, first + n), local.visible(place)
            words = [word.replace("{port}", str(port)).replace("{model}", model) for word in how.command]
            env = os.environ | ({"CUDA_VISIBLE_DEVICES": gpus} if gpus else {})
            begun.append(opened.enter_context(started(f"{name}-{port}", words, env, how.stop_seconds)))
            urls.append(address._replace(netloc=f"{host}:{port}").geturl())
        for each, (process, log) in zip(urls, begun, strict=True):
            healthy_at = urljoin(each, how.health)
            wait_until_healthy(process, f"the server of {name}", healthy_at, how.start_seconds, log)
        yield urls


def environment(how: Serving) -> dict[str, str]:
    """What the server is told beside its flags: nothing is fetched or reported, and which GPUs it may use.

    `devices` counts among those that this process may use. vLLM has its own packages, and looks for its tools (ninja)
    on the PATH."""
    told = os.environ | ENVIRONMENT
    if how.engine == "transformers":
        told = portable.environment() | told
    if how.devices:
        visible = list(map(str, range(max(how.devices) + 1)))
        if (named := os.environ.get("CUDA_VISIBLE_DEVICES")) is not None:
            visible = list(takewhile(lambda name: name not in ("", "-1"), named.split(",")))  # none behind these
        if beyond := [n for n in how.devices if n >= len(visible)]:
            raise ServingError(f"serve.devices names {beyond[0]}, and CUDA_VISIBLE_DEVICES {len(visible)} GPUs, from 0")
        told["CUDA_VISIBLE_DEVICES"] = ",".join(visible[n] for n in how.devices)
    if how.engine == "vllm" and (program := shutil.which(how.program)):
        told.pop("PYTHONPATH", None)
        told["PATH"] = f"{Path(program).parent.absolute()}{os.pathsep}{told.get('PATH', '')}"
    return told


def command(checkpoint: LocalSetting, how: Serving, port: int) -> list[str]:
    """`vllm serve` with the reference's flags, or the embedded server in an interpreter of its own.

    A checkpoint's own sampling defaults are left aside by vLLM: what a request does not say is then what the API says.
    Images are shown as in this process: in the checkpoint's bounds on pixels, in its adapter's, or in the setting's."""
    adapter, least, most = checkpoint.lora, checkpoint.min_pixels, checkpoint.max_pixels
    where = {"host": how.host, "port": port, "dtype": checkpoint.dtype}
    if how.engine == "transformers":
        if how.arguments:
            raise ServingError("serve.arguments are flags of vLLM, and serve.engine is transformers: leave them out")
        told = where | {"model": checkpoint.model, "adapter": adapter, "thinking": checkpoint.enable_thinking}
        told |= {"batch_size": checkpoint.batch_size, "max_model_len": how.max_model_len, "images": how.images}
        told |= {"min_pixels": least, "max_pixels": most}
        return [sys.executable, "-m", "editjudge.models.serve.server", json.dumps(told)]
    program = shutil.which(how.program)
    if program is None:
        raise ServingError(f"serve.program: no {how.program}: run `make vllm`; or set serve.engine to transformers")
    gpus = len(how.devices) or engine().gpus()
    count = how.data_parallel or len(groups("serve.tensor_parallel", gpus, how.tensor_parallel))
    begin = [program, "serve", checkpoint.model, *(["--enable-lora"] if adapter else [])]
    flags: dict[str, Any] = where | {
        "max-model-len": how.max_model_len,
        "served-model-name": checkpoint.model,
        "tensor-parallel-size": how.tensor_parallel,
        "data-parallel-size": count,
        "gpu-memory-utilization": how.gpu_memory_utilization,
        "max-num-seqs": how.max_num_seqs,
        "generation-config": "vllm",
    }
    if any(Path(checkpoint.model, name).is_file() for name in PROCESSORS):  # vLLM refuses it for one of words alone
        flags["limit-mm-per-prompt"] = json.dumps({"image": how.images, "video": 0})
    if count > 1 and not how.devices and engine().__name__.endswith(".ray"):
        here = max(1, local.gpus() // how.tensor_parallel)  # copies; the others go to other nodes
        flags |= {"data-parallel-backend": "ray", "data-parallel-size-local": min(here, count)}
    if not checkpoint.enable_thinking:
        flags["default-chat-template-kwargs"] = json.dumps({"enable_thinking": False})
    shown = image_settings(Path(adapter)) if adapter else {}
    if adapter is not None:
        config = read_config(Path(adapter))
        rank = max([config["r"], *(config.get("rank_pattern") or {}).values()])
        if rank > LORA_RANKS[-1]:
            raise ServingError(f"{adapter} has rank {rank}, and vLLM takes {LORA_RANKS[-1]} at most: merge it")
        flags["lora-modules"] = json.dumps({"name": adapter, "path": str(Path(adapter).resolve())})
        flags["max-lora-rank"] = next(each for each in LORA_RANKS if each >= rank)
    if shown or least or most:
        sizes = image_sizes(shown or image_settings(Path(checkpoint.model)), least, most)
        flags["mm-processor-kwargs"] = json.dumps(sizes)
    return [*begin, *(word for name, value in flags.items() for word in (f"--{name}", str(value))), *how.arguments]


def free_port(host: str, port: int) -> int:
    """The port, or for 0 a free one. ServingError: something listens there already, and would be taken for ours."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except (OSError, OverflowError) as error:
            raise ServingError(f"cannot serve on {host}:{port}: {error}") from error
        return probe.getsockname()[1]


def wait_until_healthy(process: subprocess.Popen, what: str, url: str, most: float, log: Path) -> None:
    """Until `url` answers 200, with a line that counts the seconds, `most` at most. ServingError: see `running`."""
    start, form = time.monotonic(), f"{what} starts: {{n:.0f}} s of at most {{total:.0f}} s"
    with tqdm(total=most, bar_format=form, mininterval=1.0, file=sys.stderr) as bar:
        while not healthy(url):
            bar.update(time.monotonic() - start - bar.n)
            if process.poll() is not None:
                raise ServingError(f"{what} ended with code {process.returncode} while starting{tail(log)}")
            if bar.n > most:
                raise ServingError(f"{what} is not healthy after {most:.0f} s{tail(log)}")
            time.sleep(0.2)


def healthy(url: str) -> bool:
    """Whether the server answers there. Asked directly: no proxy of the environment is between."""
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with suppress(OSError, http.client.HTTPException), direct.open(url, timeout=5) as answer:
        return bool(answer.status == 200)
    return False


def tail(log: Path) -> str:
    """The last lines of a server's log, to stand behind an error."""
    lines = log.read_text(errors="replace").splitlines()[-LAST_LINES:]
    return f"; the end of {log}:\n" + "\n".join(lines)


@contextmanager
def ended_by_sigterm() -> Iterator[None]:
    """SIGTERM ends the block by SystemExit, so that what it opened is closed; a second one does not disturb that. In
    another thread than the main one, which alone gets signals, it does nothing: the server ends with its parent."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def leave(number: int, frame: object) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        sys.exit(128 + number)

    before = signal.signal(signal.SIGTERM, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
