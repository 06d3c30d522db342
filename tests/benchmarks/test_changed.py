"""What a judge writes beside its verdict: kept in rows, told, and its boxes held against what changed."""

import json
from pathlib import Path

import numpy as np
import program
import pytest
import yaml
from chat_client import chat_server
from table_files import jsonl

import editjudge
from editjudge.benchmarks import changed
from editjudge.benchmarks.preferences import forms
from editjudge.core import images, records
from editjudge.judges.asking import ChatJudge
from editjudge.judges.protocol import BothOrders, Verdict
from editjudge.measures.annotation.slot_settings import SlotSetting
from editjudge.report import gallery
from editjudge.stages import judge_benchmark

SAYS = "A [250, 250, 500, 500] red, asked for; B none; A does more."
SOURCE = np.full((400, 600, 3), 128, np.uint8)


def reply(reason: str) -> str:
    return json.dumps({"reason": reason, "winner": "Image A"})


def edited() -> np.ndarray:
    """The box 250, 250, 500, 500 (thousandths) is red; every pixel changes by a little, as by re-encoding."""
    image = SOURCE + np.random.default_rng(0).integers(-3, 4, SOURCE.shape, np.int8).astype(np.uint8)
    image[100:200, 150:300] = 220, 20, 20
    return image


def test_boxes_of_a_reply_against_the_box_that_was_painted() -> None:
    cells = changed.measured(images.encode_png(SOURCE), images.encode_png(edited()))
    a, b = changed.claimed(reply(SAYS))
    assert (a & cells).sum() / (a | cells).sum() > 0.95
    assert not b.any()
    assert not changed.measured(images.encode_png(SOURCE), images.encode_png(SOURCE)).any()
    half, _ = changed.claimed(f"<think>A [0, 0, 9, 9]</think>{reply('Image A: [250, 250, 375, 500] x. Image B: none')}")
    assert (half & cells).sum() / (half | cells).sum() == pytest.approx(0.5, abs=0.03)


@pytest.mark.parametrize(
    "said", ["", "A is better", "A [1, 2]; B none", "A [1, 2, 1, 4]; B none", "A none; B [0, 0, 9, 2000]"]
)
def test_what_names_no_boxes_of_both_edits_is_unscored(said: str) -> None:
    assert changed.claimed(reply(said)) == []
    assert changed.claimed(said) == []


def test_a_bare_verdict_says_nothing_and_all_else_is_kept_in_characters_that_can_be_printed() -> None:
    judge = object.__new__(ChatJudge)
    judge.outline = None
    bare = ('{"winner": "Image A"}', '```json\n{"winner": "Tie"}\n```', '<think>\n\n</think>\n{"winner":"Image B"}')
    for reply in (*bare, '<think>Hm\x07\u202e {</think>{"winner": "Tie"}'):
        told = judge.said(BothOrders(Verdict("k", reply=reply), Verdict("k"), Verdict("k")))
        assert told == (None if reply in bare else "A shown first: Hm   {")
    judge.outline, judge.form = object(), "viescore_10"
    assert changed.overlap(judge, [], []) == [], "a rater is not asked for boxes"


def test_bench_rows_compare_and_the_gallery_tell_what_a_judge_wrote(workdir: Path) -> None:
    for name, picture in {"source": SOURCE, "a": edited(), "b": SOURCE}.items():
        Path(f"{name}.png").write_bytes(images.encode_png(picture))
    rows = [{"prompt": f"Go {n}.", "image": "source.png", "chosen": "a.png", "rejected": "b.png"} for n in (1, 2)]
    own = {"form": "rewardbench", "path": str(jsonl(workdir / "pairs.jsonl", *rows))}
    with chat_server(replies={"Go 1.": [reply(SAYS)], "Go 2.": ['{"winner": "Tie"}']}) as chat:
        gpt = {"backend": "endpoint", "base_url": chat.url, "model": "m", "rule": "agreement"}
        values = {"judges": {"gpt": gpt | {"prompt": "changed_boxes"}}, "measures": {}, "benchmarks": {"own": own}}
        Path("params.yaml").write_text(yaml.safe_dump(values))
        shown = program.run("bench own --out out.json")
        text = program.run("compare --source source.png --a a.png --b b.png --instruction 'Go 1.' --html page.html")
        found = editjudge.compare("source.png", "a.png", "b.png", "Go 1.", judge="gpt").said
        with editjudge.load_judge("gpt") as loaded:
            verdicts, _, _ = judge_benchmark.ask("gpt", loaded.judge, forms.load("own", own), {}, SlotSetting())
    [boxes] = json.loads(Path("out.json").read_text())["benchmarks"]["own"]["boxes"]
    assert (boxes["judge"], boxes["scored"], boxes["n"]) == ("gpt", 2, 4)
    assert boxes["iou"] == pytest.approx(0.5, abs=0.03), "one order is right of both edits, the other of neither"
    assert "intersection over union" in shown
    told = f"A shown first: {reply(SAYS)}\n\nB shown first, as Image A: {reply(SAYS)}"
    records.check("verdicts", verdicts, "verdicts")
    assert [found, *(row["said"] for row in verdicts)] == [told, told, None]
    assert f"gpt said:\n{told}" in text
    page = json.loads(Path("page.html").read_text().partition('id="data">')[2].partition("</script>")[0])
    assert page["prompts"][0]["pairs"][0]["judged"][0][gallery.JUDGED.index("said")] == told
    assert gallery.details(page["prompts"][0])["said"] == [[told]]
