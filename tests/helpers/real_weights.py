"""What the models of the measures say of ten committed photos, so that a user can tell whether theirs load rightly.

`PYTHONPATH=src python tests/helpers/real_weights.py --write` stores it in tests/weights.json, from the checkpoints in
the folder EDITJUDGE_WEIGHTS: clip, dinov3, segmenter, depth, parsing, pose, insightface (folders), lpips.safetensors;
those that are there. `pytest -m weights` compares afterwards, on any machine and device."""

import json
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np

from editjudge.engine.workers import devices_of
from editjudge.measures.annotation import picture, slots
from editjudge.measures.annotation.slot_settings import SlotSetting
from editjudge.measures.annotation.slots import Models
from editjudge.sources.builtin import photos

VALUES = Path(__file__).parents[1] / "weights.json"
FOLDERS = ("clip", "dinov3", "segmenter", "depth", "parsing", "pose")
COUNT, SIDE = 10, 512
BOX = (96, 64, 352, 320)


def setting(folder: Path) -> SlotSetting:
    """The models that are there."""
    found: dict[str, Any] = {name: str(folder / name) for name in FOLDERS if (folder / name).is_dir()}
    if (folder / "lpips.safetensors").is_file():
        found["lpips"] = str(folder / "lpips.safetensors")
    if (folder / "insightface").is_dir():
        found |= {"faces": "insightface", "insightface": {"folder": str(folder / "insightface")}}
    return SlotSetting(**found)


def said(own: SlotSetting, device: str) -> dict[str, dict[str, Any]]:
    """Of each model that is there: its version, and numbers of each photo."""
    names = sorted(name for role in photos.ROLES.values() for name in role)[:COUNT]
    model, rgbs = Models(own, device).model, [picture.shrunk(photos.load(name), SIDE)[0] for name in names]
    asked = {
        "clip": lambda: [each.cls[:8] for each in model("clip").encode(rgbs)],
        "dinov3": lambda: [each.cls[:8] for each in model("dinov3").encode(rgbs)],
        "segmenter": lambda: [own[0].mean(keepdims=True) for own in model("segmenter").masks(rgbs, [[BOX]] * COUNT)],
        "depth": lambda: [np.quantile(depth, (0.1, 0.5, 0.9)) for depth in model("depth").maps(rgbs)],
        "parsing": lambda: [hair.mean(keepdims=True) for hair in model("parsing").hair(rgbs, [None] * COUNT)],
        "pose": lambda: [joints.scores for joints in model("pose").joints(rgbs, [BOX] * COUNT)],
        "faces": lambda: [np.array([len(f), *(f[0].embedding[:8] if f else ())]) for f in model("faces").find(rgbs)],
        "lpips": lambda: [np.array(model("lpips").distances(rgb, [255 - rgb, rgb[::-1].copy()])) for rgb in rgbs],
    }  # fmt: skip
    given = [slot for slot in asked if getattr(own, slot) not in ("none", "grabcut", "lbp")]
    versions = slots.version(given, own)
    return {
        slot: {"version": versions[slot], "values": [np.ravel(row).round(6).tolist() for row in asked[slot]()]}
        for slot in given
    }


def main() -> None:
    own = setting(Path(os.environ["EDITJUDGE_WEIGHTS"]))
    found = said(own, devices_of("measures.device", own.device)[0])
    print(f"{', '.join(found) or 'nothing'} said what they see in {COUNT} photos")
    if "--write" in sys.argv[1:]:
        VALUES.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
