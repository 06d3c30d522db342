"""A small DVC repository of its own: pools of one task and the stage candidates."""

import os
import shlex
import subprocess
from pathlib import Path
from typing import Any

import forks
import yaml

from editjudge.core import records
from editjudge.sources.builtin import scenes

ROOT = Path(__file__).parents[2]
TASK = "color_alter"


def write(folder: Path, editors: dict[str, Any], count: int, cache: Path | None = None) -> Path:
    """A repository whose editors edit `count` prompts, the last of them the arena's. cache: DVC's, to be shared."""
    (folder / ".dvc").mkdir(parents=True)
    shared = f"[cache]\n    dir = {cache}\n" if cache else ""
    (folder / ".dvc/config").write_text(f"[core]\n    no_scm = true\n    analytics = false\n{shared}")
    values = {"tasks": {TASK: "x"}, "editors": editors, "unfinished": {"candidates": 1.0}}
    (folder / "params.yaml").write_text(yaml.safe_dump(values))
    pairs = scenes.make_pairs(TASK, "train", count, 48, 0)
    records.write(folder / f"data/pools/{TASK}.parquet", pairs[:-1], "pools")
    records.write(folder / "data/gedit_bench.parquet", [arena_row(pairs[-1])], "gedit_bench")
    stages = {name: stage(name) for name in editors}
    (folder / "dvc.yaml").write_text(yaml.safe_dump({"stages": stages}))
    return folder


def arena_row(pair: records.Row) -> records.Row:
    """A raw pair as a prompt of the arena."""
    kept = records.schema_of("gedit_bench")["properties"]
    row = pair | {"source_image": {"bytes": pair["image"], "path": None}}
    return {name: value for name, value in row.items() if name in kept}


def run(words: str) -> str:
    return f"PYTHONPATH={shlex.quote(str(ROOT / 'src'))} {shlex.quote(str(forks.python()))} -m editjudge.stages.{words}"


def stage(model: str) -> dict[str, Any]:
    return {
        "cmd": run(f"candidates --model {model}"),
        "deps": [f"data/pools/{TASK}.parquet", "data/gedit_bench.parquet"],
        "params": [f"editors.{model}"],
        "outs": [f"data/candidates/{model}/{TASK}.parquet", f"data/gallery/{model}.parquet"],
        "metrics": [{f"metrics/candidates/{model}.json": {"cache": False}}],
    }


def repro(folder: Path, *words: str, **env: str) -> subprocess.Popen[str]:
    return dvc(folder, "repro", *words, **env)


def dvc(folder: Path, *words: str, **env: str) -> subprocess.Popen[str]:
    """A command of DVC that has been started."""
    env = os.environ | {"DVC_NO_ANALYTICS": "true", "DVC_SITE_CACHE_DIR": str(folder.parent / "site")} | env
    command = [forks.python(), "-m", "dvc", *words]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    return subprocess.Popen(command, cwd=folder, env=env, text=True, **pipes)  # type: ignore[call-overload, no-any-return]
