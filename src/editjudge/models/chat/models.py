"""Models that are asked in chats, with every reply kept in work/, so that none is asked for twice.

What is kept is the reply's text, the probabilities of its tokens and its cost, and it is found again by its request:
the model, the chat, the images and the sampling. What it says is read when it is used, so that another reader, rule or
margin asks nothing again. Not in the name: how an endpoint was reached, its address, its key, waits and tries. A model
in a folder is known by its weights and precision, and in this process by the code that computes; if it is served, also
by the engine, its arguments and what it does to the sizes of images. One behind an endpoint is known by its name only:
other weights behind the same name are another model, with a name of its own in params.yaml.
"""

import functools
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from itertools import chain, groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self, cast

from editjudge.core import hub, params
from editjudge.core.settings import section
from editjudge.engine import resume
from editjudge.engine.progress import progress
from editjudge.engine.workers import cores, import_ahead, on_devices, processes
from editjudge.judges.protocol import Asked, Form, Said
from editjudge.judges.settings import (
    ChatSetting,
    EndpointSetting,
    LocalSetting,
    ModelSetting,
    ServedSetting,
    Setting,
    TransformersSetting,
)
from editjudge.models.chat.request import Task, answered, read, record_name, sampling
from editjudge.models.endpoint.spending import Account, Usage
from editjudge.models.serve.launch import Checkpoint, Running, Serving, running
from editjudge.vision.folders import OUT_OF_MEMORY

if TYPE_CHECKING:  # they load the HTTP client and torch
    from editjudge.models.chat.chat_model import ChatModel
    from editjudge.models.chat.endpoint_judge import Keep

CHUNK, ROUND = 128, 2048  # questions to a model on this machine, between writes to the cache and looks at the budget
LOCAL = "editjudge.models.chat.transformers_judge"
LOCAL_CODE = (LOCAL, *(f"editjudge.models.chat.{name}" for name in ("chat_model", "checkpoint", "processor")))


def at_hand(where: str, setting: Setting) -> Setting:
    """The setting with its model's folder in the place of a hub id. ParamsError."""
    if isinstance(setting, LocalSetting):
        return replace(setting, model=str(hub.checkpoint(f"{where}.model", setting.model)))
    return setting


def open_account(where: str, setting: Setting) -> Account:
    """An account for the model at `where`, by its last name, after its folders were checked. ParamsError.

    What processes with the model import begins to be imported.
    """
    if isinstance(setting, LocalSetting) and not _files(Path(setting.model)):
        raise params.ParamsError(f"{where}.model: no model in {setting.model}")
    if isinstance(setting, LocalSetting) and setting.lora and not Path(setting.lora, "adapter_config.json").is_file():
        raise params.ParamsError(f"{where}.adapter: no adapter in {setting.lora}")
    if isinstance(setting, TransformersSetting):
        import_ahead(LOCAL)
    limits = (setting.price, setting.budget) if isinstance(setting, ModelSetting) else ()
    return Account(where.rpartition(".")[2], *limits)


class Model:
    """A model of params.yaml as long as a stage asks it.

    What answers (a server, or processes with the model) is started for the first question that has no kept reply, and
    kept until the block ends, however often it is asked. What it costs is added to the account.
    """

    def __init__(self, setting: Setting, cache: resume.RecordCache, account: Account) -> None:
        self.setting, self.cache, self.account = setting, cache, account
        self._started = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: Any) -> None:
        self._started.__exit__(*error)

    def answers(self, way: Form, questions: Sequence[Asked]) -> list[list[Any]]:
        """A model's answers to each question, one a pass: kept replies, or asked for; equal requests once, by one of
        the runs that share the cache. See EndpointJudge."""
        setting = cast(ModelSetting, self.setting)
        tasks = tasks_of(setting, way, questions, self._model)
        found, missing = _kept(tasks, setting, way, self.cache, self.account)

        def keep(name: str, said: Said) -> None:
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
        return model_of(cast(ModelSetting, self.setting))

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

    def _ask_all(self, setting: ModelSetting, way: Form, tasks: Sequence[Task], keep: "Keep") -> list[Any]:
        if isinstance(setting, TransformersSetting):
            return _in_processes(setting, way, tasks, keep, self.account, self._pool)
        from editjudge.models.chat.endpoint_judge import EndpointJudge

        url, key = None, None
        if isinstance(setting, EndpointSetting):
            url, key = setting.base_url, setting.key()
        assert isinstance(setting, ChatSetting)
        if url is None:
            url, setting = self._server.url, replace(setting, model=self._server.model)
        return EndpointJudge(setting, url, key, way, self.account, keep).answer_all(tasks)


def tasks_of(setting: ModelSetting, way: Form, questions: Sequence[Asked], model: list[Any]) -> list[Task]:
    """Every question in every pass, under the name of its record. model: of `model_of`. Each image is hashed once."""
    digest = functools.cache(lambda image: resume.fingerprint(bytes(image)))
    tasks = []
    for question in questions:
        chat = [way.messages(question.instruction), [digest(question.images[name]) for name in way.images]]
        for number in range(setting.passes):
            name = resume.fingerprint(model, chat, sampling(setting, way, number))
            tasks.append(Task(name, question, number))
    return tasks


def model_of(setting: ModelSetting) -> list[Any]:
    """What decides a reply beside chat, images and sampling: the model, how it is computed, and the sizes of images."""
    parts: list[Any] = []
    if isinstance(setting, ChatSetting):
        parts += [setting.min_pixels, setting.max_pixels]
    if isinstance(setting, EndpointSetting):
        parts += [setting.model]
    if isinstance(setting, LocalSetting):
        parts += [weights_hash(Path(setting.model)), setting.dtype]
        parts += [weights_hash(Path(setting.lora))] if setting.lora else []
    if isinstance(setting, ServedSetting):
        how = section(params.load(), "serve", Serving)
        parts += [how.engine, how.min_pixels, how.max_pixels, list(how.arguments)]
    if isinstance(setting, TransformersSetting):
        parts += [resume.code_version(LOCAL_CODE)]
        parts += [setting.min_pixels, setting.max_pixels] if setting.min_pixels or setting.max_pixels else []
    return parts


def _claim(task: Task) -> str:
    return f"question {task.name}"


def _kept(
    tasks: Sequence[Task], setting: ModelSetting, way: Form, cache: resume.RecordCache, account: Account
) -> tuple[dict[str, Any], list[Task]]:
    """The answers in the kept replies, by task, and the tasks that must be asked, with the replies that there are."""
    found: dict[str, Any] = {}
    missing: list[Task] = []
    tries = setting.reply_tries
    for wanted in {task.name: task for task in tasks}.values():
        task, answer = wanted, cast(Any, None)
        while not answered(answer) and len(task.said) < tries:
            record = cache.get(record_name(setting, way, task))
            if record is None:
                break
            usage = record[0]["usage"]
            said = Said(**record[0] | {"usage": None if usage is None else Usage(**usage)})
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


class _Process:
    """Where a process of the pool has its model."""

    device: str


def _begin(device: str) -> None:
    _Process.device = device


def _in_processes(
    setting: TransformersSetting,
    way: Form,
    tasks: Sequence[Task],
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


def _replies(setting: TransformersSetting, way: Form, tasks: Sequence[Task]) -> list[Said | str]:
    """In a process: the replies to a chunk, of a judge that has seen no other."""
    import torch

    from editjudge.models.chat.transformers_judge import TransformersJudge

    if setting.workers != 1:
        torch.set_num_threads(1)
    bounds = setting.min_pixels, setting.max_pixels
    loaded = _loaded(setting.model, setting.dtype, setting.lora, _Process.device, *bounds)
    replies: list[Said | str] = []
    for tried, group in groupby(tasks, key=lambda task: len(task.said)):
        same, sampled = list(group), sampling(setting, way, 0, tried)
        how = (sampled["temperature"], sampled.get("seed", setting.seed))
        judge = TransformersJudge(loaded.model, loaded.processor, setting.batch_size, way, *how)
        replies += judge.ask_many([task.question for task in same], [task.number for task in same])
    return replies


@functools.lru_cache(maxsize=1)
def _loaded(
    model: str, dtype: Literal["float32", "bfloat16"], adapter: str | None, device: str, least: int, most: int
) -> "ChatModel":
    from editjudge.models.chat.chat_model import load

    loaded = load(model, dtype, adapter, device)
    images = loaded.processor.image_processor
    longest = most or images.size["longest_edge"]
    images.size = type(images.size)(
        shortest_edge=min(least or images.size["shortest_edge"], longest), longest_edge=longest
    )
    return loaded


def weights_hash(model_dir: Path) -> str:
    """SHA-256 over all files of a checkpoint."""
    return resume.fingerprint({str(path.relative_to(model_dir)): resume.file_hash(path) for path in _files(model_dir)})


def _files(model_dir: Path) -> list[Path]:
    return sorted(path for path in model_dir.rglob("*") if path.is_file())
