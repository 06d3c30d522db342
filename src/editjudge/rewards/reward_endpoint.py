"""A reward service as a scorer: asked over HTTP in one of reward_forms.FORMS, as trainers ask it."""

import base64
import json
import math
import pickle
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from http.client import HTTPException
from typing import Any
from urllib.parse import urlsplit

from editjudge.core.records import in_groups
from editjudge.engine.progress import progress
from editjudge.judges.protocol import Edit, Score, Unscored
from editjudge.rewards import plain_pickle
from editjudge.rewards.reward_forms import FORMS, Columns, EditScore, FlowFactory, Own

BATCH, SECONDS, MOST_BYTES, MODE = 16, 300.0, 2**26, "logits_non_cot"  # the last one of Edit-R1's paths
NO_REPLY = (OSError, HTTPException, LookupError, TypeError, ValueError, AttributeError)  # or one of another form


class RewardEndpoint:
    """url: with a path it is asked there, else where the form has it. name: what UniRL's form calls the reward. key: of
    the service. No reply is unpickled. In verl-omni's form, too, the sources stand beside the edits."""

    dimensions = ("overall",)

    def __init__(self, url: str, form: str, name: str = "", key: str = "") -> None:
        self.form, self.name, self.key, self.most = FORMS[form], name, key, 1 if form == "verl_omni" else BATCH
        self.url = url if urlsplit(url).path.strip("/") else url.rstrip("/") + self.form.path.format(mode=MODE)

    def score(self, edits: Sequence[Edit]) -> list[Score | Unscored]:
        """Unscored, with the reason: what the service says has failed or has no finite number for, and all edits of a
        request that it refuses or does not answer."""
        groups = list(in_groups(edits, self.most))
        return [each for group in progress(groups, len(groups), "requests") for each in self._asked(group)]

    def _asked(self, edits: Sequence[Edit]) -> list[Score | Unscored]:
        try:
            said = self._posted(self._body(edits))
            found = [self._read(said, n) for n in range(len(edits))]
        except NO_REPLY as error:
            return [Unscored(f"{type(error).__name__}: {str(error)[:200]}")] * len(edits)
        return [Score(n, {}) if math.isfinite(n) else Unscored(str(why or "no number")) for n, why in found]

    def _body(self, edits: Sequence[Edit]) -> dict[str, Any]:
        pairs: list[list[Any]] = [[bytes(edit.source), bytes(edit.edited)] for edit in edits]
        if not self.form.pickled:
            pairs = [[base64.b64encode(image).decode() for image in pair] for pair in pairs]
        words, (sources, edited) = [edit.instruction for edit in edits], map(list, zip(*pairs, strict=True))
        every = list(zip(words, sources, edited, strict=True))
        if self.form is Own:
            return {
                "edits": [{"instruction": word, "source": source, "edited": image} for word, source, image in every]
            }
        if not issubclass(self.form, Columns):
            turns = [[{"text": word, "image_b64": image} for image in pair] for word, *pair in every]
            return {"requests": [{"history": each, "required_rewards": [self.name]} for each in turns]}
        if self.form is EditScore:
            words = [json.dumps({"instruction": word}) for word in words]
        listed = [[source] for source in sources] if self.form in (EditScore, FlowFactory) else sources
        values = {"instructions": words, "edited": edited, "sources": listed}
        return {str(self.form.model_fields[name].alias): value for name, value in values.items()}

    def _read(self, said: Any, n: int) -> tuple[float, Any]:
        """The number of an edit, NaN where there is none, and why."""
        if said.get("error"):
            value, why = None, said["error"]
        elif issubclass(self.form, Columns):
            value, why = said[self.form.word][n], (said.get("reasoning") or {n: None})[n]
        elif self.form is Own:
            value, why = said["results"][n]["overall"], said["results"][n].get("reason")
        else:
            value, why = said["results"][n].get(self.name), said["errors"][n].get(self.name)
        value = next(iter(value.values())) if isinstance(value, dict) else value  # the first one is the reward
        return math.nan if value is None else float(value), why

    def _posted(self, values: dict[str, Any]) -> Any:
        """The reply, without the key; waits where the service is full. OSError: it refuses the request."""
        body, end = (
            pickle.dumps(values) if self.form.pickled else json.dumps(values).encode(),
            time.monotonic() + SECONDS,
        )
        request, hidden = urllib.request.Request(self.url, body), self.key.encode() or b"no key"
        request.add_unredirected_header("Authorization", f"Bearer {self.key}")
        while True:
            try:
                with urllib.request.urlopen(request, timeout=SECONDS) as reply:
                    data = reply.read(MOST_BYTES).replace(hidden, b"*" * len(hidden))
                return plain_pickle.loads(data) if self.form.pickled else json.loads(data)
            except urllib.error.HTTPError as error:
                if error.code not in (429, 503) or time.monotonic() > end:
                    raise OSError(f"{error.code}: {error.read(MOST_BYTES).replace(hidden, b'***')[:200]!r}") from None
                time.sleep(min(float(error.headers.get("Retry-After") or 1), SECONDS))
