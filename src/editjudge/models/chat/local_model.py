"""A vision-language checkpoint in this process: it replies to chats with images, in batches, by `generate`."""

import copy
import re
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from transformers import GenerationConfig
from transformers.convert_slow_tokenizer import bytes_to_unicode
from transformers.generation import LogitsProcessor, LogitsProcessorList

from editjudge.core import images
from editjudge.core.checkpoints import check_finite
from editjudge.core.errors import FileError
from editjudge.engine.workers import cores
from editjudge.models.chat.checkpoint import Precision, bound, decode, load_model, load_processor, too_long
from editjudge.models.chat.forms import ChatForm, ChatQuestion, RawReply, spoken
from editjudge.models.chat.settings import TransformersSetting
from editjudge.models.endpoint.replies import THINKING
from editjudge.models.endpoint.spending import Usage
from editjudge.models.families import qwen_vl
from editjudge.models.families.whole import Chat, WholeChats
from editjudge.models.weights.adapter import WEIGHTS, check_patterns, older_names, read_config
from editjudge.vision.loading import NoMemory, within_memory

# What peft raises of an adapter that it cannot load.
WRONG = (ValueError, TypeError, LookupError, AttributeError, ImportError)
UNLOADABLE = (*WRONG, OSError, RuntimeError, SafetensorError)
ADDED = re.compile(r"\.(lora_|modules_to_save\.)")  # in the names of what peft adds to a model
Asked: TypeAlias = tuple[ChatQuestion, Mapping[str, Any]]  # a question, and how its reply is sampled (asking.sampling)
TOP = 20  # likeliest tokens that are kept at each place of a reply
HEXADECIMAL = re.compile("<0x[0-9A-F]{2}>")  # a byte that is a token, in the manner of SentencePiece
BYTES = {letter: byte for byte, letter in bytes_to_unicode().items()}  # of the letters of byte-level tokens


@dataclass(frozen=True)
class Reply:
    """The reply to a chat: T tokens, without the one that ends the turn.

    logprobs (T,), top (T, TOP) of the tokens top_ids (T, TOP), watched (T, W): natural logarithms of the model's own
    probabilities (temperature 1, all tokens), float32.
    tokens_in, tokens_out: the chat's tokens, images included; those written, the end of the turn included. images: of
    the chat.
    finished: whether the model ended its turn; if not, the limit did."""

    text: str
    tokens: tuple[int, ...]
    logprobs: np.ndarray
    top_ids: np.ndarray
    top: np.ndarray
    watched: np.ndarray
    tokens_in: int
    tokens_out: int
    images: int
    finished: bool


class ChatModel:
    """Replies to chats; for one thread at a time. batch_size: of what goes through it together, in `ask_many`."""

    batch_size = 1

    def __init__(self, model: Any, processor: Any) -> None:
        self.model, self.processor = model, processor
        shares = model.config.model_type in qwen_vl.KINDS
        self.chats = (qwen_vl.SharedBeginnings if shares else WholeChats)(model, processor)
        self.byte_level = "ByteLevel" in repr(processor.tokenizer.backend_tokenizer.decoder)
        ends = model.generation_config.eos_token_id or processor.tokenizer.eos_token_id
        self.ends = [ends] if isinstance(ends, int) else list(ends or [])
        how = {"eos_token_id": self.ends, "pad_token_id": processor.tokenizer.pad_token_id, "repetition_penalty": 1.0}
        self.generation = GenerationConfig(do_sample=False, **how)  # the Chooser draws

    def render(self, messages: list[dict]) -> str:
        """The text of a chat, up to where the reply begins."""
        return self.processor.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)

    def piece(self, token: int) -> bytes:
        """What a token writes; it may hold part of a character. Ids that only the model has, and no tokenizer, write
        nothing."""
        tokenizer = self.processor.tokenizer
        if token in tokenizer.added_tokens_decoder:
            return tokenizer.decode([token]).encode()
        word = tokenizer.convert_ids_to_tokens(token) or ""
        if self.byte_level:
            return bytes(BYTES[letter] for letter in word)
        return bytes([int(word[3:5], 16)]) if HEXADECIMAL.fullmatch(word) else word.replace("\u2581", " ").encode()

    @torch.inference_mode()
    def reply(
        self, chats: Sequence[Chat], pixels: Mapping[bytes, np.ndarray], watch: Sequence[int] = ()
    ) -> list[Reply]:
        """One reply a chat, in the same order.

        pixels: the images as RGB, uint8, (H, W, 3). watch: W tokens whose probability is wanted at every place."""
        replies = dict[int, Reply]()
        for count in sorted({len(chat.images) for chat in chats}):
            rows = [row for row, chat in enumerate(chats) if len(chat.images) == count]
            replies.update(zip(rows, self._reply([chats[row] for row in rows], pixels, watch), strict=True))
        return [replies[row] for row in range(len(chats))]

    def ask_many(self, form: ChatForm, asked: Sequence[Asked], batch_size: int) -> list[RawReply | str]:
        """The replies to questions of a form as they come, or the words that say why a question could not be asked.

        Each call begins without what others have seen, so that they change no reply. Out of memory: half the batch,
        from then on; a question that does not fit by itself could not be asked."""
        self.chats, self.batch_size = type(self.chats)(self.model, self.processor), batch_size
        said = [self.processor.tokenizer(reply)["input_ids"] for reply in form.watched]
        watch: tuple[int, ...] = next((each for each in zip(*said, strict=False) if len(set(each)) > 1), ())
        replies: list[RawReply | str] = []
        while len(replies) < len(asked):
            try:
                replies += within_memory(self, partial(self._batch, form, watch, asked[len(replies) :]))
            except NoMemory as error:
                replies.append(str(error))
        return replies

    def _batch(self, form: ChatForm, watch: Sequence[int], asked: Sequence[Asked]) -> list[RawReply | str]:
        """The replies to the first of them that go through the model together; or which image cannot be used."""
        asked = asked[: self.batch_size]
        pixels, broken = self._decoded({bytes(q.images[name]) for q, _ in asked for name in form.images})
        chats: list[Chat | str] = []
        for question, how in asked:
            shown = {name: bytes(question.images[name]) for name in form.images}
            if wrong := next((f"{name}: {broken[data]}" for name, data in shown.items() if data in broken), None):
                chats.append(wrong)
                continue
            drawn = {name: how[name] for name in ("temperature", "top_p", "top_k", "seed") if name in how}
            text = self.render(form.messages(question.instruction))
            if wrong := too_long(self.model, self.processor, text):
                chats.append(wrong)
                continue
            chats.append(Chat(text, tuple(shown.values()), how["max_tokens"], **drawn))
        replies = iter(self.reply([chat for chat in chats if isinstance(chat, Chat)], pixels, watch))
        return [chat if isinstance(chat, str) else self._said(next(replies), watch) for chat in chats]

    def _decoded(self, encoded: Collection[bytes]) -> tuple[dict[bytes, np.ndarray], dict[bytes, images.ImageError]]:
        """The images that can be shown, as RGB, and what is wrong with the others. A thread a core: a large PNG takes
        as long as a GPU takes to look at it."""
        pixels, broken = {}, {}
        with ThreadPoolExecutor(cores()) as threads:
            for data, future in {data: threads.submit(decode, data) for data in encoded}.items():
                try:
                    pixels[data] = future.result()
                except images.ImageError as error:
                    broken[data] = error
        return pixels, broken

    def _said(self, reply: Reply, watch: Sequence[int]) -> RawReply:
        """Its tokens, if any are watched: a watched token that was written has the probabilities of all watched ones,
        the model's own at temperature 1. No seconds in the usage: the same question shall give the same record, and a
        batch has no time for each."""
        tokens: list[dict[str, Any]] = []
        for token, watched in zip(reply.tokens, reply.watched.tolist(), strict=True) if watch else ():
            likely = zip(watch, watched, strict=True) if token in watch else ()
            top = [self.token(each) | {"logprob": logprob} for each, logprob in likely]
            tokens.append(self.token(token) | ({"top_logprobs": top} if top else {}))
        return RawReply(reply.text, spoken(tokens), Usage(1, reply.tokens_in, reply.tokens_out, reply.images))

    def token(self, token: int) -> dict[str, Any]:
        """As a completion tells it: its text, and its bytes, for it may hold a part of a character."""
        piece = self.piece(token)
        return {"token": piece.decode(errors="replace"), "bytes": list(piece)}

    def _reply(self, chats: Sequence[Chat], pixels: Mapping[bytes, np.ndarray], watch: Sequence[int]) -> list[Reply]:
        """All these chats have the same number of images."""
        inputs = self.chats.inputs(chats, pixels)
        width, limits = inputs["input_ids"].shape[1], [chat.max_new_tokens for chat in chats]
        chooser = Chooser(chats, watch, self.model.device)
        generation = copy.copy(self.generation)
        generation.max_new_tokens = max(limits)
        sequences = self.model.generate(
            **inputs, generation_config=generation, logits_processor=LogitsProcessorList([chooser])
        )
        places = [torch.stack(each, dim=1).cpu().numpy() for each in zip(*chooser.kept, strict=True)]  # (N, T, ...)
        replies, lengths = [], inputs["attention_mask"].sum(dim=1).tolist()
        for n, (row, tokens_in) in enumerate(zip(sequences.tolist(), lengths, strict=True)):
            written = row[width : width + limits[n]]
            length = next((place for place, token in enumerate(written) if token in self.ends), len(written))
            text = self.processor.decode(written[:length], skip_special_tokens=True)
            text = THINKING + text if chats[n].text.rstrip().endswith(THINKING) else text  # the template opens it
            logprobs, top_ids, top, watched = (each[n, :length] for each in places)
            ended, tokens = length < len(written), tuple(written[:length])
            counts = (tokens_in, length + ended, len(chats[n].images))
            replies.append(Reply(text, tokens, logprobs, top_ids, top, watched, *counts, ended))
        return replies


class Chooser(LogitsProcessor):
    """Takes each chat's next token as the chat asks for it, and keeps the probabilities at every place."""

    def __init__(self, chats: Sequence[Chat], watch: Sequence[int], device: torch.device) -> None:
        longest = max(chat.max_new_tokens for chat in chats)
        drawn = np.stack([chat.random().random(longest) if chat.temperature else np.zeros(longest) for chat in chats])
        self.drawn = torch.from_numpy(drawn).to(device)
        columns = zip(*((chat.temperature, chat.top_p, chat.top_k or torch.inf) for chat in chats), strict=True)
        self.temperature, self.top_p, self.top_k = (
            torch.tensor(column, dtype=torch.float64, device=device)[:, None] for column in columns
        )
        self.watch = torch.tensor(watch, dtype=torch.long, device=device)
        self.kept: list[tuple[torch.Tensor, ...]] = []

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        """scores: (N, V). The same, with all but the token that is taken at minus infinity."""
        logprobs = scores.float().log_softmax(dim=1)
        taken = logprobs.argmax(dim=1, keepdim=True)
        if (self.temperature > 0).any():
            taken = torch.where(self.temperature > 0, self._draw(logprobs), taken)
        top = logprobs.topk(min(TOP, logprobs.shape[1]), dim=1)
        self.kept.append((logprobs.gather(1, taken)[:, 0], top.indices, top.values, logprobs[:, self.watch]))
        return torch.full_like(scores, -torch.inf).scatter(1, taken, 0.0)

    def _draw(self, logprobs: torch.Tensor) -> torch.Tensor:
        """A token a row, (N, 1), by the inverse of the distribution function over tokens from the likeliest down."""
        ids = logprobs.argsort(dim=1, descending=True, stable=True)
        scaled = logprobs.gather(1, ids).double() / self.temperature.clamp(min=1e-6)
        beyond = torch.arange(ids.shape[1], device=ids.device) >= self.top_k
        probability = scaled.masked_fill(beyond, -torch.inf).softmax(dim=1)
        before = probability.cumsum(dim=1) - probability
        probability = probability.masked_fill(before >= self.top_p, 0.0)
        upto = probability.cumsum(dim=1)
        place = (upto <= self.drawn[:, len(self.kept), None] * upto[:, -1:]).sum(dim=1, keepdim=True)
        return ids.gather(1, place)


def load(
    model_dir: str | Path, dtype: Precision = "float32", adapter: str | Path | None = None, device: str | None = None
) -> ChatModel:
    """A local checkpoint, with a LoRA adapter (peft's) if one is given. device: None takes a GPU where there is one.

    Images are then shown in the sizes of the adapter's processor, where one lies beside it. Raises what load_model and
    load_processor raise; FileError: an adapter that is broken, lacks a part or does not fit."""
    model = load_model(model_dir, dtype, device or ("cuda" if torch.cuda.is_available() else "cpu"))
    processor = load_processor(model_dir)
    if adapter is None:
        return ChatModel(model, processor)
    folder = Path(adapter)
    try:
        add_adapter(model, folder)
    except UNLOADABLE as error:
        if isinstance(error, (torch.OutOfMemoryError, FileError)):
            raise
        raise FileError(f"{folder} cannot be loaded: {' '.join(str(error).split()):.300}") from error
    return ChatModel(model, bound(processor, adapter=folder))


def add_adapter(model: Any, folder: Path) -> None:
    """Puts the adapter's layers into the model. FileError: its tensors are not just those of its settings; peft starts
    what is missing, drops what it does not know, and takes a weight of the base for the base's own. Also what peft
    raises."""
    from peft import LoraConfig, PeftModel, get_peft_model_state_dict

    check_patterns(folder, read_config(folder), (name for name, _ in model.named_modules()))
    named, settings = older_names(model), LoraConfig.from_pretrained(str(folder))
    settings.inference_mode = True
    adapted = PeftModel(model, settings)
    loaded = adapted.load_adapter(str(folder), "default", key_mapping=named)
    with safe_open(folder / WEIGHTS, "pt") as file:
        held = file.keys()
    own = get_peft_model_state_dict(adapted, save_embedding_layers=False)
    foreign = sorted(name for name in held if name not in own) if len(held) > len(own) else []
    for names, what in ((loaded.missing_keys, "is missing"), ([*loaded.unexpected_keys, *foreign], "is not its own")):
        if names:
            raise FileError(f"{folder} does not fit the base: {names[0]} {what}")
    adapted.eval()
    check_finite(folder, ((name, weight) for name, weight in model.named_parameters() if ADDED.search(name)))


@lru_cache(maxsize=1)
def opened(setting: TransformersSetting, device: str) -> ChatModel:
    """The setting's model on the device, which shows images in the setting's bounds on pixels; where they are 0, in
    those of its processor. The one used last stays open."""
    if setting.workers != 1:
        torch.set_num_threads(1)
    model = load(setting.model, setting.dtype, setting.lora, device)
    bound(model.processor, setting.min_pixels, setting.max_pixels, thinking=setting.enable_thinking)
    return model
