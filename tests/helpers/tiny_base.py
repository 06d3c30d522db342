"""The sizes of the tiny base that the judge's tests use, the instructions its tokenizer knows, and adapters of it."""

import copy
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from peft import PeftModel, get_peft_model
from transformers import Qwen3VLForConditionalGeneration

from editjudge.models.chat.forms import ChatForm, ChatQuestion
from editjudge.models.chat.local_model import ChatModel
from tools.tiny_base import tiny

INSTRUCTIONS = ("Remove the cup", "Change the colour of the cup to green", "Make it night")
SIZES = tiny.TinySettings(
    image_size=64, hidden_size=48, text_layers=2, text_heads=2, key_value_heads=1, text_intermediate=64,
    vision_hidden=48, vision_layers=2, vision_heads=2, vision_intermediate=64,
)  # fmt: skip


def save_saying(reply: str, folder: Path) -> Path:
    """A tiny Qwen3-VL in `folder` that gives this reply to everything, as one token: its layers do nothing, and each
    token's output layer knows the token before it."""
    tokens = tiny.tokenizer(INSTRUCTIONS)
    tokens.add_tokens([reply])
    net = tiny.model(tokens, SIZES)
    said, end = tokens.convert_tokens_to_ids(reply), tokens.eos_token_id
    [last] = tokens("\n")["input_ids"]  # what a turn of the assistant begins with
    net.config.tie_word_embeddings = net.config.text_config.tie_word_embeddings = False
    embeddings = net.get_input_embeddings().weight.detach()
    with torch.no_grad():
        for layer in net.model.language_model.layers:
            layer.self_attn.o_proj.weight.zero_()
            layer.mlp.down_proj.weight.zero_()
        output = torch.zeros_like(embeddings)
        output[said], output[end] = embeddings[last], embeddings[said]
        net.lm_head.weight = torch.nn.Parameter(output)
    tiny.save(net, tiny.processor(tokens, SIZES.image_size), folder)
    return folder


def adapted(net: Qwen3VLForConditionalGeneration, folder: Path, config: Any) -> PeftModel:
    """A copy of the model with an adapter by peft, every trained tensor far from where it starts, saved in `folder`."""
    torch.manual_seed(1)
    model = get_peft_model(copy.deepcopy(net), config)
    with torch.no_grad():
        for weight in model.parameters():
            if weight.requires_grad:
                weight.add_(0.3 * torch.randn_like(weight))
    model.save_pretrained(str(folder))
    return model.eval()


def here(load: Callable[[str], Callable[[Any], Any]], places: list[str], stay: bool = False) -> Any:
    """In the place of `Workers`: one in this process, where it is seen."""
    return nullcontext(SimpleNamespace(in_order=partial(map, load("cpu"))))


def compare(
    model: ChatModel, form: ChatForm, questions: Sequence[ChatQuestion], batch_size: int = 16, **how: Any
) -> list[Any]:
    """One answer a question, in the same order: a Verdict, or what else the form gives. how: `seeds`, one a question,
    and the rest of a sampling."""
    seeds = how.pop("seeds", [0] * len(questions))
    each = [{"temperature": 0.0, "max_tokens": form.max_new_tokens, **how, "seed": seed} for seed in seeds]
    replies = model.ask_many(form, list(zip(questions, each, strict=True)), batch_size)
    return list(map(form.answer, questions, replies))
