"""The four baselines of ADIEE (Chen et al. 2025): cosines of an edit's features, by CLIP or DINO.

- clip_t: of the edit and the words for it, the wanted edit's caption, or the instruction if there is none.
- clip_d: of the change of the image, E_img(edit) - E_img(source), and the change of the words, E_txt(caption out) -
  E_txt(caption in). Without captions the instruction stands for the one and the empty text for the other. An edit
  that equals its source has changed nothing: 0, as published.
- clip_i, dino_i: of the edit and its source, or the true edit. Against the source, doing nothing is best.

dino_i has a built-in model, too (`model: embedded`): where the image's gradients and colours are (HOG patches)."""

from collections.abc import Sequence
from functools import cache
from typing import Any, cast

import numpy as np

from editjudge.core import images
from editjudge.core.records import Image, in_groups
from editjudge.judges.protocol import Edit, Score, Unscored
from editjudge.judges.settings import EMBEDDED, FeatureSetting
from editjudge.vision.encoders import ClipTowers, HogEncoder, dino
from editjudge.vision.loading import NoMemory, within_memory

AT_ONCE = 64  # edits whose images are in memory


def cosine(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Row by row, (n, d) and (n, d) to (n,), -1..1; 0 where either has no length."""
    a, b = a.astype(np.float64), b.astype(np.float64)
    lengths = np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1)
    return np.divide((a * b).sum(1), lengths, out=np.zeros(len(a)), where=lengths > 0)


class HogImages:
    """HogEncoder's vector of the whole image."""

    def images(self, rgbs: Sequence[np.ndarray]) -> np.ndarray:
        return np.stack([HogEncoder().embedding(rgb) for rgb in rgbs])


class FeatureScorer:
    """The baseline of a setting as a scorer: one dimension, named as its kind."""

    def __init__(self, where: str, setting: FeatureSetting) -> None:
        """`where`: the params field of the setting. ParamsError: the model is missing, or another one."""
        self.setting, self.dimensions = setting, (setting.kind,)
        self.model: Any = HogImages()
        if setting.model != EMBEDDED:
            import torch

            device = setting.device
            if device == "auto":
                device = "cuda" if torch.cuda.is_available() else "cpu"
            how: dict[str, Any] = {"device": device, "dtype": setting.dtype, "batch_size": setting.batch_size}
            self.model = (dino if setting.kind == "dino_i" else ClipTowers)(f"{where}.model", setting.model, **how)

    def score(self, edits: Sequence[Edit]) -> list[Score | Unscored]:
        """One answer an edit, in their order: the cosine, -1..1, or why there is none."""
        return [score for group in in_groups(edits, AT_ONCE) for score in self._scored(group)]

    def _scored(self, edits: Sequence[Edit]) -> list[Score | Unscored]:
        """Each image is looked at once, however many edits share it."""
        decoded, wanted = cache(_decoded), [self._wanted(edit) for edit in edits]
        reasons = [
            "; ".join(f"{name}: {why}" for name, image in own.items() if isinstance(why := decoded(image), str))
            for own in wanted
        ]
        answers: list[Score | Unscored] = [Unscored(reason) for reason in reasons]
        usable = [n for n, reason in enumerate(reasons) if not reason]
        columns = list(zip(*(wanted[n].values() for n in usable), strict=True))
        shown = list(dict.fromkeys(image for n in usable for image in wanted[n].values()))

        def ask() -> list[float]:
            found = dict(zip(shown, self.model.images([decoded(image) for image in shown]), strict=True))
            features = [np.stack([found[image] for image in column]) for column in columns]
            return cast(list[float], self._cosines([edits[n] for n in usable], features).tolist())

        try:
            alone = self.setting.model == EMBEDDED  # it needs no torch
            values = [] if not usable else ask() if alone else within_memory(self.model, ask)
        except NoMemory as error:
            return [Unscored(reason or str(error)) for reason in reasons]
        for n, value in zip(usable, values, strict=True):
            answers[n] = Score(value, {self.setting.kind: value})
        return answers

    def _wanted(self, edit: Edit) -> dict[str, Image | None]:
        """The images that the kind looks at, the edit first."""
        if self.setting.kind == "clip_t":
            return {"edited": edit.edited}
        against = self.setting.against
        return {"edited": edit.edited, against: edit.truth if against == "truth" else edit.source}

    def _cosines(self, edits: Sequence[Edit], shown: Sequence[np.ndarray]) -> np.ndarray:
        """shown: features of the edits, and of what they are compared with, (n, d) each."""
        if self.setting.kind == "clip_t":
            return cosine(shown[0], self.model.texts([_captions(edit)[1] for edit in edits]))
        if self.setting.kind != "clip_d":
            return cosine(shown[0], shown[1])
        before, after = (self.model.texts(texts) for texts in zip(*map(_captions, edits), strict=True))
        return cosine(shown[0] - shown[1], after - before)


def _decoded(image: Image | None) -> np.ndarray | str:
    """(H, W, 3) uint8, or why the image cannot be looked at."""
    if image is None:
        return "the data has no such image"
    try:
        return images.decode(bytes(image))
    except images.ImageError as error:
        return str(error)


def _captions(edit: Edit) -> tuple[str, str]:
    return edit.captions or ("", edit.instruction)
