"""Qwen3-VL-Embedding through sentence-transformers: image and instruction in one input, a process on each GPU."""

import atexit
from collections.abc import Sequence
from importlib.util import find_spec
from typing import Any

import numpy as np
import torch
import transformers
from PIL import Image
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import transformer

from editjudge.core import hub
from editjudge.engine.local import end_with_parent
from editjudge.models.chat.checkpoint import by_products, model_class, without_video


class Embedding(SentenceTransformer):
    """The library's model, whose processes on the GPUs end with this one: its own would wait there for ever."""

    @classmethod
    def _multi_process_worker(cls, *given: Any) -> None:
        end_with_parent()
        super()._multi_process_worker(*given)


class Qwen3VLEmbedder:
    """A sentence-transformers model folder with a Qwen3-VL, such as Qwen/Qwen3-VL-Embedding-8B."""

    def __init__(self, model: str, dtype: str, batch_size: int) -> None:
        """`model`: a local folder or a hub id. dtype: torch's name of it.

        Raises ParamsError where there is no such model, FileError for another kind of model."""
        folder = hub.find("embed.model", model, hub.CHECKPOINT, "Qwen/Qwen3-VL-Embedding-8B")
        if not (folder / "modules.json").is_file():
            raise FileNotFoundError(f"embed.model: {model} has no modules.json: not a sentence-transformers model")
        model_class(folder)
        self.batch_size = batch_size
        devices = [f"cuda:{n}" for n in range(torch.cuda.device_count())]
        names = vars(transformer)
        theirs = names["AutoProcessor"]
        if not find_spec("torchvision"):  # then theirs cannot load Qwen3-VL's processor
            names["AutoProcessor"] = without_video(transformers.Qwen3VLProcessor)
        try:
            self.model = Embedding(
                str(folder),
                device=devices[0] if len(devices) == 1 else "cpu",
                local_files_only=True,
                model_kwargs={"dtype": getattr(torch, dtype), "use_safetensors": True},
            )
        finally:
            names["AutoProcessor"] = theirs
        by_products(self.model)
        self.pool = None
        if len(devices) > 1:
            self.pool = self.model.start_multi_process_pool(devices)
            atexit.register(self.model.stop_multi_process_pool, self.pool)

    def embed(self, rgbs: Sequence[np.ndarray], instructions: Sequence[str]) -> np.ndarray:
        """RGB images, uint8, (H, W, 3), and instructions to unit-norm rows, float32, (n, d).

        The library sorts a call's inputs by length into batches, so that little is padded."""
        pairs = [{"image": Image.fromarray(rgb), "text": text} for rgb, text in zip(rgbs, instructions, strict=True)]
        vectors = self.model.encode(
            pairs,
            batch_size=self.batch_size,
            normalize_embeddings=True,
            show_progress_bar=False,
            pool=self.pool,
            chunk_size=self.batch_size if self.pool else None,
        )
        return np.asarray(vectors, np.float32)
