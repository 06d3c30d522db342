"""`editjudge publish`."""

import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from editjudge.cli import provenance, seed
from editjudge.cli.provenance import git
from editjudge.core import params
from editjudge.core.errors import FileError, UserError

if TYPE_CHECKING:
    from dvc.repo import Repo

FOLDER, STORE = "published", "store"
CARDS = Path("docs/cards")
MOST_BYTES = 15_000_000  # of published/, which every clone has
CARD = """---
license: apache-2.0
tags:
- editjudge
---

# {name}

{desc} It is `{path}`; `dvc get . {path} -o FOLDER` copies it out of a clone, and
`dvc artifacts get . {name} --rev vX.Y.Z -o FOLDER` a version that is registered.

{figures}
## Where it comes from

```yaml
{origin}```
"""


class PublishError(UserError):
    """The state cannot be published."""


def outputs(repo: "Repo", stages: Sequence[str]) -> list[Any]:
    """The cached outputs of the stages, of all items or of one (stage@item); of all where none is named."""
    every = [({out.stage.addressing, out.stage.addressing.partition("@")[0]}, out) for out in repo.index.outs]
    every = [(names, out) for names, out in every if out.use_cache]
    if unknown := set(stages).difference(*(names for names, _ in every)):
        raise PublishError(f"dvc.yaml has no stage {sorted(unknown)[0]} with outputs to publish")
    return [out for names, out in every if not stages or names & set(stages)]


def objects(outs: Iterable[Any]) -> set[str]:
    """The MD5s of the outputs' objects, those of the files in folders too."""
    return {found.value for out in outs for infos in out.get_used_objs().values() for found in infos}


def push(repo: "Repo", remote: str, stages: Sequence[str]) -> None:
    """Pushes to a remote and looks there for every object. PublishError names what is not there."""
    from dvc.exceptions import DvcException

    try:
        repo.push(list(stages), remote=remote, run_cache=remote == STORE)
        paths = [out.def_path for out in outputs(repo, stages)]
        found = repo.data_status(paths, remote=remote, not_in_remote=True, remote_refresh=True, granular=True)
    except (DvcException, OSError) as error:
        raise PublishError(f"remote {remote}: {' '.join(str(error).split())}") from None
    if lacking := sorted(found["not_in_remote"]):
        raise PublishError(f"remote {remote} lacks {len(lacking)} objects, among them {lacking[0]}: nothing was tagged")


def fill(repo: "Repo", stages: Sequence[str]) -> int:
    """Gives published/ the stages' objects and takes all others away; its bytes. PublishError: there are too many."""
    outs = outputs(repo, stages)
    sizes = {out.def_path: out.meta.size or 0 for out in outs}
    sizes[str(seed.FOLDER)] = sum(file.stat().st_size for file in seed.files())
    if (size := sum(sizes.values())) > MOST_BYTES:
        largest = max(sizes, key=lambda path: sizes[path])
        raise PublishError(f"published/ would have {size:,} bytes, most are {MOST_BYTES:,}; the largest is {largest}")
    push(repo, FOLDER, stages)
    wanted = objects(outs)
    for file in set(Path(FOLDER).rglob("*")) - set(seed.files()):
        if file.is_file() and file.parent.name + file.name not in wanted:
            file.unlink()
    return size


def flat(values: dict[str, Any], before: str = "") -> Iterator[tuple[str, str]]:
    """The numbers of a metrics file outside of its lists, as `dvc metrics show` has them."""
    for name, value in values.items():
        if isinstance(value, dict):
            yield from flat(value, f"{before}{name}.")
        elif isinstance(value, int | float):
            yield before + name, f"{value:,}"


def intervals(values: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Each judge's accuracy, or each model's rating by each judge, with its interval."""
    for judge in values.get("judges", ()):
        if found := judge.get("accuracy"):
            yield f"accuracy, {judge['judge']}", f"{found['accuracy']:.3f}{ends(found, '.3f')}"
        for model in judge.get("models", ()):
            of = f" in {judge['dimension']}" if "dimension" in judge else ""
            yield f"rating of {model['model']} by {judge['judge']}{of}", f"{model['rating']:.0f}{ends(model, '.0f')}"


def ends(found: dict[str, Any], how: str) -> str:
    """The interval in brackets; nothing where there is none, as on a board that is separated."""
    return "" if found["low"] is None else f" ({found['low']:{how}} to {found['high']:{how}})"


def card(name: str, artifact: dict[str, Any], origin: dict[str, Any]) -> str:
    """The card of an artifact: what it is, its figures with intervals, commit, stage, params and inputs."""
    rows = []
    for file in artifact.get("meta", {}).get("metrics", ()):
        values = json.loads(Path(file).read_text())
        values = values[0] if isinstance(values, list) else values  # of records.write_details
        rows += [f"| {key} | {value} |" for key, value in [*intervals(values)] or [*flat(values)]]
        rows += [f"| all figures | `{file}` |"]
    figures = "\n".join(["| | |", "|---|---|", *rows, ""]) if rows else ""
    text = yaml.safe_dump(origin, sort_keys=False, width=120, allow_unicode=True)
    return CARD.format(name=name, desc=artifact["desc"], path=artifact["path"], figures=figures, origin=text)


def origin_of(artifact: dict[str, Any]) -> dict[str, Any]:
    """The provenance of an artifact; of a folder of several outputs which commit and stage made each."""
    path = Path(artifact["path"])
    try:
        return provenance.of(path)
    except FileError:
        if not path.is_dir():
            raise
    found = [provenance.of(file) for file in sorted(path.iterdir())]
    return {each["file"]: {name: each[name] for name in ("commit", "stage", "md5")} for each in found}


def publish(*stages: str, version: str | None = None) -> None:
    """Publish the committed state: the outputs of the named stages, and a card for each artifact of dvc.yaml.

    The folder published/ is the DVC remote of this name and goes into git: afterwards it has the objects of these
    stages and, in published/resume, finished records (see `editjudge seed`), and nothing else. A remote `store` that
    can be written gets every output, images too, and the run-cache. Nothing is committed or tagged before every object
    was found where it belongs. `make publish` names the stages.

    Args:
        stages: Stages of dvc.yaml whose outputs travel with git.
        version: Commit, and register every artifact under this version (GTO: tags such as judge@v1.0.0).
    """
    from dvc.repo import Repo

    artifacts = params.load(Path("dvc.yaml")).get("artifacts") or {}
    ours = [f":!{path}" for path in (FOLDER, CARDS)]
    if changed := git("status", "--porcelain", "--untracked-files=no", "--", ".", *ours):
        raise PublishError(f"{len(changed.splitlines())} files are changed and not committed: {changed.split()[1]}")
    if version and (taken := git("tag", "--list", f"*@{version}")):
        raise PublishError(f"{taken.split()[0]} is registered already")
    seed.write_records()
    with Repo() as repo:
        size = fill(repo, stages)
        store = repo.config["remote"].get(STORE)
        if writable := store is not None and not store.get("allow_anonymous_login"):
            push(repo, STORE, ())
    CARDS.mkdir(parents=True, exist_ok=True)
    for name, artifact in artifacts.items():
        (CARDS / f"{name}.md").write_text(card(name, artifact, origin_of(artifact)))
    git("add", "--force", "--all", FOLDER, str(CARDS))
    where = f"published/ has {size:,} bytes, {STORE} {'has everything' if writable else 'was not written'}"
    print(f"publish: {where}; {len(artifacts)} cards in {CARDS}")
    if version:
        register(artifacts, version)


def register(artifacts: Iterable[str], version: str) -> None:
    """Commits what is staged and registers each artifact under the version."""
    from gto import api

    if git("diff", "--cached", "--name-only"):
        git("commit", "--quiet", "--message", f"Publish {version}")
    for name in artifacts:
        api.register(".", name, "HEAD", version=version)
    print(f"publish: registered {', '.join(f'{name}@{version}' for name in artifacts)}; git push --follow-tags")
