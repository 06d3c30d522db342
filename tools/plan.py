"""What params.yaml, or a profile, needs before anything runs, without a network.

    editjudge plan [PROFILE]

Downloads, licences, keys, servers, memory, hours and money. What is known of models and data stands in plan.yaml."""

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import comb
from pathlib import Path
from typing import Any, NamedTuple

from editjudge.benchmarks.suites import forms as suites
from editjudge.core import hub, params
from editjudge.core.settings import read, section
from editjudge.editors.settings import Use, used
from editjudge.judges import rubrics
from editjudge.judges.protocol import CONSISTENCY
from editjudge.measures.annotation import slot_settings
from editjudge.measures.annotation.recipe import load_recipes
from editjudge.measures.annotation.slot_settings import SlotSetting
from editjudge.models.chat.settings import NO_KEY
from editjudge.photos.edits import KINDS
from editjudge.sources.builtin.photos import ROLES
from tools.settings import profiled

FACTS = params.load(Path(__file__).with_suffix(".yaml"))
MACHINE, MEASURED = FACTS["machine"], Path(__file__).with_name("rates.yaml")  # what tools.trials.rates wrote
RATES = FACTS["rates"] | (params.load(MEASURED) if MEASURED.is_file() else {})
UNKNOWN, TOKEN = "unknown", "HF_TOKEN"
NAMES: dict[str, Use] = {
    "data": "pools",
    "benchmark": "benchmark",
}  # of a use of an editing model, by its arguments' name
ASKED = ("judges", "pairwise", "raters")  # sections of models that are asked
WEIGHTS = ("head", "base", "model")
DATA = ("hub", "path", "photos", "records", "images", "shuffle", "people", "sequences")
NAMED_APART = ("embed", "measures", "scorers", "reward_service", "serve")  # sections
OURS = ("data/probe_bench.parquet", "data/probe_easy.parquet", "data/photos/edits.parquet")  # the graph writes them
PER_TASK = ("per_task", "easy_per_task")  # rows of the first two, at most
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
        if field == "model" and "base_url" in node and not node.get("server"):
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
    ours = {path: values["probe_bench"][each] * len(tasks) for path, each in zip(OURS, PER_TASK, strict=False)}
    known = {name: ours.get(given.get("path"), _rows(given)) for name, given in values["benchmarks"].items()}
    asked |= {f"benchmark {name}": (2 * len(paid), rows) for name, rows in known.items()}
    for name, given in values["suites"].items():
        # Of each rater and run one reply an edit and call; by VIEScore these are two.
        raters = suites.chosen(name, read(f"suites.{name}", suites.SuiteSetting, given), values["raters"]).items()
        replies = sum(
            each.get("runs", 1) * rubrics.questions(suites.rubrics_of(own, each)).most_asked for own, each in raters
        )
        asked[f"suite {name}"] = models * replies, _cases(given, values)
    for role, each in (("parser", 1), ("grounder", 1 + edited)):  # a look at the source and at each edit, at most
        if values["grounding"][role]["backend"] != "embedded":
            sought = sum(recipe.regions is not None for recipe in recipes)
            asked[role] = each * sought, values["filter"]["sample_num"]
    asked["arena"] = 2 * comb(models, 2) * len(ranking), arena_prompts(values)
    return {name: None if count is None else each * count for name, (each, count) in asked.items()}


def arena_prompts(values: Values) -> int | None:
    """How many prompts the arena has at most."""
    given = values["gedit_bench"]
    published = given.get("hub") or given.get("path")
    return _rows(given) if published else given["per_task"] * len(values["tasks"])


def _rows(given: Values) -> int | None:
    """How many rows a benchmark has, or cases a suite, and so edits of each model."""
    published = FACTS["models"].get(given.get("hub") or str(given.get("path")), {})
    return FACTS["suites"].get(given.get("form"), published.get("rows"))


def _cases(given: Values, values: Values) -> int | None:
    """How many cases a suite has; of edits of the probe's photographs at most: of a photo that no training sees, its
    single edits and the turns of its dialogues."""
    asked = values["instructions"]
    if given["form"] == "photos" and (values["photo_pool"]["photos"], asked["records"]) == ("probe", "graph"):
        each = asked["per_photo"] + asked["dialogues"] * max(len(kind["turns"]) for kind in KINDS.values())
        return len(ROLES["benchmark"]) * each
    return _rows(given)


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
        told = f" ({first.facts['source']})" if "gb" in first.facts else ""
        rows.append((name, _figure(first.facts.get("gb")), first.where + f" and {len(keys)} more" * bool(keys) + told))
        if not hub.is_id(name):
            rows.append(("", "", f"by hand: {first.facts.get('how', 'a file of your own')}"))
    sizes = [found[0].facts.get("gb") for found in where.values()]
    known = sum(size or 0.0 for size in sizes)
    lacking = f", and {count} of a size that is {UNKNOWN}" if (count := sizes.count(None)) else ""
    return [*_table(rows), f"  in all {_figure(known)} GB{lacking}"]


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


class Job(NamedTuple):
    """Work of a stage. hours: of one GPU; rate: that of plan.yaml by which they are told; gpu:
    GB of each, host: of the machine; disk: GB of what is made, once; money: paid for pieces. None: unknown."""

    stage: str
    pieces: float | None
    hours: float | None
    rate: str
    gpu: float | None = 0.0
    host: float | None = 0.0
    disk: float | None = 0.0
    money: float = 0.0


def hours(rate: str, count: float | None, tflop: float | None = None) -> float | None:
    """Of one GPU for so many pieces. tflop: of each, where the rate has neither it nor seconds; None: unknown."""
    seconds, tflop = RATES[rate].get("seconds"), RATES[rate].get("tflop", tflop)
    if seconds is None and tflop is not None:
        seconds = tflop / (MACHINE["tflops"] * RATES[rate]["share"])
    return None if count is None or seconds is None else float(count * seconds / 3600)


def jobs(values: Values) -> Iterator[Job]:
    """All that takes long or much."""
    tasks, sources, gpus = values["tasks"], values["raw_pairs"].get("sources") or {}, MACHINE["gpus"]
    own = values["raw_pairs"]["per_task"]
    raw = sum(sum(each.get("most", own) for each in (sources.get(task) or {"": {}}).values()) for task in tasks)
    yield Job("raw_pairs", raw, 0.0, "picture", disk=raw * _picture(values))
    sizes = {need.where: need.facts.get("memory") for need in needs(values) if not need.data}
    if "embed" in sizes:
        yield Job("embed", raw, hours("embedding", raw), "embedding", sizes["embed"], _times(sizes["embed"], gpus))
    for name, given in values["editors"].items():
        yield _edits(name, given, values)
    slots = [size for where, size in sizes.items() if where.startswith("measures.")]
    whole, rate = None if None in slots else sum(filter(None, slots)), "candidate" if slots else "embedded"
    measured = sum(each.judge is None for each in load_recipes(tasks).values()) * values["filter"]["sample_num"]
    measured *= len(used(values["editors"], "pools"))
    yield Job("annotate", measured, hours(rate, measured), rate, whole, _times(whole, gpus))
    serve, judges = values["serve"], [size for where, size in sizes.items() if where.split(".")[0] in ASKED]
    largest = None if None in judges else max(filter(None, judges), default=0.0)
    taken = serve.get("gpu_memory_utilization", 0.9) * MACHINE["memory"] if serve["engine"] == "vllm" else largest
    for name, count in questions(values).items():
        yield Job(f"questions of the {name}", count, hours("question", count), "question", taken, _times(largest, gpus))
    pairs = min(values["filter"]["sample_num"], values["train_pairs"]["prompts_per_task"]) * len(tasks)
    yield _training("train_judge", values["train_judge"], pairs * RATES["pairs"]["pairs"], sizes)
    for name, given in values["train_scorer"].items():
        data = values["scorer_data"][given["data"]]
        own = data["per_task"] * len(data["tasks"]) if "per_task" in data else _rows(data)
        if data.get("source") == "adiee":  # the source, and all edits; of sequences nobody knows how many
            edits = [data.get(role) for role in ("truth", "augmented", "bad", "good", "others")]
            each = 1 + sum(len(names) if isinstance(names, list) else bool(names) for names in edits)
            own = each * len(data["tasks"]) * values["filter"]["sample_num"]
        yield _training(f"train_scorer.{name}", given, given.get("most") or own, sizes)


def _picture(values: Values) -> float:
    """GB of an image of the pools."""
    ours = values["gedit_bench"].get("hub") is None is values["gedit_bench"].get("path")
    return float(RATES["picture"]["gb"] * (values["raw_pairs"]["image_side"] ** 2 / 1e6 if ours else 1.0))


def _edits(name: str, given: Values, values: Values) -> Job:
    """All images of an editing model."""
    shown = [arena_prompts(values), *(_cases(each, values) for each in values["suites"].values())]
    counts = {"data": len(values["tasks"]) * values["filter"]["sample_num"], "benchmark": sum(filter(None, shown))}
    counts = {use: count for use, count in counts.items() if name in used({name: given}, NAMES[use])}
    facts, images = FACTS["models"].get(given.get("model", "").partition("@")[0], {}), sum(counts.values())
    kind, size, disk = given.get("kind", name), facts.get("memory"), images * _picture(values)
    if kind not in ("diffusers", "api"):
        return Job(
            f"candidates@{name}", images, 0.0 if kind == "folder" else hours("embedded", images), "embedded", disk=disk
        )
    if kind == "api" and given.get("api_key_env", NO_KEY) != NO_KEY:
        return Job(f"candidates@{name}", images, 0.0, "provider", disk=disk, money=images * given.get("price", 0.0))
    step = facts.get("step_tflop")
    tflop = facts.get("image_tflop") or _times(
        step, sum(count * given[use]["num_inference_steps"] for use, count in counts.items()) / images
    )
    apart = given.get("gpus_per_worker", 1)
    return Job(
        f"candidates@{name}",
        images,
        hours("image", images, tflop),
        "image",
        _times(size, 1 / apart),
        _times(size, MACHINE["gpus"] // apart),
        disk,
    )


def _training(name: str, given: Values, rows: float | None, sizes: Mapping[str, float | None]) -> Job:
    """TFLOP: 2 a parameter and token forwards, as many backwards, and again for the weights where these learn."""
    size, lora, steps = sizes[f"{name}.base"], given["lora_rank"] > 0, given.get("max_steps", -1)
    shown = "judge" if name == "train_judge" else "rater" if "rubrics" in given else "scorer"
    tokens = RATES["training"]["images"][shown] * given.get("max_pixels", 0) / 1024 + RATES["training"]["words"]
    seen = steps * given["global_batch"] if steps > 0 else _times(rows, given.get("epochs", 1.0))
    apart = 1 if given.get("deepspeed", "none") == "none" else MACHINE["gpus"]
    spent = hours("training", seen, _times(size, (2 if lora else 3) * tokens / 1000))  # size: two bytes a parameter
    gpu, host, disk = (2, 1, 1) if lora else (2 + 8 / apart, 3, 28)  # times the weights in 16 bits
    return Job(
        name, seen, spent, "training", _times(size, gpu), _times(size, host * MACHINE["gpus"]), _times(size, disk)
    )


def work(values: Values) -> list[str]:
    """Work at most. Hours are of one GPU (of one core where no model is), GB of one GPU, of the host, of the disk:"""
    found = [*jobs(values)]
    rows = [
        (job.stage, *(_figure(each) for each in (job.pieces, job.hours, job.gpu, job.host, job.disk)), job.rate)
        for job in found
    ]
    known, disk = (sum(filter(None, each)) for each in ([job.hours for job in found], [job.disk for job in found]))
    money = known * MACHINE["price"] + sum(job.money for job in found)
    rates = dict.fromkeys(["memory", "picture", *(job.rate for job in found)])
    return [
        *_table([("", "pieces", "hours", "GPU", "host", "disk", "rate"), *rows]),
        f"  in all {_figure(known)} hours, {_figure(known / MACHINE['gpus'] / 24)} days on {MACHINE['gpus']} GPUs;"
        f" money {money:,.0f} at {MACHINE['price']} an hour ({MACHINE['source']})",
        f"  disk: {_figure(disk)} GB once; edits lie in work/, data/ and DVC's cache, thrice where it has no links",
        *(f"  {name}: {RATES[name]['kind']}: {RATES[name]['source']}" for name in rates),
    ]


def _times(number: float | None, factor: float) -> float | None:
    return None if number is None else number * factor


def _figure(number: float | None) -> str:
    return UNKNOWN if number is None else f"{number:,.{0 if number > 100 else 2}f}".removesuffix(".00")


def _table(rows: Sequence[tuple[str, ...]]) -> list[str]:
    """The first column stands to the left, the last has any width, those between stand to the right."""
    wide = [max(map(len, column)) for column in zip(*rows, strict=True)][:-1]
    lines = ([f"{row[0]:<{wide[0]}}", *map(str.rjust, row[1:-1], wide[1:]), row[-1]] for row in rows)
    return [f"  {'  '.join(line)}".rstrip() for line in lines]


def plan(profile: str | None = None) -> None:
    """Say what params.yaml needs: downloads, licences, keys, servers, memory, hours and money.

    Args:
        profile: What it would need with this profile, a file of profiles/ without its ending."""
    print(text(json.loads(json.dumps(profiled(profile))) if profile else params.load()))
