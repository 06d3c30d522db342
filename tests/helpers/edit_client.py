"""Starts the images/edits server of the tests."""

import contextlib
import json
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SERVER = Path(__file__).with_name("edit_server.py")


@dataclass(frozen=True)
class EditServer:
    """A server that runs."""

    url: str

    def log(self) -> dict[str, Any]:
        """What it has been asked."""
        with urllib.request.urlopen(self.url.replace("/v1", "/log")) as response:
            return json.load(response)


@contextlib.contextmanager
def edit_server(**settings: Any) -> Iterator[EditServer]:
    """A server in a process of its own, as long as it is needed."""
    with subprocess.Popen([sys.executable, SERVER, json.dumps(settings)], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield EditServer(f"http://127.0.0.1:{int(process.stdout.readline())}/v1")
        finally:
            process.kill()
