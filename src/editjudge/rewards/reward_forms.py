"""The forms in which trainers ask for rewards: how each request is read, and what each reply looks like (FORMS).

`score` is our own. The other six are those of Edit-R1, flow_grpo, EditScore's proxy, UniRL, Flow-Factory and verl-omni,
so that a trainer changes nothing but an address. A failed edit is null with a reason in our own form, an error in
UniRL's and verl-omni's, and NaN in the others, which have no place for a reason (EditScore's has one beside). Never 0.
"""

import base64
import binascii
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, TypeAlias

from pydantic import BaseModel, BeforeValidator, Field, Strict, ValidationError

from editjudge.core.keys import FILE_NAME
from editjudge.engine.serving import Rejected, invalid
from editjudge.judges.protocol import Edit, Score, Unscored

Bytes: TypeAlias = Annotated[bytes, Strict()]
IDENTITY = (
    *("request_id", "sample_id", "group_id", "source_rank"),
    *("policy_version", "scorer_version", "idempotency_key"),
)


@dataclass(frozen=True)
class RewardRequest:
    """The edits of a request, those that cannot be scored with their reason. given: what the reply needs of it."""

    edits: list[Edit | Unscored]
    given: Any = None


@dataclass(frozen=True)
class Served:
    """What is served. name: the scorer's. sources: the folder of the sources that prompts name."""

    name: str
    sources: Path | None = None


@dataclass(frozen=True)
class Reward:
    """The answer to an edit, and the number in it that trainers take as the reward; NaN: unscored."""

    answer: Score | Unscored
    reward: float

    @property
    def reason(self) -> str | None:
        return self.answer.reason if isinstance(self.answer, Unscored) else None


class OwnEdit(BaseModel, extra="forbid"):
    instruction: str
    source: str
    edited: str


class Own(BaseModel, extra="forbid"):
    edits: list[OwnEdit]


class UniRLTurn(BaseModel):
    text: str
    image_b64: str | None = None


class UniRLRequest(BaseModel):
    history: list[UniRLTurn]
    required_rewards: list[str]


class UniRL(BaseModel):
    requests: list[UniRLRequest]


class FlowFactory(BaseModel):
    instructions: list[str] = Field(alias="prompt")
    edited: Annotated[list[str], BeforeValidator(lambda given: [] if given is None else given)] = Field(alias="image")
    sources: list[list[str]] | None = Field(None, alias="condition_images")


class Pickled(BaseModel):
    """Edit-R1, flow_grpo and verl-omni."""

    edited: list[Bytes] = Field(alias="images")
    instructions: list[str] = Field(alias="prompts")
    sources: list[Bytes] | None = Field(None, alias="ref_images")


class EditScore(BaseModel):
    instructions: list[str | dict[str, Any]] = Field(alias="meta_datas")
    edited: list[Bytes] = Field(alias="output_image")
    sources: list[Bytes | list[Bytes]] = Field(alias="input_images")


def valid(model: type[Any], values: Any) -> Any:
    """The values as the model; Rejected (400) names the first thing that is wrong."""
    try:
        return model.model_validate(values)
    except ValidationError as error:
        raise invalid(error) from None


def columns(model: type[BaseModel], values: Any) -> Any:
    """The values as a model of lists of instructions, edited images and sources. Rejected (400): also for lists of
    different lengths."""
    given = valid(model, values)
    lengths = {name: len(each) for name, each in given.model_dump(by_alias=True).items() if each is not None}
    if len(set(lengths.values())) > 1:
        counts = ", ".join(f"{length} {name}" for name, length in lengths.items())
        raise Rejected(400, f"{counts}: each edit needs one of each")
    return given


def edit_of(instruction: str, source: Any, edited: Any) -> Edit | Unscored:
    """An edit whose images are bytes, or base64 (or data URLs) in texts; the source may stand in a list of one."""
    if isinstance(source, list):
        if len(source) != 1:
            return Unscored(f"{len(source)} source images: a scorer takes one")
        [source] = source
    images = {"source": source, "edited image": edited}
    for name, image in images.items():
        if image is None or image == "":
            return Unscored(f"no {name}")
        if isinstance(image, str):
            head, comma, data = image.partition(",")
            try:
                text = data if comma and head.startswith("data:") else image
                images[name] = base64.b64decode(text, validate=True)
            except (binascii.Error, ValueError) as error:
                return Unscored(f"an image is not base64: {error}")
    return Edit(instruction, images["source"], images["edited image"])


def sound(edit: Edit | Unscored) -> Edit | Unscored:
    """The edit, unless its instruction holds half characters, which no tokenizer takes."""
    try:
        if isinstance(edit, Edit):
            edit.instruction.encode()
        return edit
    except UnicodeEncodeError:
        return Unscored("the instruction is not valid Unicode")


def read_own(values: Any, served: Served) -> RewardRequest:
    return RewardRequest([edit_of(each.instruction, each.source, each.edited) for each in valid(Own, values).edits])


def reply_own(request: RewardRequest, rewards: Sequence[Reward], served: Served) -> dict[str, Any]:
    return {"scorer": served.name, "results": [own_result(each.answer) for each in rewards]}


def own_result(score: Score | Unscored) -> dict[str, Any]:
    if isinstance(score, Unscored):
        return {"overall": None, "reason": score.reason}
    values = {"overall": score.overall, "overall_std": score.overall_std, "calibrated": score.calibrated}
    return values | {"dimensions": dict(score.dimensions), "std": dict(score.std), "reason": None}


def read_unirl(values: Any, served: Served) -> RewardRequest:
    """Two turns, the source and the edit, both with the instruction."""
    given = valid(UniRL, values)
    for each in given.requests:
        if unknown := set(each.required_rewards) - {served.name}:
            raise Rejected(400, f"required_rewards: {min(unknown)!r:.200} is not served; served is {served.name!r}")
    identities = [{name: each.get(name) for name in IDENTITY} for each in values["requests"]]
    wanted = [each.required_rewards for each in given.requests]
    return RewardRequest([unirl_edit(each.history) for each in given.requests], (wanted, identities))


def unirl_edit(turns: Sequence[UniRLTurn]) -> Edit | Unscored:
    if len(turns) != 2:
        return Unscored(f"{len(turns)} turns in the history: an edit has two, the source and the edited image")
    return edit_of(turns[0].text, turns[0].image_b64, turns[1].image_b64)


def reply_unirl(request: RewardRequest, rewards: Sequence[Reward], served: Served) -> dict[str, Any]:
    """The reward stands first among a result's values: that is what the trainer takes if it is told nothing else."""
    (wanted_rewards, identities), results, errors = request.given, [], []
    for wanted, each in zip(wanted_rewards, rewards, strict=True):
        scored = isinstance(each.answer, Score)
        values = {"reward": each.reward} | dict(each.answer.dimensions) if isinstance(each.answer, Score) else {}
        results.append(dict.fromkeys(wanted, values) if scored else {})
        errors.append({} if scored else dict.fromkeys(wanted, each.reason))
    return {"results": results, "errors": errors, "identities": identities, "protocol_version": "1"}


def read_flow_factory(values: Any, served: Served) -> RewardRequest:
    given = columns(FlowFactory, values)
    if given.instructions and not (given.sources and all(given.sources)):
        raise Rejected(400, 'no condition_images: add "condition_images" to the required_fields of the reward model')
    return RewardRequest(list(map(edit_of, given.instructions, given.sources or [], given.edited)))


def read_pickled(values: Any, served: Served) -> RewardRequest:
    """Edit-R1, flow_grpo and verl-omni: the sources in ref_images, or named in the prompts."""
    given = columns(Pickled, values)
    if given.sources is not None:
        return RewardRequest(list(map(edit_of, given.instructions, given.sources, given.edited)))
    every = zip(given.instructions, given.edited, strict=True)
    return RewardRequest([with_named_source(prompt, image, served.sources) for prompt, image in every])


def with_named_source(prompt: str, image: bytes, sources: Path | None) -> Edit | Unscored:
    """The edit of a form without sources: its prompt is JSON with the instruction and a file of the folder."""
    if sources is None:
        raise Rejected(400, "no ref_images: send the sources beside images, or set reward_service.sources")
    try:
        said = json.loads(prompt)
        instruction, name = said["instruction"], said["source"]
        if not (isinstance(instruction, str) and isinstance(name, str) and FILE_NAME.fullmatch(name)):
            raise ValueError("neither may be empty, and source is a file's name")
        return Edit(instruction, (sources / name).read_bytes(), image)
    except OSError:
        return Unscored(f"no source {name} in reward_service.sources")
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        form = '{"instruction": "...", "source": "name.png"}'
        raise Rejected(400, f"prompts: not {form}, and there are no ref_images: {str(error)[:200]}") from None


def reply_list(name: str, request: RewardRequest, rewards: Sequence[Reward], served: Served) -> dict[str, Any]:
    return {name: [each.reward for each in rewards]}


def reply_verl_omni(request: RewardRequest, rewards: Sequence[Reward], served: Served) -> dict[str, Any]:
    """The trainer raises on an error, and takes the first of the scores."""
    failed = [each.reason for each in rewards if each.reason]
    return {"error": failed[0]} if failed else reply_list("scores", request, rewards, served)


def read_editscore(values: Any, served: Served) -> RewardRequest:
    """`meta_datas` are JSON texts, or dicts, with the instruction; `input_images` a list of sources an edit."""
    given = columns(EditScore, values)
    try:
        meta = [each if isinstance(each, dict) else json.loads(each) for each in given.instructions]
        instructions = [str(each["instruction"]) for each in meta]
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise Rejected(400, f"meta_datas: not JSON with an instruction: {str(error)[:200]}") from None
    return RewardRequest(list(map(edit_of, instructions, given.sources, given.edited)), meta)


def reply_editscore(request: RewardRequest, rewards: Sequence[Reward], served: Served) -> dict[str, Any]:
    values = [each.reward for each in rewards]
    errors = [{} if math.isfinite(each.reward) else {"error": each.reason} for each in rewards]
    return {
        **dict.fromkeys(("scores", "rewards", "strict_rewards"), values),
        "reasoning": [each.reason or "" for each in rewards],
        "meta_data": [
            meta | {"original_index": n} | error
            for n, (meta, error) in enumerate(zip(request.given, errors, strict=True))
        ],
    }


@dataclass(frozen=True)
class RewardForm:
    """A form, at a path. read: takes the body's plain values. reply: makes those of the reply. pickled: both are
    pickles, else JSON.
    """

    path: str
    read: Callable[[Any, Served], RewardRequest]
    reply: Callable[[RewardRequest, Sequence[Reward], Served], dict[str, Any]]
    pickled: bool = False


FORMS = {
    "score": RewardForm("/score", read_own, reply_own),
    "unirl": RewardForm("/score", read_unirl, reply_unirl),
    "flow_factory": RewardForm("/compute", read_flow_factory, partial(reply_list, "rewards")),
    "edit_r1": RewardForm("/mode/{mode}", read_pickled, partial(reply_list, "scores"), pickled=True),
    "flow_grpo": RewardForm("/flow_grpo", read_pickled, partial(reply_list, "outputs"), pickled=True),
    "verl_omni": RewardForm("/verl_omni", read_pickled, reply_verl_omni, pickled=True),
    "editscore": RewardForm("/", read_editscore, reply_editscore, pickled=True),
}


def form_of(path_form: str, values: Any) -> str:
    """The name of a request's form: UniRL's has the path of our own, and `requests` in the place of `edits`."""
    return "unirl" if path_form == "score" and isinstance(values, dict) and "requests" in values else path_form
