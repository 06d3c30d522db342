"""Asking judges that stand in params.yaml, with every answer kept in work/, so that none is asked for twice.

An answer is found again by what was asked (instruction, images, pass) and by what decides the reply: the model, the
prompt, the sampling, the limits of the images, and the code that writes questions and reads replies. Not by where and
how an endpoint was reached: its address, its key, waits and tries. A model in a folder is known by its weights, and if
it is served also by the engine and by what it does to the sizes of images. One behind an endpoint is known by its name
only: other weights behind the same name are another judge, with a name of its own in params.yaml.

A judge is asked about one dimension, in the words that `styles` and `viescore` have for it. What is asked about visual
consistency is what the prompt of that name asks everywhere else, so that its answers serve for both.
"""

import hashlib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias, cast

from editjudge.core import params, resume
from editjudge.endpoints.launch import read_serving, served
from editjudge.endpoints.spending import Account, Usage
from editjudge.judges import chat
from editjudge.judges.endpoint_judge import EndpointJudge, Keep, Task, answered, grouped
from editjudge.judges.majority import majority, mean_score
from editjudge.judges.measures_judge import Context, MeasuresJudge
from editjudge.judges.protocol import (
    BothOrders,
    PointQuestion,
    Question,
    Score,
    Verdict,
    combine,
    mirrored,
    swapped,
)
from editjudge.judges.settings import (
    ChatSetting,
    EndpointSetting,
    MeasuresSetting,
    ModelSetting,
    ServedSetting,
    TransformersSetting,
    read_setting,
)
from editjudge.judges.styles import Dimension, Style, style
from editjudge.judges.viescore import POINTWISE, PointStyle, Scale, pointwise, winner_of

CHUNK = 256  # questions between two writes to the cache, of a model in this process
LOCAL_CODE = (
    "editjudge.qwen.chat_model",
    "editjudge.qwen.checkpoint",
    "editjudge.qwen.processor",
    "editjudge.judges.transformers_judge",
)
SCALES: Mapping[str, Scale] = {"viescore_10": 10, "viescore_25": 25}
CONSISTENCY: Dimension = "visual_consistency"
Asked: TypeAlias = Question | PointQuestion


def open_accounts(judges: Mapping[str, Mapping[str, Any]], where: str = "judges") -> dict[str, Account]:
    """An account for each judge of params.yaml, after all their settings, keys and folders were checked (ParamsError).

    where: the section that the judges stand in.
    """
    if not (isinstance(judges, Mapping) and judges):
        raise params.ParamsError(
            f"params.yaml: there is no judge to ask: `{where}` has none, or the arena takes none of them"
        )
    settings = {name: read_setting(f"{where}.{name}", given) for name, given in judges.items()}
    for name, setting in settings.items():
        _check_folder(f"{where}.{name}", setting)
    return {name: _account(name, setting) for name, setting in settings.items()}


def _account(name: str, setting: MeasuresSetting) -> Account:
    return Account(name, setting.price, setting.budget) if isinstance(setting, ModelSetting) else Account(name)


def _check_folder(where: str, setting: MeasuresSetting) -> None:
    if isinstance(setting, ServedSetting | TransformersSetting) and not _files(Path(setting.model)):
        raise params.ParamsError(f"{where}.model: no model in {setting.model}")


def ask(
    given: Mapping[str, Any],
    questions: Sequence[Question],
    contexts: Mapping[str, Context],
    cache: resume.RecordCache,
    account: Account | None = None,
    dimension: Dimension = CONSISTENCY,
) -> list[BothOrders]:
    """The answers of the judge that `judges.<name>` describes, each question asked in both orders about a dimension.

    A judge with a pointwise prompt scores each edit once, and its comparisons come from the scores. A judge by measures
    knows visual consistency only, whatever the dimension. What it costs is added to the account.
    ParamsError: a setting that is wrong. EndpointError: an endpoint that refuses key or model.
    """
    where = "judges." + (account.judge if account else "judge")
    setting = read_setting(where, given)
    account = account or _account("judge", setting)
    _check_folder(where, setting)
    both = [order for question in questions for order in (question, swapped(question))]
    if not isinstance(setting, ModelSetting):
        verdicts = MeasuresJudge(contexts, cache).compare_many(both)
        for n, verdict in enumerate(verdicts):
            account.use(f"{verdict.key}.{n % 2}", verdict.usage, answered(verdict))
    elif setting.prompt in POINTWISE:
        return _by_scores(setting, dimension, questions, cache, account)
    else:
        verdicts = [majority(passes) for passes in _answers(setting, dimension, both, cache, account)]
    pairs = grouped(verdicts, 2)
    return [BothOrders(f, b, combine(f, b, setting.rule, setting.tie_margin)) for f, b in pairs]


def form(prompt: str, dimension: Dimension) -> chat.Form:
    """The form of a prompt that `judges.<name>.prompt` names, about one dimension; KeyError for an unknown one."""
    way = _way(prompt, dimension)
    return chat.scoring(way) if isinstance(way, PointStyle) else chat.comparing(way)


def _way(prompt: str, dimension: Dimension) -> Style | PointStyle:
    return pointwise(SCALES[prompt], dimension) if prompt in SCALES else style(prompt, dimension)


def _by_scores(
    setting: ModelSetting,
    dimension: Dimension,
    questions: Sequence[Question],
    cache: resume.RecordCache,
    account: Account,
) -> list[BothOrders]:
    """Comparisons by the scores of the two edits, the same in both orders; an edit of many pairs is scored once."""
    edits = [PointQuestion(q.key, q.instruction, q.source, edited) for q in questions for edited in (q.a, q.b)]
    scores = [mean_score(passes) for passes in _answers(setting, dimension, edits, cache, account)]
    answers = []
    for question, (a, b) in zip(questions, grouped(scores, 2), strict=True):
        winner, reason = winner_of(a, b, setting.score_margin)
        verdict = Verdict(question.key, winner, None, f"{a.reply}\n{b.reply}", reason)
        answers.append(BothOrders(verdict, mirrored(verdict), verdict))
    return answers


def _answers(
    setting: ModelSetting,
    dimension: Dimension,
    questions: Sequence[Asked],
    cache: resume.RecordCache,
    account: Account,
) -> list[list[Any]]:
    """The answers to each question, one a pass: kept ones, or asked for and kept; equal questions are asked once."""
    tasks = _tasks(setting, dimension, questions)
    found, missing = _kept(tasks, setting, cache, account)

    def keep(task: Task) -> None:
        assert task.answer is not None
        usage = None if task.answer.usage is None else vars(task.answer.usage)
        cache.put(task.name, vars(task.answer) | {"usage": usage, "replies": task.replies})

    if missing:
        answers = _ask_all(setting, dimension, missing, keep, account)
        found.update(zip((task.name for task in missing), answers, strict=True))
    return grouped([replace(found[task.name], key=task.question.key) for task in tasks], setting.passes)


def _tasks(setting: ModelSetting, dimension: Dimension, questions: Sequence[Asked]) -> list[Task]:
    """Every question in every pass, under the name of its record. Each image is hashed once."""
    identity = _identity(setting, dimension)
    images = {data for question in questions for data in question_images(question)}
    digests = {data: resume.fingerprint(data) for data in images}
    tasks = []
    for question in questions:
        asked = [question.instruction, *(digests[data] for data in question_images(question))]
        for number in range(setting.passes):
            sampling = [setting.temperature, setting.seed + number]
            tasks.append(Task(resume.fingerprint(identity, asked, sampling), question, number))
    return tasks


def question_images(question: Asked) -> tuple[bytes, ...]:
    """The images of a question, the source first."""
    if isinstance(question, PointQuestion):
        return question.source, question.edited
    return question.source, question.a, question.b


def _identity(setting: ModelSetting, dimension: Dimension) -> str:
    """Of all that decides a reply beside the question, the pass and the temperature; a version names the dimension."""
    parts: list[Any] = [resume.code_version(chat.CODE), setting.prompt, form(setting.prompt, dimension).version]
    if isinstance(setting, ChatSetting):
        parts += [setting.logprobs, setting.max_new_tokens, setting.min_pixels, setting.max_pixels]
    if isinstance(setting, EndpointSetting):
        parts += [setting.model]
    if isinstance(setting, ServedSetting | TransformersSetting):
        parts += [weights_hash(Path(setting.model)), setting.dtype]
    if isinstance(setting, ServedSetting):
        how = read_serving(params.load())
        parts += [how.engine, how.min_pixels, how.max_pixels]
    if isinstance(setting, TransformersSetting):
        parts += [resume.code_version(LOCAL_CODE)]
    return resume.fingerprint(*parts)


def _kept(
    tasks: Sequence[Task], setting: ModelSetting, cache: resume.RecordCache, account: Account
) -> tuple[dict[str, chat.Answer], list[Task]]:
    """The answers that the cache has, by name, and the tasks that must be asked, with what is known of them."""
    found: dict[str, chat.Answer] = {}
    missing: list[Task] = []
    tries = setting.reply_tries if isinstance(setting, ChatSetting) else 1
    for task in {task.name: task for task in tasks}.values():
        record = cache.get(task.name)
        if record is None:
            missing.append(task)
            continue
        answer, replies = _restored(record[0], task)
        account.use(task.name, answer.usage, answered(answer))
        if answered(answer) or replies >= tries:
            account.reused += 1
            found[task.name] = answer
        else:
            missing.append(replace(task, answer=answer, replies=replies))
    return found, missing


def _restored(record: Mapping[str, Any], task: Task) -> tuple[chat.Answer, int]:
    """An answer as it was kept, and how many replies it took."""
    usage = None if record["usage"] is None else Usage(**record["usage"])
    values = {name: value for name, value in record.items() if name != "replies"} | {"usage": usage}
    if isinstance(task.question, PointQuestion):
        return Score(**values | {"parts": tuple(values["parts"])}), record["replies"]
    return Verdict(**values), record["replies"]


def _ask_all(
    setting: ModelSetting, dimension: Dimension, tasks: Sequence[Task], keep: Keep, account: Account
) -> list[chat.Answer]:
    """Asks the model, wherever it runs."""
    asked = form(setting.prompt, dimension)
    if isinstance(setting, EndpointSetting):
        return EndpointJudge(setting, setting.base_url, setting.key(), account, asked).answer_all(tasks, keep)
    if isinstance(setting, ServedSetting):
        with served(setting) as base_url:
            return EndpointJudge(setting, base_url, None, account, asked).answer_all(tasks, keep)
    return _in_process(cast(TransformersSetting, setting), dimension, tasks, keep, account)


def _in_process(
    setting: TransformersSetting, dimension: Dimension, tasks: Sequence[Task], keep: Keep, account: Account
) -> list[chat.Answer]:
    """Asks a model in this process, a chunk at a time."""
    answer_all, start = _load(setting, dimension), time.monotonic()
    answers: list[chat.Answer] = []
    waiting = list(tasks)
    while waiting and account.left():
        size = min(CHUNK, account.left())
        part, waiting = waiting[:size], waiting[size:]
        replies = answer_all([task.question for task in part], [task.number for task in part])
        for task, answer in zip(part, replies, strict=True):
            if answer.usage is None:  # not asked: its images cannot be used
                account.failures["image"] += 1
            else:
                account.asked += 1
                account.use(task.name, answer.usage, answered(answer))
                keep(replace(task, answer=answer, replies=1))
        answers += replies
    account.unasked += len(waiting)
    account.seconds += time.monotonic() - start
    nothing = form(setting.prompt, dimension).nothing
    return answers + [nothing(task.question.key, account.closed()) for task in waiting]


def _load(
    setting: TransformersSetting, dimension: Dimension
) -> Callable[[list[Any], list[int]], Sequence[chat.Answer]]:
    """What answers questions in passes with a model in this process."""
    from editjudge.judges.transformers_judge import TransformersJudge, TransformersScorer
    from editjudge.qwen import chat_model

    loaded = chat_model.load(setting.model, setting.dtype)
    net, processor = loaded.model, loaded.processor
    size, temperature, seed = setting.batch_size, setting.temperature, setting.seed
    way = _way(setting.prompt, dimension)
    if isinstance(way, PointStyle):
        return TransformersScorer(net, processor, way, size, temperature, seed).score_many
    return TransformersJudge(net, processor, size, way, temperature, seed).compare_many


def weights_hash(model_dir: Path) -> str:
    """SHA-256 over all files of a checkpoint."""
    digest = hashlib.sha256()
    for path in _files(model_dir):
        digest.update(str(path.relative_to(model_dir)).encode())
        with path.open("rb") as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()


def _files(model_dir: Path) -> list[Path]:
    return sorted(path for path in model_dir.rglob("*") if path.is_file())
