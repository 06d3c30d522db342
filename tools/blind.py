"""Whether a checkpoint looks at images at all. One whose tower, projector or template is dead loads and answers."""

from pathlib import Path

import numpy as np
import torch

from editjudge.core import images
from editjudge.core.errors import FileError
from editjudge.judges.protocol import Edit, Score, Unscored
from editjudge.judges.scorers.checkpoint import DESCRIPTION, CheckpointScorer
from editjudge.models.chat.checkpoint import Precision
from editjudge.models.chat.local_model import load
from editjudge.models.families.whole import Chat, WholeChats

SIDE = 224
SAME = 1e-5  # in the scores, or the logarithms of the next token's probabilities
ASKED = [{"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "What is in the picture?"}]}]


def check_sight(folder: Path, adapter: str | None = None, dtype: Precision = "float32") -> None:
    """FileError: the scorer or chat model in a folder answers black images as it does others, or it cannot be loaded.

    adapter: the folder of a LoRA adapter of it."""
    noise = np.random.default_rng(0).integers(0, 256, (2, SIDE, SIDE, 3), dtype=np.uint8)
    shown = (noise, np.zeros_like(noise))
    if (folder / DESCRIPTION).is_file():
        edits = [Edit("Make it red", images.encode_png(a), images.encode_png(b)) for a, b in shown]
        found = CheckpointScorer.load(folder, dtype).score(edits)
        if said := [score.reason for score in found if isinstance(score, Unscored)]:
            raise FileError(f"{folder}: {said[0]}")
        answers = torch.tensor([[*score.dimensions.values()] for score in found if isinstance(score, Score)])
    else:
        model = load(folder, dtype, adapter)
        pixels = {b"noise": shown[0][0], b"black": shown[1][0]}
        chats = [Chat(model.render(ASKED), (name,), 1) for name in pixels]
        with torch.inference_mode():
            logits = model.model(**WholeChats(model.model, model.processor).inputs(chats, pixels)).logits
        answers = logits[:, -1].float().log_softmax(-1)
    if not answers.isfinite().all():
        raise FileError(f"{adapter or folder} is dead: what it answers are no finite numbers")
    if (answers[0] - answers[1]).abs().max() < SAME:
        raise FileError(f"{adapter or folder} is blind: it answers black images as it does others")
