"""The four baselines of ADIEE (Chen et al. 2025): cosines of an edit's features, by CLIP, DINO or embedded ones.

- clip_t: of the edit and the words for it, the wanted edit's caption, or the instruction where there is none.
- clip_d: of the change of the image, E_img(edit) - E_img(source), and the change of the words, E_txt(caption out) -
  E_txt(caption in). Without captions the instruction stands for the one and the empty text for the other. An edit
  that is its source has changed nothing: 0, as published.
- clip_i, dino_i: of the edit and its source, or the true edit. Against the source, doing nothing is best.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from editjudge.core import images
from editjudge.core.records import Image
from editjudge.scorers.embedded import EmbeddedClip, EmbeddedDino
from editjudge.scorers.protocol import Edit, Score, Unscored
from editjudge.scorers.settings import FeatureSetting

EMBEDDED = "embedded"
AT_ONCE = 64  # edits whose images are in memory


def cosine(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Row by row, (n, d) and (n, d) to (n,), -1..1; 0 where either has no length."""
    a, b = a.astype(np.float64), b.astype(np.float64)
    lengths = np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1)
    return np.divide((a * b).sum(1), lengths, out=np.zeros(len(a)), where=lengths > 0)


class FeatureScorer:
    """The baseline of a setting as a scorer: one dimension, named as its kind."""

    def __init__(self, where: str, setting: FeatureSetting) -> None:
        """`where`: the params field of the setting. ParamsError: the model is missing, or another one."""
        self.setting, self.model = setting, _model(where, setting)
        self.dimensions = (setting.kind,)

    def score(self, edits: Sequence[Edit]) -> list[Score | Unscored]:
        """One answer an edit, in their order: the cosine, -1..1, or why there is none."""
        found: list[Score | Unscored] = []
        for start in range(0, len(edits), AT_ONCE):
            found += self._scored(edits[start : start + AT_ONCE])
        return found

    def _scored(self, edits: Sequence[Edit]) -> list[Score | Unscored]:
        shown = [self._shown(edit) for edit in edits]
        good = [edit for edit, own in zip(edits, shown, strict=True) if not isinstance(own, Unscored)]
        values = self._values(good, [own for own in shown if not isinstance(own, Unscored)]) if good else []
        if isinstance(values, Unscored):
            return [own if isinstance(own, Unscored) else values for own in shown]
        scores = iter([Score(value, {self.setting.kind: value}) for value in values])
        return [own if isinstance(own, Unscored) else next(scores) for own in shown]

    def _values(self, edits: Sequence[Edit], shown: Sequence[list[np.ndarray]]) -> list[float] | Unscored:
        if self.setting.model == EMBEDDED:
            return self._cosines(edits, shown).tolist()
        from editjudge.vision.loading import NoMemory, within_memory

        try:
            return within_memory(self.model, lambda: self._cosines(edits, shown).tolist())
        except NoMemory as error:
            return Unscored(str(error))

    def _shown(self, edit: Edit) -> list[np.ndarray] | Unscored:
        """The images that the kind looks at, the edit first."""
        wanted: dict[str, Image | None] = {"edited": edit.edited}
        if self.setting.kind != "clip_t":
            against = self.setting.against
            wanted[against] = edit.truth if against == "truth" else edit.source
        decoded = []
        for name, image in wanted.items():
            if image is None:
                return Unscored(f"{name}: the data has no such image")
            try:
                decoded.append(images.decode(bytes(image)))
            except images.ImageError as error:
                return Unscored(f"{name}: {error}")
        return decoded

    def _cosines(self, edits: Sequence[Edit], shown: Sequence[list[np.ndarray]]) -> np.ndarray:
        edited = self.model.images([own[0] for own in shown])
        if self.setting.kind == "clip_t":
            return cosine(edited, self.model.texts([_captions(edit)[1] for edit in edits]))
        other = self.model.images([own[1] for own in shown])
        if self.setting.kind != "clip_d":
            return cosine(edited, other)
        before, after = (self.model.texts(texts) for texts in zip(*map(_captions, edits), strict=True))
        return cosine(edited - other, after - before)


def _captions(edit: Edit) -> tuple[str, str]:
    return edit.captions or ("", edit.instruction)


def _model(where: str, setting: FeatureSetting) -> Any:
    if setting.model == EMBEDDED:
        return EmbeddedDino() if setting.kind == "dino_i" else EmbeddedClip()
    import torch

    from editjudge.vision import towers

    device = setting.device
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    load = towers.dino if setting.kind == "dino_i" else towers.ClipTowers
    return load(f"{where}.model", setting.model, device=device, dtype=setting.dtype, batch_size=setting.batch_size)
