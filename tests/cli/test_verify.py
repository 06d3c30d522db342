"""verify names the stage where a difference begins."""

import copy

from editjudge.cli.publish import differences, results, small_differences


def entry(path: str, md5: str) -> dict:
    return {"path": path, "md5": md5}


LOCK = {
    "code": {"deps": [entry("src", "s")], "outs": [entry("code.json", "c")]},
    "raw": {"deps": [entry("code.json", "c")], "outs": [entry("raw.parquet", "1"), entry("raw.json", "2")]},
    "pool": {"deps": [entry("raw.parquet", "1")], "outs": [entry("pool.parquet", "3")]},
    "other": {"outs": [entry("other.parquet", "4")]},
}


def test_the_first_stage_that_differs_is_named_and_what_follows_counted() -> None:
    assert differences(LOCK, LOCK, []) == ("verify: 4 stages gave what is committed, to the byte", True)
    now = copy.deepcopy(LOCK)
    now["raw"]["outs"][0]["md5"] = now["pool"]["deps"][0]["md5"] = "9"
    now["pool"]["outs"][0]["md5"] = "8"
    text, same = differences(LOCK, now, ["metrics/raw.json"])
    assert text.splitlines() == [
        "verify: raw differs: raw.parquet",
        "verify: 1 stages follow: pool",
        "verify: 1 metrics and plots differ: metrics/raw.json",
    ]
    assert not same
    assert not differences(LOCK, LOCK, ["plots/x.csv"])[1]
    fewer = {name: stage for name, stage in LOCK.items() if name != "other"}
    for locks in ((LOCK, fewer), (fewer, LOCK)):
        assert differences(*locks, []) == ("verify: other differs: other.parquet", False)


def test_of_the_small_graph_the_first_stage_that_differs_is_named() -> None:
    """By the order of the run: what lies behind it differs because of it."""
    committed = results(LOCK)
    assert "code.json" not in committed
    assert small_differences(committed, LOCK) == (
        "verify: 4 files of the small graph are as committed, to the byte",
        True,
    )
    told, same = small_differences(committed | {"pool.parquet": "9", "raw.json": "9"}, LOCK)
    assert told == "verify: raw is the first stage that differs; 2 files in all: raw.json, pool.parquet"
    assert not same
    assert not small_differences(committed | {"gone.parquet": "1"}, LOCK)[1]
