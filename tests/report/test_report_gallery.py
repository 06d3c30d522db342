"""What the report holds: tables, charts and the graph; a gallery of pairs, z-scores, verdicts and images."""

import base64
import copy
import io
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import report_data
import yaml
from cases import each_row, yaml_beside
from PIL import Image

from editjudge.core import images, masks, params, records
from editjudge.core.settings import section
from editjudge.labels import explained
from editjudge.labels.tiers import PairsSetting
from editjudge.report import figures, gallery
from editjudge.report.figures import Files, ReportSetting
from editjudge.stages import report


@pytest.fixture(scope="module")
def state(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("state")
    report_data.write(folder)
    return folder


@pytest.fixture
def prompts(state: Path, monkeypatch: pytest.MonkeyPatch) -> list[gallery.GalleryPrompt]:
    monkeypatch.chdir(state)
    values, files = report_data.values(), Files()
    found, _ = report.prompts_of(values, report.items_of(values, files), files)
    assert files.missing == []
    return list(found)


def test_every_two_edits_are_there_and_the_pairs_made_are_those_of_training(prompts, state) -> None:
    training = [prompt for prompt in prompts if prompt.kind == gallery.TRAINING]
    pairs = [pair for prompt in training for pair in prompt.pairs]
    assert len(pairs) == len(training) * 15
    made = {pair["key"]: pair for pair in pairs if pair["made"]}
    written = records.read(state / "data/train_pairs.parquet", "train_pairs")
    assert set(made) == {row["key"] for row in written}
    for row in written:
        pair = made[row["key"]]
        assert (pair["a"], pair["b"], pair["tiers"]) == (row["model_a"], row["model_b"], row["tiers"])
        assert pair["winner"] == row["winner"]
        assert pair["margin"] == pytest.approx(row["margin"])
    why = Counter(pair["why"] for pair in pairs if not pair["made"])
    assert why["failed"] == 5 * len(training), "the broken edit against each other one"
    assert why["unedited"] == 4 * len(training)


def test_z_is_over_the_edits_that_count_and_higher_is_better(prompts: list[gallery.GalleryPrompt]) -> None:
    edits = prompts[0].edits
    z = np.array([edits[model]["z"] for model in ("precise", "leaky", "box", "shifted")], float)
    np.testing.assert_allclose(z.mean(axis=0), 0, atol=1e-3)
    np.testing.assert_allclose(z.std(axis=0), 1, atol=1e-3)
    assert (z[0] > z[-1]).all(), "less damage, whatever the measure's direction"
    assert edits["unedited"]["z"] == [None] * z.shape[1]
    assert (edits["unedited"]["tier"], edits["broken"]["tier"]) == ("unedited", "failed")


def test_what_judges_said_stands_with_benchmarks_and_matches(prompts: list[gallery.GalleryPrompt], state: Path) -> None:
    by_key = {pair["key"]: pair for prompt in prompts if prompt.kind != gallery.TRAINING for pair in prompt.pairs}
    rows = records.read(state / "data/matches.parquet", "matches")
    assert sum(len(pair["judged"]) for pair in by_key.values()) == len(rows) + 2 * 4
    for row in rows:
        assert row["winner"] in [each["winner"] for each in by_key[row["key"]]["judged"]]
    assert by_key["probe.color_alter-00000"]["truth"] == "Image A"
    written = gallery.as_json(prompts)
    said = {pair["key"]: pair["judged"] for prompt in written["prompts"] for pair in prompt["pairs"]}
    for row in rows:
        found = [dict(zip(gallery.JUDGED, each, strict=True)) for each in said[row["key"]]]
        [own] = [each for each in found if written["judges"][each["judge"]] == row["judge"]]
        assert own["winner"] == {"Image A": "A", "Image B": "B", "Tie": "T", None: None}[row["winner"]]
        assert own["p_a"] == row["p_a"]


def test_each_prompt_shows_its_own_source_and_edits(prompts: list[gallery.GalleryPrompt], tmp_path: Path) -> None:
    values, files, pictures = report_data.values(), Files(), gallery.PageImages(tmp_path / "images", 64)
    report.illustrate(values, prompts, report.items_of(values, files), files, pictures)
    pool = {row["key"]: row for row in records.read(Path(f"data/pools/{report_data.TASK}.parquet"), "pools")}
    made = [records.read(Path(f"data/gallery/{model}.parquet"), "candidates") for model in report_data.DAMAGE]
    shown = {(row["key"], row["model"]): row for rows in made for row in rows}
    for prompt in prompts:
        own = pool[prompt.key]
        assert (prompt.source, prompt.instruction) == (pictures.add(own["image"]), own["instruction"])
        for model, edit in prompt.edits.items():
            said = (pictures.add(shown[prompt.key, model]["image"]), shown[prompt.key, model]["reason"])
            assert (edit["image"], edit["reason"]) == said


def test_a_page_holds_whole_prompts_up_to_its_number_and_of_every_kind(prompts: list[gallery.GalleryPrompt]) -> None:
    assert gallery.chosen(prompts, 10_000) == prompts
    shown = gallery.chosen(prompts, 60)
    assert sum(len(prompt.pairs) for prompt in shown) <= 60
    assert {prompt.kind for prompt in shown} == {gallery.TRAINING, gallery.ARENA, "probe"}
    assert gallery.chosen(prompts[::-1], 60) == shown[::-1]


def test_the_same_input_gives_the_same_bytes(state: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(state)
    folders = [tmp_path / "first", tmp_path / "second"]
    for folder in folders:
        report.report(report_data.values(), Files(), folder)
    assert (folders[0] / "index.html").stat().st_size < 1_000_000
    files = [sorted(path for path in folder.rglob("*") if path.is_file()) for folder in folders]
    first, second = (
        [(path.relative_to(folder), path.read_bytes()) for path in own]
        for folder, own in zip(folders, files, strict=True)
    )
    assert first == second
    assert {path.stem for path, _ in first if path.parent.name == "data"} == {"charts", "pairs", "details-0"}
    assert ReportSetting(**report_data.values()["report"]).pairs >= 5_000


def test_an_image_is_kept_once_as_a_small_jpeg_or_as_it_came_inside_the_page(photo: np.ndarray, tmp_path: Path) -> None:
    data = images.encode_png(photo)
    found = gallery.PageImages(tmp_path / "images", 1024)
    assert [found.add(data), found.add(None), found.add(b"no image"), found.add(data)] == [0, None, None, 0]
    [row], [file] = found.rows, list((tmp_path / "images").iterdir())
    assert (row["width"], row["height"], row["file"]) == (96, 72, f"images/{file.name}")
    with Image.open(file) as written:
        assert (written.format, written.size) == ("JPEG", (96, 72))
    inside = gallery.PageImages(None, 1024)
    inside.add(data)
    assert inside.rows[0]["file"] == f"data:image/png;base64,{base64.b64encode(data).decode()}"
    found = gallery.PageImages(tmp_path / "images", 48)
    found.add(data)
    with Image.open(tmp_path / found.rows[0]["file"]) as written:
        assert (written.format, written.size) == ("JPEG", (48, 36))
    assert (found.rows[0]["width"], found.rows[0]["height"]) == (96, 72), "boxes are in these pixels"
    out, exif = io.BytesIO(), Image.Exif()
    exif[0x0112] = 6  # lies on its side
    Image.fromarray(photo).save(out, "JPEG", exif=exif)
    found = gallery.PageImages(tmp_path / "images", 1024)
    found.add(out.getvalue())
    with Image.open(tmp_path / found.rows[0]["file"]) as written:
        assert written.size == (72, 96), "the way up that it was measured"
        assert not written.getexif()


def test_details_lie_apart_from_what_filters_ask(prompts: list[gallery.GalleryPrompt]) -> None:
    [prompt] = gallery.as_json(prompts[:1])["prompts"]
    values = [edit["values"] for edit in prompt["edits"]]
    found = gallery.details(prompt)
    assert [edit["values"] for edit in found["edits"]] == values
    assert not {name for edit in prompt["edits"] for name in edit} & set(gallery.DETAILS)
    assert "layers" not in prompt


def test_the_outline_of_a_mask_goes_around_it() -> None:
    mask = np.zeros((40, 60), bool)
    mask[10:20, 30:50] = True
    [outline] = gallery.outlines_of(masks.mask_png(mask))
    assert sorted(outline) == [[30, 10], [30, 19], [49, 10], [49, 19]]
    rows, columns = np.mgrid[:60, :60]
    [around] = masks.outlines((rows - 30) ** 2 + (columns - 30) ** 2 <= 400)
    assert len(around) == 12, "it is closed: the first point has no neighbour beside it"
    assert gallery.outlines_of(b"no image") == []


def test_a_number_of_a_table_is_one_and_an_empty_cell_none(workdir: Path) -> None:
    Path("t.csv").write_text("a,b,c\n0,,x\n")
    assert Files().table("t.csv") == [{"a": 0.0, "b": None, "c": "x"}]


@each_row("a, b, side")
def test_the_less_damaged_side(a: float | None, b: float, side: str | None) -> None:
    assert explained.less_damaged(a, b) == side


@each_row("winner, status, why")
def test_why_two_edits_that_judges_compared_are_no_pair(winner: str | None, status: str, why: str) -> None:
    edits = [
        {"key": "k", "model": model, "status": "done", "change": 9.0, "damage": None, "reason": None, "measures": []}
        for model in "ab"
    ]
    judged = {"key": "k", "model_a": "a", "model_b": "b", "winner": winner, "status": status, "dimension": "d"}
    judged |= {"verdicts": [{"judge": "j"}], "damage_a": 1.0, "damage_b": 2.0}
    setting = section(report_data.values(), "train_pairs", PairsSetting)
    [(_, [pair])] = explained.explained(edits, [judged], [], (), setting).values()
    told = {"key": "k.a.b", "a": "a", "b": "b", "made": False, "why": why, "winner": winner, "truth": "Image A"}
    assert pair == told | {"judged": [{"judge": "j", "dimension": "d"}]}
    trained = {"key": "t", "prompt": "k", "model_a": "b", "model_b": "a", "winner": "Image B", "tiers": None}
    [(_, [made])] = explained.explained(edits, [judged], [trained], (), setting).values()
    assert made == pair | {"key": "t", "made": True, "why": "made"}, "its sides stay those of the verdicts"


ROOT = report_data.ROOT
BOARD = records.read_details(ROOT / "metrics/leaderboard.json")
BENCH = {"probe": records.read_details(ROOT / "metrics/benchmarks/probe.json")}


def test_boards_have_the_whole_and_each_task_and_dimension() -> None:
    together, *judges = figures.boards(BOARD)
    assert [part["kind"] for part in together["parts"]] == ["", *["dimension"] * 3, *["task"] * 8]
    assert "measures, visual consistency" in [board["judge"] for board in judges]
    assert all([part["kind"] for part in board["parts"]] == ["", *["task"] * 8] for board in judges)
    assert len(figures.boards(BOARD | {"overall": None})) == len(judges)
    assert figures.boards(None) == []
    given, found = BOARD["judges"][0], judges[0]["win_rates"]
    assert found["models"] == [row["model"] for row in given["models"]], "in the order of their ranks"
    models, rates = given["win_rates"]["models"], given["win_rates"]["rates"]
    for row, one in enumerate(found["models"]):
        for column, other in enumerate(found["models"]):
            assert found["rates"][row][column] == rates[models.index(one)][models.index(other)]


@each_row("words, chance")
def test_chance(words: str, chance: float | None) -> None:
    names = {"A": "Image A", "B": "Image B", "bad": "Both bad", "good": "Both good"}
    said = [{"verdict": names.get(word, word), "items": 1} for word in words.split()]
    assert figures.chance({"benchmark": [{"verdicts": said}]}) == chance
    assert [each["chance"] for each in figures.judges(BENCH)] == list(map(figures.chance, BENCH.values()))


def test_a_judge_that_was_not_heard_has_no_accuracy() -> None:
    report = copy.deepcopy(BENCH["probe"])
    seen = report["judges"][0]["accuracy"]
    for part in (seen, *seen["per_task"].values()):
        part |= {"scored": 0, "accuracy": 0.0, "low": 0.0, "high": 1.0}
    [row] = [row for row in figures.judges({"probe": report})[0]["rows"] if not row["scored"]]
    assert set(row["accuracy"].values()) == set(row["mean_over_tasks"].values()) == {None}
    [chart] = [chart for chart in figures.judge_charts({"probe": report}, {}) if "by task" in chart["title"]]
    assert row["judge"] not in {point["judge"] for point in chart["spec"]["data"]["values"]}


def test_the_trained_judge_less_its_base_is_that_way_round() -> None:
    judges = {"new": {"model": "models/judge"}, "old": {"model": "models/tiny_base"}, "rule": {"backend": "measures"}}
    difference = {"first": "old", "second": "new", "difference": -0.2, "low": -0.3, "high": -0.1, "p": 0.1}
    other = difference | {"second": "rule"}
    measured = [{"benchmark": "probe", "differences": [difference, other]}]
    [found] = figures.against_base(measured, judges, "models/tiny_base")
    assert (found["judge"], found["base"]) == ("new", "old")
    assert (found["difference"], found["low"], found["high"]) == (0.2, 0.1, 0.3)


def test_failures_name_stage_reason_and_number() -> None:
    given = yaml_beside(__file__)["FAILURES"]
    found = [[row["stage"], row["what"], row["reason"], row["records"]] for row in figures.failures(given["metrics"])]
    assert found == given["told"]
    silent = [board["unscored"] for board in BOARD["judges"] if board["unscored"]]
    assert [row["records"] for row in figures.failures({"benchmarks": BENCH, "leaderboard": BOARD})] == silent


def test_every_chart_names_its_axes_columns() -> None:
    curves = {"probe": [{"judge": "base", "damage_gap": 1.0, "fit": 0.5}]}
    charts = list(figures.judge_charts(BENCH, curves))
    named = ["Judges by task, probe", "Position bias, probe", "Psychometric curves, probe"]
    assert [chart["title"] for chart in charts] == named
    learnt = {"pairs": 1, "accuracy": 0.5, "low": 0.4, "high": 0.6}
    charts += figures.training_charts({"learning_curve/judge": [learnt]})
    for chart in charts:
        columns = set(chart["spec"]["data"]["values"][0])
        for layer in chart["spec"].get("layer", [chart["spec"]]):
            own = set(layer.get("data", {"values": [{}]})["values"][0])
            fields = {each["field"] for each in layer["encoding"].values() if "field" in each}
            assert fields <= (own or columns), chart["title"]
    needed = figures.figure("power", [{"needed": 9}], "x")
    assert (needed["title"].split()[0], needed["spec"]["encoding"]["y"]["title"]) == ("Photos", "photos")


def test_the_graph_has_each_stage_beneath_what_it_reads() -> None:
    given = yaml.safe_load((ROOT / "dvc.yaml").read_text())
    found = {node["name"]: node for node in figures.nodes(given, params.load(ROOT / "params.yaml"), {"filter": 240})}
    assert set(found) == set(given["stages"]) - {"code"}
    for node in found.values():
        assert all(found[name]["depth"] < node["depth"] for name in node["reads"]), node["name"]
    assert found["annotate"]["reads"] == ["filter", "candidates"]
    assert found["candidates"]["items"] == 7
    assert found["filter"]["records"] == 240
    assert "summary" in found["report"]["reads"]
