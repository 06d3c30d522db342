"""Prompts and candidates, the brighter edit being the better one."""

import io
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from editjudge.judges import asking
from editjudge.labels import verdicts
from editjudge.measures.annotation.recipe import Judging, Recipe
from editjudge.models.endpoint.spending import Account

MODELS = ("flux-2", "flux-10", "qwen-2509", "qwen-2511")
LIGHT = {"flux-2": 40, "flux-10": 90, "qwen-2509": 140, "qwen-2511": 140}  # of equal ones neither wins


def grey(level: int, contrast: int = 0) -> bytes:
    """A PNG of this mean brightness, its left half darker and its right half brighter by the contrast."""
    pixels = np.full((24, 32, 3), level, np.uint8)
    pixels[:, :16] -= np.uint8(contrast)
    pixels[:, 16:] += np.uint8(contrast)
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "PNG")
    return buffer.getvalue()


def recipe(most: int = 6, prompt: str = "decision") -> Recipe:
    """A recipe of a task that a VLM judges."""
    judging = Judging(prompt, "visual_consistency", most)
    return Recipe("enhancement", (), pipeline="vlm_as_a_judge", image_side=1024, judge=judging)


def prompts(count: int) -> list[dict[str, Any]]:
    """Rows of a pool, as far as judges need them, with instructions q0, q1, ..."""
    plain = {"task": "enhancement", "image": grey(100), "regions": []}
    return [plain | {"key": f"k{n}", "instruction": f"q{n}"} for n in range(count)]


def candidates(count: int, models: Iterable[str] = MODELS) -> list[dict[str, Any]]:
    """Every model's edit of every prompt."""
    return [
        {
            "key": f"k{n}",
            "task": "enhancement",
            "model": model,
            "status": "done",
            "reason": None,
            "damage": 255.0 - LIGHT[model],
            "image": grey(LIGHT[model] + n % 100, contrast),
        }
        for contrast, model in enumerate(models)
        for n in range(count)
    ]


def endpoint(url: str, **changes: Any) -> dict[str, Any]:
    """A judge's setting."""
    plain = {"backend": "endpoint", "base_url": url, "model": "m", "rule": "agreement", "logprobs": 0, "timeout": 5.0}
    return plain | changes


def annotated(
    judges: dict[str, dict[str, Any]], count: int, file: Path, edits: Sequence[dict[str, Any]] | None = None, **how: Any
) -> tuple[list[dict[str, Any]], dict[str, Account]]:
    """The verdicts on the pairs of so many prompts."""
    prompt = {"prompt": recipe(**how).judge.prompt}
    opened = {n: asking.open_judge(f"{verdicts.SECTION}.{n}", prompt | given, file) for n, given in judges.items()}
    shown = candidates(count) if edits is None else list(edits)
    rows = verdicts.annotate_pairs(prompts(count), shown, recipe(**how), opened)
    return rows, {name: judge.account for name, judge in opened.items()}
