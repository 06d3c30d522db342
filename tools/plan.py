"""What params.yaml, or a profile, needs before anything runs, without a network.

    python -m tools.plan [PROFILE]

Downloads, licences, keys, servers, memory, hours and money. What is known of models and data stands in plan.yaml."""

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import comb
from pathlib import Path
from typing import Any

from cyclopts import App

from editjudge.benchmarks.suites import forms as suites
from editjudge.cli.settings import profiled
from editjudge.core import hub, params
from editjudge.core.main import guarded
from editjudge.core.settings import read, section
from editjudge.editors.settings import used
from editjudge.judges import rubrics
from editjudge.judges.protocol import CONSISTENCY
from editjudge.measures.annotation import slot_settings
from editjudge.measures.annotation.recipe import load_recipes
from editjudge.measures.annotation.slot_settings import SlotSetting
from editjudge.models.chat.settings import NO_KEY

FACTS = params.load(Path(__file__).with_suffix(".yaml"))
UNKNOWN, TOKEN = "unknown", "HF_TOKEN"
WEIGHTS = ("head", "base", "model")
DATA = ("hub", "path", "photos", "records", "images", "shuffle", "people")
NAMED_APART = ("embed", "measures", "scorers", "reward_service", "serve")  # sections
OURS = ("data/probe_bench.parquet", "data/probe_easy.parquet", "data/photos/edits.parquet")  # the graph writes them
NO_FILE = ("none", "embedded", "probe", "graph", *OURS)
Values = Mapping[str, Any]


@dataclass(frozen=True)
class Need:
    """Something that settings name. where: their key. address: of the server behind which the user must put it."""

    where: str
    name: str
    address: str | None = None
    key: str = NO_KEY
    data: bool = False

    @property
    def facts(self) -> Values:
        return FACTS["models"].get(self.name.partition("@")[0], {})

    @property
    def fetched(self) -> bool:
        """Whether it is neither behind a server nor here already."""
        return self.address is None and not Path(self.name).exists()


def needs(values: Values) -> Iterator[Need]:
    """Every model and data set of the parameters, under its key; a trained model is as large as its base."""
    if values["embed"]["backend"] == "qwen3_vl":
        yield Need("embed", values["embed"]["model"])
    setting = section(values, "measures", SlotSetting)
    for slot in sorted(slot_settings.torch_slots(slot_settings.SLOTS, setting)):
        yield Need(f"measures.{slot}", setting.insightface.folder if slot == "faces" else getattr(setting, slot))
    made = {f"models/scorers/{name}": each["base"] for name, each in values["train_scorer"].items()}
    made["models/judge"] = values["train_judge"]["base"]
    for name, each in values.items():
        if name not in NAMED_APART:
            yield from _named(name, each, made)


def _named(where: str, node: Any, made: Mapping[str, str]) -> Iterator[Need]:
    """What a section names, at any depth."""
    if not isinstance(node, Mapping):
        return
    for field in (field for field in (*WEIGHTS, *DATA) if isinstance(node.get(field), str) and node[field]):
        name, key = node[field], where if field in ("model", *DATA) else f"{where}.{field}"
        if field == "model" and "base_url" in node:
            yield Need(key, name, node["base_url"], node.get("api_key_env", NO_KEY))
        elif name not in NO_FILE and (field != "head" or "model" in node):  # else a kind of head, to be trained
            yield Need(key, made.get(name, name), data=field in DATA)
    for name, each in node.items():
        yield from _named(f"{where}.{name}", each, made)


def questions(values: Values) -> dict[str, int | None]:
    """How many questions judges are asked at most, one order of a pair each, by what for; None: unknown."""
    tasks, edited = values["tasks"], len(used(values["editors"], "pools"))
    models = len(used(values["editors"], "benchmark")) + len(values["imported"])
    recipes = load_recipes(tasks).values()
    pairs = sum(min(each.judge.in_group_pairs, comb(edited, 2)) for each in recipes if each.judge)
    paid = {name: given for name, given in values["judges"].items() if given["backend"] != "measures"}
    ranking = {(name, CONSISTENCY) for name, given in paid.items() if given.get("arena")}
    ranking |= {(judge, dimension) for dimension, judge in values["arena"].items() if judge in paid}
    asked = {"annotation": (2 * pairs * len(values["pairwise"]["judges"]), values["filter"]["sample_num"])}
    asked |= {f"benchmark {name}": (2 * len(paid), _rows(given)) for name, given in values["benchmarks"].items()}
    for name, given in values["suites"].items():
        # Of each rater and run one reply an edit and call; by VIEScore these are two.
        raters = suites.chosen(name, read(f"suites.{name}", suites.SuiteSetting, given), values["raters"]).items()
        replies = sum(
            each.get("runs", 1) * rubrics.questions(suites.rubrics_of(own, each)).most_asked for own, each in raters
        )
        asked[f"suite {name}"] = models * replies, _rows(given)
    asked["arena"] = 2 * comb(models, 2) * len(ranking), arena_prompts(values)
    return {name: None if count is None else each * count for name, (each, count) in asked.items()}


def arena_prompts(values: Values) -> int | None:
    """How many prompts the arena has at most."""
    given = values["gedit_bench"]
    published = given.get("hub") or given.get("path")
    return _rows(given) if published else given["per_task"] * len(values["tasks"])


def _rows(given: Values) -> int | None:
    """How many rows a benchmark has, or cases a suite, and so edits of each model."""
    published = FACTS["models"].get(given.get("hub") or given.get("path"), {})
    return FACTS["suites"].get(given.get("form"), published.get("rows"))


def text(values: Values) -> str:
    """What is fetched, licences, keys, servers, memory, hours and money, as lines."""
    parts = (fetched, permissions, servers, memory, work)
    return "\n".join("\n".join([each.__doc__ or "", *each(values), ""]) for each in parts)


def fetched(values: Values) -> list[str]:
    """Fetched by the stages that need it, or by hand before (GB):"""
    where: dict[str, list[Need]] = {}
    for need in needs(values):
        if need.fetched:
            where.setdefault(need.name, []).append(need)
    rows = []
    for name, (first, *others) in where.items():
        keys = {need.where for need in others} - {first.where}
        rows.append((name, _figure(first.facts.get("gb")), first.where + (f" and {len(keys)} more" if keys else "")))
        if not hub.is_id(name):
            rows.append(("", "", f"by hand: {first.facts.get('how', 'a file of your own')}"))
    sizes = [found[0].facts.get("gb") for found in where.values()]
    known = sum(size or 0.0 for size in sizes)
    return [*_table(rows), f"  in all {_figure(known)} GB, and {sizes.count(None)} of a size that is {UNKNOWN}"]


def permissions(values: Values) -> list[str]:
    """Licences, and keys in the environment:"""
    every = {need.name.partition("@")[0]: need for need in needs(values) if need.address or need.fetched}
    gated = {name: f"accept it at huggingface.co/{name}" for name, need in every.items() if need.facts.get("gated")}
    rows = [(name, need.facts.get("licence", UNKNOWN), gated.get(name, "")) for name, need in every.items()]
    keys = dict.fromkeys([*([TOKEN] if gated else []), *(each.key for each in needs(values) if each.key != NO_KEY)])
    return [*_table(rows), *(f"  {name}: {'set' if os.environ.get(name) else 'NOT SET'}" for name in keys)]


def servers(values: Values) -> list[str]:
    """Servers that must answer while stages run, started by you:"""
    found = [need for need in needs(values) if need.address is not None]
    lines = _table([(need.where, need.address or "", need.name) for need in found])
    return lines + [f"  {need.where}: {need.facts['how']}" for need in found if "how" in need.facts]


def memory(values: Values) -> list[str]:
    """GPU memory of the weights in 16 bits (GB; what they compute with comes on top):"""
    found = [need for need in needs(values) if not need.data]
    return _table([(need.where, _figure(need.facts.get("memory")), need.name) for need in found])


def work(values: Values) -> list[str]:
    """Work at most, hours of one GPU, and money:"""
    rate, arena = FACTS["rates"]["question"], arena_prompts(values)
    pool = len(values["tasks"]) * values["filter"]["sample_num"]
    images = pool + (arena or 0) + sum(_rows(each) or 0 for each in values["suites"].values())
    rows = [("prompts of the pools", f"{pool:,}", "")]
    for name, given in values["editors"].items():
        told = [f"hours {UNKNOWN}"]
        if price := given.get("price"):
            told.append(f"money {images * price:,.2f}")
        elif given.get("kind") == "api":
            told.append("its price is not set")
        rows.append((f"images of {name}", f"{images:,}", "; ".join(told)))
    for name, count in questions(values).items():
        hours = UNKNOWN if count is None else f"{count * rate['seconds'] / 3600:,.1f}"
        rows.append((f"questions of the {name}", UNKNOWN if count is None else f"{count:,}", f"hours {hours}"))
    rows.append(("training", UNKNOWN, "pairs are known when they are annotated; steps = pairs x epochs / global_batch"))
    return [
        *_table(rows),
        f"  {UNKNOWN} prompts of the arena are left out"
        if arena is None
        else f"  the arena's {arena:,} prompts included",
        f"  a question: {rate['seconds']} s ({rate['source']})",
        "  an image: measure one with the first prompts of your pool; nothing is measured here",
    ]


def _figure(number: float | None) -> str:
    return UNKNOWN if number is None else f"{number:,.2f}".rstrip("0").rstrip(".")


def _table(rows: Sequence[tuple[str, str, str]]) -> list[str]:
    wide = [max((len(row[n]) for row in rows), default=0) for n in (0, 1)]
    return [f"  {a:<{wide[0]}}  {b:>{wide[1]}}  {c}".rstrip() for a, b, c in rows]


def plan(profile: str | None = None) -> None:
    """Say what params.yaml needs: downloads, licences, keys, servers, memory, hours and money.

    Args:
        profile: What it would need with this profile, a file of profiles/ without its ending."""
    print(text(json.loads(json.dumps(profiled(profile))) if profile else params.load()))


if __name__ == "__main__":
    app = App(help_format="plaintext")
    app.default(plan)
    guarded("plan", app)
