"""`editjudge gate`: what fools a judge, a scorer or a reward service.

It needs the probe's photographs, which `make setup` installs, and so is no part of the package."""

import base64
import os
from dataclasses import replace
from pathlib import Path

import jinja2
import numpy as np

from editjudge import api
from editjudge.cli.printing import Params, complain, table
from editjudge.core import images
from editjudge.core.errors import UserError
from editjudge.core.files import write_bytes
from editjudge.core.params import leaf
from editjudge.core.records import Row, write_json
from editjudge.core.settings import known
from editjudge.editors import procedural
from editjudge.engine.progress import progress
from editjudge.judges.protocol import Context, Dimension, Edit
from editjudge.measures.annotation import slot_settings
from editjudge.measures.annotation.recipe import recipe_of
from editjudge.measures.annotation.slot_settings import SlotSetting
from editjudge.report.page import FOLDER, STYLE
from editjudge.rewards.reward_forms import FORMS
from editjudge.sources.builtin import photos, scenes
from tools.gate_trials import SETTING, GateTrial, KnownCase, examine
from tools.reward_endpoint import RewardEndpoint

TASKS = ("color_alter", "subject_remove", "tone_transfer")  # whose damage is known, as in the probe
STRENGTHS = (0.02, 0.1, 0.3, 0.7)  # of the damages of a group
SHOWN = 3  # reasons


def known_case(photo: str, number: int, side: int, measures: SlotSetting) -> KnownCase:
    """A photo's case of this number: one of TASKS and, as the other edit, the next; the first has a group. side: of the
    images, pixels. measures: the models of the judge by measures."""
    rng, fit = np.random.default_rng([number, *photo.encode()]), set(TASKS[:2])
    subjects = [region for region in photos.regions(photo) if fit <= set(region.tasks)]
    subject = subjects[number % len(subjects)]
    crop = scenes.take_crop(photos.load(photo), subject.box, side, rng)
    source, found, worse = images.encode_png(crop.pixels), list[tuple[Edit, Context]](), list[np.ndarray]()
    for task in (TASKS * 2)[number % len(TASKS) :][:2]:
        words, how, regions = scenes.edit_of(task, crop, subject, "benchmark", photo, rng)
        scene, recipe = procedural.carry_out(crop.pixels, how), slot_settings.configured(recipe_of(task), measures)
        context = Context(recipe, tuple(tuple(each["box"]) for each in regions), measures)
        found.append((Edit(str(words), source, images.encode_png(scene.clean), task=task), context))
        if not (worse or number):
            worse = [of(scene, strength, rng) for of in procedural.DAMAGES.values() for strength in STRENGTHS]
    (right, other), contexts = zip(*found, strict=True)
    group = tuple(replace(right, edited=images.encode_png(each)) for each in worse)
    return KnownCase(photo, right, other, contexts, group)


def tell(found: Row) -> None:
    print(f"{found['judge']} {found['asked']}: {found['pairs']} pairs, {found['seconds_per_pair']:.3f} seconds each")
    columns = ("cheat", "share", "low", "high", "ties", "unscored", "verdict")
    table(columns, [[row[name] for name in columns] for row in found["cheats"]])
    rows = [(f"moves with the {row['changed']}", row["moves"]) for row in found["sensitivity"]]
    rows += [(f"groups of {row['size']} that are all the same", row["zero_variance"]) for row in found["groups"]]
    rows.append(("first image preferred", (found["position"] or {}).get("first_side_preference")))
    table(("figure", "value"), [*rows, ("expected calibration error", (found["calibration"] or {}).get("ece"))])
    for row in found["reasons"][:SHOWN]:
        complain("gate", f"{found['judge']}: {row['pairs']} pairs are unscored: {row['reason']}")


def gate(
    *names: str,
    form: str | None = None,
    reward: str = "",
    api_key_env: str | None = None,
    cases: int = 3,
    dimension: Dimension | None = None,
    json: Path | None = None,
    page: Path | None = None,
    params: Params = None,
) -> None:
    """Examine judges, scorers or reward services before a model is trained against them.

    On photographs with known edits, the right edit must rank above each of 13 cheats. It ends with status 1 where one
    has not passed all.

    Args:
        names: Judges, scorers or raters of the settings, or folders or hub ids of models, or with --form, addresses.
        form: Of the requests to a reward service: score, unirl, flow_factory, edit_r1, flow_grpo, verl_omni, editscore.
        reward: What UniRL's form calls the reward.
        api_key_env: The environment variable with the service's key.
        cases: Edits of each photo: more make intervals narrower.
        dimension: In which respect edits are compared; left out, a scorer's overall score, of a judge consistency.
        json: Write all figures to this file.
        page: Write a page with the pictures that fooled them."""
    if not names or cases < 1 or form not in (None, *FORMS):
        raise UserError(f"name what is examined; --cases is at least 1, and --form {known(str(form), FORMS)}")
    values, key = api.own_settings(params), os.environ.get(api_key_env or "", "")
    found = list[tuple[Row, list[GateTrial]]]()
    places = [(photo, number) for number in range(cases) for photo in sorted(photos.BENCHMARK)]
    shown = progress(places, len(places), "photographs edited")
    own = [known_case(*each, leaf(values, "raw_pairs.image_side"), api.slot_setting_of(values)) for each in shown]
    for name in names:
        if form:
            figures, fooled = examine(RewardEndpoint(name, form, reward, key), own, dimension)
        else:
            with api.load_judge(name, params=params) as loaded:
                figures, fooled = examine(loaded.judge, own, dimension)
        found.append(({"judge": name} | figures, fooled))
        tell(found[-1][0])
    if page:
        environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True)
        environment.filters["b64"] = lambda image: base64.b64encode(bytes(image)).decode()
        template = environment.from_string(Path(__file__).with_name("gate.html.jinja").read_text(encoding="utf-8"))
        style = (FOLDER / STYLE).read_text(encoding="utf-8")
        write_bytes(page, template.render(judges=found, style=style, **SETTING).encode())
    if json:
        write_json(json, {**SETTING, "judges": [figures for figures, _ in found]})
    if failed := [figures["judge"] for figures, _ in found if not figures["passes"]]:
        raise UserError(f"not passed: {', '.join(failed)}")
