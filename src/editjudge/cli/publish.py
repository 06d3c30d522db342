"""`editjudge publish`, `provenance`, `seed` and `verify`: what travels with git, finished records with it, where it is
from, and whether the graph gives it here.

Finished records are the measures and the judges' replies in work/, a Parquet file for each item; no images. A record
has the fingerprint of all it depends on, its code too, so an outdated one is never used."""

import importlib.metadata
import json
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import yaml

from editjudge.core import params, portable
from editjudge.core.errors import FileError, UserError
from editjudge.core.files import md5, replacing, work
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
SMALL_RESULTS = Path("tests/small_graph.json")  # of profiles/small.yaml; `make test` compares them, too
CONSTRAINTS, COMMAND = Path("constraints.txt"), "its command"
Lock = Mapping[str, Mapping[str, Any]]
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
    stages and, in published/resume, finished records (see `editjudge seed`), and nothing else. A remote `store` that
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


def hashes(stage: Mapping[str, Any], kind: str) -> dict[str, str]:
    """The files of a stage's `deps` or `outs` in dvc.lock, each with its MD5."""
    return {entry["path"]: entry["md5"] for entry in stage.get(kind, ())}


def working_copy(root: Path, folder: Path) -> None:
    """Makes `folder` a git repository with the tracked files of `root` as they are now, without dvc.lock."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=root, capture_output=True, text=True, check=True).stdout
    for name in filter(None, listed.split("\0")):
        if (root / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(root / name, folder / name)
    subprocess.run(["git", "init", "-q"], cwd=folder, check=True)
    (folder / "dvc.lock").unlink(missing_ok=True)


def small_copy(root: Path, folder: Path) -> None:
    """A `working_copy` with the profile small: few tasks and small numbers."""
    working_copy(root, folder)
    command = [sys.executable, "-m", "editjudge", "profile", "small"]
    subprocess.run(command, cwd=folder, env=os.environ | {"PYTHONPATH": "src"}, stdout=subprocess.DEVNULL, check=True)


def results(lock: Lock) -> dict[str, str]:
    """Every file that the stages wrote with its MD5; the code's versions are none."""
    return {path: md5 for name, stage in lock.items() if name != "code" for path, md5 in hashes(stage, "outs").items()}


def differences(committed: Mapping[str, str], now: Lock, before: Lock = MappingProxyType({})) -> tuple[str, bool]:
    """What to print of a graph that has run, and whether all of its results are as committed; `before`: the dvc.lock
    of the commit, if it has one of this graph.

    Differences begin at stages that read no file that differs; the others only follow. Of each the causes are told."""
    found = results(now)
    files = {path: None for path in {**found, **committed} if found.get(path) != committed.get(path)}
    if not files:
        return f"verify: {len(found)} files are as committed, to the byte", True
    begin = [
        name
        for name, stage in now.items()
        if hashes(stage, "outs").keys() & files.keys() and not hashes(stage, "deps").keys() & files.keys()
    ]
    where = ", ".join(begin) or "no stage that ran"
    text = f"verify: differences begin at {where}; {len(files)} files in all: {', '.join(files)}"
    return "\n".join([text, *(f"{name}: {causes(before.get(name, {}), now[name])}" for name in begin)]), False


def causes(before: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """What may be why a stage wrote other bytes than the committed ones: the inputs, code and settings that are others
    in its dvc.lock, or what of this machine is not as `make setup` has it."""
    was, given = ({**hashes(stage, "deps"), **settings(stage)} for stage in (before, now))
    if changed := [name for name in {**was, **given} if was.get(name) != given.get(name)] if before else []:
        return f"other inputs or settings than at the commit: {', '.join(changed)}"
    known = "its inputs, code and settings are as committed" if before else f"no {LOCK} of the commit has its inputs"
    return f"{known}; this machine: {'; '.join(machine())}"


def settings(stage: Mapping[str, Any]) -> dict[str, Any]:
    """The params of a stage in dvc.lock, of all files, and its command."""
    given = {key: value for values in stage.get("params", {}).values() for key, value in values.items()}
    return given | {COMMAND: stage.get("cmd")}


def machine() -> list[str]:
    """What of this machine may move bytes: its CPU, variables, and packages of versions not in constraints.txt."""
    model = re.search(r"^model name\s*: (.*)$", portable.CPU.read_text() if portable.CPU.exists() else "", re.MULTILINE)
    lines = [f"CPU {model[1] if model else platform.machine()}"]
    lines += [f"{portable.SWITCH}=0"] if os.environ.get(portable.SWITCH) == "0" else []
    wanted = dict(line.split("==") for line in CONSTRAINTS.read_text().split() if "==" in line)
    for name, version in wanted.items():
        with suppress(PackageNotFoundError):
            if (found := importlib.metadata.version(name).partition("+")[0]) != version:
                lines.append(f"{name} {found}, tested with {version}")
    return lines


def bad_objects(cache: Path, digest: str) -> list[Path]:
    """The objects of an output, and of the files that it lists, that are there with other bytes than they are named
    by."""
    file = cache / digest[:2] / digest[2:]
    if not file.is_file():
        return []
    if md5(file) != digest.removesuffix(".dir"):
        return [file]
    listed = json.loads(file.read_bytes()) if digest.endswith(".dir") else ()
    return [bad for entry in listed for bad in bad_objects(cache, entry["md5"])]


def damages(lock: Lock, cache: Path) -> list[str]:
    """Reads every output of a dvc.lock, here and in DVC's cache (its folder of MD5s): a line for each that has other
    bytes, with the commands that mend it. What is not there is no damage."""
    lines = []
    for name, stage in lock.items():
        for path, digest in hashes(stage, "outs").items():
            there = Path(path).exists()
            right, bad = there and md5(Path(path)) == digest, bad_objects(cache, digest)
            gone = shlex.join(["rm", "-rf", *map(str, bad), *([] if right else [path])])
            if bad and right:
                lines.append(f"{bad[0]}: damaged, of {path}: {gone}; {shlex.join(['dvc', 'commit', '-f', name])}")
            elif bad or (there and not right):
                again = ["dvc", "repro", "-f", "-s", name] if bad else ["dvc", "checkout", path]
                lines.append(f"{[*bad, path][0]}: other bytes than {LOCK} has of {path}: {gone}; {shlex.join(again)}")
    return lines


def other_damages(cache: Path, runs: Path, named: str) -> list[str]:
    """As `damages`, of what DVC keeps of other settings and commits: objects and entries of its run-cache that do not
    say what they are named by. named: the lines there are already."""
    from dvc.utils import dict_sha256

    objects = (file for file in sorted(cache.glob("[0-9a-f][0-9a-f]/*")) if str(file) not in named)
    bad = [file for file in objects if md5(file) != file.parent.name + file.name.removesuffix(".dir")]
    for file in sorted(runs.glob("??/*/*")):
        said = ""
        with suppress(UserError, TypeError):
            said = dict_sha256(params.load(file), exclude=["size", "nfiles"])
        bad += [file] * (said != file.name)
    return [f"{file}: damaged, of other settings or commits: {shlex.join(['rm', '-f', str(file)])}" for file in bad]


def check_outputs() -> bool:
    """Prints what `damages` and `other_damages` find; whether that is nothing."""
    from dvc.repo import Repo

    with Repo() as repo:
        cache, runs = Path(repo.cache.local.path), Path(repo.stage_cache.cache_dir)
    lines = damages(params.load(LOCK)["stages"], cache)
    lines += other_damages(cache, runs, "\n".join(lines))
    print("\n".join([*lines, f"verify: {len(lines)} outputs here or in DVC's cache are damaged"]))
    return not lines


def verify(*, small: bool = False, write: bool = False, cache: bool = False) -> None:
    """Run the graph and compare what its stages wrote with what is committed; read whether it lies whole on the disk.

    Ends with status 1 if something differs, and names the stages where differences begin, with what they had of other
    inputs, code and settings, or what of this machine is not as tested. What is damaged on the disk,
    here or in DVC's cache, is named with the commands that mend it: DVC itself looks at sizes and times alone.

    Args:
        small: A small setting of the graph instead, in a copy: three minutes.
        write: With --small, make its results those to commit.
        cache: Run nothing: read every output, here and in DVC's cache, and compare it with dvc.lock."""
    if cache:
        sys.exit(0 if check_outputs() else 1)
    before: Lock = {}
    try:
        if small:
            with tempfile.TemporaryDirectory() as name:
                small_copy(Path(), Path(name))
                subprocess.run(["dvc", "repro"], cwd=name, check=True)
                lock = yaml.safe_load(Path(name, "dvc.lock").read_text())["stages"]
            if write:
                SMALL_RESULTS.write_text(json.dumps(results(lock), indent=2) + "\n")
            committed = json.loads(SMALL_RESULTS.read_text())
        else:
            subprocess.run(["dvc", "repro"], check=True)
            lock = yaml.safe_load(LOCK.read_text())["stages"]
            before = yaml.safe_load(git("show", f"HEAD:{LOCK}"))["stages"]
            committed = results(before)
    except subprocess.CalledProcessError as error:
        sys.exit(error.returncode)
    text, same = differences(committed, lock, before)
    print(text)
    whole = small or check_outputs()
    sys.exit(0 if same and whole else 1)
