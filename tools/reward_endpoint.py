"""A reward service as a scorer: asked over HTTP in one of reward_forms.FORMS, as trainers ask it."""

import base64
import json
import pickle
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import reduce
from http.client import HTTPException
from operator import getitem
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml

from editjudge.core.records import in_groups
from editjudge.engine.progress import progress
from editjudge.judges.protocol import Edit, Score, Unscored
from editjudge.rewards import plain_pickle
from editjudge.rewards.reward_forms import FORMS

MOST = 1e300  # a number beyond is none
REQUESTS = yaml.safe_load(Path(__file__).with_name("reward_requests.yaml").read_text())
BATCH, SECONDS, MOST_BYTES, MODE = 16, 300.0, 2**26, "logits_non_cot"  # the last one of Edit-R1's paths


class RewardEndpoint:
    """url: with a path it is asked there, else where the form has it. name: what UniRL's form calls the reward. key: of
    the service. No reply is unpickled."""

    dimensions = ("overall",)

    def __init__(self, url: str, form: str, name: str = "", key: str = "") -> None:
        self.how, self.name, self.key, self.pickled = REQUESTS[form], name, key, FORMS[form].pickled
        self.most = 1 if form == "verl_omni" else BATCH  # whose error is one of all edits
        self.url = url if urlsplit(url).path.strip("/") else url.rstrip("/") + FORMS[form].path.format(mode=MODE)

    def score(self, edits: Sequence[Edit]) -> list[Score | Unscored]:
        """Unscored, with the reason: what the service says has failed or has no finite number for, and all edits of a
        request that it refuses or does not answer."""
        groups = list(in_groups(edits, self.most))
        return [each for group in progress(groups, len(groups), "requests") for each in self._asked(group)]

    def _asked(self, edits: Sequence[Edit]) -> list[Score | Unscored]:
        coded = bytes if self.pickled else lambda image: base64.b64encode(image).decode()
        given = [{"word": e.instruction, "meta": json.dumps({"instruction": e.instruction}), "name": self.name,
                  "source": coded(bytes(e.source)), "image": coded(bytes(e.edited))} for e in edits]  # fmt: skip
        try:
            body = {name: [filled(form, each) for each in given] for name, form in self.how["body"].items()}
            said = self._posted(body)
        except (OSError, HTTPException, ValueError, RecursionError) as error:
            return [Unscored(f"{type(error).__name__}: {str(error)[:200]}")] * len(edits)
        return [self._read(said, {"n": n, "name": self.name}) for n in range(len(edits))]

    def _read(self, said: Any, places: Mapping[str, Any]) -> Score | Unscored:
        found = dict[str, Any]()
        for what in ("value", "reason"):
            with suppress(LookupError, TypeError):  # it is not there
                found[what] = reduce(getitem, [places.get(step, step) for step in self.how[what]], said)
        value = found.get("value")
        value = next(iter(value.values()), None) if isinstance(value, dict) else value  # the first one is the reward
        if isinstance(value, int | float) and abs(value) < MOST:  # NaN is not, either
            return Score(float(value), {})
        return Unscored(str(found.get("reason") or "no number in the reply")[:200])

    def _posted(self, values: dict[str, Any]) -> Any:
        """The reply, without the key; waits where the service is full. OSError: it refuses the request."""
        body, end = pickle.dumps(values) if self.pickled else json.dumps(values).encode(), time.monotonic() + SECONDS
        request, hidden = urllib.request.Request(self.url, body), self.key.encode() or b"no key"
        request.add_unredirected_header("Authorization", f"Bearer {self.key}")
        while True:
            try:
                with urllib.request.urlopen(request, timeout=SECONDS) as reply:
                    data = reply.read(MOST_BYTES).replace(hidden, b"*" * len(hidden))
                return plain_pickle.loads(data) if self.pickled else json.loads(data)
            except urllib.error.HTTPError as error:
                if error.code not in (429, 503) or time.monotonic() > end:
                    raise OSError(f"{error.code}: {error.read(MOST_BYTES).replace(hidden, b'***')[:200]!r}") from None
                time.sleep(min(float(error.headers.get("Retry-After") or 1), SECONDS))


def filled(form: Any, values: Mapping[str, Any]) -> Any:
    if isinstance(form, dict):
        return {name: filled(each, values) for name, each in form.items()}
    return [filled(each, values) for each in form] if isinstance(form, list) else values[form]
