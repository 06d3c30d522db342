"""Models by folder or by hub id: `owner/name`, or `owner/name@revision` with a branch, tag, commit or pull request.

An id without a commit is resolved once: models.lock then holds its commit, for every stage, and for every machine that
has the file. An entry that is taken away is resolved anew."""

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from editjudge.core import files
from editjudge.core.params import ParamsError

LOCK = Path("models.lock")
CHECKPOINT = ("*.json", "*.yaml", "*.safetensors", "*.jinja", "*.txt", "*.model", "LICENSE*")
EXAMPLE = "Qwen/Qwen3-VL-8B-Instruct"
ID = re.compile(r"(?!(?:models|data|work)/)(\w[\w.-]*/\w[\w.-]*)(?:@([\w./-]+))?")
COMMIT = re.compile(r"[0-9a-f]{40}")


def is_id(model: str) -> bool:
    """Whether this is the name of a model on the hub, and of no folder here."""
    return ID.fullmatch(model) is not None and not Path(model).exists()


def pinned(model: str) -> tuple[str, str | None]:
    """owner/name of a hub id, and its commit, or the revision that it names where none is recorded yet."""
    name, _, revision = model.partition("@")
    return name, revision if COMMIT.fullmatch(revision) else _recorded().get(model) or revision or None


def record(model: str, commit: str) -> None:
    """Keeps the commit that a hub id was resolved to, unless the id names it."""
    with files.held(files.work("models.lock")):
        found = _recorded()
        if COMMIT.fullmatch(commit) and not model.endswith(commit) and found.setdefault(model, commit) == commit:
            files.write_bytes(LOCK, (json.dumps(found, indent=2, sort_keys=True) + "\n").encode())


def _recorded() -> dict[str, str]:
    return json.loads(LOCK.read_text()) if LOCK.is_file() else {}


def find(where: str, model: str, patterns: Sequence[str] = CHECKPOINT, example: str = EXAMPLE) -> Path:
    """The folder `model`; or that of a hub id's files that fit the patterns, fetched if the hub's cache lacks them.

    where: the params field that names it. example: a model of the kind, for the error. ParamsError says what to do:
    there is no such folder and the hub gives none, or a licence is to be accepted and a variable to be set."""
    if Path(model).is_dir():
        return Path(model)
    advice = f"give a local folder, or a hub id that can be fetched, such as {example}"
    if not ID.fullmatch(model):
        raise ParamsError(f"{where}: no folder {model}; {advice}")
    from huggingface_hub import errors, snapshot_download

    name, revision = pinned(model)
    try:
        folder = Path(snapshot_download(name, revision=revision, allow_patterns=list(patterns)))
    except errors.GatedRepoError:
        raise ParamsError(f"{where}: {gated(model)}") from None
    except (OSError, ValueError) as error:  # the hub's errors are of these kinds
        why = f"the hub gives none ({type(error).__name__})"
        raise ParamsError(f"{where}: no folder {model}, and {why}; {advice}") from None
    record(model, folder.name)
    return folder


def gated(model: str) -> str:
    """What to do to be given a gated model: which licence to accept, and which variable to set."""
    from huggingface_hub import HfApi

    api, name = HfApi(), model.partition("@")[0]
    card: Any = api.model_info(name).card_data or {}
    licence = card.get("license_name") or card.get("license") or "of its card"
    return f"{name} is gated: accept the licence {licence} at {api.endpoint}/{name}, then set HF_TOKEN to your token"


def name_of(folder: Path) -> str | None:
    """owner/name@commit of a folder in the hub's cache, for records; None for any other folder."""
    kind, _, name = folder.parent.parent.name.partition("--")
    is_cached = kind == "models" and folder.parent.name == "snapshots"
    return f"{name.replace('--', '/')}@{folder.name}" if is_cached else None
