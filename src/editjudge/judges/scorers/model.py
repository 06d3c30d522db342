"""A Qwen3-VL with a head on the hidden state of an added token."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import torch
from torch import nn
from torch.nn.functional import cross_entropy
from transformers import PreTrainedTokenizerBase, Qwen3VLForConditionalGeneration
from transformers.utils import ModelOutput

from editjudge.core import checkpoints
from editjudge.judges.scorers.asking import IGNORED, Looks
from editjudge.judges.scorers.heads import Head
from editjudge.models.chat.checkpoint import DTYPES, Precision, check_kind


@dataclass
class Scored(ModelOutput):
    """means, log_stds: (n, D) of n edits, float32; log_stds None where the head knows none.

    language: (n * looks,) mean nats a token of each reply; None where no labels were given.
    """

    means: torch.Tensor | None = None
    log_stds: torch.Tensor | None = None
    language: torch.Tensor | None = None


class TokenRow(nn.Module):
    """The embeddings, of which only the row of the added token is trained: as a parameter of its own, in float32."""

    def __init__(self, embeddings: nn.Embedding, token: int) -> None:
        super().__init__()
        self.embeddings, self.token = embeddings, token
        self.row = nn.Parameter(embeddings.weight[token].detach().clone().float())

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        found = self.embeddings(ids)
        return torch.where((ids == self.token)[..., None], self.row.to(found.dtype), found)


class ScoringModel(Qwen3VLForConditionalGeneration):
    """Answers with scores instead of words. `attach` gives it what a checkpoint of its class has not."""

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


def load(folder: Path, dtype: Precision, device: str, attention: str = "sdpa") -> ScoringModel:
    """The backbone of a Qwen3-VL checkpoint, without a head yet. FileError: as `models.chat.checkpoint.load_model`."""
    check_kind(folder)
    model: ScoringModel = checkpoints.load(
        ScoringModel, folder, device, dtype=DTYPES[dtype], attn_implementation=attention
    )
    return model


def add_token(model: Qwen3VLForConditionalGeneration, tokenizer: PreTrainedTokenizerBase, token: str) -> int:
    """The id of a token, added where it is new; its row then starts as the mean of all others."""
    known = len(tokenizer)
    if tokenizer.add_tokens([token], special_tokens=True):
        if len(embeddings(model).weight) < len(tokenizer):
            model.resize_token_embeddings(len(tokenizer), mean_resizing=False)
        rows = embeddings(model).weight
        with torch.no_grad():
            rows[known] = rows[:known].float().mean(0)
    return int(tokenizer.get_vocab()[token])


def embeddings(model: Qwen3VLForConditionalGeneration) -> nn.Embedding:
    return cast(nn.Embedding, model.get_input_embeddings())
