"""Gets all models and data sets of params.yaml, or of a profile, before anything runs: `editjudge fetch [PROFILE]`.

A hub id without a commit is resolved once and kept in models.lock, data sets as datasets/OWNER/NAME, so that the stages
then use these very files. What is here already is verified: each file against the hash by which the hub's cache names
it, and the parts of a checkpoint against its index. A file that is damaged is fetched anew; what was cut goes on."""

import hashlib
import json
import os
import shutil
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from editjudge.core import hub, params, reading
from editjudge.core.errors import UserError
from editjudge.engine.resume import file_hash
from editjudge.vision.folders import PATTERNS
from tools import plan
from tools.settings import profiled

Values = Mapping[str, Any]
FILES = tuple(dict.fromkeys((*hub.CHECKPOINT, *PATTERNS)))
OFFLINE = "HF_HUB_OFFLINE"


class Found(NamedTuple):
    """What became of a model or data set. commit: empty for what comes from no hub. gb: of its files here. lacking: why
    it cannot be used; None: it can."""

    name: str
    commit: str
    gb: float
    lacking: str | None = None


def wanted(values: Values) -> list[plan.Need]:
    """What is fetched or brought, each name once; a LoRA is an entry of its own. Nothing that is behind a server."""
    needs: dict[str, plan.Need] = {}
    for need in plan.needs(values):
        if need.address is None:
            needs.setdefault(need.name, need)
    return list(needs.values())


def folder_of(need: plan.Need, values: Values) -> Path:
    """Where its files are, which are fetched if the hub's cache lacks them. UserError as the stages raise it."""
    if not hub.is_id(need.name):
        if (dataset := need.facts.get("dataset")) and not _bytes(Path(need.name)):
            from huggingface_hub import snapshot_download

            _, revision = hub.pinned(f"datasets/{dataset}")
            snapshot_download(dataset, repo_type="dataset", revision=revision, local_dir=need.name)
        return Path(need.name)
    entry = params.leaf(values, need.where) if need.data or need.where.startswith("editors.") else {}
    if need.data:
        fields = {field: entry.get(field) for field in ("hub", "revision", "files")}
        return reading.locate(reading.Table(**fields))
    if need.where.endswith(".lora"):
        return hub.find(need.where, need.name, [entry["file"]])
    if not need.where.startswith("editors."):
        return hub.find(need.where, need.name, FILES)
    hub.find(need.where, need.name, ["model_index.json"])
    from diffusers import DiffusionPipeline  # which knows the files of a pipeline: others lie beside them

    name, revision = hub.pinned(need.name)
    return Path(DiffusionPipeline.download(name, revision=revision, use_safetensors=True))


def damaged(folder: Path) -> Iterator[Path]:
    """Files of a folder in the hub's cache that are not what their names say: SHA-256, or git's SHA-1 of small ones."""
    for file in sorted(path for path in folder.rglob("*") if path.is_symlink()):
        name, blob = file.resolve().name, file.resolve()
        if not blob.is_file() or (len(name) == 64 and name != file_hash(blob)):
            yield file
        elif len(name) == 40:
            data = blob.read_bytes()
            if name != hashlib.sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest():
                yield file


def incomplete(folder: Path) -> list[Path]:
    """Files of weights that an index in the folder names, and that are not there."""
    named = ((file, json.loads(file.read_bytes())["weight_map"]) for file in folder.rglob("*.safetensors.index.json"))
    files = {file.parent / each for file, parts in named for each in parts.values()}
    return sorted(file for file in files if not file.is_file())


def got(need: plan.Need, values: Values, check: bool) -> Found:
    """It, verified. check: a damaged file is told of, and not fetched anew."""
    try:
        folder = folder_of(need, values)
        if (wrong := list(damaged(folder))) and not check:
            for file in wrong:
                file.resolve().unlink(missing_ok=True)
                file.unlink()
            folder = folder_of(need, values)
            wrong = list(damaged(folder))
        wrong += [] if need.data else incomplete(folder)
    except (UserError, OSError, ValueError) as error:
        return Found(need.name, "", 0.0, f"{need.where}: {str(error).splitlines()[0]}")
    size = _bytes(folder)
    lacking = f"{need.where}: {wrong[0].name} is missing or damaged" if wrong else None
    if not size:
        lacking = f"{need.where}: {need.name}: {need.facts.get('how', 'a file of your own')}"
    commit = folder.name if hub.COMMIT.fullmatch(folder.name) else ""
    return Found(need.name, commit, size / 1e9, lacking)


def _bytes(path: Path) -> int:
    files = [path] if path.is_file() else path.rglob("*") if path.is_dir() else []
    return sum(file.stat().st_size for file in files if file.is_file())


def fetch(profile: str | None = None, *, check: bool = False) -> None:
    """Get or verify all models and data sets that the settings name, at one commit each, before anything runs.

    It goes on where it was stopped. Status 1 where something lacks, with what to do about it.

    Args:
        profile: Those of this profile, a file of profiles/ without its ending.
        check: Ask no network: verify what is here, and say what lacks."""
    if check:
        os.environ[OFFLINE] = "1"
    values = profiled(profile) if profile else params.load()
    needs = wanted(values)
    most = sum(need.facts.get("gb") or 0.0 for need in needs)
    place = Path(os.environ.get("HF_HUB_CACHE") or os.environ.get("HF_HOME") or Path.home())
    free = shutil.disk_usage(next(each for each in (place, *place.parents) if each.exists())).free / 1e9
    print(f"{len(needs)} models and data sets, {most:,.0f} GB as far as known; {free:,.0f} GB are free at {place}")
    found = []
    for number, need in enumerate(needs, 1):
        found.append(got(need, values, check))
        name, commit, size, lacking = found[-1]
        told = f"LACKS {lacking}" if lacking else f"{size:,.2f} GB {commit[:12]}".rstrip()
        print(f"[{number}/{len(needs)}] {name}: {told}", flush=True)
    lost = [each for each in found if each.lacking]
    print(f"{len(found) - len(lost)} are here, {sum(each.gb for each in found):,.2f} GB; {len(lost)} lack")
    if lost:
        sys.exit(1)
