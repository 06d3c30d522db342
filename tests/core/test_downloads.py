"""Downloads against a real server on loopback that behaves badly; models of a hub."""

import asyncio
import contextlib
import json
import os
import ssl
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from email.utils import formatdate
from http.server import ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest
import yaml
from cases import each_row, yaml_beside
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from http_handler import Handler, served
from small_hub import COMMITS, Hub, small_hub

from editjudge.core import downloads, hub, images
from editjudge.core.downloads import DownloadLimits, Downloads, is_public
from editjudge.core.tables import RowError
from editjudge.sources import importing

LIMITS = DownloadLimits(at_once=8, megabytes=0.5, seconds=60.0, attempts=3, private_hosts=True)
PNG = images.encode_png(np.random.default_rng(0).integers(0, 256, (200, 200, 3), dtype=np.uint8))


# What a path gives the first, second, ... time, then the last: status, body, headers. All others have a method below.
GOOD: tuple[int, bytes, dict[str, str]] = (200, PNG, {})
ANSWERS: dict[str, list[tuple[int, bytes, dict[str, str]]]] = {
    "good": [GOOD],
    "declared": [(200, PNG[:16], {"Content_Length": "900000000"})],
    "busy": [*[(429, b"", {"Retry_After": "0"})] * 2, GOOD],
    "later": [(503, b"", {"Retry_After": formatdate(0, usegmt=True)}), GOOD],
    "shortened": [(200, PNG[:-200], {}), GOOD],
    "full": [(200, PNG.ljust(500_000, b"\0"), {})],
    "cut": [*[(200, PNG[:-200], {"Content_Length": str(len(PNG))})] * 2, GOOD],
    **{
        name: [(status, body.encode(), head)] for name, (status, body, head) in yaml_beside(__file__)["ANSWERS"].items()
    },
}


class Badly(Handler):
    """Each path is a behaviour; `asked` holds the path of every request, and `told` what their headers say."""

    asked: list[str]

    def do_GET(self) -> None:
        self.asked.append(self.path)
        Badly.told |= self.headers
        name, time = self.path.strip("/").partition("?")[0], self.asked.count(self.path)
        if name in ANSWERS:
            status, body, headers = ANSWERS[name][min(time, len(ANSWERS[name])) - 1]
            self._send(status, body, **headers)
        else:
            with contextlib.suppress(OSError):  # the client has had enough
                getattr(self, f"_{name}")()

    def _send(self, status: int, body: bytes = b"", **headers: str) -> None:
        self.send_response(status)
        for name, value in ({"Content_Length": str(len(body))} | headers).items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(body)

    def _endless(self) -> None:
        self.send_response(200)  # no length: it ends when the client has had enough
        self.end_headers()
        self.wfile.write(PNG[:16])
        while True:
            self.wfile.write(bytes(65536))

    def _slow(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(PNG)))
        self.end_headers()
        self._dripping(PNG)

    def _far(self) -> None:
        """A redirect to itself, each of which takes most of the time."""
        time.sleep(0.2)
        self._send(302, Location="/far")

    def _drip(self) -> None:
        """Headers without end, a byte at a time."""
        self.wfile.write(b"HTTP/1.1 200 OK\r\nX: ")
        self._dripping(b"x" * 400)

    def _dripping(self, data: bytes) -> None:
        for byte in data:
            self.wfile.write(bytes([byte]))
            self.wfile.flush()
            time.sleep(0.05)


@pytest.fixture
def server() -> Iterator[ThreadingHTTPServer]:
    Badly.asked, Badly.told = [], {}
    with served(Badly) as running:
        yield running


def address(server: ThreadingHTTPServer, path: str) -> str:
    return f"http://127.0.0.1:{server.server_port}/{path}"


def fetch(server: ThreadingHTTPServer, folder: Path, path: str, first_wait: float = 0.01, **limits: object) -> bytes:
    return fetched(address(server, path), folder, first_wait, **limits)


def fetched(url: str, folder: Path, first_wait: float = 0.01, **limits: object) -> bytes:
    with contextlib.closing(Downloads(folder, replace(LIMITS, **limits), first_wait=first_wait)) as found:
        return found.fetch(url)


def left(folder: Path) -> list[str]:
    return sorted(file.suffix for file in folder.rglob("*") if file.is_file() and file.name != "lock")


def test_an_image_is_fetched_once_also_through_a_redirect(server: ThreadingHTTPServer, tmp_path: Path) -> None:
    paths = ("good", "good", "to_good", "to_good", "good?1", "good?2")
    assert [fetch(server, tmp_path, path) for path in paths] == [PNG] * 6
    assert Badly.asked == ["/good", "/to_good", "/good", "/good?1", "/good?2"]
    assert left(tmp_path) == [".image"] * 4
    assert Badly.told.items() >= {"User-Agent": "editjudge", "Accept": "image/*", "Accept-Encoding": "identity"}.items()
    assert fetched(address(server, "good").replace("http", "HTTP"), tmp_path) == PNG
    assert len(fetch(server, tmp_path, "full")) == 500_000


def test_a_damaged_image_is_asked_for_again(server: ThreadingHTTPServer, tmp_path: Path, damage) -> None:
    for _ in range(2):
        assert fetch(server, tmp_path, "good") == PNG
        [file] = tmp_path.rglob("*.image")
        damage(file)
    assert Badly.asked == ["/good", "/good"]


def test_many_rows_with_one_image_at_a_time_fetch_it_once(server: ThreadingHTTPServer, tmp_path: Path) -> None:
    found = Downloads(tmp_path, LIMITS)
    urls = [address(server, f"good?{number % 4}") for number in range(40)]
    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(found.fetch, urls)) == {PNG}
    found.close()
    assert Counter(Badly.asked) == {f"/good?{number}": 1 for number in range(4)}


@pytest.mark.parametrize(("path", "times", "own_wait"), [("busy", 3, 600), ("later", 2, 600), ("cut", 3, 0.01)])
def test_a_busy_server_is_asked_again_when_it_says(server, tmp_path: Path, path: str, times: int, own_wait: float):
    """At once, where our own wait would be too long."""
    assert fetch(server, tmp_path, path, own_wait) == PNG
    assert len(Badly.asked) == times


@each_row("path, reason, detail, times")
def test_what_gives_no_image_says_why_and_leaves_nothing(server, tmp_path, path, reason, detail, times) -> None:
    with pytest.raises(RowError) as caught:
        fetch(server, tmp_path, path)
    assert caught.value.reason == reason
    assert detail in caught.value.detail
    assert len(Badly.asked) == times
    assert left(tmp_path) == []


@pytest.mark.parametrize("path", ["slow", "drip", "far"])
def test_a_slow_answer_ends_at_the_limit(path: str, server: ThreadingHTTPServer, tmp_path: Path) -> None:
    with pytest.raises(RowError, match=r"not here after 0\.3 seconds"):
        fetch(server, tmp_path, path, seconds=0.3, attempts=2)


def test_pico_bananas_rows_are_downloaded_and_the_others_named(server: ThreadingHTTPServer, tmp_path: Path) -> None:
    paths = ["good", "missing", "html", "busy", "to_file", "good?2", "cut", "good", "shortened"]
    row = {"edit_type": "Remove an existing object", "summarized_text": "Flag removed."}
    rows = [
        row | {"text": f"Remove the flag number {number}.", "open_image_input_url": address(server, path)}
        for number, path in enumerate(paths)
    ]
    (tmp_path / "sft.jsonl").write_text("\n".join(map(json.dumps, rows)))
    section = yaml.safe_load((Path(__file__).parents[2] / "params.yaml").read_text())["raw_pairs"]
    section["downloads"] = {"private_hosts": True, "seconds": 60.0}
    source = {"format": "pico_banana", "path": str(tmp_path / "sft.jsonl")}
    section["sources"] = {"subject_remove": {"pico": source}}
    plan = importing.plan({"tasks": {"subject_remove": "p"}, "raw_pairs": section}, "subject_remove")
    kept: list[dict] = []
    refused: list[dict] = []
    for _ in range(2):  # the second time all that was had is on disk
        importing.collect(plan, list, kept.append, refused.append, tmp_path / "work")
    assert kept[:5] == kept[5:10]
    assert [row["key"][-8:] for row in kept[10:]] == ["00000008"], "a broken image is asked for again"
    assert [row["key"][-8:] for row in kept[:5]] == ["00000000", "00000003", "00000005", "00000006", "00000007"]
    assert {row["image"] for row in kept} == {PNG}
    assert [row["origin"] for row in kept[:2]] == [address(server, "good"), address(server, "busy")]
    reasons = [(1, "download failed", "HTTP 404"), (2, "not an image"), (4, "bad address")]
    found = [(row["row"], row["reason"], row["detail"]) for row in refused]
    reasons += [(8, "broken image"), *reasons]
    assert [entry[: len(wanted)] for entry, wanted in zip(found, reasons, strict=True)] == reasons
    asked = Counter(Badly.asked)
    assert (asked["/good"], asked["/busy"], asked["/cut"], asked["/missing"]) == (1, 3, 3, 2)


def certificate(file: Path, name: str) -> Path:
    """A self-signed certificate of a host, with its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject, now = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)]), datetime.now(UTC)
    builder = x509.CertificateBuilder(subject, subject, key.public_key(), 1, now, now + timedelta(days=1))
    names = x509.SubjectAlternativeName([x509.DNSName(name)])
    signed = builder.add_extension(names, critical=False).sign(key, hashes.SHA256())
    form = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    pem = serialization.Encoding.PEM
    file.write_bytes(key.private_bytes(pem, *form) + signed.public_bytes(pem))
    return file


@pytest.mark.parametrize(("name", "right"), [("localhost", True), ("elsewhere.example", False)])
def test_the_certificate_is_the_hosts_though_its_address_is_connected_to(server, tmp_path, monkeypatch, name, right):
    file = certificate(tmp_path / "c.pem", name)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(file)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    monkeypatch.setenv("SSL_CERT_FILE", str(file))
    url = f"https://localhost:{server.server_port}/good"
    if right:
        assert fetched(url, tmp_path / "d", attempts=1) == PNG
    else:
        with pytest.raises(RowError, match="download failed: ClientConnectorCertificateError"):
            fetched(url, tmp_path / "d", attempts=1)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::1]", "[::ffff:127.0.0.1]", "2130706433", "0x7f.1"])
def test_private_hosts_are_refused_however_they_are_written(server, tmp_path, host) -> None:
    with pytest.raises(RowError, match=r"private host|bad address: .* not a canonical IPv4"):
        fetched(f"http://{host}:{server.server_port}/good", tmp_path, private_hosts=False)
    assert Badly.asked == []
    assert left(tmp_path) == []


def test_every_hop_is_checked_at_the_address_that_is_connected_to(server, tmp_path, monkeypatch) -> None:
    """The server's own address is called public here: its redirect to another name of loopback is still refused."""
    monkeypatch.setattr(downloads, "is_public", lambda ip: ip == "127.0.0.1")
    monkeypatch.setitem(ANSWERS, "to_good", [(302, b"", {"Location": f"http://127.0.0.2:{server.server_port}/good"})])
    assert fetch(server, tmp_path, "good", private_hosts=False) == PNG
    with pytest.raises(RowError, match=r"private host: 127\.0\.0\.2"):
        fetch(server, tmp_path, "to_good", private_hosts=False)


def test_a_name_is_resolved_once_a_connection(server, tmp_path, monkeypatch) -> None:
    """A name that is public when it is checked and loopback afterwards: the connection goes to what was checked."""
    answers = iter(["93.184.215.14", "127.0.0.1"])
    connected = []

    def resolve(host: str, port: int, *_more: object, **_named: object) -> list:
        return [(2, 1, 6, "", (next(answers), port))]

    async def connect(_self: object, _socket: object, address: tuple[str, int]) -> None:
        connected.append(address[0])
        raise OSError("unreachable")

    monkeypatch.setattr(downloads.socket, "getaddrinfo", resolve)
    monkeypatch.setattr(asyncio.SelectorEventLoop, "sock_connect", connect)
    with pytest.raises(RowError, match=r"private host: rebind\.example"):
        fetched("http://rebind.example/good", tmp_path, private_hosts=False, attempts=2)
    assert connected == ["93.184.215.14"]


@each_row("url, told")
def test_addresses_that_cannot_be_are_refused(tmp_path: Path, url: str, told: str) -> None:
    with pytest.raises(RowError, match=told):
        fetched(url, tmp_path, attempts=1)


@each_row("public, addresses")
def test_addresses_of_the_open_internet(public: bool, addresses: list[str]) -> None:
    assert [ip for ip in addresses if is_public(ip) != public] == []


# Models by hub id: pinned once, and what a gated one asks for. The hub is a real HTTP server on this machine.

FIND = "import sys; from editjudge.core import hub; print(hub.find('judges.x.model', sys.argv[1], ['*.json'], 'a/b'))"


@pytest.fixture
def hub_server() -> Iterator[str]:
    with small_hub() as running:
        yield running


def found(server: str, folder: Path, model: str) -> subprocess.CompletedProcess:
    env = {name: value for name, value in os.environ.items() if name not in ("HF_HUB_OFFLINE", "HF_TOKEN")}
    env |= {"HF_ENDPOINT": server, "HF_HOME": str(folder / "cache"), "PYTHONPATH": str(Path(hub.__file__).parents[2])}
    return subprocess.run([sys.executable, "-c", FIND, model], cwd=folder, env=env, capture_output=True, text=True)


def test_an_id_without_a_commit_is_resolved_once_and_recorded(hub_server: str, tmp_path: Path) -> None:
    first = found(hub_server, tmp_path, "own/open")
    assert Path(first.stdout.strip()).name == COMMITS[0], first.stderr
    assert json.loads((tmp_path / "models.lock").read_text()) == {"own/open": COMMITS[0]}
    Hub.latest = 1
    assert found(hub_server, tmp_path, "own/open").stdout == first.stdout
    assert Path(found(hub_server, tmp_path, f"own/open@{COMMITS[1]}").stdout.strip()).name == COMMITS[1]
    assert list(json.loads((tmp_path / "models.lock").read_text())) == ["own/open"]
    (tmp_path / "models.lock").unlink()
    assert Path(found(hub_server, tmp_path, "own/open@main").stdout.strip()).name == COMMITS[1]
    assert hub.name_of(Path(first.stdout.strip())) == f"own/open@{COMMITS[0]}"
    assert hub.name_of(tmp_path) is None


def test_a_gated_model_says_which_licence_to_accept_and_which_variable_to_set(hub_server: str, tmp_path: Path) -> None:
    said = found(hub_server, tmp_path, "own/gated@main").stderr.splitlines()[-1]
    told = f"own/gated is gated: accept the licence dinov3-license at {hub_server}/own/gated, then set HF_TOKEN to"
    assert said.endswith(f"judges.x.model: {told} your token")


@each_row("model")
def test_what_is_no_hub_id(model: str, workdir: Path) -> None:
    assert not hub.is_id(model)
    assert hub.is_id("own/open")
    Path("own/open").mkdir(parents=True)
    assert not hub.is_id("own/open")
