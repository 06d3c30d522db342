"""A small scorer without a model, and the reward service with it in a thread."""

import threading
import time
from collections.abc import Sequence
from typing import Any, Self

import numpy as np
import uvicorn

from editjudge.core import images
from editjudge.judges.protocol import Edit, Score, Unscored
from editjudge.models.serve import launch
from editjudge.rewards.reward_settings import RewardSetting
from editjudge.rewards.rewards import RewardService

SETTING: dict[str, Any] = {
    **{"host": "127.0.0.1", "port": 0, "batch_size": 16, "gathering": 0.005, "most_waiting": 1024, "stop_seconds": 30},
    **{"replicas": 1, "most_megabytes": 8, "reward": "overall", "api_key_env": "none", "sources": "none"},
    "allow_pickle": True,
}


class PixelScorer:
    """Likeness: minus the mean difference of the pixels. Brightness: the edited image's mean. `go` holds it up."""

    dimensions = ("likeness", "brightness")

    def __init__(self) -> None:
        self.batches: list[int] = []
        self.begun = 0
        self.go = threading.Event()
        self.go.set()

    def score(self, edits: Sequence[Edit]) -> list[Score | Unscored]:
        self.begun += 1
        self.go.wait()
        self.batches.append(len(edits))
        return [self.one(edit) for edit in edits]

    def one(self, edit: Edit) -> Score | Unscored:
        try:
            source, edited = (images.decode(bytes(each)).astype(float) for each in (edit.source, edit.edited))
        except images.ImageError as error:
            return Unscored(f"an image cannot be used: {error}")
        if source.shape != edited.shape:
            return Unscored("the images have two sizes")
        likeness, brightness = -float(np.abs(source - edited).mean()), float(edited.mean())
        values = {"likeness": likeness, "brightness": brightness}
        return Score(likeness + brightness, values, dict.fromkeys(values, 0.5), 0.7, brightness / 255)


class Served:
    """It runs on a free port of loopback within the block."""

    def __init__(self, app: Any, **options: Any) -> None:
        self.port = launch.free_port("127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self.port}"
        self.uvicorn = uvicorn.Server(uvicorn.Config(app, "127.0.0.1", self.port, log_level="error", **options))
        self.thread = threading.Thread(target=self.uvicorn.run)

    def __enter__(self) -> Self:
        self.thread.start()
        while not launch.healthy(f"http://127.0.0.1:{self.port}/health"):
            time.sleep(0.02)
        return self

    def __exit__(self, *error: object) -> None:
        self.uvicorn.should_exit = True
        self.thread.join()


class Running(Served):
    """The service of a scorer, on a free port of loopback."""

    def __init__(self, scorer: Any = None, **changes: Any) -> None:
        self.scorer = scorer or PixelScorer()
        self.service = RewardService([lambda: self.scorer], "pixels", RewardSetting(**SETTING | changes))
        super().__init__(self.service.app(), timeout_graceful_shutdown=self.service.how.stop_seconds)

    @property
    def pending(self) -> int:
        return self.service.metrics.pending

    def __exit__(self, *error: object) -> None:
        if isinstance(self.scorer, PixelScorer):
            self.scorer.go.set()
        super().__exit__(*error)
