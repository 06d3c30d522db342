"""What params.yaml needs before anything runs, without a network: `editjudge plan`.

Downloads, licences, keys, servers, memory, hours and money. What is known of models and data stands in plan.yaml.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import comb
from pathlib import Path
from typing import Any

from editjudge.benchmarks.suites import suite_rating
from editjudge.benchmarks.suites.forms import SuiteSetting
from editjudge.core import hub, params
from editjudge.core.settings import read, section
from editjudge.judges.protocol import CONSISTENCY
from editjudge.judges.viescore import SCALES
from editjudge.measures.annotation import slot_settings
from editjudge.measures.annotation.recipe import load_recipe
from editjudge.measures.annotation.slot_settings import SlotSetting
from editjudge.models.endpoint.settings import NO_KEY

FACTS = params.load(Path(__file__).with_suffix(".yaml"))
UNKNOWN, TOKEN = "unknown", "HF_TOKEN"
TRAINED, PROBE = "models/judge", "data/probe_bench.parquet"  # which stages make
EDITS = "data/photos/edits.parquet"  # another one
Values = Mapping[str, Any]


@dataclass(frozen=True)
class Need:
    """Something that settings name. where: their key. address: of the server behind which the user must put it."""

    where: str
    name: str
    address: str | None = None
    key: str = NO_KEY

    @property
    def facts(self) -> Values:
        return FACTS["models"].get(self.name.partition("@")[0], {})

    def given(self) -> bool:
        """Whether nothing is fetched: a file or folder that is there, or that a stage makes."""
        return Path(self.name).exists() or self.name == PROBE

    def by_hand(self) -> bool:
        return self.address is None and not (self.given() or hub.is_id(self.name))


def needs(values: Values) -> Iterator[Need]:
    """Every model and data set of the parameters, under its key; the trained judge is as large as its base."""
    if values["embed"]["backend"] == "qwen3_vl":
        yield Need("embed", values["embed"]["model"])
    setting = section(values, "measures", SlotSetting)
    for slot in sorted(slot_settings.torch_slots(slot_settings.SLOTS, setting)):
        name = getattr(setting, slot)
        yield Need(f"measures.{slot}", setting.insightface.folder if slot == "faces" else name)
    for where, given in _entries(values):
        if "base_url" in given:
            yield Need(where, given["model"], given["base_url"], given.get("api_key_env", NO_KEY))
        elif "model" in given:
            if "head" in given:
                yield Need(f"{where}.head", given["head"])
            made: dict[str, str] = {TRAINED: values["train_judge"]["base"]}
            made |= {f"models/scorers/{name}": each["base"] for name, each in values["train_scorer"].items()}
            yield Need(where, str(made.get(given["model"], given["model"])))
        if "lora" in given:
            yield Need(f"{where}.lora", given["lora"]["model"])
    yield Need("train_judge.base", values["train_judge"]["base"])
    for name, given in values["train_scorer"].items():
        yield Need(f"train_scorer.{name}.base", given["base"])
    for where, given in _data(values):
        for field in ("hub", "path", "images", "shuffle", "people"):
            if given.get(field) and given[field] != EDITS:
                yield Need(where, given[field])


def _entries(values: Values) -> Iterator[tuple[str, Values]]:
    """The entries that may name a model."""
    for where in ("grounding", "editors", "pairwise.judges", "judges", "raters"):
        for name, given in params.leaf(values, where).items():
            yield f"{where}.{name}", given
    for where in ("photo_pool", "regions", "instructions"):
        for name, given in (values.get(where) or {}).items():
            if isinstance(given, Mapping):
                yield f"{where}.{name}", given


def _data(values: Values) -> Iterator[tuple[str, Values]]:
    for task, sources in (values["raw_pairs"].get("sources") or {}).items():
        yield from ((f"raw_pairs.sources.{task}", source) for source in sources.values())
    photos, records = values.get("photo_pool") or {}, values.get("instructions") or {}
    if photos.get("photos", "probe") != "probe":
        yield "photo_pool", {"path": photos["photos"]}
    if records.get("records", "graph") != "graph":
        yield "instructions", {"path": records["records"], "images": records["images"]}
    yield "gedit_bench", values["gedit_bench"]
    for where in ("imported", "benchmarks", "suites", "scorer_data"):
        yield from ((f"{where}.{name}", given) for name, given in (values.get(where) or {}).items())


def questions(values: Values) -> dict[str, int | None]:
    """How many questions judges are asked at most, one order of a pair each, by what for; None: unknown."""
    tasks, editors = values["tasks"], len(values["editors"])
    models = editors + len(values.get("imported") or {})
    recipes = [load_recipe(Path(f"pipelines/{folder}/{task}.yaml")) for task, folder in tasks.items()]
    pairs = sum(min(each.judge.in_group_pairs, comb(editors, 2)) for each in recipes if each.judge)
    asked: dict[str, int | None] = {
        "annotation": 2 * pairs * values["filter"]["sample_num"] * len(values["pairwise"]["judges"])
    }
    judges = [given for given in values["judges"].values() if given["backend"] != "measures"]
    for name, given in values["benchmarks"].items():
        rows = _rows(given)
        asked[f"benchmark {name}"] = None if rows is None else 2 * rows * len(judges)
    paid = {name for name, given in values["judges"].items() if given["backend"] != "measures"}
    ranking = {(name, CONSISTENCY) for name in paid if values["judges"][name].get("arena")}
    ranking |= {(judge, dimension) for dimension, judge in values["arena"].items() if judge in paid}
    for name, given in (values.get("suites") or {}).items():
        cases = suite_cases(given)
        asked[f"suite {name}"] = None if cases is None else cases * models * _ratings(name, given, values)
    prompts, arena = arena_prompts(values), len(ranking)
    asked["arena"] = None if prompts is None else 2 * prompts * comb(models, 2) * arena
    return asked


def arena_prompts(values: Values) -> int | None:
    """How many prompts the arena has at most."""
    given = values["gedit_bench"]
    published = given.get("hub") or given.get("path")
    return _rows(given) if published else given["per_task"] * len(values["tasks"])


def suite_cases(given: Values) -> int | None:
    """How many cases a suite has, and so edits of each model."""
    return FACTS["suites"].get(given["form"], _rows(given))


def _ratings(name: str, given: Values, values: Values) -> int:
    """How many replies an edit takes: of each rater and run one, or two by VIEScore."""
    asked = suite_rating.chosen(name, read(f"suites.{name}", SuiteSetting, given), values["raters"])
    return sum(each.get("runs", 1) * (1 + (each["rubrics"] in SCALES)) for each in asked.values())


def _rows(given: Values) -> int | None:
    return FACTS["models"].get(given.get("hub") or given.get("path"), {}).get("rows")


def text(values: Values) -> str:
    """What is fetched, licences, keys, servers, memory, hours and money, as lines."""
    parts = (fetched, permissions, servers, memory, work)
    return "\n".join("\n".join([each.__doc__ or "", *each(values), ""]) for each in parts)


def fetched(values: Values) -> list[str]:
    """Fetched by the stages that need it, or by hand before (GB):"""
    where: dict[str, list[Need]] = {}
    for need in needs(values):
        if need.address is None and not need.given():
            where.setdefault(need.name, []).append(need)
    rows, known, unknown = [], 0.0, 0
    for name, found in where.items():
        gb, keys = found[0].facts.get("gb"), list(dict.fromkeys(need.where for need in found))
        known, unknown = known + (gb or 0.0), unknown + (gb is None)
        more = f" and {len(keys) - 1} more" if len(keys) > 1 else ""
        rows.append((name, _figure(gb), keys[0] + more))
        if found[0].by_hand():
            rows.append(("", "", f"by hand: {found[0].facts.get('how', 'a file of your own')}"))
    return [*_table(rows), f"  in all {_figure(known)} GB, and {unknown} of a size that is {UNKNOWN}"]


def permissions(values: Values) -> list[str]:
    """Licences, and keys in the environment:"""
    every = {need.name.partition("@")[0]: need for need in needs(values) if not need.given()}
    gated = [name for name, need in every.items() if need.facts.get("gated")]
    rows = [
        (name, need.facts.get("licence", UNKNOWN), "accept it at huggingface.co/" + name if name in gated else "")
        for name, need in every.items()
    ]
    variables = dict.fromkeys([TOKEN] if gated else []) | dict.fromkeys(
        need.key for need in needs(values) if need.key != NO_KEY
    )
    return [*_table(rows), *(f"  {name}: {'set' if os.environ.get(name) else 'NOT SET'}" for name in variables)]


def servers(values: Values) -> list[str]:
    """Servers that must answer while stages run, started by you:"""
    found = [need for need in needs(values) if need.address is not None]
    lines = _table([(need.where, need.address or "", need.name) for need in found])
    return lines + [f"  {need.where}: {need.facts['how']}" for need in found if "how" in need.facts]


def memory(values: Values) -> list[str]:
    """GPU memory of the weights in 16 bits (GB; what they compute with comes on top):"""
    data = {where for where, _ in _data(values)}
    found = [need for need in needs(values) if need.where not in data]
    return _table([(need.where, _figure(need.facts.get("memory")), need.name) for need in found])


def work(values: Values) -> list[str]:
    """Work at most, hours of one GPU, and money:"""
    rate, arena = FACTS["rates"]["question"], arena_prompts(values)
    pool = len(values["tasks"]) * values["filter"]["sample_num"]
    rows = [("prompts of the pools", f"{pool:,}", "")]
    images = pool + (arena or 0) + sum(suite_cases(each) or 0 for each in (values.get("suites") or {}).values())
    for name, given in values["editors"].items():
        price = given.get("price")
        money = (
            f"money {images * price:,.2f}" if price else "its price is not set" if given.get("kind") == "api" else ""
        )
        rows.append((f"images of {name}", f"{images:,}", f"hours {UNKNOWN}; {money}".removesuffix("; ")))
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
