"""Chats of families whose layers keep keys and values alone: they share what they have in common.

Each distinct image goes through the vision tower once, and each distinct beginning of chats (up to one of their images)
through the language model once: its keys and values are then handed to all chats that begin so. For a question in both
orders that is 3 images instead of 6, and instruction and source once instead of twice; for all pairs of many edits of
one source, each image once and little more than a third of the tokens."""

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from torch.nn.utils.rnn import pad_sequence
from transformers import DynamicCache
from transformers.models.qwen3_vl.modeling_qwen3_vl import BaseModelOutputWithDeepstackFeatures

from editjudge.models.families.whole import Chat, WholeChats

KINDS = ("qwen2_5_vl", "qwen3_vl", "qwen3_vl_moe", "glm4v")  # model types
KEPT_IMAGES = 32  # whose features stay for the next batch: about 1.3 GB for an 8B checkpoint in bfloat16


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


class SharedBeginnings(WholeChats):
    """What `generate` takes of chats, with the keys and values of what they begin with."""

    def __init__(self, model: Any, processor: Any) -> None:
        super().__init__(model, processor)
        self.features: OrderedDict[bytes, Features] = OrderedDict()
        self.merged = processor.image_processor.merge_size**2  # patches that become one token

    def inputs(self, chats: Sequence[Chat], pixels: Mapping[bytes, np.ndarray]) -> dict[str, Any]:
        self._see({image: pixels[image] for chat in chats for image in chat.images})
        layout = self._layout(chats)
        given = {
            "input_ids": layout.ids,
            "attention_mask": layout.mask,
            "position_ids": layout.positions,
            "past_key_values": self._prefilled(chats, layout),
            "mm_encoder_outputs": self._encoded(chats, layout.spans[-1][1]),
        }
        while len(self.features) > KEPT_IMAGES:
            self.features.popitem(last=False)
        return given

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
        # A tuple of layers an image; none where the family has no such layers.
        deepstack = (
            zip(*seen.deepstack_features, strict=True) if hasattr(seen, "deepstack_features") else [()] * len(new)
        )
        for image, grid, embeddings, layers in zip(new, grids, seen.pooler_output, deepstack, strict=True):
            # Copies: what is kept of one image shall not keep those that were encoded with it.
            self.features[image] = Features(grid, embeddings.clone(), tuple(layer.clone() for layer in layers))

    def _texts(self, chat: Chat) -> list[str]:
        """The texts before, between and behind the chat's images."""
        texts = chat.text.split(self.processor.image_token)
        if len(texts) != len(chat.images) + 1:
            raise ValueError(f"a chat with {len(texts) - 1} image tokens and {len(chat.images)} images")
        return texts

    def _layout(self, chats: Sequence[Chat]) -> Layout:
        count, token = len(chats[0].images), self.processor.image_token_id
        grids = [[self.features[image].grid for image in chat.images] for chat in chats]
        pieces = []  # of each chat its tokens: each text with the image behind it, and the last text
        for chat, own in zip(chats, grids, strict=True):
            shown = [[token] * (int(grid.prod()) // self.merged) for grid in own]
            said = self.processor.tokenizer(self._texts(chat), add_special_tokens=False)["input_ids"]
            pieces.append([text + image for text, image in zip(said, [*shown, []], strict=True)])
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
