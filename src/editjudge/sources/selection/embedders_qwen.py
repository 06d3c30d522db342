"""Qwen3-VL-Embedding through sentence-transformers: image and instruction in one input."""

from collections.abc import Sequence
from typing import Any, cast

import numpy as np
import torch
import transformers
from PIL import Image
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import transformer

from editjudge.core import hub
from editjudge.models.chat.checkpoint import by_products, load_processor, model_class, without_video


class Qwen3VLEmbedder:
    """A sentence-transformers model folder with a Qwen3-VL, such as Qwen/Qwen3-VL-Embedding-8B."""

    def __init__(self, model: str, dtype: str, batch_size: int, device: str = "cpu") -> None:
        """`model`: a local folder or a hub id. dtype: torch's name of it.

        Raises ParamsError where there is no such model, FileError for another kind of model."""
        folder = hub.find("embed.model", model, hub.CHECKPOINT, "Qwen/Qwen3-VL-Embedding-8B")
        if not (folder / "modules.json").is_file():
            raise FileNotFoundError(f"embed.model: {model} has no modules.json: not a sentence-transformers model")
        model_class(folder)
        self.batch_size = batch_size
        names = vars(transformer)
        theirs = names["AutoProcessor"]
        names["AutoProcessor"] = without_video(transformers.Qwen3VLProcessor)  # theirs needs torchvision
        try:
            self.model = SentenceTransformer(
                str(folder),
                device=device,
                local_files_only=True,
                model_kwargs={"dtype": getattr(torch, dtype), "use_safetensors": True},
            )
        finally:
            names["AutoProcessor"] = theirs
        # Where torchvision is, too, images are resized by Pillow, as everywhere here; within the bounds that
        # sentence_bert_config.json may have.
        processor, shown = cast(Any, self.model[0]).processor, load_processor(folder).image_processor
        shown.size, processor.image_processor = processor.image_processor.size, shown
        by_products(self.model)

    def embed(self, rgbs: Sequence[np.ndarray], instructions: Sequence[str]) -> np.ndarray:
        """RGB images, uint8, (H, W, 3), and instructions to unit-norm rows, float32, (n, d).

        The library sorts a call's inputs by length into batches, so that little is padded."""
        pairs = [{"image": Image.fromarray(rgb), "text": text} for rgb, text in zip(rgbs, instructions, strict=True)]
        how: dict[str, Any] = {"normalize_embeddings": True, "show_progress_bar": False}
        return np.asarray(self.model.encode(pairs, batch_size=self.batch_size, **how), np.float32)
