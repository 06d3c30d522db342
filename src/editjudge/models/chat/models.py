"""Chat models, with every reply kept in a record store, so that no request is sent twice.

A record has the reply's text, the probabilities of its tokens and its cost. Its name is the fingerprint of the request:
the model, the chat, the images and the sampling. Replies are read when they are used, so that another reader, rule or
margin asks nothing again. How an endpoint was reached (address, key, waits, tries) is not part of the name. A model in
a folder is identified by its weights and precision, in this process also by all code that computes; if it is served, by
the engine, its arguments and how it resizes images. A model behind an endpoint is identified by its name and the code
that prepares images: other weights behind the same name need an entry of their own in params.yaml."""

import functools
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar, cast

from editjudge.core import hub, params
from editjudge.core.code import identity
from editjudge.core.errors import FileError
from editjudge.core.settings import section
from editjudge.engine import resume
from editjudge.engine.progress import progress
from editjudge.engine.workers import Failure, Workers, engine, gpus_apart
from editjudge.models.chat import forms, settings
from editjudge.models.chat.asking import ChatAsking, ChatTask, EndpointModel, sampling
from editjudge.models.chat.forms import ChatForm, ChatQuestion, RawReply
from editjudge.models.chat.settings import ChatModelSetting, EndpointSetting, HttpSetting, LocalSetting, ServedSetting
from editjudge.models.endpoint import pictures
from editjudge.models.endpoint.spending import Account
from editjudge.models.serve.launch import Running, Serving, running
from editjudge.vision.folders import OUT_OF_MEMORY

CHUNK, ROUND = 128, 2048  # questions to a model on this machine, between writes to the cache and looks at the budget
HASH = 12  # characters of a model's weights in its name
LOCAL = "editjudge.models.chat.local_model"
Setting = TypeVar("Setting", bound=ChatModelSetting)


def at_hand(where: str, setting: Setting) -> Setting:
    """The setting with its model's folder in the place of a hub id. ParamsError."""
    if isinstance(setting, LocalSetting):
        return replace(setting, model=str(hub.find(f"{where}.model", setting.model)))
    return setting


def open_account(where: str, setting: ChatModelSetting) -> Account:
    """An account for the model at `where`, by its last name, after its folders were checked. ParamsError.

    The modules that processes with the model need begin to be imported."""
    if isinstance(setting, LocalSetting):
        if not _files(Path(setting.model)):
            raise params.ParamsError(f"{where}.model: no model in {setting.model}")
        if setting.lora and not Path(setting.lora, "adapter_config.json").is_file():
            raise params.ParamsError(f"{where}.adapter: no adapter in {setting.lora}")
    if isinstance(setting, settings.TransformersSetting):
        engine().import_ahead(LOCAL)
    return Account(where.rpartition(".")[2], setting.price, setting.budget)


class Model(ExitStack):
    """A model of params.yaml as long as it is asked; a context manager.

    A server, or processes with the model, start with the first question that has no kept reply, and end with the block.
    Costs are added to the account."""

    def __init__(self, setting: ChatModelSetting, cache: resume.RecordCache, account: Account) -> None:
        super().__init__()
        self.setting, self.cache, self.account = setting, cache, account

    def answers(self, form: ChatForm, questions: Sequence[ChatQuestion]) -> list[list[Any]]:
        """The answers to each question, one a pass: in kept replies, or asked for. Equal requests are sent once."""
        asking = ChatAsking(self.setting, form, self.cache, self.account)
        tasks = asking.tasks(questions, self._model)
        found = {task.name: asking.resumed(task) for task in {task.name: task for task in tasks}.values()}
        missing = [task for task in found.values() if asking.wants(task)]
        self.account.reused += len(found) - len(missing)
        if missing:
            found |= {task.name: task for task in self._ask_all(asking, missing)}
        each = [replace(found[task.name].answer, key=task.question.key) for task in tasks]
        return [each[start : start + self.setting.passes] for start in range(0, len(each), self.setting.passes)]

    @functools.cached_property
    def _model(self) -> list[Any]:
        return model_of(self.setting)

    @functools.cached_property
    def _server(self) -> Running:
        return self.enter_context(running(cast(ServedSetting, self.setting), section(params.load(), "serve", Serving)))

    @functools.cached_property
    def _opened(self) -> bool | None:
        """Whether the served model's template begins replies with thinking; the embedded server says it in the reply.
        None: its processor, with the template, is of a kind that only the server can load."""
        setting = cast(ServedSetting, self.setting)
        if section(params.load(), "serve", Serving).engine == "transformers":
            return False
        from editjudge.models.chat.checkpoint import opens_thinking

        try:
            return opens_thinking(setting.model, setting.enable_thinking)
        except FileError:
            return None

    @functools.cached_property
    def _workers(self) -> Workers:
        setting = cast(settings.TransformersSetting, self.setting)
        where = places(setting.workers, gpus_apart(LOCAL))
        return self.enter_context(Workers(functools.partial(_answering, setting), where, stay=True))

    def _ask_all(self, asking: ChatAsking, tasks: Sequence[ChatTask]) -> list[ChatTask]:
        if isinstance(self.setting, settings.TransformersSetting):
            return _in_workers(asking, tasks, self._workers)
        if isinstance(self.setting, EndpointSetting):
            return EndpointModel(asking, self.setting.base_url, self.setting.key()).answer_all(tasks)
        named = replace(asking, setting=replace(self.setting, model=self._server.model))
        return EndpointModel(named, self._server.url, None, self._opened).answer_all(tasks)


def model_of(setting: ChatModelSetting) -> list[Any]:
    """What decides a reply beside chat, images and sampling: the model, how it is computed, and the sizes of images."""
    parts: list[Any] = []
    if isinstance(setting, HttpSetting):  # of the code only what is sent, and what is kept of a reply
        parts += [setting.min_pixels, setting.max_pixels, identity(pictures.__name__, forms.__name__)]
    if isinstance(setting, EndpointSetting):
        parts += [setting.model]
    if isinstance(setting, LocalSetting):
        parts += [weights_hash(Path(setting.model)), setting.dtype]
        parts += [weights_hash(Path(setting.lora))] if setting.lora else []
        parts += [] if setting.enable_thinking else ["without thinking"]
    if isinstance(setting, ServedSetting):
        how = section(params.load(), "serve", Serving)
        parts += [how.engine, list(how.arguments)]
    if isinstance(setting, settings.TransformersSetting):
        parts += [identity(LOCAL)]
        parts += [setting.min_pixels, setting.max_pixels] if setting.min_pixels or setting.max_pixels else []
    return parts


def places(workers: int, gpus: int) -> list[str]:
    """The device of each worker with the model: GPUs in turn, for 0 one each; without any, at most one a core."""
    if gpus:
        return [f"cuda:{n % gpus}" for n in range(workers or gpus)]
    cores = engine().cpus()
    return ["cpu"] * min(workers or cores, cores)


def _in_workers(asking: ChatAsking, tasks: Sequence[ChatTask], workers: Workers) -> list[ChatTask]:
    """The tasks with their answers. Each chunk of CHUNK is answered by itself, so that the number of workers changes no
    reply."""
    start, account, done = time.monotonic(), asking.account, list[ChatTask]()
    while size := min(ROUND, account.left(), len(tasks) - len(done)):
        part = list(tasks[len(done) : len(done) + size])
        pending = list(range(size))
        while pending:
            chunks = [pending[first : first + CHUNK] for first in range(0, len(pending), CHUNK)]
            given = ((asking.form, [part[n] for n in chunk]) for chunk in chunks)
            came = progress(workers.in_order(given), len(chunks), f"{account.judge}, by {CHUNK} questions")
            unread = []
            each = chain.from_iterable(map(_each, chunks, came))
            for n, reply in zip(pending, each, strict=True):
                if isinstance(reply, Failure):  # mostly for want of memory
                    part[n] = asking.failed(part[n], "memory", reply.reason)
                elif isinstance(reply, str):  # not asked: its images cannot be used, or do not fit
                    part[n] = asking.failed(part[n], "memory" if reply == OUT_OF_MEMORY else "image", reply)
                else:
                    part[n] = asking.taken(part[n], reply)
                    unread += [n] if asking.wants(part[n]) else []
            pending = [n for n in unread if account.left()]
        account.asked += sum(bool(task.said) for task in part)
        done += part
    account.seconds += time.monotonic() - start
    return done + [asking.unasked(task) for task in tasks[len(done) :]]


def _each(chunk: list[int], replies: list[RawReply | str] | Failure) -> list[Any]:
    """A reply for each of the chunk's tasks. Raises what the model did."""
    if isinstance(replies, Failure) and replies.kind == "exception":
        raise replies.raised()
    return [replies] * len(chunk) if isinstance(replies, Failure) else replies


def _answering(
    setting: settings.TransformersSetting, device: str
) -> Callable[[tuple[ChatForm, Sequence[ChatTask]]], list[RawReply | str]]:
    """In a worker: the next replies to a chunk's tasks of a form."""
    from editjudge.models.chat.local_model import opened

    def replies(given: tuple[ChatForm, Sequence[ChatTask]]) -> list[RawReply | str]:
        form, tasks = given
        asked = [(task.question, sampling(setting, form, task.number, len(task.said))) for task in tasks]
        return opened(setting, device).ask_many(form, asked, setting.batch_size)

    return replies


def name_of(setting: ChatModelSetting) -> str:
    """A model's name in records: its folder with its weights' hash, or its name behind an endpoint."""
    hashed = isinstance(setting, LocalSetting) and f"@{weights_hash(Path(setting.model))[:HASH]}"
    return setting.model + (hashed or "")


def weights_hash(model_dir: Path) -> str:
    """SHA-256 over all files of a checkpoint."""
    return resume.fingerprint({str(path.relative_to(model_dir)): resume.file_hash(path) for path in _files(model_dir)})


def _files(model_dir: Path) -> list[Path]:
    return sorted(path for path in model_dir.rglob("*") if path.is_file())
