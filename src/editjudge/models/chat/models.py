"""Chat models, with every reply kept in a record store, so that no request is sent twice.

A record has the reply's text, the probabilities of its tokens and its cost. Its name is the fingerprint of the request:
the model, the chat, the images and the sampling. Replies are read when they are used, so that another reader, rule or
margin asks nothing again. How an endpoint was reached (address, key, waits, tries) is not part of the name. A model in
a folder is identified by its weights and precision, in this process also by all code that computes; if it is served, by
the engine, its arguments and how it resizes images. A model behind an endpoint is identified by its name and the code
that prepares images: other weights behind the same name need an entry of their own in params.yaml.
"""

import functools
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar, cast

from editjudge.core import hub, params
from editjudge.core.code import identity
from editjudge.core.settings import section
from editjudge.engine import resume
from editjudge.engine.progress import progress
from editjudge.engine.workers import cores, import_ahead, on_devices, processes
from editjudge.models.chat import logprobs
from editjudge.models.chat.forms import ChatForm, ChatQuestion, RawReply
from editjudge.models.chat.request import ChatTask, answered, read, record_name, sampling
from editjudge.models.chat.settings import (
    ChatModelSetting,
    EndpointSetting,
    HttpSetting,
    LocalSetting,
    ServedSetting,
    TransformersSetting,
)
from editjudge.models.endpoint import pictures
from editjudge.models.endpoint.spending import Account, Usage
from editjudge.models.serve.launch import Checkpoint, Running, Serving, running
from editjudge.vision.folders import OUT_OF_MEMORY

if TYPE_CHECKING:  # they load the HTTP client and torch
    from editjudge.models.chat.endpoint_judge import Keep

CHUNK, ROUND = 128, 2048  # questions to a model on this machine, between writes to the cache and looks at the budget
HASH = 12  # characters of a model's weights in its name
LOCAL = "editjudge.models.chat.transformers_judge"


Setting = TypeVar("Setting", bound=ChatModelSetting)


def at_hand(where: str, setting: Setting) -> Setting:
    """The setting with its model's folder in the place of a hub id. ParamsError."""
    if isinstance(setting, LocalSetting):
        return replace(setting, model=str(hub.checkpoint(f"{where}.model", setting.model)))
    return setting


def open_account(where: str, setting: ChatModelSetting) -> Account:
    """An account for the model at `where`, by its last name, after its folders were checked. ParamsError.

    The modules that processes with the model need begin to be imported.
    """
    if isinstance(setting, LocalSetting) and not _files(Path(setting.model)):
        raise params.ParamsError(f"{where}.model: no model in {setting.model}")
    if isinstance(setting, LocalSetting) and setting.lora and not Path(setting.lora, "adapter_config.json").is_file():
        raise params.ParamsError(f"{where}.adapter: no adapter in {setting.lora}")
    if isinstance(setting, TransformersSetting):
        import_ahead(LOCAL)
    return Account(where.rpartition(".")[2], setting.price, setting.budget)


class Model:
    """A model of params.yaml as long as it is asked; a context manager.

    A server, or processes with the model, start with the first question that has no kept reply, and end with the block.
    Costs are added to the account.
    """

    def __init__(self, setting: ChatModelSetting, cache: resume.RecordCache, account: Account) -> None:
        self.setting, self.cache, self.account = setting, cache, account
        self._started = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: Any) -> None:
        self._started.__exit__(*error)

    def answers(self, way: ChatForm, questions: Sequence[ChatQuestion]) -> list[list[Any]]:
        """A model's answers to each question, one a pass: kept replies, or asked for; equal requests once, by one of
        the runs that share the cache. See EndpointModel."""
        setting = self.setting
        tasks = tasks_of(setting, way, questions, self._model)
        found, missing = _kept(tasks, setting, way, self.cache, self.account)

        def keep(name: str, said: RawReply) -> None:
            self.cache.put(name, vars(said) | {"usage": None if said.usage is None else vars(said.usage)})

        while missing:  # a claim is of a question with all its tries, so it has another name than a record
            with self.cache.claimed([_claim(task) for task in missing]) as mine:
                tasks_here = [replace(task, said=()) for task in missing if _claim(task) in mine]
                known, rest = _kept(tasks_here, setting, way, self.cache, self.account)
                new = self._ask_all(setting, way, rest, keep) if rest else []
            found |= known | dict(zip((task.name for task in rest), new, strict=True))
            missing = [task for task in missing if task.name not in found]
        each = [replace(found[task.name], key=task.question.key) for task in tasks]
        return [each[start : start + setting.passes] for start in range(0, len(each), setting.passes)]

    @functools.cached_property
    def _model(self) -> list[Any]:
        return model_of(self.setting)

    @functools.cached_property
    def _server(self) -> Running:
        setting = cast(ServedSetting, self.setting)
        checkpoint = Checkpoint(setting.model, setting.dtype, setting.batch_size, setting.lora)
        return self._started.enter_context(running(checkpoint, section(params.load(), "serve", Serving)))

    @functools.cached_property
    def _pool(self) -> ProcessPoolExecutor:
        with processes(1, LOCAL) as first:  # which loads torch for those that follow; this process needs none
            gpus = first.submit(_gpus).result()
        workers = cast(TransformersSetting, self.setting).workers
        return self._started.enter_context(on_devices(places(workers, gpus), _begin))

    def _ask_all(self, setting: ChatModelSetting, way: ChatForm, tasks: Sequence[ChatTask], keep: "Keep") -> list[Any]:
        if isinstance(setting, TransformersSetting):
            return _in_processes(setting, way, tasks, keep, self.account, self._pool)
        from editjudge.models.chat.endpoint_judge import EndpointModel

        url, key = None, None
        if isinstance(setting, EndpointSetting):
            url, key = setting.base_url, setting.key()
        assert isinstance(setting, HttpSetting)
        if url is None:
            url, setting = self._server.url, replace(setting, model=self._server.model)
        return EndpointModel(setting, url, key, way, self.account, keep).answer_all(tasks)


def tasks_of(
    setting: ChatModelSetting, way: ChatForm, questions: Sequence[ChatQuestion], model: list[Any]
) -> list[ChatTask]:
    """Every question in every pass, under the name of its record. model: of `model_of`. Each image is hashed once."""
    digest = functools.cache(lambda image: resume.fingerprint(bytes(image)))
    tasks = []
    for question in questions:
        chat = [way.messages(question.instruction), [digest(question.images[name]) for name in way.images]]
        for number in range(setting.passes):
            name = resume.fingerprint(model, chat, sampling(setting, way, number))
            tasks.append(ChatTask(name, question, number))
    return tasks


def model_of(setting: ChatModelSetting) -> list[Any]:
    """What decides a reply beside chat, images and sampling: the model, how it is computed, and the sizes of images."""
    parts: list[Any] = []
    if isinstance(setting, HttpSetting):  # of the code only what is sent, and what is kept of a reply
        parts += [setting.min_pixels, setting.max_pixels, identity(pictures.__name__, logprobs.__name__)]
    if isinstance(setting, EndpointSetting):
        parts += [setting.model]
    if isinstance(setting, LocalSetting):
        parts += [weights_hash(Path(setting.model)), setting.dtype]
        parts += [weights_hash(Path(setting.lora))] if setting.lora else []
    if isinstance(setting, ServedSetting):
        how = section(params.load(), "serve", Serving)
        parts += [how.engine, how.min_pixels, how.max_pixels, list(how.arguments)]
    if isinstance(setting, TransformersSetting):
        parts += [identity(LOCAL)]
        parts += [setting.min_pixels, setting.max_pixels] if setting.min_pixels or setting.max_pixels else []
    return parts


def _claim(task: ChatTask) -> str:
    return f"question {task.name}"


def _kept(
    tasks: Sequence[ChatTask], setting: ChatModelSetting, way: ChatForm, cache: resume.RecordCache, account: Account
) -> tuple[dict[str, Any], list[ChatTask]]:
    """The answers in the kept replies, by task, and the tasks that must be asked, with the replies that there are."""
    found: dict[str, Any] = {}
    missing: list[ChatTask] = []
    tries = setting.reply_tries
    for wanted in {task.name: task for task in tasks}.values():
        task, answer = wanted, cast(Any, None)
        while not answered(answer) and len(task.said) < tries:
            record = cache.get(record_name(setting, way, task))
            if record is None:
                break
            usage = record[0]["usage"]
            said = RawReply(**record[0] | {"usage": None if usage is None else Usage(**usage)})
            task = replace(task, said=(*task.said, said))
            answer = read(way, task)
        if task.said:
            account.use(task.name, answer.usage, answered(answer))
        if answered(answer) or len(task.said) >= tries:
            account.reused += 1
            found[task.name] = answer
        else:
            missing.append(task)
    return found, missing


def places(workers: int, gpus: int) -> list[str]:
    """The device of each process with the model: GPUs in turn, for 0 one each; without any, at most one a core."""
    if gpus:
        return [f"cuda:{n % gpus}" for n in range(workers or gpus)]
    return ["cpu"] * min(workers or cores(), cores())


def _gpus() -> int:
    import torch

    return torch.cuda.device_count()


class _ModelProcess:
    """Where a process of the pool has its model."""

    device: str


def _begin(device: str) -> None:
    _ModelProcess.device = device


def _in_processes(
    setting: TransformersSetting,
    way: ChatForm,
    tasks: Sequence[ChatTask],
    keep: "Keep",
    account: Account,
    pool: ProcessPoolExecutor,
) -> list[Any]:
    """Chunks of CHUNK questions, each answered by itself, so that the number of processes changes no reply."""
    start, found = time.monotonic(), list[Any]()
    reply = functools.partial(_replies, setting, way)
    while size := min(ROUND, account.left(), len(tasks) - len(found)):
        part = list(tasks[len(found) : len(found) + size])
        came: dict[int, Any] = {}
        pending = list(range(size))
        while pending:
            chunks = [[part[n] for n in pending[first : first + CHUNK]] for first in range(0, len(pending), CHUNK)]
            replies = progress(pool.map(reply, chunks), len(chunks), f"{account.judge}, by {CHUNK} questions")
            for n, said in zip(pending, chain.from_iterable(replies), strict=True):
                if isinstance(said, str):  # not asked: its images cannot be used, or do not fit
                    account.failures["memory" if said == OUT_OF_MEMORY else "image"] += 1
                    came[n] = way.answer(part[n].question, said)
                    continue
                keep(record_name(setting, way, part[n]), said)
                part[n] = replace(part[n], said=(*part[n].said, said))
                came[n] = read(way, part[n])
                account.use(part[n].name, came[n].usage, answered(came[n]))
            unread = (n for n in pending if part[n].said and not answered(came[n]))
            pending = [n for n in unread if len(part[n].said) < setting.reply_tries and account.left()]
        account.asked += sum(bool(task.said) for task in part)
        found += [came[n] for n in range(size)]
    unasked = tasks[len(found) :]
    account.unasked += len(unasked)
    account.seconds += time.monotonic() - start
    return found + [way.answer(task.question, account.closed()) for task in unasked]


def _replies(setting: TransformersSetting, way: ChatForm, tasks: Sequence[ChatTask]) -> list[RawReply | str]:
    """In a process: the replies to a chunk, by a model that has seen no other."""
    from editjudge.models.chat import transformers_judge

    return transformers_judge.replies(setting, way, tasks, _ModelProcess.device)


def name_of(setting: ChatModelSetting) -> str:
    """A model's name in records: its folder with its weights' hash, or its name behind an endpoint."""
    local = isinstance(setting, LocalSetting)
    return f"{setting.model}@{weights_hash(Path(setting.model))[:HASH]}" if local else setting.model


def weights_hash(model_dir: Path) -> str:
    """SHA-256 over all files of a checkpoint."""
    return resume.fingerprint({str(path.relative_to(model_dir)): resume.file_hash(path) for path in _files(model_dir)})


def _files(model_dir: Path) -> list[Path]:
    return sorted(path for path in model_dir.rglob("*") if path.is_file())
