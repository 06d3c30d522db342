"""Full training of the tiny judge base on generated samples.

The loop bypasses the image processor: samples come at exactly the model's input size, and `pixel_values` lays
them out as the processor would (a test holds the two equal).
"""

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import torch
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, Dataset
from tqdm import tqdm
from transformers import PreTrainedTokenizerBase, Qwen3VLForConditionalGeneration

from editjudge.core.winner import SIDES
from editjudge.qwen.prompt import completion, messages
from editjudge.qwen.tiny import CHAT_TEMPLATE, FRAMES, MERGE, PATCH
from editjudge.training.settings import PretrainSettings

Samples: TypeAlias = tuple[np.ndarray, np.ndarray, list[str]]
"""images uint8 (n, 3, H, W, 3): source, A, B; winner (n,): 0 is A, 1 is B; instructions, n of them."""
MakeBatch: TypeAlias = Callable[[np.random.Generator, int, float], Samples]
"""(generator, n, share of the training that is done in 0..1) to n samples."""

IGNORED = -100


@dataclass(frozen=True)
class Batch:
    """One tokenised batch of n questions with their replies, padded on the right to length L.

    input_ids, attention_mask, labels: (n, L) int64, labels -100 outside the reply. position_ids: (3, n, L).
    pixel_values: (3n * patches, 2 * 3 * 16 * 16) float32. image_grid_thw: (3n, 3).
    decision: (n,) index of the token that tells A from B. sides: (2,) that token's id for A and for B.
    winner: (n,) 0 or 1.
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


def prompt_ids(tokenizer: PreTrainedTokenizerBase, instruction: str, image_tokens: int) -> list[int]:
    """Token ids of one question, each of its three images as image_tokens placeholders."""
    text = tokenizer.apply_chat_template(
        messages(instruction), chat_template=CHAT_TEMPLATE, tokenize=False, add_generation_prompt=True
    )
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


def collate(net: Qwen3VLForConditionalGeneration, tokenizer: PreTrainedTokenizerBase, samples: Samples) -> Batch:
    """Tokenises samples (on the CPU), whose sides are multiples of 32 pixels."""
    images, winner, instructions = samples
    height, width = images.shape[2:4]
    pixels, grid = pixel_values(images.reshape(-1, height, width, 3))
    replies, differ = reply_ids(tokenizer)
    tokens = (height // PATCH) * (width // PATCH) // MERGE**2
    prompts = [prompt_ids(tokenizer, text, tokens) for text in instructions]
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


def forward(net: Qwen3VLForConditionalGeneration, batch: Batch) -> torch.Tensor:
    """Logits (n, L, vocabulary) in float32; bfloat16 autocast inside on a GPU."""
    device = batch.input_ids.device.type
    with torch.autocast(device, dtype=torch.bfloat16, enabled=device == "cuda"):
        output = net(
            input_ids=batch.input_ids,
            attention_mask=batch.attention_mask,
            position_ids=batch.position_ids,
            pixel_values=batch.pixel_values,
            image_grid_thw=batch.image_grid_thw,
            use_cache=False,
        )
    return output.logits.float()


def reply_loss(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Mean cross-entropy of the reply's tokens, in nats: logits (n, L, vocabulary), labels (n, L)."""
    return cross_entropy(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten(), ignore_index=IGNORED)


@torch.no_grad()
def accuracy(net: Qwen3VLForConditionalGeneration, batches: Sequence[Batch]) -> float:
    """Share of samples, 0..1, where the winner's token scores above the loser's; leaves net in eval mode."""
    net.eval()
    hits = total = 0
    for batch in batches:
        moved = batch.to(net.device)
        rows = torch.arange(len(moved.winner), device=net.device)
        scores = forward(net, moved)[rows, moved.decision - 1][:, moved.sides]
        hits += int((scores.argmax(1) == moved.winner).sum())
        total += len(rows)
    return hits / total


@dataclass(frozen=True)
class Steps(Dataset):
    """Item i is the batch of step i, made by a generator seeded with (seed, i): the same in any worker."""

    net: Qwen3VLForConditionalGeneration
    tokenizer: PreTrainedTokenizerBase
    make_batch: MakeBatch
    count: int
    batch_size: int
    seed: int

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, step: int) -> Batch:
        rng = np.random.default_rng([self.seed, step])
        return collate(self.net, self.tokenizer, self.make_batch(rng, self.batch_size, step / self.count))


def pretrain(
    net: Qwen3VLForConditionalGeneration,
    tokenizer: PreTrainedTokenizerBase,
    make_batch: MakeBatch,
    make_held_out: MakeBatch,
    settings: PretrainSettings,
) -> list[dict[str, float]]:
    """Trains net in place, on the device where it is, and leaves it in eval mode.

    Returns a row every eval_every steps and at the end: step, loss (mean since the last row), accuracy (0..1, on
    eval_samples samples of make_held_out). AdamW, one-cycle rate, gradients clipped by norm.
    """
    eval_batches = max(1, settings.eval_samples // settings.batch_size)
    unseen = Steps(net, tokenizer, make_held_out, eval_batches, settings.batch_size, settings.seed)
    steps = Steps(net, tokenizer, make_batch, settings.steps, settings.batch_size, settings.seed + 1)
    held_out = list(DataLoader(unseen, batch_size=None))
    data = DataLoader(steps, batch_size=None, num_workers=settings.workers)
    optimizer = torch.optim.AdamW(
        net.parameters(),
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
        losses.append(train_step(net, batch, optimizer, settings.gradient_norm))
        schedule.step()
        if step % settings.eval_every == 0 or step == settings.steps:
            loss = torch.stack(losses).mean().item()
            history.append({"step": step, "loss": loss, "accuracy": accuracy(net, held_out)})
            tqdm.write(str(history[-1]), file=sys.stderr)
            losses.clear()
    return history


def train_step(
    net: Qwen3VLForConditionalGeneration, batch: Batch, optimizer: torch.optim.Optimizer, gradient_norm: float
) -> torch.Tensor:
    """One update; the loss before it, detached, still on its device."""
    net.train()
    moved = batch.to(net.device)
    loss = reply_loss(forward(net, moved), moved.labels)
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    torch.nn.utils.clip_grad_norm_(net.parameters(), gradient_norm)
    optimizer.step()
    return loss.detach()
