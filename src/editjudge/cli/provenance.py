"""`editjudge provenance`."""

import hashlib
import json
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from editjudge.core import params
from editjudge.core.errors import FileError

LOCK = Path("dvc.lock")
OBJECTS = (Path("published/files/md5"), Path(".dvc/cache/files/md5"))


def md5(path: Path) -> str:
    """As in dvc.lock: of a file's bytes; of a folder's list of files, with `.dir` behind. FileError: no such path."""
    if path.is_dir():
        files = sorted((file.relative_to(path).as_posix(), file) for file in path.rglob("*") if file.is_file())
        listed = [{"md5": md5(file), "relpath": name} for name, file in files]
        return hashlib.md5(json.dumps(listed, sort_keys=True).encode()).hexdigest() + ".dir"
    if not path.is_file():
        raise FileError(f"{path} not found: no such file or folder")
    with path.open("rb") as file:
        return hashlib.file_digest(file, "md5").hexdigest()


def folders_with(digest: str) -> Iterator[str]:
    """The MD5s of the folders, published or in the cache, in which a file with this MD5 lies."""
    for listing in (file for objects in OBJECTS for file in sorted(objects.glob("??/*.dir"))):
        if any(entry["md5"] == digest for entry in json.loads(listing.read_bytes())):
            yield listing.parent.name + listing.name


def git(*words: str) -> str:
    """What git says. FileError with its last words where it fails."""
    done = subprocess.run(["git", *words], capture_output=True, text=True, check=False)
    if done.returncode:
        raise FileError(f"git {words[0]}: {(done.stderr.strip().splitlines() or ['failed'])[-1]}")
    return done.stdout.strip()


def stages_of(text: str) -> dict[str, Any]:
    """The stages of a dvc.lock."""
    return yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))["stages"]


def maker(stages: Mapping[str, Any], digest: str) -> tuple[str, str] | None:
    """The stage that wrote these bytes, and under which path; None where none did."""
    outs = ((name, out) for name, stage in stages.items() for out in stage.get("outs", ()))
    return next(((name, out["path"]) for name, out in outs if out["md5"] == digest), None)


def described(stages: Mapping[str, Any], digest: str) -> dict[str, Any] | None:
    """What dvc.lock says of the bytes with this MD5; None where no stage wrote them."""
    if (found := maker(stages, digest)) is None:
        return None
    name, path = found
    stage = stages[name]
    inputs = {}
    for dep in stage.get("deps", ()):
        made = maker(stages, dep["md5"])
        inputs[dep["path"]] = dep["md5"] + (f" of {made[0]}" if made else "")
    given = {key: value for values in stage.get("params", {}).values() for key, value in values.items()}
    return {"path": path, "md5": digest, "stage": name, "command": stage["cmd"], "params": given, "inputs": inputs}


def of(path: Path) -> dict[str, Any]:
    """The provenance of a file or a folder. FileError where no commit's dvc.lock has its bytes."""
    digest = md5(path)
    for each in (digest, *folders_with(digest)):
        commits = git("log", "--reverse", "--format=%H %cs", f"-S{each}", "--", str(LOCK)).splitlines()
        text = (
            git("show", f"{commits[0].split()[0]}:./{LOCK}") if commits else LOCK.read_text() if LOCK.exists() else ""
        )
        if each in text and (found := described(stages_of(text), each)):
            first = commits[0] if commits else "none yet: dvc.lock is not committed"
            return {"file": str(path), "commit": first, **found}
    raise FileError(f"{path}: no commit's dvc.lock has its bytes (MD5 {digest}): changed since, or not made here")


def provenance(file: Path) -> None:
    """Say which commit and stage a published file comes from, with its command, params and inputs, as YAML.

    A file is known by its bytes, wherever it lies and whatever it is called. The commit is the first whose dvc.lock has
    them.

    Args:
        file: A file or a folder.
    """
    params.load(LOCK)
    print(yaml.safe_dump(of(file), sort_keys=False, width=120, allow_unicode=True), end="")
