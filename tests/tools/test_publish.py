"""What is published: into the folder that travels with git, with the resume state of those who pull it, and to a server
that speaks S3, with its failures; verify names the stage where a difference begins."""

import contextlib
import functools
import hashlib
import json
import logging
import os
import shutil
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import boto3
import forks
import pytest
import yaml
from cases import yaml_beside
from dvc.cli import main as dvc_main
from dvc.utils import dict_sha256
from in_process import alone
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from small_repro import arena_row
from werkzeug.serving import BaseWSGIServer, make_server
from werkzeug.wrappers import Response

from editjudge.core import records
from editjudge.core.errors import UserError
from editjudge.editors import making
from editjudge.engine import resume
from editjudge.engine.resume import RecordCache
from editjudge.measures.annotation import batch
from editjudge.sources.builtin import scenes
from editjudge.stages import annotate, candidates
from tools import publish, verify
from tools.verify import differences, results

GRAPH = yaml_beside(__file__)["GRAPH"]
METRICS = {"judges": [{"judge": "first", "accuracy": {"accuracy": 0.75, "low": 0.5, "high": 0.875}}]}
STAGES = ["judge", "bench"]


def git(*words: str, cwd: Path | None = None) -> str:
    return subprocess.run(["git", *words], cwd=cwd, capture_output=True, text=True, check=True).stdout.strip()


def dvc(*words: str) -> int:
    return dvc_main(list(words))


def name_commits(patch: pytest.MonkeyPatch) -> None:
    for who in ("AUTHOR", "COMMITTER"):
        patch.setenv(f"GIT_{who}_NAME", "t")
        patch.setenv(f"GIT_{who}_EMAIL", "t@t")


@pytest.fixture(autouse=True)
def surroundings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A home without settings, a name for commits, keys that any bucket here takes, few and quick tries."""
    name_commits(monkeypatch)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "k")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "s")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("DVC_NO_ANALYTICS", "true")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository whose graph has run, committed; with the remote `published`. Copy it."""
    folder = tmp_path_factory.mktemp("made") / "repository"
    folder.mkdir()
    (folder / "dvc.yaml").write_text(GRAPH)
    (folder / "params.yaml").write_text("count: 7\n")
    (folder / "metrics.json").write_text(json.dumps(METRICS))
    (folder / ".gitignore").write_text("/published/\n/data/**\n!/data/**/\n!/data/**/*.dvc\n/models/*\nwork/\n")
    with contextlib.chdir(folder), pytest.MonkeyPatch.context() as patch:
        name_commits(patch)
        git("init", "-q", "-b", "main")
        assert dvc("init", "-q") == dvc("repro", "-q") == 0
        assert dvc("remote", "add", "-q", "-d", "published", "published") == 0
        assert dvc("remote", "modify", "-q", "published", "verify", "true") == 0
        git("add", "-A")
        git("commit", "-qm", "state")
    return folder


@pytest.fixture
def here(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    shutil.copytree(made, tmp_path / "own", symlinks=True)
    monkeypatch.chdir(tmp_path / "own")
    return tmp_path / "own"


@pytest.fixture
def elsewhere(here: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], Path]:
    """elsewhere(): goes to a fresh clone."""

    def clone() -> Path:
        folder = tmp_path / f"clone{len(list(tmp_path.glob('clone*')))}"
        git("clone", "-q", str(here), str(folder))
        monkeypatch.chdir(folder)
        return folder

    return clone


def object_of(path: Path) -> str:
    digest = publish.md5(path)
    return f"files/md5/{digest[:2]}/{digest[2:]}"


def test_a_clone_pulls_what_was_published_and_has_nothing_to_run(here: Path, elsewhere, capfd) -> None:
    publish.publish(*STAGES)
    git("commit", "-qm", "published")
    assert git("status", "--porcelain") == ""
    clone = elsewhere()
    assert dvc("pull", "-q", "-r", "published", *STAGES) == 0
    assert (clone / "models/judge/weights").read_text() == "1\n2\n3\n"
    assert (clone / "data/verdicts/two.txt").is_file()
    assert not (clone / "data/images.txt").exists()
    assert git("status", "--porcelain") == ""
    capfd.readouterr()
    assert dvc("repro", "--allow-missing") == 0
    assert "Running stage" not in capfd.readouterr().out
    assert git("status", "--porcelain") == ""


def test_resume_state_comes_with_what_is_pulled(here: Path, elsewhere) -> None:
    with RecordCache(Path("work/judge/j.sqlite")) as cache:
        cache.put("key", {"text": "A"})
    publish.publish(*STAGES, version="v1.0.0")
    assert git("status", "--porcelain") == ""
    publish.publish(*STAGES)  # once more, with nothing new
    assert git("status", "--porcelain") == ""
    clone = elsewhere()
    assert dvc("pull", "-q", "-r", "published", *STAGES) == 0
    assert publish.read_records() == 1
    with RecordCache(clone / "work/judge/j.sqlite") as cache:
        assert cache.get("key") == ({"text": "A"}, None)


def test_the_folder_has_what_is_published_now_and_nothing_else(here: Path) -> None:
    publish.publish(*STAGES)
    first = set(git("ls-files", "published").splitlines())
    assert len(first) == 5  # the judge's folder and two files, two verdicts
    git("commit", "-qm", "published")
    assert dvc("push", "-q") == 0  # everything, into the folder: git does not see it
    assert git("status", "--porcelain") == ""
    (here / "dvc.yaml").write_text(GRAPH.replace("head -3", "head -4"))
    assert dvc("repro", "-q") == 0
    git("commit", "-qam", "another judge")
    publish.publish(*STAGES)
    second = set(git("ls-files", "published").splitlines())
    assert len(second) == 5
    assert len(first & second) == 3
    assert {f"published/{object_of(here / 'models/judge/weights')}"} == second & {
        str(file.relative_to(here)) for file in (here / "published").rglob("*") if file.stat().st_size == 8
    }


def test_each_artifact_has_a_card_and_a_version_by_which_it_is_fetched(here: Path, tmp_path: Path) -> None:
    made_by = git("rev-parse", "HEAD")
    publish.publish(*STAGES, version="v1.0.0")
    assert git("tag").splitlines() == ["judge@v1.0.0", "pictures@v1.0.0", "verdicts@v1.0.0"]
    assert git("status", "--porcelain") == ""
    text = (here / "docs/cards/judge.md").read_text()
    shutil.rmtree(".dvc/cache")
    parts = (made_by, "stage: judge", "data/images.txt:", "| accuracy, first | 0.750 (0.500 to 0.875) |", "license:")
    assert [part for part in parts if part not in text] == []
    assert "stage: bench@two" in (here / "docs/cards/verdicts.md").read_text()
    assert dvc("artifacts", "get", ".", "judge", "--rev", "v1.0.0", "-o", str(tmp_path / "got")) == 0
    assert (tmp_path / "got/weights").read_text() == "1\n2\n3\n"
    from gto import api

    api.assign(".", "judge", "prod", version="v1.0.0")
    assert dvc("artifacts", "get", ".", "judge", "--stage", "prod", "-o", str(tmp_path / "prod")) == 0
    with pytest.raises(UserError, match=r"judge@v1.0.0 is registered already"):
        publish.publish(*STAGES, version="v1.0.0")


def test_nothing_is_published_that_is_not_committed_or_too_large(here: Path, monkeypatch) -> None:
    (here / "params.yaml").write_text("count: 8\n")
    with pytest.raises(UserError, match=r"1 files are changed and not committed: params.yaml"):
        publish.publish(*STAGES)
    git("checkout", "-q", "params.yaml")
    with pytest.raises(UserError, match="has no stage nobody"):
        publish.publish("nobody")
    monkeypatch.setattr(publish, "MOST_BYTES", 100)
    words = r"published/ would have 588,\d+ bytes, most are 100; the largest is data/images"
    with pytest.raises(UserError, match=words):
        publish.publish("images", "judge")
    assert not (here / "published").exists()


FILE, IN_FOLDER = "data/images.txt", "models/judge/weights"
PLACES = [("flipped", path, where) for path in (FILE, IN_FOLDER) for where in ("here", "cache", "both")]
PLACES += [(kind, IN_FOLDER, "both") for kind in ("cut", "empty", "zeros")]


@pytest.mark.parametrize(("damage", "path", "where"), PLACES, indirect=["damage"])
def test_what_is_damaged_on_the_disk_is_named_with_what_mends_it(here: Path, capsys, damage, path, where) -> None:
    """The commands are run as they are told."""
    cached, good = Path(".dvc/cache") / object_of(Path(path)), Path(path).read_bytes()
    damaged = {"here": [Path(path)], "cache": [cached], "both": [Path(path), cached]}[where]
    for file in damaged:
        file.chmod(0o644)
        damage(file)
    with pytest.raises(SystemExit, match="1"):
        verify.verify(cache=True)
    [line, last] = capsys.readouterr().out.splitlines()
    assert last == "verify: 1 outputs here or in DVC's cache are damaged"
    path_of_dvc = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    subprocess.run(line[line.index("rm -rf") :], shell=True, check=True, env=os.environ | {"PATH": path_of_dvc})
    with pytest.raises(SystemExit, match="0"):
        verify.verify(cache=True)
    assert (Path(path).read_bytes(), cached.read_bytes()) == (good, good)


def test_what_dvc_keeps_of_other_settings_is_read_too(tmp_path: Path) -> None:
    """Objects that no output of now names, and entries of the run-cache."""
    entry = {"cmd": "a", "deps": [{"path": "b", "size": 3}], "outs": [{"path": "c", "md5": "d"}]}
    files = {
        f"files/{md5[:2]}/{md5[2:]}": text
        for text in ("one", "two")
        for md5 in [hashlib.md5(text.encode()).hexdigest()]
    }
    name = dict_sha256(entry, exclude=["size", "nfiles"])
    files |= {f"runs/aa/aaa/{name}": yaml.safe_dump(entry)}
    for path, text in files.items():
        records.write_json(tmp_path / path, None)
        (tmp_path / path).write_text(text)
    look = functools.partial(verify.other_damages, tmp_path / "files", tmp_path / "runs", "")
    assert look() == []
    for path, text in files.items():
        for damaged in (text[:-2], "", text.replace("o", "0").replace("md5: d", "md5: e")):
            (tmp_path / path).write_text(damaged)
            [line] = look()
            assert line == f"{tmp_path / path}: damaged, of other settings or commits: rm -f {tmp_path / path}"
        (tmp_path / path).write_text(text)


def test_a_version_that_lacks_an_object_is_not_tagged(here: Path) -> None:
    lost = here / ".dvc/cache" / object_of(here / "data/verdicts/two.txt")
    lost.unlink()
    with pytest.raises(UserError, match=r"published lacks 1 objects, among them data/verdicts/two.txt"):
        publish.publish(*STAGES, version="v1.0.0")
    assert git("tag") == ""


def test_provenance_knows_a_file_by_its_bytes(here: Path, tmp_path: Path) -> None:
    first = git("rev-parse", "HEAD")
    git("commit", "-q", "--allow-empty", "-m", "later")
    shutil.copy("models/judge/weights", tmp_path / "renamed")
    found = publish.origin(tmp_path / "renamed")
    assert found["commit"].split()[0] == first
    assert (found["stage"], found["path"]) == ("judge", "models/judge")
    assert found["inputs"] == {"data/images.txt": f"{publish.md5(Path('data/images.txt'))} of images"}
    assert publish.origin(Path("data/images.txt"))["params"] == {"count": 7}
    with pytest.raises(UserError, match="no commit's"):
        publish.origin(here / "dvc.yaml")


class Server:
    """S3 on loopback (moto's). GETs of objects fail as `faults` says, one each, from the front: busy, drop or short."""

    def __init__(self) -> None:
        self.app, self.faults, self.failed = DomainDispatcherApplication(create_backend_app), list[str](), list[str]()
        self.http: BaseWSGIServer = make_server("127.0.0.1", 0, self.answer, threaded=True)
        self.port = self.http.server_port

    def answer(self, environ: dict, start: Callable) -> Iterable[bytes]:
        if not (self.faults and environ["REQUEST_METHOD"] == "GET" and "/files/md5/" in environ["PATH_INFO"]):
            return self.app(environ, start)
        fault = self.faults.pop(0)
        self.failed.append(fault)
        answer = Response.from_app(self.app, environ) if fault != "busy" else Response(status="503 Slow Down")
        whole = answer.get_data()
        answer.set_data(whole[: len(whole) // 2])
        if fault == "drop":
            answer.headers["Content-Length"] = str(len(whole))
        return answer(environ, start)


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    found = Server()
    logging.getLogger("werkzeug").setLevel(logging.CRITICAL)  # its lines name the objects that are asked for
    thread = threading.Thread(target=found.http.serve_forever)
    thread.start()
    yield found
    found.http.shutdown()
    thread.join()


@pytest.fixture
def s3(server: Server, here: Path) -> Server:
    """A bucket, empty, and the remote `store` of a writer that points to it."""
    tell(server.port, "reset")
    client(server.port).create_bucket(Bucket="team")
    everyone = {"Effect": "Allow", "Principal": "*", "Action": ["s3:GetObject", "s3:HeadObject", "s3:ListBucket"]}
    everyone |= {"Resource": ["arn:aws:s3:::team", "arn:aws:s3:::team/*"]}
    policy = json.dumps({"Version": "2012-10-17", "Statement": [everyone]})
    client(server.port).put_bucket_policy(Bucket="team", Policy=policy)
    point(server)
    return server


def tell(port: int, what: str, data: bytes = b"") -> None:
    """Something to moto itself."""
    url = f"http://127.0.0.1:{port}/moto-api/{what}"
    asked = urllib.request.Request(url, data, {"Content-Type": "text/plain"}, method="POST")
    urllib.request.urlopen(asked).close()


def client(port: int):
    own = {"aws_access_key_id": "k", "aws_secret_access_key": "s", "region_name": "us-east-1"}
    return boto3.client("s3", endpoint_url=f"http://127.0.0.1:{port}", **own)


def point(at: Server, bucket: str = "s3://team/editjudge", **settings: str) -> None:
    """As `make store` does, and where the server is."""
    assert dvc("remote", "add", "-q", "--local", "-f", "store", bucket) == 0
    url = f"http://127.0.0.1:{at.port}"
    for name, value in {"verify": "true", "endpointurl": url, "region": "us-east-1", **settings}.items():
        assert dvc("remote", "modify", "-q", "--local", "store", name, value) == 0


def keys(port: int) -> set[str]:
    return {entry["Key"] for entry in client(port).list_objects_v2(Bucket="team").get("Contents", [])}


def test_a_team_publishes_all_and_others_read_it_without_an_account(here, s3: Server, elsewhere, monkeypatch) -> None:
    publish.publish(*STAGES, version="v1.0.0")
    there = keys(s3.port)
    assert f"editjudge/{object_of(here / 'data/images.txt')}" in there
    assert any("/runs/" in key for key in there), "the run-cache"
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    clone = elsewhere()
    point(s3, allow_anonymous_login="true")
    assert dvc("pull", "-q", "-r", "store") == 0
    assert len((clone / "data/images.txt").read_text().splitlines()) == 100000
    assert git("status", "--porcelain") == ""
    publish.publish(*STAGES)  # a reader's `store` is not written
    assert keys(s3.port) == there
    assert dvc("get", "-q", str(here), "data/verdicts/one.txt", "--remote", "store") == 0


def test_what_cannot_be_written_ends_in_one_line_and_no_tag(here, s3: Server) -> None:
    """A bucket that is not there, and a wrong key."""
    tell(s3.port, "reset-auth", b"0")  # from now on keys are looked at
    try:
        with pytest.raises(UserError, match=r"^remote store: .+$"):  # one line
            publish.publish(*STAGES, version="v1.0.0")
    finally:
        tell(s3.port, "reset-auth", b"inf")
    point(s3, "s3://nobody/editjudge")
    with pytest.raises(UserError, match=r"^remote store: .*bucket.*$"):
        publish.publish(*STAGES, version="v1.0.0")
    assert git("tag") == ""


def test_bad_servers_are_asked_again_and_a_truncated_object_is_named(here, s3: Server, elsewhere, caplog) -> None:
    publish.publish(*STAGES)
    name = object_of(here / "data/images.txt")
    clone = elsewhere()
    point(s3)
    s3.faults += ["short"]
    assert dvc("pull", "-r", "store", "data/images.txt") != 0
    assert name.replace("files/md5/", "").replace("/", "") in caplog.text.replace("/", "")
    assert not (clone / "data/images.txt").exists()
    s3.faults += ["busy", "busy", "drop"]
    assert dvc("pull", "-q", "-r", "store") == 0
    assert len(s3.failed) == 4
    assert (clone / "data/images.txt").stat().st_size == (here / "data/images.txt").stat().st_size


def test_two_users_of_one_cache_pay_once_and_break_nothing(here: Path, elsewhere, tmp_path: Path) -> None:
    """Each stage tells that it ran; the two begin at once, a third comes later."""
    ran = tmp_path / "ran"
    (here / "dvc.yaml").write_text(GRAPH.replace("cmd: mkdir", f"cmd: echo x >> {ran} && mkdir"))
    (here / "params.yaml").write_text("count: 8\n")
    git("commit", "-qam", "stages that tell")
    users = [elsewhere() for _ in range(3)]
    for user in users:
        with contextlib.chdir(user):
            assert dvc("cache", "dir", "-q", "--local", str(tmp_path / "cache")) == 0
            assert dvc("config", "-q", "--local", "cache.shared", "group") == 0
            assert dvc("config", "-q", "--local", "cache.type", "hardlink,symlink") == 0
    command = [forks.python(), "-m", "dvc", "repro", "-q"]
    both = [subprocess.Popen(command, cwd=user) for user in users[:2]]
    for user, process in zip(users[:2], both, strict=True):  # DVC ends with "File exists" where both add one object
        assert process.wait() == 0 or subprocess.run(command, cwd=user).returncode == 0
    times = len(ran.read_text().splitlines())
    assert 4 <= times <= 8  # a stage of which nobody has the results yet is run by each that begins it
    with contextlib.chdir(users[2]):
        assert dvc("repro", "-q") == 0
        assert dvc("status", "-q") == 0
    assert len(ran.read_text().splitlines()) == times
    objects = [file for file in (tmp_path / "cache/files/md5").rglob("*") if file.is_file()]
    assert len(objects) == 6
    assert all(file.parent.name + file.name.removesuffix(".dir") == publish.md5(file) for file in objects)
    assert {(user / "dvc.lock").read_text() for user in users} == {(users[0] / "dvc.lock").read_text()}
    assert all((user / "models/judge/weights").stat().st_nlink == 4 for user in users)


ROOT = Path(__file__).parents[2]
TASK = "color_alter"


@pytest.fixture
def graph(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a pool of four pairs, one prompt of the arena, and the settings of two editors."""
    folder = tmp_path / "first"
    (folder / "data").mkdir(parents=True)
    (folder / "pipelines").symlink_to(ROOT / "pipelines")
    pairs = scenes.make_pairs(TASK, "train", 5, 48, 0)
    records.write(folder / f"data/pools/{TASK}.parquet", pairs[:4], "pools")
    records.write(folder / "data/gedit_bench.parquet", [arena_row(pairs[4])], "gedit_bench")
    monkeypatch.delenv("EDITJUDGE_WORK", raising=False)
    for module in (making, batch):
        monkeypatch.setattr(module, "Workers", alone)
    monkeypatch.chdir(folder)
    settings(["precise", "box"])
    return folder


def settings(editors: list[str]) -> None:
    values = yaml.safe_load((ROOT / "params.yaml").read_text())
    values["tasks"] = {TASK: values["tasks"][TASK]}
    values["editors"] = {name: values["editors"][name] for name in editors}
    values["suites"] = {}
    Path("params.yaml").write_text(yaml.safe_dump(values))


def counted(file: str) -> tuple[int, int]:
    found = json.loads(Path(f"metrics/resume/{file}.json").read_text())
    return found["computed"], found["reused"]


def test_who_pulls_and_adds_an_editor_pays_for_that_editor(graph, tmp_path, monkeypatch) -> None:
    for model in ("precise", "box"):
        candidates.run(model)
    annotate.run(TASK)
    assert counted(f"annotate_{TASK}") == (8, 0)
    first = records.read(Path(f"data/annotations/{TASK}.parquet"), "annotations")
    assert publish.write_records() == 8

    colleague = tmp_path / "second"
    shutil.copytree(graph, colleague, ignore=shutil.ignore_patterns("work"), symlinks=True)  # what a pull brings
    monkeypatch.chdir(colleague)
    assert publish.read_records() == publish.read_records() == 8
    settings(["precise", "box", "leaky"])
    candidates.run("leaky")
    annotate.run(TASK)
    assert counted("candidates_leaky") == (5, 0)
    assert counted(f"annotate_{TASK}") == (4, 8)
    rows = records.read(Path(f"data/annotations/{TASK}.parquet"), "annotations")
    assert [row for row in rows if row["model"] != "leaky"] == first
    monkeypatch.setattr(batch, "identity", lambda *_, **__: "other code")
    annotate.run(TASK)
    assert counted(f"annotate_{TASK}") == (12, 0), "code decides, too"


def test_what_is_no_resume_state_is_named_and_what_is_gone_from_work_goes_from_the_folder(workdir: Path) -> None:
    assert publish.read_records() == publish.write_records() == 0
    assert not list(workdir.iterdir())
    (workdir / "published/resume/judge").mkdir(parents=True)
    (workdir / "published/resume/judge/j.parquet").write_bytes(b"PAR1 no more")
    with pytest.raises(UserError, match=r"^published/resume/judge/j.parquet: no resume state: "):
        publish.read_records()
    with resume.RecordCache(workdir / "work/annotate/t.sqlite") as cache:
        cache.add([("a", {"n": 1}, None), ("b", {"n": 2}, b"an image")])
    assert publish.write_records() == 1
    (workdir / "work/annotate/t.sqlite").rename(workdir / "work/annotate/u.sqlite")
    assert publish.write_records() == 1
    assert [file.name for file in (workdir / publish.RECORDS).rglob("*.parquet")] == ["u.parquet"]
    shutil.rmtree(workdir / "work")
    with pytest.raises(UserError, match="work has no finished records, published/resume has"):
        publish.write_records()
    assert publish.read_records() == 1, "nothing is deleted for want of records"


def entry(path: str, md5: str) -> dict:
    return {"path": path, "md5": md5}


LOCK = {
    "code": {"deps": [entry("src", "s")], "outs": [entry("code.json", "c")]},
    "raw": {"deps": [entry("code.json", "c")], "outs": [entry("raw.parquet", "1"), entry("raw.json", "2")]},
    "pool": {"deps": [entry("raw.parquet", "1")], "outs": [entry("pool.parquet", "3")]},
    "other": {"outs": [entry("other.parquet", "4")]},
}


def test_the_stage_where_a_difference_begins_is_named() -> None:
    """What reads a file that differs only follows."""
    committed = results(LOCK)
    assert "code.json" not in committed
    assert differences(committed, LOCK) == ("verify: 4 files are as committed, to the byte", True)
    told, same = differences(committed | {"pool.parquet": "9", "raw.parquet": "9"}, LOCK)
    assert told.startswith("verify: differences begin at raw; 2 files in all: raw.parquet, pool.parquet\nraw: ")
    assert not same
    assert differences(committed | {"gone.parquet": "1"}, LOCK)[0].startswith("verify: differences begin at no stage")


def test_verify_says_why_bytes_differ(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other inputs or settings, if there are any; else what of the machine is not as tested."""
    committed = results(LOCK) | {"raw.parquet": "9"}
    before = LOCK | {"raw": LOCK["raw"] | {"params": {"params.yaml": {"seed": 1}}, "deps": [entry("code.json", "old")]}}
    told = differences(committed, LOCK, before)[0].splitlines()
    assert told[1:] == ["raw: other inputs or settings than at the commit: code.json, seed"]
    monkeypatch.setenv("EDITJUDGE_PORTABLE", "0")
    monkeypatch.setattr(verify.importlib.metadata, "version", lambda name: "0.1+local" if name == "torch" else "2.13.0")
    told = differences(committed, LOCK, LOCK)[0].splitlines()
    assert told[1].startswith("raw: its inputs, code and settings are as committed; this machine: CPU ")
    assert {"EDITJUDGE_PORTABLE=0", "torch 0.1, tested with 2.13.0"} <= {*told[1].split("; ")}
