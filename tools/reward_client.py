"""A client of the reward service that needs nothing but Python: copy this file.

    [result] = score("http://127.0.0.1:25940", [("make the cup green", "source.png", "edit.png")])

A result has overall, dimensions, std, overall_std and calibrated; or overall None, and a reason."""

import base64
import json
import time
import urllib.error
import urllib.request
from pathlib import Path

Image = str | bytes  # a file's name, or what is in it


def score(url: str, edits: list[tuple[str, Image | list, Image]], key: str = "", seconds: float = 300) -> list[dict]:
    """A result for each (instruction, source, edited); source: an image, or a list of several. Waits where it is full.

    Raises OSError: it is not there, refuses the request (the reason is in the error), or is full for `seconds`."""

    def text(image: Image | list) -> str | list:
        if isinstance(image, list):
            return [text(each) for each in image]
        return base64.b64encode(image if isinstance(image, bytes) else Path(image).read_bytes()).decode()

    asked = [{"instruction": words, "source": text(source), "edited": text(edited)} for words, source, edited in edits]
    headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {key}"} if key else {})
    request = urllib.request.Request(f"{url}/score", json.dumps({"edits": asked}).encode(), headers)
    end = time.monotonic() + seconds
    while True:
        try:
            with urllib.request.urlopen(request, timeout=seconds) as reply:
                return json.load(reply)["results"]
        except urllib.error.HTTPError as error:
            if error.code != 503 or time.monotonic() > end:
                raise OSError(f"{error.code}: {error.read().decode(errors='replace')}") from None
            time.sleep(float(error.headers.get("Retry-After", 1)))
