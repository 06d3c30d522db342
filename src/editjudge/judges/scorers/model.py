"""A vision-language model with a head on the hidden state of an added token: how it is asked, and how it scores.

It is shown a chat of source, edit and question whose reply holds the token."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, TypeAlias, cast

import numpy as np
import torch
from torch import nn
from torch.nn.functional import cross_entropy
from transformers import PreTrainedModel, PreTrainedTokenizerBase
from transformers.utils import ModelOutput

from editjudge.core.prompts import Prompt
from editjudge.judges.scorers.questions import TOKEN, ScorerPrompt
from editjudge.judges.styles import CRITERIA, told
from editjudge.models.chat.checkpoint import Precision, load_model

IGNORED = -100
MOST_LOG_STD = 8.0  # exp(8) is 2981: beyond, a standard deviation says nothing, and would end as infinity or 0
Aggregation: TypeAlias = Literal["min", "mean", "sum"]
OUTPUTS = {"gaussian": 2, "score": 1}


@dataclass(frozen=True)
class Looks:
    """The questions that are asked of an edit: one for each dimension, or one for all of them.

    turns: by question, for each look its own, as `Prompt.user`. replies: with the token as the tokenizer has it."""

    turns: tuple[tuple[str, ...], ...]
    replies: tuple[str, ...]
    dimensions: int

    def states(self, found: torch.Tensor) -> torch.Tensor:
        """(n, D, hidden): the state of each dimension, from those of all looks at n edits, (n * looks, hidden)."""
        return found.unflatten(0, (-1, len(self.turns[0]))).expand(-1, self.dimensions, -1)


def looks(prompt: ScorerPrompt, dimensions: Sequence[str], token: str) -> Looks:
    """How a prompt asks about these dimensions. FileError: one of them has no criteria."""
    asked = [told(dimension)["criteria"] for dimension in dimensions] if prompt.of_each else [""]
    turns = tuple(tuple(turn.replace(CRITERIA, each) for each in asked) for turn in prompt.questions)
    return Looks(turns, tuple(reply.replace(TOKEN, token) for reply in prompt.replies), len(dimensions))


def form_of(key: str, number: int) -> int:
    """Which of so many forms a record is shown in: by its key; without one in the first."""
    return 0 if not key else int.from_bytes(sha256(key.encode()).digest()[8:16]) % number


def text_of(processor: Any, turn: str, instruction: str, reply: str) -> str:
    """The chat up to and with the reply, without its end."""
    asked = Prompt(version=1, source="-", user=turn).messages(instruction)
    return str(processor.apply_chat_template(asked, tokenize=False, add_generation_prompt=True)) + reply


def batch(processor: Any, texts: Sequence[str], images: Sequence[Sequence[np.ndarray]]) -> dict[str, torch.Tensor]:
    """What the model takes: chats padded on their left, and the images (H, W, 3) uint8 of each."""
    given: Mapping[str, Any] = processor(
        images=[list(shown) for shown in images],
        text=list(texts),
        padding=True,
        padding_side="left",
        add_special_tokens=False,
        input_data_format="channels_last",
        return_tensors="pt",
    )
    return dict(given)


def reply_labels(processor: Any, ids: torch.Tensor, replies: Sequence[str], token: int | None) -> torch.Tensor:
    """(n, L): the reply's tokens as labels, IGNORED elsewhere, and at the added token, where it is given."""
    labels = torch.full_like(ids, IGNORED)
    for row, reply in enumerate(replies):
        length = len(processor.tokenizer(reply, add_special_tokens=False)["input_ids"])
        labels[row, -length:] = ids[row, -length:]
    return labels if token is None else labels.masked_fill(ids == token, IGNORED)


def perceptron(sizes: Sequence[int], dropout: float) -> nn.Sequential:
    """Linear layers of these sizes with ReLU between them, and dropout behind the first one."""
    layers: list[nn.Module] = []
    for n, (inside, outside) in enumerate(pairwise(sizes)):
        layers += [nn.Linear(inside, outside), nn.ReLU()] + ([nn.Dropout(dropout)] if n == 0 else [])
    return nn.Sequential(*layers[: -1 if len(sizes) > 2 else -2])


class Head(nn.Module):
    """Scores of D dimensions out of a hidden state for each: a perceptron a dimension, or one that all share.

    kind `gaussian` gives a mean and the logarithm of a standard deviation, as EditReward's does; `score` a mean alone,
    as ADIEE's. Its weights are float32 and depend on the seed alone."""

    def __init__(
        self, kind: str, dimensions: int, hidden: int, sizes: Sequence[int], dropout: float, shared: bool, seed: int = 0
    ) -> None:
        super().__init__()
        with torch.random.fork_rng(devices=[]), torch.device("cpu"):
            torch.manual_seed(seed)
            widths, count = [hidden, *sizes, OUTPUTS[kind]], 1 if shared else dimensions
            self.parts = nn.ModuleList(perceptron(widths, dropout) for _ in range(count))
        self.dimensions = dimensions

    def forward(self, states: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Means and logarithms of standard deviations, (n, D) each, of states (n, D, hidden); the latter in
        -MOST_LOG_STD..MOST_LOG_STD. None: it knows none."""
        own = [self.parts[n % len(self.parts)] for n in range(self.dimensions)]
        weight = cast(nn.Linear, own[0][0]).weight  # type: ignore[index]
        with torch.autocast(states.device.type, enabled=False):
            found = torch.stack([part(states[:, n].to(weight.dtype)) for n, part in enumerate(own)], 1).float()
        return found[..., 0], found[..., 1].clamp(-MOST_LOG_STD, MOST_LOG_STD) if found.shape[-1] == 2 else None


def aggregate(
    means: torch.Tensor, stds: torch.Tensor | None, how: Aggregation
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """One mean and standard deviation, (...), of independent dimensions' (..., D).

    min: the lowest mean, and the standard deviation of that very dimension. Clark's moments of the least of Gaussians
    would be another quantity: its mean lies below the lowest one, so it would not belong to the score that is given.
    mean, sum: sqrt(sum s^2), of the mean divided by D."""
    count = means.shape[-1]
    if how == "min":
        overall, lowest = means.min(-1)
        return overall, None if stds is None else stds.gather(-1, lowest[..., None])[..., 0]
    together = None if stds is None else torch.linalg.vector_norm(stds, dim=-1)  # torch.sqrt differs between CPUs
    if how == "sum":
        return means.sum(-1), together
    return means.mean(-1), None if together is None else together / count


@dataclass
class Scored(ModelOutput):
    """means, log_stds: (n, D) of n edits, float32; log_stds None where the head knows none.

    language: (n * looks,) mean nats a token of each reply; None where no labels were given."""

    means: torch.Tensor | None = None
    log_stds: torch.Tensor | None = None
    language: torch.Tensor | None = None


class TokenRow(nn.Module):
    """The embeddings, of which only the row of the added token is trained: as a parameter of its own, in float32."""

    def __init__(self, embeddings: nn.Embedding, token: int) -> None:
        super().__init__()
        self.embeddings, self.token = embeddings, token
        self.row = nn.Parameter(embeddings.weight[token].detach().clone().float())

    @property
    def weight(self) -> torch.Tensor:
        return self.embeddings.weight  # Gemma 4 reads the row that pads

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        found = self.embeddings(ids)
        row = self.row * getattr(self.embeddings, "embed_scale", 1.0)  # Gemma's are scaled
        return torch.where((ids == self.token)[..., None], row.to(found.dtype), found)


class ScoringModel(PreTrainedModel):
    """A vision-language model of transformers that answers with scores instead of words (`scoring`).

    `attach` gives it what a checkpoint of its class has not."""

    model: Any
    lm_head: Any
    head: Head
    looks: Looks
    token: int

    def attach(self, head: Head, looks: Looks, token: int) -> None:
        self.head, self.looks, self.token = head.to(self.device), looks, token

    def forward(
        self, input_ids: torch.Tensor, labels: torch.Tensor | None = None, use_cache: bool = False, **inputs: Any
    ) -> Scored:
        """The looks at each edit stand one after the other. labels: (n * looks, L), of the replies."""
        hidden = self.model(input_ids=input_ids, use_cache=use_cache, **inputs).last_hidden_state
        states = hidden[input_ids == self.token]  # one a chat
        means, log_stds = self.head(self.looks.states(states))
        language = None if labels is None else self._language(hidden, labels)
        return Scored(means=means, log_stds=log_stds, language=language)

    def _language(self, hidden: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """The mean loss of each reply; the words that are predicted only, for the vocabulary is large."""
        wanted = labels[:, 1:] != IGNORED
        logits = self.lm_head(hidden[:, :-1][wanted]).float()
        losses = cross_entropy(logits, labels[:, 1:][wanted], reduction="none")
        rows = wanted.nonzero()[:, 0]
        sums = torch.zeros(len(labels), device=hidden.device).index_add(0, rows, losses)
        return sums / wanted.sum(1).clamp(min=1)


@cache
def scoring(kind: Any) -> Any:
    """The class as a ScoringModel, under its own name: by that transformers knows how published weights are named."""
    return type(kind.__name__, (ScoringModel, kind), {"__module__": kind.__module__})


def load(folder: Path, dtype: Precision, device: str, attention: str = "sdpa") -> ScoringModel:
    """The backbone of a checkpoint, without a head yet. FileError: as `models.chat.checkpoint.load_model`."""
    return cast(ScoringModel, load_model(folder, dtype, device, attention, scoring))


def add_token(model: Any, tokenizer: PreTrainedTokenizerBase, token: str) -> int:
    """The id of a token, added where it is new; its row then starts as the mean of all others."""
    known = len(tokenizer)
    if tokenizer.add_tokens([token], special_tokens=True):
        if len(embeddings(model).weight) < len(tokenizer):
            model.resize_token_embeddings(len(tokenizer), mean_resizing=False)
        size = embeddings(model).num_embeddings
        with torch.no_grad():
            for module in model.modules():  # Gemma 4 has embeddings of each layer, too
                if isinstance(module, nn.Embedding) and module.num_embeddings == size:
                    module.weight[known] = module.weight[:known].float().mean(0)
    return int(tokenizer.get_vocab()[token])


def embeddings(model: Any) -> nn.Embedding:
    return cast(nn.Embedding, model.get_input_embeddings())
