"""What travels with git, finished records with it, and where it is from.

    python -m tools.publish STAGE ... [--version V] | provenance FILE | seed [--write]

Finished records are the measures and the judges' replies in work/, a Parquet file for each item; no images. A record
has the fingerprint of all it depends on, its code too, so an outdated one is never used."""

import json
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import yaml
from cyclopts import App, Parameter

from editjudge.core import params
from editjudge.core.errors import FileError, UserError
from editjudge.core.files import md5, replacing, work
from editjudge.core.main import guarded
from editjudge.engine.resume import RecordCache

if TYPE_CHECKING:
    from dvc.repo import Repo

FOLDER, STORE = "published", "store"
CARDS = Path("docs/cards")
MOST_BYTES = 15_000_000  # of published/, which every clone has
LOCK = Path("dvc.lock")
OBJECTS = (Path("published/files/md5"), Path(".dvc/cache/files/md5"))
RECORDS = Path("published/resume")
STAGES = ("annotate", "judge")
FORM = pa.schema([("key", pa.string()), ("meta", pa.string())])
COMMAND = "its command"
CARD = Path(__file__).with_name("card.md").read_text()


def outputs(repo: "Repo", stages: Sequence[str]) -> list[Any]:
    """The cached outputs of the stages, of all items or of one (stage@item); of all where none is named."""
    every = [({out.stage.addressing, out.stage.addressing.partition("@")[0]}, out) for out in repo.index.outs]
    every = [(names, out) for names, out in every if out.use_cache]
    if unknown := set(stages).difference(*(names for names, _ in every)):
        raise UserError(f"dvc.yaml has no stage {sorted(unknown)[0]} with outputs to publish")
    return [out for names, out in every if not stages or names & set(stages)]


def push(repo: "Repo", remote: str, stages: Sequence[str]) -> None:
    """Pushes to a remote and looks there for every object. UserError names what is not there."""
    from dvc.exceptions import DvcException

    try:
        repo.push(list(stages), remote=remote, run_cache=remote == STORE)
        paths = [out.def_path for out in outputs(repo, stages)]
        found = repo.data_status(paths, remote=remote, not_in_remote=True, remote_refresh=True, granular=True)
    except (DvcException, OSError) as error:
        raise UserError(f"remote {remote}: {' '.join(str(error).split())}") from None
    if lacking := sorted(found["not_in_remote"]):
        raise UserError(f"remote {remote} lacks {len(lacking)} objects, among them {lacking[0]}: nothing was tagged")


def fill(repo: "Repo", stages: Sequence[str]) -> int:
    """Puts the stages' objects into published/ and removes all others; its bytes. UserError: they are too many."""
    outs = outputs(repo, stages)
    sizes = {out.def_path: out.meta.size or 0 for out in outs}
    sizes[str(RECORDS)] = sum(file.stat().st_size for file in record_files())
    if (size := sum(sizes.values())) > MOST_BYTES:
        largest = max(sizes, key=lambda path: sizes[path])
        raise UserError(f"published/ would have {size:,} bytes, most are {MOST_BYTES:,}; the largest is {largest}")
    push(repo, FOLDER, stages)
    wanted = {found.value for out in outs for infos in out.get_used_objs().values() for found in infos}
    for file in set(Path(FOLDER).rglob("*")) - set(record_files()):
        if file.is_file() and file.parent.name + file.name not in wanted:
            file.unlink()
    return size


def intervals(values: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Each judge's accuracy, or each model's rating by each judge, with its interval, which a separated board lacks."""

    def shown(figure: str, found: dict[str, Any], how: str) -> str:
        ends = "" if found["low"] is None else f" ({found['low']:{how}} to {found['high']:{how}})"
        return f"{found[figure]:{how}}{ends}"

    for judge in values.get("judges", ()):
        if found := judge.get("accuracy"):
            yield f"accuracy, {judge['judge']}", shown("accuracy", found, ".3f")
        for model in judge.get("models", ()):
            of = f" in {judge['dimension']}" if "dimension" in judge else ""
            yield f"rating of {model['model']} by {judge['judge']}{of}", shown("rating", model, ".0f")


def card(name: str, artifact: dict[str, Any], origin: dict[str, Any]) -> str:
    """The card of an artifact: what it is, its figures with intervals, commit, stage, params and inputs."""
    from dvc.utils.flatten import flatten  # as `dvc metrics show` names them

    rows = []
    for file in artifact.get("meta", {}).get("metrics", ()):
        values = json.loads(Path(file).read_text())
        values = values[0] if isinstance(values, list) else values  # of records.write_details
        numbers = ((key, f"{value:,}") for key, value in flatten(values).items() if isinstance(value, int | float))
        rows += [f"| {key} | {value} |" for key, value in [*intervals(values)] or numbers]
        rows += [f"| all figures | `{file}` |"]
    figures = "\n".join(["| | |", "|---|---|", *rows, ""]) if rows else ""
    text = yaml.safe_dump(origin, sort_keys=False, width=120, allow_unicode=True)
    return CARD.format(name=name, desc=artifact["desc"], path=artifact["path"], figures=figures, origin=text)


def publish(*stages: str, version: str | None = None) -> None:
    """Publish the committed state: the outputs of the named stages, and a card for each artifact of dvc.yaml.

    The folder published/ is the DVC remote of this name and goes into git: afterwards it has the objects of these
    stages and, in published/resume, finished records (see `seed`), and nothing else. A remote `store` that
    can be written gets every output, images too, and the run-cache. Nothing is committed or tagged before every object
    was found where it belongs. `make publish` names the stages.

    Args:
        stages: Stages of dvc.yaml whose outputs travel with git.
        version: Commit, and register every artifact under this version (GTO: tags such as judge@v1.0.0)."""
    from dvc.repo import Repo

    artifacts = params.load(Path("dvc.yaml")).get("artifacts") or {}
    ours = [f":!{path}" for path in (FOLDER, CARDS)]
    if changed := git("status", "--porcelain", "--untracked-files=no", "--", ".", *ours):
        raise UserError(f"{len(changed.splitlines())} files are changed and not committed: {changed.split()[1]}")
    if version and (taken := git("tag", "--list", f"*@{version}")):
        raise UserError(f"{taken.split()[0]} is registered already")
    write_records()
    with Repo() as repo:
        size = fill(repo, stages)
        store = repo.config["remote"].get(STORE)
        if writable := store is not None and not store.get("allow_anonymous_login"):
            push(repo, STORE, ())
    CARDS.mkdir(parents=True, exist_ok=True)
    for name, artifact in artifacts.items():
        path = Path(artifact["path"])
        try:
            made = origin(path)
        except FileError:  # a folder of several outputs: which commit and stage made each
            if not path.is_dir():
                raise
            each = [origin(file) for file in sorted(path.iterdir())]
            made = {own["file"]: {field: own[field] for field in ("commit", "stage", "md5")} for own in each}
        (CARDS / f"{name}.md").write_text(card(name, artifact, made))
    git("add", "--force", "--all", FOLDER, str(CARDS))
    where = f"published/ has {size:,} bytes, {STORE} {'has everything' if writable else 'was not written'}"
    print(f"publish: {where}; {len(artifacts)} cards in {CARDS}")
    if version:
        from gto import api

        if git("diff", "--cached", "--name-only"):
            git("commit", "--quiet", "--message", f"Publish {version}")
        for name in artifacts:
            api.register(".", name, "HEAD", version=version)
        print(f"publish: registered {', '.join(f'{name}@{version}' for name in artifacts)}; git push --follow-tags")


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


def described(lock: str, digest: str) -> dict[str, Any] | None:
    """What a dvc.lock says of the bytes with this MD5; None where no stage of it wrote them."""
    stages = yaml.load(lock, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))["stages"]
    outs = [(out["md5"], (name, out["path"])) for name, stage in stages.items() for out in stage.get("outs", ())]
    made = dict(reversed(outs))  # of the same bytes, the first stage
    if digest not in made:
        return None
    name, path = made[digest]
    stage, inputs = stages[name], {}
    for dep in stage.get("deps", ()):
        by = f" of {made[dep['md5']][0]}" if dep["md5"] in made else ""
        inputs[dep["path"]] = f"{dep['md5']}{by}"
    given = settings(stage)
    command = given.pop(COMMAND)
    return {"path": path, "md5": digest, "stage": name, "command": command, "params": given, "inputs": inputs}


def settings(stage: Mapping[str, Any]) -> dict[str, Any]:
    """The params of a stage in dvc.lock, of all files, and its command."""
    given = {key: value for values in stage.get("params", {}).values() for key, value in values.items()}
    return given | {COMMAND: stage.get("cmd")}


def origin(path: Path) -> dict[str, Any]:
    """The provenance of a file or a folder. FileError where no commit's dvc.lock has its bytes."""
    digest = md5(path)
    for each in (digest, *folders_with(digest)):
        commits = git("log", "--reverse", "--format=%H %cs", f"-S{each}", "--", str(LOCK)).splitlines()
        if commits:
            text = git("show", f"{commits[0].split()[0]}:./{LOCK}")
        else:
            text = LOCK.read_text() if LOCK.exists() else ""
        if each in text and (found := described(text, each)):
            first = commits[0] if commits else "none yet: dvc.lock is not committed"
            return {"file": str(path), "commit": first, **found}
    raise FileError(f"{path}: no commit's dvc.lock has its bytes (MD5 {digest}): changed since, or not made here")


def provenance(file: Path) -> None:
    """Say which commit and stage a published file comes from, with its command, params and inputs, as YAML.

    A file is known by its bytes, wherever it lies and whatever it is called. The commit is the first whose dvc.lock has
    them.

    Args:
        file: A file or a folder."""
    params.load(LOCK)
    print(yaml.safe_dump(origin(file), sort_keys=False, width=120, allow_unicode=True), end="")


def record_files() -> list[Path]:
    """The folder's files, by stage and name."""
    return sorted(path for stage in STAGES for path in (RECORDS / stage).glob("*.parquet"))


def write_records() -> int:
    """Writes the records of work/ to the folder and removes all others; how many it has then.

    UserError: work/ has none, and the folder has some."""
    count, written = 0, set()
    for file in sorted(file for stage in STAGES for file in work(stage).glob("*.sqlite")):
        with RecordCache(file) as cache:
            rows = [{"key": key, "meta": json.dumps(meta)} for key, (meta, data) in cache.all() if data is None]
        if rows:
            out = RECORDS / file.parent.name / f"{file.stem}.parquet"
            with replacing(out) as temporary:
                pq.write_table(pa.Table.from_pylist(rows, FORM), temporary, compression="zstd", compression_level=19)
            count += len(rows)
            written.add(out)
    if (outdated := set(record_files()) - written) and not written:
        raise UserError(
            f"{work()} has no finished records, {RECORDS} has: run `make repro` here, or `make pull`, first"
        )
    for file in outdated:
        file.unlink()
    return count


def read_records() -> int:
    """Adds the folder's records to work/; how many there are. FileError: a file that has none."""
    count = 0
    for file in record_files():
        try:
            rows = pq.read_table(file, schema=FORM).to_pylist()
            records = [(row["key"], dict(json.loads(row["meta"])), None) for row in rows]
        except (pa.ArrowException, TypeError, ValueError) as error:
            raise FileError(f"{file}: no resume state: {' '.join(str(error).split())}") from error
        place = work(file.parent.name, f"{file.stem}.sqlite")
        with RecordCache(place, paid=True) as cache:
            cache.add(records)
        count += len(records)
    return count


def seed(*, write: bool = False) -> None:
    """Add the records of published/resume to work/: who pulls and adds one editor computes that editor only.

    `make pull` does it.

    Args:
        write: From work/ to published/resume instead; `make publish` does it."""
    count = write_records() if write else read_records()
    print(f"seed: {count} records are in {RECORDS if write else work()}")


if __name__ == "__main__":
    app = App(default_parameter=Parameter(negative=()), help_format="plaintext")
    app.default(publish)
    app.command(provenance)
    app.command(seed)
    guarded("publish", app)
