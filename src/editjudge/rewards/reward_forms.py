"""The forms in which trainers ask for rewards: how each request is read, and what each reply looks like (FORMS).

`score` is our own. The other six are those of Edit-R1, flow_grpo, EditScore's proxy, UniRL, Flow-Factory and verl-omni,
so that a trainer changes nothing but an address. A failed edit is null with a reason in our own form, an error in
UniRL's and verl-omni's, and NaN in the others, which have no place for a reason (EditScore's has one beside). Never 0.
"""

import base64
import binascii
import json
import math
import pickle
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, TypeAlias, TypeVar

import orjson
from pydantic import BaseModel, BeforeValidator, Field, Strict

from editjudge.core import scans
from editjudge.core.keys import FILE_NAME
from editjudge.engine.serving import Rejected
from editjudge.judges.protocol import Edit, Score, Unscored

Bytes: TypeAlias = Annotated[bytes, Strict()]
Edits: TypeAlias = list[Edit | Unscored]
T = TypeVar("T")
Listed: TypeAlias = Annotated[list[T], Field(fail_fast=True)]  # millions of wrong items are one error
MOST_CHARACTERS = 4000  # of an instruction: a batch is as long as its longest chat
MOST_SOURCES = 5  # pictures that an edit was made from
IDENTITY = ("request_id", "sample_id", "group_id", "source_rank", "policy_version", "scorer_version", "idempotency_key")


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


class RewardForm(BaseModel):
    """A request of a form, at a path. pickled: request and reply are pickles, else JSON. blind: the client reads
    neither the status nor an error: it unpickles whatever comes, and takes the rewards."""

    path: ClassVar[str]
    pickled: ClassVar[bool] = False
    blind: ClassVar[bool] = False

    def edits(self, served: Served) -> Edits:
        """The edits of the request, those that cannot be scored with their reason. Rejected (400)."""
        raise NotImplementedError

    def reply(self, rewards: Sequence[Reward], served: Served) -> dict[str, Any]:
        """The plain values of the reply."""
        raise NotImplementedError

    @classmethod
    def refusal(cls, reason: str) -> bytes:
        """The body that says in one line why nothing of a request is answered. Who is blind ends with the reason: it is
        the name of what the pickle asks for, and nobody has. Nothing is called."""
        if cls.blind:
            return f"cbuiltins\n{reason}\n.".encode()
        return pickle.dumps({"error": reason}) if cls.pickled else orjson.dumps({"error": reason})


def edit_of(instruction: str, source: Any, edited: Any) -> Edit | Unscored:
    """An edit whose images are bytes, or base64 (or data URLs) in texts; the source, or several, may stand in a list.

    Unscored: there is no such image, or the instruction is long or holds half characters, which no tokenizer takes."""
    if len(instruction) > MOST_CHARACTERS:
        return Unscored(f"the instruction has {len(instruction)} characters, more than {MOST_CHARACTERS}")
    sources = source if isinstance(source, list) and source else [source or None]
    if len(sources) > MOST_SOURCES:
        return Unscored(f"{len(sources)} source images, more than {MOST_SOURCES}")
    names = ["source", *(f"source_{n}" for n in range(2, len(sources) + 1)), "edited image"]
    images = dict(zip(names, [*sources, edited], strict=True))
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
        if why := scans.slow(images[name]):
            return Unscored(f"{name}: {why}")
    try:
        instruction.encode()
    except UnicodeEncodeError:
        return Unscored("the instruction is not valid Unicode")
    return Edit(instruction, images.pop("source"), images.pop("edited image"), more=images)


class OwnEdit(BaseModel, extra="forbid"):
    instruction: str
    source: str | Listed[str]
    edited: str


class Own(RewardForm, extra="forbid"):
    path = "/score"
    given: Listed[OwnEdit] = Field(alias="edits")

    def edits(self, served: Served) -> Edits:
        return [edit_of(each.instruction, each.source, each.edited) for each in self.given]

    def reply(self, rewards: Sequence[Reward], served: Served) -> dict[str, Any]:
        results: list[dict[str, Any]] = []
        for score in (each.answer for each in rewards):
            if isinstance(score, Unscored):
                results.append({"overall": None, "reason": score.reason})
                continue
            values = {"overall": score.overall, "overall_std": score.overall_std, "calibrated": score.calibrated}
            results.append(values | {"dimensions": dict(score.dimensions), "std": dict(score.std), "reason": None})
        return {"scorer": served.name, "results": results}


class UniRLTurn(BaseModel):
    text: str
    image_b64: str | None = None


class UniRLRequest(BaseModel, extra="allow"):
    history: Listed[UniRLTurn]
    required_rewards: Listed[str]


class UniRL(RewardForm):
    """Two turns, the source and the edit, both with the instruction."""

    path = "/score"
    requests: Listed[UniRLRequest]

    def edits(self, served: Served) -> Edits:
        found: Edits = []
        for each in self.requests:
            if unknown := set(each.required_rewards) - {served.name}:
                raise Rejected(400, f"required_rewards: {min(unknown)!r:.200} is not served; served is {served.name!r}")
            turns = each.history
            wrong = f"{len(turns)} turns in the history: an edit has two, the source and the edited image"
            images = [turn.image_b64 for turn in turns]
            found.append(edit_of(turns[0].text, *images) if len(turns) == 2 else Unscored(wrong))
        return found

    def reply(self, rewards: Sequence[Reward], served: Served) -> dict[str, Any]:
        """The reward stands first among a result's values: that is what the trainer takes if told nothing else."""
        results, errors = list[dict[str, Any]](), list[dict[str, Any]]()
        for asked, each in zip(self.requests, rewards, strict=True):
            wanted, values = asked.required_rewards, {"reward": each.reward}
            if isinstance(each.answer, Score):
                values |= each.answer.dimensions
            results.append({} if each.reason else dict.fromkeys(wanted, values))
            errors.append(dict.fromkeys(wanted, each.reason) if each.reason else {})
        identities = [{name: (asked.model_extra or {}).get(name) for name in IDENTITY} for asked in self.requests]
        return {"results": results, "errors": errors, "identities": identities, "protocol_version": "1"}


class Columns(RewardForm):
    """Lists: instructions, edited, sources. word: what the reply calls the rewards."""

    word: ClassVar[str] = "rewards"
    edited: list[Any]
    instructions: list[Any]
    sources: list[Any] | None

    @property
    def words(self) -> list[str]:
        """The instruction of each edit."""
        return self.instructions

    def edits(self, served: Served) -> Edits:
        """Rejected (400): also for lists of different lengths."""
        lengths = {name: len(each) for name, each in self.model_dump(by_alias=True).items() if each is not None}
        if len(set(lengths.values())) > 1:
            counts = ", ".join(f"{length} {name}" for name, length in lengths.items())
            raise Rejected(400, f"{counts}: each edit needs one of each")
        return [*map(edit_of, self.words, self.sources or [], self.edited)]

    def reply(self, rewards: Sequence[Reward], served: Served) -> dict[str, Any]:
        return {self.word: [each.reward for each in rewards]}


class FlowFactory(Columns):
    path = "/compute"
    instructions: Listed[str] = Field(alias="prompt")
    edited: Annotated[Listed[str], BeforeValidator(lambda given: [] if given is None else given)] = Field(alias="image")
    sources: Listed[Listed[str]] | None = Field(None, alias="condition_images")

    def edits(self, served: Served) -> Edits:
        found = super().edits(served)
        if self.instructions and not (self.sources and all(self.sources)):
            raise Rejected(
                400, 'no condition_images: add "condition_images" to the required_fields of the reward model'
            )
        return found


class EditR1(Columns):
    """Edit-R1, and in its subclasses flow_grpo and verl-omni: the sources in ref_images, or named in the prompts."""

    path, word, pickled, blind = "/mode/{mode}", "scores", True, True
    edited: Listed[Bytes] = Field(alias="images")
    instructions: Listed[str] = Field(alias="prompts")
    sources: Listed[Bytes] | None = Field(None, alias="ref_images")

    def edits(self, served: Served) -> Edits:
        found = super().edits(served)
        if self.sources is not None:
            return found
        if served.sources is None and self.instructions:
            raise Rejected(400, "no ref_images: send the sources beside images, or set reward_service.sources")
        every = zip(self.instructions, self.edited, strict=True)
        return [with_named_source(prompt, image, Path(str(served.sources))) for prompt, image in every]


class FlowGRPO(EditR1):
    path, word = "/flow_grpo", "outputs"


class VerlOmni(EditR1):
    path, blind = "/verl_omni", False

    def reply(self, rewards: Sequence[Reward], served: Served) -> dict[str, Any]:
        """The trainer raises on an error, and takes the first of the scores."""
        failed = [each.reason for each in rewards if each.reason]
        return {"error": failed[0]} if failed else super().reply(rewards, served)


def with_named_source(prompt: str, image: bytes, sources: Path) -> Edit | Unscored:
    """The edit of a form without sources: its prompt is JSON with the instruction and a file of the folder."""
    try:
        said = json.loads(prompt)
        instruction, name = said["instruction"], said["source"]
        if not (isinstance(instruction, str) and isinstance(name, str) and FILE_NAME.fullmatch(name)):
            raise ValueError("neither may be empty, and source is a file's name")
        return edit_of(instruction, (sources / name).read_bytes(), image)
    except OSError:
        return Unscored(f"no source {name} in reward_service.sources")
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        form = '{"instruction": "...", "source": "name.png"}'
        raise Rejected(400, f"prompts: not {form}, and there are no ref_images: {str(error)[:200]}") from None


class EditScore(Columns):
    """`meta_datas` are JSON texts, or dicts, with the instruction; `input_images` a list of sources an edit."""

    path, pickled = "/", True
    instructions: Listed[str | dict[str, Any]] = Field(alias="meta_datas")
    edited: Listed[Bytes] = Field(alias="output_image")
    sources: Listed[Bytes | Listed[Bytes]] = Field(alias="input_images")

    @property
    def meta(self) -> list[Any]:
        return [each if isinstance(each, dict) else json.loads(each) for each in self.instructions]

    @property
    def words(self) -> list[str]:
        try:
            return [str(each["instruction"]) for each in self.meta]
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            raise Rejected(400, f"meta_datas: not JSON with an instruction: {str(error)[:200]}") from None

    def reply(self, rewards: Sequence[Reward], served: Served) -> dict[str, Any]:
        errors = [{} if math.isfinite(each.reward) else {"error": each.reason} for each in rewards]
        every, values = enumerate(zip(self.meta, errors, strict=True)), [each.reward for each in rewards]
        return {
            **dict.fromkeys(("scores", "rewards", "strict_rewards"), values),
            "reasoning": [each.reason or "" for each in rewards],
            "meta_data": [meta | {"original_index": n} | error for n, (meta, error) in every],
        }


FORMS: dict[str, type[RewardForm]] = {
    "score": Own,
    "unirl": UniRL,
    "flow_factory": FlowFactory,
    "edit_r1": EditR1,
    "flow_grpo": FlowGRPO,
    "verl_omni": VerlOmni,
    "editscore": EditScore,
}


def form_of(path_form: str, values: Any) -> str:
    """The name of a request's form: UniRL's has the path of our own, and `requests` in the place of `edits`."""
    return "unirl" if path_form == "score" and isinstance(values, dict) and "requests" in values else path_form
