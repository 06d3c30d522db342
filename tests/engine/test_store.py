"""Large data in a folder, and in a bucket of moto's S3 on loopback."""

import io
from collections.abc import Iterator

import boto3
import fsspec
import pytest
from moto.server import ThreadedMotoServer

from editjudge.core.errors import FileError
from editjudge.engine import store
from editjudge.engine.resume import RecordCache

engine = pytest.importorskip("editjudge.engine.ray", reason="the extra ray, which the set-up of the tests installs")


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """An empty one."""
    server = ThreadedMotoServer(port=0, verbose=False)
    server.start()
    address = "http://{}:{}".format(*server.get_host_and_port())
    for name, value in (("ENDPOINT_URL", address), ("ACCESS_KEY_ID", "k"), ("SECRET_ACCESS_KEY", "s")):
        monkeypatch.setenv(f"AWS_{name}", value)
    boto3.client("s3", region_name="us-east-1").create_bucket(Bucket="team")
    yield "s3://team/edits"
    server.stop()


@pytest.mark.parametrize("in_bucket", [False, True])
def test_what_is_large_goes_through_the_store_and_is_made_anew_if_lost(in_bucket, request, tmp_path, monkeypatch):
    where = request.getfixturevalue("bucket") if in_bucket else "folder"
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(store.STORE, where)
    edit, little = bytes(store.LARGE), b"x" * (store.LARGE - 1)
    said = engine._light([edit, little])  # in a worker
    assert len(said) < store.LARGE + 500
    kept, same = engine._Unpickler(io.BytesIO(said)).load()
    assert (bytes(kept), same) == (edit, little)
    assert kept.path.startswith(f"{where}/")
    files, path = fsspec.core.url_to_fs(kept.path)
    with RecordCache(tmp_path / "c.sqlite") as cache:
        cache.put("k", {"status": "done"}, kept)
        assert cache.get("k") == ({"status": "done"}, kept)
        with monkeypatch.context() as patch:
            if in_bucket:
                patch.setattr(store, "_exists", lambda _: pytest.fail("it was listed"))
            assert cache.get("k") == ({"status": "done"}, kept)
        another = store.keep(edit + b"later")
        assert another.is_there(), "what was written since the bucket was listed, too"
        files.pipe_file(path, edit[1:])
        with pytest.raises(FileError, match=r"damaged, and removed: run the stage again"):
            bytes(kept)
        with pytest.raises(FileError, match=r"not there: run the stage again"):
            bytes(kept)
        assert cache.get("k") is None
