"""The four baselines of ADIEE (Chen et al. 2025): cosines of an edit's features, by CLIP, DINO or embedded ones.

- clip_t: of the edit and the words for it, the wanted edit's caption, or the instruction where there is none.
- clip_d: of the change of the image, E_img(edit) - E_img(source), and the change of the words, E_txt(caption out) -
  E_txt(caption in). Without captions the instruction stands for the one and the empty text for the other. An edit
  that is its source has changed nothing: 0, as published.
- clip_i, dino_i: of the edit and its source, or the true edit. Against the source, doing nothing is best.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from editjudge.core import images
from editjudge.core.records import Image
from editjudge.judges.protocol import Edit, Score, Unscored
from editjudge.judges.scorers.embedded import EmbeddedClip, EmbeddedDino
from editjudge.judges.scorers.settings import FeatureSetting
from editjudge.vision import folders

EMBEDDED = "embedded"
AT_ONCE = 64  # edits whose images are in memory
Wanted: TypeAlias = Mapping[str, Image | None]
Decoded: TypeAlias = Mapping[Image, np.ndarray | str]


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
        wanted = [self._wanted(edit) for edit in edits]
        decoded = {image: _decoded(image) for own in wanted for image in own.values() if image is not None}
        found: list[Score | Unscored] = []
        for own in wanted:
            reasons = [f"{name}: {why}" for name, image in own.items() if (why := _why(image, decoded))]
            found.append(Unscored("; ".join(reasons)))
        good = [n for n, answer in enumerate(found) if answer == Unscored("")]
        values = self._values([edits[n] for n in good], [wanted[n] for n in good], decoded) if good else []
        for at, n in enumerate(good):
            answer = values if isinstance(values, Unscored) else Score(values[at], {self.setting.kind: values[at]})
            found[n] = answer
        return found

    def _wanted(self, edit: Edit) -> dict[str, Image | None]:
        """The images that the kind looks at, the edit first."""
        if self.setting.kind == "clip_t":
            return {"edited": edit.edited}
        against = self.setting.against
        return {"edited": edit.edited, against: edit.truth if against == "truth" else edit.source}

    def _values(self, edits: Sequence[Edit], wanted: Sequence[Wanted], decoded: Decoded) -> list[float] | Unscored:
        """The cosines. Each image is looked at once, however many edits share it."""
        shown = list(dict.fromkeys(image for own in wanted for image in own.values() if image is not None))
        place = {image: n for n, image in enumerate(shown)}
        rgbs = [rgb for image in shown if not isinstance(rgb := decoded[image], str)]
        rows = [
            [place[image] for own in wanted if (image := list(own.values())[side])] for side in range(len(wanted[0]))
        ]

        def ask() -> list[float]:
            found = self.model.images(rgbs)
            return self._cosines(edits, [found[row] for row in rows]).tolist()

        if self.setting.model == EMBEDDED:
            return ask()
        from editjudge.vision.loading import NoMemory, within_memory

        try:
            return within_memory(self.model, ask)
        except NoMemory as error:
            return Unscored(str(error))

    def _cosines(self, edits: Sequence[Edit], shown: Sequence[np.ndarray]) -> np.ndarray:
        """shown: features of the edits, and of what they are compared with, (n, d) each."""
        if self.setting.kind == "clip_t":
            return cosine(shown[0], self.model.texts([_captions(edit)[1] for edit in edits]))
        if self.setting.kind != "clip_d":
            return cosine(shown[0], shown[1])
        before, after = (self.model.texts(texts) for texts in zip(*map(_captions, edits), strict=True))
        return cosine(shown[0] - shown[1], after - before)


def _decoded(image: Image) -> np.ndarray | str:
    try:
        return images.decode(bytes(image))
    except images.ImageError as error:
        return str(error)


def _why(image: Image | None, decoded: Decoded) -> str | None:
    """Why an image cannot be looked at; None where it can."""
    if image is None:
        return "the data has no such image"
    return found if isinstance(found := decoded[image], str) else None


def _captions(edit: Edit) -> tuple[str, str]:
    return edit.captions or ("", edit.instruction)


def folder_of(where: str, setting: FeatureSetting) -> Path | None:
    """The folder of the setting's model, looked into; None for embedded features. ParamsError."""
    if setting.model == EMBEDDED:
        return None
    from editjudge.vision import towers

    kind = towers.DINO if setting.kind == "dino_i" else towers.CLIP
    return folders.find(f"{where}.model", setting.model, kind)


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
