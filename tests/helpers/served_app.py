"""An application behind HTTP, in a thread of the tests."""

import threading
import time
from typing import Any, Self

import uvicorn

from editjudge.models.serve import launch


class Served:
    """It runs on a free port of loopback within the block."""

    def __init__(self, app: Any, **options: Any) -> None:
        self.port = launch.free_port("127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self.port}"
        self.uvicorn = uvicorn.Server(uvicorn.Config(app, "127.0.0.1", self.port, log_level="error", **options))
        self.thread = threading.Thread(target=self.uvicorn.run)

    def __enter__(self) -> Self:
        self.thread.start()
        while not launch.healthy("127.0.0.1", self.port):
            time.sleep(0.02)
        return self

    def __exit__(self, *error: object) -> None:
        self.uvicorn.should_exit = True
        self.thread.join()
