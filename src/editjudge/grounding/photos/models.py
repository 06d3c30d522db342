"""The models of the three stages, or what stands in for them, each loaded when it is first asked."""

from functools import partial
from pathlib import Path
from typing import Any, Self

from editjudge.core import records, resume
from editjudge.endpoints.spending import Account
from editjudge.grounding.photos import finding, pool, templates
from editjudge.grounding.photos.edits import Writer
from editjudge.grounding.photos.finding import Finder
from editjudge.grounding.photos.pool import Captioner, Scorer
from editjudge.grounding.photos.settings import Instructions, Regions
from editjudge.vision import aesthetics


class Models:
    """As long as a stage runs; what they say is kept in the cache."""

    def __init__(self, cache: Path) -> None:
        cache.parent.mkdir(parents=True, exist_ok=True)
        self.cache = resume.RecordCache(cache)
        self.accounts: dict[str, Account] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.cache.__exit__(*error)

    def aesthetic(self, setting: Any) -> Scorer:
        return lambda rgbs: [aesthetics.colour_sharpness(rgb) for rgb in rgbs]

    def captioner(self, setting: Any) -> Captioner:
        return pool.embedded_captions

    def finder(self, setting: Regions, score: Scorer) -> Finder:
        return partial(finding.by_hand, score=score)

    def writer(self, setting: Instructions, role: str) -> Writer:
        return partial(templates.write, seed=setting.seed, role=role)

    def report(self) -> dict[str, Any]:
        """For metrics: what the answers that are used cost, by role."""
        return {"cost": [{"role": role, **account.cost()} for role, account in self.accounts.items()]}

    def write_run(self, stage: str) -> None:
        """metrics/resume: what this run computed and re-used."""
        asked = {role: account.this_run() for role, account in self.accounts.items()}
        records.write_json(Path(f"metrics/resume/{stage}.json"), {**self.cache.counts(), **asked})
