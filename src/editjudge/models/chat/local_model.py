"""A Qwen3-VL checkpoint in this process: it replies to chats with images, in batches whose chats share what they have
in common.

Each distinct image goes through the vision tower once, and each distinct beginning of chats (up to one of their images)
through the language model once: its keys and values are then handed to all chats that begin so. For a question in both
orders that is 3 images instead of 6, and instruction and source once instead of twice; for all pairs of many edits of
one source, each image once and little more than a third of the tokens."""

import copy
import re
import warnings
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple, cast
from zlib import crc32

import numpy as np
import torch
from safetensors import SafetensorError
from torch.nn.utils.rnn import pad_sequence
from transformers import DynamicCache, GenerationConfig, Qwen3VLForConditionalGeneration, Qwen3VLProcessor
from transformers.convert_slow_tokenizer import bytes_to_unicode
from transformers.generation import LogitsProcessor, LogitsProcessorList
from transformers.models.qwen3_vl.modeling_qwen3_vl import BaseModelOutputWithDeepstackFeatures

from editjudge.core import images
from editjudge.core.checkpoints import check_finite
from editjudge.core.errors import FileError
from editjudge.models.chat.checkpoint import Precision, decode, load_model, load_processor
from editjudge.models.chat.forms import ChatForm, ChatQuestion, RawReply
from editjudge.models.chat.settings import TransformersSetting
from editjudge.models.endpoint.spending import Usage
from editjudge.models.weights.adapter import check_patterns, read_config
from editjudge.vision.loading import NoMemory, within_memory

ADDED = re.compile(r"\.(lora_|modules_to_save\.)")  # in the names of what peft adds to a model
TOP = 20  # likeliest tokens that are kept at each place of a reply
KEPT_IMAGES = 32  # whose features stay for the next batch: about 1.3 GB for an 8B checkpoint in bfloat16
BYTES = {letter: byte for byte, letter in bytes_to_unicode().items()}  # of the letters of byte-level tokens


@dataclass(frozen=True)
class Chat:
    """A chat to reply to: its text as the chat template renders it, with an image token for each image (encoded bytes).

    temperature: 0 takes the likeliest token each time; above 0 tokens are drawn, from the smallest set of tokens that
    has `top_p` of the probability, with random numbers that depend on `seed` (at least 0) and the chat, not on the
    batch."""

    text: str
    images: tuple[bytes, ...]
    max_new_tokens: int
    temperature: float = 0.0
    top_p: float = 1.0
    seed: int = 0

    def random(self) -> np.random.Generator:
        """The chat's own random numbers: with one seed, other chats draw others."""
        return np.random.default_rng([self.seed, crc32(self.text.encode()), *map(crc32, self.images)])


@dataclass(frozen=True)
class Reply:
    """The reply to a chat: T tokens, without the one that ends the turn.

    logprobs (T,), top (T, TOP) of the tokens top_ids (T, TOP), watched (T, W): natural logarithms of the model's own
    probabilities (temperature 1, all tokens), float32.
    tokens_in, tokens_out: the chat's tokens, images included; those written, the end of the turn included.
    finished: whether the model ended its turn; if not, the limit did."""

    text: str
    tokens: tuple[int, ...]
    logprobs: np.ndarray
    top_ids: np.ndarray
    top: np.ndarray
    watched: np.ndarray
    tokens_in: int
    tokens_out: int
    finished: bool


class Features(NamedTuple):
    """What the vision tower makes of an image: grid (3,), embeddings (n, hidden), and the same a deepstack layer."""

    grid: torch.Tensor
    embeddings: torch.Tensor
    deepstack: tuple[torch.Tensor, ...]


class Layout(NamedTuple):
    """N chats side by side in L columns; every span, a part of all chats, is padded on its left.

    ids, mask: (N, L). positions: (4, N, L), of text, time, height and width.
    spans: which columns each has, and which of each chat's images lie there.
    beginnings: for each span but the last, what each chat is up to its end, as something to compare."""

    ids: torch.Tensor
    mask: torch.Tensor
    positions: torch.Tensor
    spans: list[tuple[slice, slice]]
    beginnings: list[list[tuple]]


class ChatModel:
    """Replies to chats; for one thread at a time."""

    def __init__(self, model: Qwen3VLForConditionalGeneration, processor: Qwen3VLProcessor) -> None:
        self.model, self.processor = model, processor
        self.features: OrderedDict[bytes, Features] = OrderedDict()
        ends = model.generation_config.eos_token_id
        self.ends = [ends] if isinstance(ends, int) else list(ends or [])
        how = {"eos_token_id": self.ends, "pad_token_id": processor.tokenizer.pad_token_id, "repetition_penalty": 1.0}
        self.generation = GenerationConfig(do_sample=False, **how)  # the Chooser draws
        self.merged = processor.image_processor.merge_size**2  # patches that become one token

    def render(self, messages: list[dict]) -> str:
        """The text of a chat, up to where the reply begins."""
        return self.processor.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)

    def piece(self, token: int) -> bytes:
        """What a token writes; it may hold part of a character. Ids that only the model has, and no tokenizer, write
        nothing."""
        tokenizer = self.processor.tokenizer
        if token in tokenizer.added_tokens_decoder:
            return tokenizer.decode([token]).encode()
        return bytes(BYTES[letter] for letter in tokenizer.convert_ids_to_tokens(token) or "")

    def length(self, chat: Chat, pixels: Mapping[bytes, np.ndarray]) -> int:
        """How many tokens the chat has, images included."""
        count = self.processor.image_processor.get_number_of_image_patches
        images = sum(count(*pixels[image].shape[:2], {}) // self.merged for image in chat.images)
        return images + sum(map(len, self._tokenized(chat)))

    @torch.inference_mode()
    def reply(
        self, chats: Sequence[Chat], pixels: Mapping[bytes, np.ndarray], watch: Sequence[int] = ()
    ) -> list[Reply]:
        """One reply a chat, in the same order.

        pixels: the images as RGB, uint8, (H, W, 3). watch: W tokens whose probability is wanted at every place."""
        self._see({image: pixels[image] for chat in chats for image in chat.images})
        replies = dict[int, Reply]()
        for count in sorted({len(chat.images) for chat in chats}):
            rows = [row for row, chat in enumerate(chats) if len(chat.images) == count]
            replies.update(zip(rows, self._reply([chats[row] for row in rows], watch), strict=True))
        while len(self.features) > KEPT_IMAGES:
            self.features.popitem(last=False)
        return [replies[row] for row in range(len(chats))]

    def _see(self, wanted: Mapping[bytes, np.ndarray]) -> None:
        """Has the features of all these images ready; those that are not yet there are computed together."""
        for image in wanted:
            if image in self.features:
                self.features.move_to_end(image)
        new = [image for image in wanted if image not in self.features]
        if not new:
            return
        show = self.processor.image_processor
        shown = [show(images=[wanted[i]], input_data_format="channels_last", return_tensors="pt") for i in new]
        grids, patches = (torch.cat([s[k] for s in shown]) for k in ("image_grid_thw", "pixel_values"))
        device = self.model.device
        seen = self.model.model.get_image_features(patches.to(device), grids.to(device))
        deepstack = zip(*seen.deepstack_features, strict=True)
        for image, grid, embeddings, layers in zip(new, grids, seen.pooler_output, deepstack, strict=True):
            # Copies: what is kept of one image shall not keep those that were encoded with it.
            self.features[image] = Features(grid, embeddings.clone(), tuple(layer.clone() for layer in layers))

    def _texts(self, chat: Chat) -> list[str]:
        """The texts before, between and behind the chat's images."""
        texts = chat.text.split(self.processor.image_token)
        if len(texts) != len(chat.images) + 1:
            raise ValueError(f"a chat with {len(texts) - 1} image tokens and {len(chat.images)} images")
        return texts

    def _tokenized(self, chat: Chat) -> list[list[int]]:
        return self.processor.tokenizer(self._texts(chat), add_special_tokens=False)["input_ids"]

    def _reply(self, chats: Sequence[Chat], watch: Sequence[int]) -> list[Reply]:
        """All these chats have the same number of images."""
        layout = self._layout(chats)
        width, limits = layout.ids.shape[1], [chat.max_new_tokens for chat in chats]
        chooser = Chooser(chats, watch, self.model.device)
        generation = copy.copy(self.generation)
        generation.max_new_tokens = max(limits)
        sequences = cast(Any, self.model).generate(  # the annotations of generate do not admit this class
            input_ids=layout.ids,
            attention_mask=layout.mask,
            position_ids=layout.positions,
            past_key_values=self._prefilled(chats, layout),
            mm_encoder_outputs=self._encoded(chats, layout.spans[-1][1]),
            generation_config=generation,
            logits_processor=LogitsProcessorList([chooser]),
        )
        places = [torch.stack(each, dim=1).cpu().numpy() for each in zip(*chooser.kept, strict=True)]  # (N, T, ...)
        replies = []
        for n, (row, tokens_in) in enumerate(zip(sequences.tolist(), layout.mask.sum(dim=1).tolist(), strict=True)):
            written = row[width : width + limits[n]]
            length = next((place for place, token in enumerate(written) if token in self.ends), len(written))
            text = self.processor.decode(written[:length], skip_special_tokens=True)
            logprobs, top_ids, top, watched = (each[n, :length] for each in places)
            ended, tokens = length < len(written), tuple(written[:length])
            replies.append(Reply(text, tokens, logprobs, top_ids, top, watched, tokens_in, length + ended, ended))
        return replies

    def _layout(self, chats: Sequence[Chat]) -> Layout:
        count, token = len(chats[0].images), self.processor.image_token_id
        grids = [[self.features[image].grid for image in chat.images] for chat in chats]
        pieces = []  # of each chat its tokens: each text with the image behind it, and the last text
        for chat, own in zip(chats, grids, strict=True):
            shown = [[token] * (int(grid.prod()) // self.merged) for grid in own]
            pieces.append([text + image for text, image in zip(self._tokenized(chat), [*shown, []], strict=True)])
        texts = [tuple(self._texts(chat)) for chat in chats]
        upto = [[(t[: n + 1], c.images[: n + 1]) for t, c in zip(texts, chats, strict=True)] for n in range(count)]
        distinct = [*(len(set(each)) for each in upto), len(chats)]
        shared = [n for n in range(count) if distinct[n] < distinct[n + 1]]
        stops = [n + 1 for n in shared] + [count + 1]
        parts: list[torch.Tensor] = []
        spans: list[tuple[slice, slice]] = []
        begin = 0
        for start, stop in zip([0, *stops], stops, strict=False):
            rows = [torch.tensor(list(chain.from_iterable(each[start:stop]))) for each in pieces]
            parts.append(pad_sequence(rows, batch_first=True, padding_value=-1, padding_side="left"))
            end = begin + parts[-1].shape[1]
            spans.append((slice(begin, end), slice(start, stop)))
            begin = end
        ids = torch.cat(parts, dim=1).to(self.model.device)
        mask = (ids >= 0).long()
        ids = ids.masked_fill(mask == 0, self.processor.tokenizer.pad_token_id)
        # Time, height and width as the model itself makes them of whole chats.
        stacked = torch.stack([*chain.from_iterable(grids)]).to(self.model.device) if count else None
        kinds = (ids == token).int()
        seen, _ = self.model.model.get_rope_index(ids, kinds, image_grid_thw=stacked, attention_mask=mask)
        positions = torch.cat([(mask.cumsum(dim=1) - 1).clamp(min=0)[None], seen])
        return Layout(ids, mask, positions, spans, [upto[n] for n in shared])

    def _encoded(self, chats: Sequence[Chat], part: slice) -> dict[str, BaseModelOutputWithDeepstackFeatures]:
        """The features of this part of each chat's images, as the model takes them."""
        seen = [self.features[image] for chat in chats for image in chat.images[part]]
        if not seen:
            return {}
        deepstack = [list(layer) for layer in zip(*(each.deepstack for each in seen), strict=True)]
        output = BaseModelOutputWithDeepstackFeatures(deepstack_features=cast(Any, deepstack))
        output.pooler_output = cast(Any, [each.embeddings for each in seen])
        return {"image": output}

    def _prefilled(self, chats: Sequence[Chat], layout: Layout) -> DynamicCache:
        """Keys and values of the chats' beginnings, a row a chat, each distinct one computed once."""
        cache = DynamicCache(config=self.model.config)
        held = torch.arange(len(chats))  # each chat's row of the cache
        for (columns, part), beginnings in zip(layout.spans, layout.beginnings, strict=False):
            first = {beginning: row for row, beginning in reversed(list(enumerate(beginnings)))}
            rows = sorted(first.values())
            cache.batch_select_indices(held[rows])
            self.model.model(
                input_ids=layout.ids[rows, columns],
                attention_mask=layout.mask[rows, : columns.stop],
                position_ids=layout.positions[:, rows, columns],
                past_key_values=cache,
                mm_encoder_outputs=self._encoded([chats[row] for row in rows], part),
            )
            held = torch.tensor([rows.index(first[beginning]) for beginning in beginnings])
        cache.batch_select_indices(held)
        return cache


class Chooser(LogitsProcessor):
    """Takes each chat's next token as the chat asks for it, and keeps the probabilities at every place."""

    def __init__(self, chats: Sequence[Chat], watch: Sequence[int], device: torch.device) -> None:
        longest = max(chat.max_new_tokens for chat in chats)
        drawn = np.stack([chat.random().random(longest) if chat.temperature else np.zeros(longest) for chat in chats])
        self.drawn = torch.from_numpy(drawn).to(device)
        self.temperature, self.top_p = (
            torch.tensor(column, dtype=torch.float64, device=device)[:, None]
            for column in ([chat.temperature for chat in chats], [chat.top_p for chat in chats])
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
        probability = scaled.softmax(dim=1)
        before = probability.cumsum(dim=1) - probability
        probability = probability.masked_fill(before >= self.top_p, 0.0)
        upto = probability.cumsum(dim=1)
        place = (upto <= self.drawn[:, len(self.kept), None] * upto[:, -1:]).sum(dim=1, keepdim=True)
        return ids.gather(1, place)


def load(
    model_dir: str | Path, dtype: Precision = "float32", adapter: str | Path | None = None, device: str | None = None
) -> ChatModel:
    """A local checkpoint, with a LoRA adapter (peft's) if one is given. device: None takes a GPU where there is one.

    Images are then shown as the adapter's processor says, where one lies beside it. Raises what load_model and
    load_processor raise; FileError: an adapter that is broken, lacks a part or does not fit."""
    model = load_model(model_dir, dtype, device or ("cuda" if torch.cuda.is_available() else "cpu"))
    if adapter is None:
        return ChatModel(model, load_processor(model_dir))
    from peft import PeftModel

    folder = Path(adapter)
    check_patterns(folder, read_config(folder), (name for name, _ in model.named_modules()))
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("error", "Found missing adapter keys")  # which peft leaves as it starts them
            PeftModel.from_pretrained(model, str(folder)).eval()  # puts its layers into the model itself
    except (Warning, OSError, ValueError, TypeError, LookupError, RuntimeError, SafetensorError) as error:
        if isinstance(error, torch.OutOfMemoryError):
            raise
        raise FileError(f"{folder} cannot be loaded: {' '.join(str(error).split()):.300}") from error
    added = ((name, weight) for name, weight in model.named_parameters() if ADDED.search(name))
    check_finite(folder, added)
    return ChatModel(model, load_processor(adapter if Path(adapter, "processor_config.json").is_file() else model_dir))


class LocalModel:
    """Answers questions in the form `form`, in batches.

    temperature: above 0 replies are drawn, with random numbers that depend on the seed, the question's content and the
    pass, not on the batch."""

    def __init__(
        self,
        model: Qwen3VLForConditionalGeneration,
        processor: Qwen3VLProcessor,
        form: ChatForm,
        batch_size: int = 16,
        temperature: float = 0.0,
        seed: int = 0,
    ) -> None:
        self.chat_model, self.batch_size, self.form = ChatModel(model, processor), batch_size, form
        self.temperature, self.seed = temperature, seed
        replies = [processor.tokenizer(reply)["input_ids"] for reply in form.watched]
        self.watched: tuple[int, ...] = next((each for each in zip(*replies, strict=False) if len(set(each)) > 1), ())

    def ask_many(self, questions: Sequence[ChatQuestion], passes: Sequence[int]) -> list[RawReply | str]:
        """The replies as they come, or the words that say why a question could not be asked.

        Out of memory: half the batch, from then on; a question that does not fit by itself could not be asked."""
        replies: list[RawReply | str] = []
        while len(replies) < len(questions):
            try:
                replies += within_memory(self, partial(self._batch, questions, passes, len(replies)))
            except NoMemory as error:
                replies.append(str(error))
        return replies

    def _batch(self, questions: Sequence[ChatQuestion], passes: Sequence[int], start: int) -> list[RawReply | str]:
        """The replies to as many as go through the model together, from `start` on; or which image cannot be used."""
        batch = slice(start, start + self.batch_size)
        pixels: dict[bytes, np.ndarray] = {}
        chats: list[Chat | str] = []
        for question, number in zip(questions[batch], passes[batch], strict=True):
            shown = []
            try:
                for name in self.form.images:
                    shown.append(data := bytes(question.images[name]))
                    pixels[data] = pixels[data] if data in pixels else decode(data)
            except images.ImageError as error:
                chats.append(f"{name}: {error}")
                continue
            text, seed = self.chat_model.render(self.form.messages(question.instruction)), self.seed + number
            chats.append(Chat(text, tuple(shown), self.form.max_new_tokens, self.temperature, seed=seed))
        asked = [chat for chat in chats if isinstance(chat, Chat)]
        replies = iter(self.chat_model.reply(asked, pixels, self.watched))
        return [chat if isinstance(chat, str) else self._said(next(replies)) for chat in chats]

    def _said(self, reply: Reply) -> RawReply:
        """Its tokens, if the form watches any: a watched token that was written has the probabilities of all watched
        ones, the model's own at temperature 1. No seconds in the usage: the same question shall give the same record,
        and a batch has no time for each."""
        tokens: list[dict[str, Any]] = []
        places = zip(reply.tokens, reply.watched.tolist(), strict=True)
        for token, watched in places if self.watched else ():
            likely = zip(self.watched, watched, strict=True) if token in self.watched else ()
            top = [self._token(each) | {"logprob": logprob} for each, logprob in likely]
            tokens.append(self._token(token) | ({"top_logprobs": top} if top else {}))
        return RawReply(reply.text, tokens, Usage(1, reply.tokens_in, reply.tokens_out, len(self.form.images)))

    def _token(self, token: int) -> dict[str, Any]:
        piece = self.chat_model.piece(token)
        return {"token": piece.decode(errors="replace"), "bytes": list(piece)}


def local_model(setting: TransformersSetting, form: ChatForm, temperature: float, seed: int, device: str) -> LocalModel:
    """The setting's model on the device, which is loaded once."""
    if setting.workers != 1:
        torch.set_num_threads(1)
    loaded = _loaded(setting, device)
    return LocalModel(loaded.model, loaded.processor, form, setting.batch_size, temperature, seed)


@lru_cache(maxsize=1)
def _loaded(setting: TransformersSetting, device: str) -> ChatModel:
    """The model, which shows images in the setting's bounds on pixels; where they are 0, in those of its processor."""
    loaded = load(setting.model, setting.dtype, setting.lora, device)
    images = loaded.processor.image_processor
    longest = setting.max_pixels or images.size["longest_edge"]
    shortest = min(setting.min_pixels or images.size["shortest_edge"], longest)
    images.size = type(images.size)(shortest_edge=shortest, longest_edge=longest)
    return loaded
