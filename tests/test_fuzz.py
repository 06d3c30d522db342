"""The small form of tools/trials/fuzz.py: a mutant of a file, reply or request ends in a value or a named error."""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tools.trials import fuzz, hostile

COUNT = {"download": 30}
# What once got through, or nearly: each is tried again.
KEPT = {
    "download": [
        b"HTTP/1.1 503 B\r\nRetry-After: Fri, 31 Dec 9999 23:59:59 -2359\r\n\r\n",
        b"HTTP/1.1 302 F\r\nLocation: http://127.0.0.2:PORT/\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: " + b"9" * 5000 + b"\r\n\r\n",
    ],
    "path": [b"../secret.png", b"out.png", b"up/secret.png", b"loop.png", b"a\nb", b"\x00", b"a" * 5000, b"\xff", b""],
    "chat": [
        b'{"model": "judge", "' + b"x" * 30_000 + b'": 1}',
        b'{"model": "' + b"x" * 200_000 + b'", "messages": [{"role": "user", "content": ""}]}',
        b"[" * 100_000,
        b'{"model": "\\ud800"}',
        b'{"seed": 1e999}',
    ],
    "reward": [b"[" * 100_000, b'{"edits": ' + b"9" * 5000 + b"}", b'{"edits": []}', b'{"requests": [{}]}'],
    "recipe": [b"[" * 30_000],
}


@pytest.mark.parametrize("name", fuzz.CLASSES)
def test_mutants_are_read_or_refused_by_name(name: str) -> None:
    count, kept = COUNT.get(name, 60), KEPT.get(name, [])
    ended = fuzz.tried(name, count, kept)
    assert set(ended) <= {"value", "named"}
    assert ended.total() == count + len(kept)
    assert ended["named"] or name in ("JSONL", "CSV", "path"), "whose rows are refused one by one"


PARTS = st.one_of(
    st.text(), st.sampled_from(["..", ".", "/", "\\", "up", "in", "image.png", "secret.png", "out.png", "~"])
)


@settings(max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.lists(PARTS, max_size=6), st.sampled_from(["", "/", "\x00", "\n"]))
def test_no_name_leads_out_of_its_folder(tmp_path: Path, parts: list[str], between: str) -> None:
    file = tmp_path / "name"
    file.write_bytes(between.join(parts).encode(errors="surrogatepass"))
    hostile.inside(file)
    assert {path.name for path in tmp_path.iterdir()} == {"name", "images", "secret.png"}
