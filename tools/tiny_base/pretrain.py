"""Full training of the tiny judge base on generated samples.

It learns to look, and to answer questions about what it sees, which are not the judge's question. Answers alone would
leave it at chance for thousands of steps. So heads, which are thrown away, read from its middle layers what each cell
of an image shows, how the edits differ, and which question was asked (after Lee et al., Deeply-Supervised Nets,
AISTATS 2015).

The loop bypasses the image processor: samples come at exactly the model's input size, and `pixel_values` lays
them out as the processor would (a test holds the two equal).
"""

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch
from torch.nn.functional import cross_entropy, smooth_l1_loss
from torch.utils.data import DataLoader, Dataset
from tqdm import tqdm
from transformers import PreTrainedTokenizerBase, Qwen3VLForConditionalGeneration

from editjudge.core.prompts import Prompt
from editjudge.core.winner import SIDES
from editjudge.judges.styles import completion, style
from tools.tiny_base import looks
from tools.tiny_base.samples import any_words
from tools.tiny_base.settings import PretrainSettings
from tools.tiny_base.tiny import CHAT_TEMPLATE, FRAMES, MERGE, PATCH

Samples: TypeAlias = tuple[np.ndarray, np.ndarray, list[str]]
"""images uint8 (n, 3, H, W, 3): source, A, B; winner of the judge's question (n,): 0 is A, 1 is B; n instructions."""
MakeBatch: TypeAlias = Callable[[np.random.Generator, int, float], Samples]
"""(generator, n, share of the training that is done in 0..1) to n samples."""

IGNORED = -100
NOTHING = torch.zeros(0)
JUDGING = style("pvc")
LOOKING = Prompt.load(str(Path(__file__).with_name("looking.yaml")))
CONTRASTS, QUESTION, ANSWER = 0.5, 0.3, 2.0  # weights of losses; cells and the reply as a whole have 1
CELLS_ONLY = 0.2  # share of the steps that are taught cells and the form of the reply only: the rest would be noise


@dataclass(frozen=True)
class Batch:
    """One tokenised batch of n questions with their replies, padded on the right to length L.

    input_ids, attention_mask, labels: (n, L) int64, labels -100 outside the reply. position_ids: (3, n, L).
    pixel_values: (3n * patches, 2 * 3 * 16 * 16) float32. image_grid_thw: (3n, 3).
    decision: (n,) index of the token that tells A from B. sides: (2,) that token's id for A and for B.
    winner: (n,) 0 or 1. cells: (n, 3, cells, values) and contrasts: (n, values), float32, and question: (n,), as
    `looks` has them; without values where there is nothing to see.
    """

    input_ids: torch.Tensor
    attention_mask: torch.Tensor
    position_ids: torch.Tensor
    labels: torch.Tensor
    pixel_values: torch.Tensor
    image_grid_thw: torch.Tensor
    decision: torch.Tensor
    winner: torch.Tensor
    sides: torch.Tensor
    cells: torch.Tensor = NOTHING
    contrasts: torch.Tensor = NOTHING
    question: torch.Tensor = NOTHING

    def to(self, device: str | torch.device) -> "Batch":
        return Batch(**{name: value.to(device, non_blocking=True) for name, value in vars(self).items()})


def pixel_values(images: np.ndarray) -> tuple[torch.Tensor, torch.Tensor]:
    """uint8 (n, H, W, 3), H and W multiples of 32, to the processor's (pixel_values float32, image_grid_thw).

    Values are scaled to -1..1; rows are 16 x 16 patches in blocks of 2 x 2, each repeated for two frames.
    """
    count, height, width, channels = images.shape
    rows, columns = height // PATCH, width // PATCH
    blocks = torch.from_numpy(images).reshape(
        count, rows // MERGE, MERGE, PATCH, columns // MERGE, MERGE, PATCH, channels
    )
    patches = blocks.permute(0, 1, 4, 2, 5, 7, 3, 6).float().div_(127.5).sub_(1.0)
    patches = patches.unsqueeze(6).expand(*patches.shape[:6], FRAMES, PATCH, PATCH)
    grid = torch.tensor([[1, rows, columns]]).expand(count, 3).contiguous()
    return patches.reshape(count * rows * columns, channels * FRAMES * PATCH * PATCH), grid


def prompt_ids(tokenizer: PreTrainedTokenizerBase, chat: list[dict[str, Any]], image_tokens: int) -> list[int]:
    """Token ids of one question, each of its three images as image_tokens placeholders."""
    text = tokenizer.apply_chat_template(chat, chat_template=CHAT_TEMPLATE, tokenize=False, add_generation_prompt=True)
    text = str(text).replace("<|image_pad|>", "<|image_pad|>" * image_tokens)
    return tokenizer(text, add_special_tokens=False)["input_ids"]


def reply_ids(tokenizer: PreTrainedTokenizerBase) -> tuple[list[list[int]], int]:
    """Token ids of the replies "Image A" and "Image B" with the turn's end, and where they first differ."""
    replies = [
        tokenizer(f"{completion(side)}{tokenizer.eos_token}\n", add_special_tokens=False)["input_ids"] for side in SIDES
    ]
    return replies, next(i for i, (a, b) in enumerate(zip(*replies, strict=True)) if a != b)


def rope_positions(
    net: Qwen3VLForConditionalGeneration, ids: torch.Tensor, grid: torch.Tensor, mask: torch.Tensor
) -> torch.Tensor:
    """Positions (3, n, L) of n rows padded on the right."""
    image = (ids == net.config.image_token_id).int()
    return net.model.get_rope_index(input_ids=ids, mm_token_type_ids=image, image_grid_thw=grid, attention_mask=mask)[0]


def lesson(
    net: Qwen3VLForConditionalGeneration,
    tokenizer: PreTrainedTokenizerBase,
    samples: Samples,
    rng: np.random.Generator,
) -> Batch:
    """Asks of each sample a question of `looks`."""
    images, _, instructions = samples
    cells, contrasts = (np.stack(values) for values in zip(*map(looks.look, images), strict=True))
    asked = [looks.ask(each, rng, any_words(rng)) for each in contrasts]
    chats = [LOOKING.messages(text, criteria=each.text) for text, each in zip(instructions, asked, strict=True)]
    batch = collate(net, tokenizer, images, chats, np.array([each.winner for each in asked]))
    numbers = torch.tensor([each.number for each in asked])
    return replace(batch, cells=torch.from_numpy(cells), contrasts=torch.from_numpy(contrasts), question=numbers)


def examination(net: Qwen3VLForConditionalGeneration, tokenizer: PreTrainedTokenizerBase, samples: Samples) -> Batch:
    """Asks of each sample the judge's question."""
    images, winner, instructions = samples
    return collate(net, tokenizer, images, [JUDGING.messages(text) for text in instructions], winner)


def collate(
    net: Qwen3VLForConditionalGeneration,
    tokenizer: PreTrainedTokenizerBase,
    images: np.ndarray,
    chats: Sequence[list[dict[str, Any]]],
    winner: np.ndarray,
) -> Batch:
    """Tokenises n questions (on the CPU) about images (n, 3, H, W, 3), whose sides are multiples of 32 pixels."""
    height, width = images.shape[2:4]
    pixels, grid = pixel_values(images.reshape(-1, height, width, 3))
    replies, differ = reply_ids(tokenizer)
    tokens = (height // PATCH) * (width // PATCH) // MERGE**2
    prompts = [prompt_ids(tokenizer, chat, tokens) for chat in chats]
    length = max(map(len, prompts)) + len(replies[0])
    ids = torch.full((len(prompts), length), int(tokenizer.pad_token_id or 0))
    mask, labels = torch.zeros_like(ids), torch.full_like(ids, IGNORED)
    for row, (prompt, side) in enumerate(zip(prompts, winner.tolist(), strict=True)):
        start, end = len(prompt), len(prompt) + len(replies[side])
        ids[row, :end] = torch.tensor(prompt + replies[side])
        labels[row, start:end] = ids[row, start:end]
        mask[row, :end] = 1
    return Batch(
        input_ids=ids,
        attention_mask=mask,
        position_ids=rope_positions(net, ids, grid, mask),
        labels=labels,
        pixel_values=pixels,
        image_grid_thw=grid,
        decision=torch.tensor([len(prompt) + differ for prompt in prompts]),
        winner=torch.from_numpy(np.asarray(winner, dtype=np.int64)),
        sides=torch.tensor([reply[differ] for reply in replies]),
    )


def forward(net: Qwen3VLForConditionalGeneration, batch: Batch, layers: bool = False) -> Any:
    """What the model gives; with the states of all layers if `layers`. bfloat16 autocast inside on a GPU."""
    device = batch.input_ids.device.type
    with torch.autocast(device, dtype=torch.bfloat16, enabled=device == "cuda"):
        return net(
            input_ids=batch.input_ids,
            attention_mask=batch.attention_mask,
            position_ids=batch.position_ids,
            pixel_values=batch.pixel_values,
            image_grid_thw=batch.image_grid_thw,
            use_cache=False,
            output_hidden_states=layers,
        )


def reply_loss(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Mean cross-entropy of the reply's tokens, in nats: logits (n, L, vocabulary), labels (n, L)."""
    return cross_entropy(logits[:, :-1].float().flatten(0, 1), labels[:, 1:].flatten(), ignore_index=IGNORED)


class Readers(torch.nn.Module):
    """Linear heads on the middle layers: of image tokens what their cells show, of the tokens behind the last image how
    the edits differ, and of the one before the decision which question was asked."""

    def __init__(self, net: Qwen3VLForConditionalGeneration) -> None:
        super().__init__()
        sizes: Any = net.config.text_config
        size, self.layer = sizes.hidden_size, sizes.num_hidden_layers // 2
        self.image = net.config.image_token_id
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            self.cells = torch.nn.Linear(size, looks.SEEN + looks.COMPARED)
            self.contrasts = torch.nn.Linear(size, len(looks.WORDS))
            self.question = torch.nn.Linear(size, len(looks.QUESTIONS) + 1)

    def forward(self, states: Sequence[torch.Tensor], batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
        """The loss in cells, and that in the other two, given the states (n, L, hidden) of embeddings and layers."""
        shown = batch.input_ids == self.image
        behind = (shown.flip(1).cumsum(1).flip(1) == 0) & batch.attention_mask.bool()
        late = states[self.layer + 1].float()
        asked = late[torch.arange(len(late), device=late.device), batch.decision - 1]
        truth = batch.contrasts[:, None].expand(-1, late.shape[1], -1)[behind]
        cells = smooth_l1_loss(self.cells(states[self.layer][shown].float()), batch.cells.flatten(0, 2))
        contrasts = smooth_l1_loss(self.contrasts(late[behind]), truth)
        question = cross_entropy(self.question(asked), batch.question)
        return cells, CONTRASTS * contrasts + QUESTION * question


@torch.no_grad()
def accuracy(net: Qwen3VLForConditionalGeneration, batches: Sequence[Batch]) -> float:
    """Share of samples, 0..1, where the winner's token scores above the loser's; leaves net in eval mode."""
    net.eval()
    hits = total = 0
    for batch in batches:
        moved = batch.to(net.device)
        rows = torch.arange(len(moved.winner), device=net.device)
        scores = forward(net, moved).logits[rows, moved.decision - 1][:, moved.sides]
        hits += int((scores.argmax(1) == moved.winner).sum())
        total += len(rows)
    return hits / total


@dataclass(frozen=True)
class Steps(Dataset):
    """Item i is the batch of step i, made by a generator seeded with (seed, i): the same in any worker.

    A lesson, or, to examine, the judge's question.
    """

    net: Qwen3VLForConditionalGeneration
    tokenizer: PreTrainedTokenizerBase
    make_batch: MakeBatch
    count: int
    batch_size: int
    seed: int
    examine: bool = False

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, step: int) -> Batch:
        rng = np.random.default_rng([self.seed, step])
        samples = self.make_batch(rng, self.batch_size, step / self.count)
        if self.examine:
            return examination(self.net, self.tokenizer, samples)
        return lesson(self.net, self.tokenizer, samples, rng)


def pretrain(
    net: Qwen3VLForConditionalGeneration,
    tokenizer: PreTrainedTokenizerBase,
    make_batch: MakeBatch,
    make_held_out: MakeBatch,
    settings: PretrainSettings,
) -> list[dict[str, float]]:
    """Trains net in place, on the device where it is, and leaves it in eval mode.

    Returns a row every eval_every steps and at the end: step; loss, of the reply, and that of cells, means since the
    last row; on eval_samples samples of make_held_out, 0..1, accuracy in the questions that it is taught, and
    `untaught`, that in the judge's question. AdamW, one-cycle rate, gradients clipped by norm.
    """
    eval_batches = max(1, settings.eval_samples // settings.batch_size)
    unseen, untaught = (
        list(
            DataLoader(
                Steps(net, tokenizer, make_held_out, eval_batches, settings.batch_size, settings.seed, examine),
                batch_size=None,
            )
        )
        for examine in (False, True)
    )
    steps = Steps(net, tokenizer, make_batch, settings.steps, settings.batch_size, settings.seed + 1)
    data = DataLoader(steps, batch_size=None, num_workers=settings.workers)
    readers = Readers(net).to(net.device)
    optimizer = torch.optim.AdamW(
        [*net.parameters(), *readers.parameters()],
        lr=settings.learning_rate,
        weight_decay=settings.weight_decay,
        fused=True,  # the plain one takes its roots from MKL, whose last bits differ between CPUs
    )
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, settings.learning_rate, total_steps=settings.steps, pct_start=settings.warmup_share
    )
    history: list[dict[str, float]] = []
    losses: list[torch.Tensor] = []
    bar = tqdm(data, total=settings.steps, desc="base model", file=sys.stderr)
    for step, batch in enumerate(bar, start=1):
        everything = step > CELLS_ONLY * settings.steps
        losses.append(train_step(net, batch, optimizer, settings.gradient_norm, readers, everything))
        schedule.step()
        if step % settings.eval_every == 0 or step == settings.steps:
            loss, cells = torch.stack(losses).mean(0).tolist()
            found = {"accuracy": accuracy(net, unseen), "untaught": accuracy(net, untaught)}
            history.append({"step": step, "loss": loss, "cells": cells, **found})
            tqdm.write(str(history[-1]), file=sys.stderr)
            losses.clear()
    return history


def train_step(
    net: Qwen3VLForConditionalGeneration,
    batch: Batch,
    optimizer: torch.optim.Optimizer,
    gradient_norm: float,
    readers: Readers | None = None,
    everything: bool = True,
) -> torch.Tensor:
    """One update. Returns the losses of the reply and of cells (0 without readers), (2,), detached, on their device."""
    net.train()
    moved = batch.to(net.device)
    output = forward(net, moved, readers is not None)
    reply = loss = reply_loss(output.logits, moved.labels)
    cells = torch.zeros_like(reply)
    if readers:
        cells, others = readers(output.hidden_states, moved)
        rows = torch.arange(len(moved.winner), device=net.device)
        answer = cross_entropy(output.logits[rows, moved.decision - 1].float(), moved.labels[rows, moved.decision])
        loss = reply + cells + everything * (others + ANSWER * answer)
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    torch.nn.utils.clip_grad_norm_([p for group in optimizer.param_groups for p in group["params"]], gradient_norm)
    optimizer.step()
    return torch.stack([reply, cells]).detach()
