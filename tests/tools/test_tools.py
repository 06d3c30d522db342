"""The page of plots, the headline, and the lock that is written in milliseconds with the bytes of DVC's own."""

import copy
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import vl_convert
import yaml
from cases import yaml_beside
from dvc.utils.serialize import modify_yaml
from dvc_render import VegaRenderer
from dvc_render.html import HTML

from editjudge.core import images
from tools import example, headline, plots_page, quick_dvc, verify

ROOT = Path(__file__).parents[2]
PLOTS = {
    file: {name: value for name, value in settings.items() if name != "cache"}
    for entry in yaml.safe_load((ROOT / "dvc.yaml").read_text())["stages"].values()
    for plot in entry.get("do", entry).get("plots", [])
    if isinstance(plot, dict)
    for file, settings in plot.items()
}
SHOWN = yaml_beside(__file__)["SHOWN"]


@pytest.fixture(scope="module")
def page() -> str:
    return plots_page.page()


def test_the_page_loads_nothing(page: str) -> None:
    document = HTML(page).with_scripts(VegaRenderer.SCRIPTS).with_element("<div id='x'></div>").embed()
    script = page[page.index("<script>") : page.index("</script>")]
    assert not re.findall("src=|href=|@import|url[(]", document.replace(script, ""))
    assert "<div id='x'></div>" in document
    assert "vegaEmbed" in document
    assert len(page) < 1_500_000


@pytest.mark.parametrize("file", PLOTS)
def test_a_template_draws_its_rows_and_a_missing_interval_is_left_out(file: str) -> None:
    plot = PLOTS[file]
    rows = [SHOWN | {"rev": rev} for rev in ("one", "two")]
    rows += [SHOWN | {"rev": "one", "judge": "k", "model": "n", "low": "", "high": "", "known_damage": ""}]
    properties = plot | {"template_dir": str(ROOT / ".dvc/plots"), "revs_with_datapoints": ["one", "two"]}
    spec = VegaRenderer(rows, file, **properties).get_filled_template()
    assert "<DVC_METRIC" not in json.dumps(spec), "an anchor without a value"
    drawn = vl_convert.vegalite_to_svg(spec, vl_version=plots_page.VEGA_LITE)
    assert plot["title"].partition(",")[0].partition("$")[0] in drawn
    assert "template" not in plot or "NaN" not in drawn
    words = set(re.findall(r">([^<>]+)</text>", drawn))
    assert {"one", "two"} <= words, "the commits are told apart"
    if plot.get("template") in ("accuracy", "leaderboard", "psychometric"):
        assert {"judge", "j", "k"} <= words
        rules = len(re.findall(r'aria-roledescription="rule mark"', drawn))
        assert rules == 2, "an interval where there is one"
    if plot.get("template") == "leaderboard":
        assert {"m, known damage 1.5", "n"} <= words


def test_no_two_plots_have_one_title() -> None:
    titles = [plot["title"] for plot in PLOTS.values()]
    assert len(set(titles)) == len(titles)


def test_dvc_shows_the_graphs_plots_without_network(tmp_path: Path) -> None:
    """In a copy of its own: the command, then `dvc plots show` on the committed files."""
    verify.working_copy(ROOT, tmp_path)
    for command in (["tools.plots_page"], ["dvc", "plots", "show", "-o", "out"]):
        subprocess.run([sys.executable, "-m", *command], cwd=tmp_path, check=True, capture_output=True)
    shown = (tmp_path / "out/index.html").read_text()
    assert "Covering radius by pairs kept" in shown
    assert "cdn.jsdelivr.net" not in shown


def test_readmes_figures_are_those_of_the_committed_graph(monkeypatch, capsys) -> None:
    monkeypatch.chdir(ROOT)
    headline.main()
    said = capsys.readouterr().out
    assert said in re.findall(r"^```text\n(.*?)^```$", (ROOT / "README.md").read_text(), re.M | re.S)
    assert max(map(len, said.splitlines())) < 100


def test_readmes_picture_is_of_the_edits_as_the_graph_makes_them(monkeypatch) -> None:
    monkeypatch.chdir(ROOT)
    asked = example.prompt()
    made, painted = example.pair(asked), example.neural(asked)
    committed = images.decode(example.PICTURE.read_bytes()).astype(float)
    assert np.abs(committed - example.picture(made, painted)).mean() < 2, "python -m tools.example"
    assert example.of_network(made, painted) in " ".join((ROOT / "README.md").read_text().split())


def test_what_is_not_known_is_a_dash() -> None:
    none = dict.fromkeys(("value", "low", "high"))
    summary = {"accuracy": {"b": {"mute": none}}, "gain": {"held_out": none}, "position_bias": {"b": none}}
    summary |= {"kendall_tau": {"mute": None}, "rating": {}}
    pairs, overall = {"pairs": 0, "known_truth": [{"share_right": None}]}, {"dimension": "overall", "baselines": [1]}
    overall |= {"test": {"accuracy": 0.455, "low": 0.365, "high": 0.548}, "above_baselines": False}
    found = list(headline.rows(summary, pairs, [{"agreement": [{"dimension": "overall"}, overall]}]))
    assert found.pop(-3) == ("scorer, not above its baselines", "0.455", "0.365 to 0.548")
    assert found[0] == ("training pairs", "0", "-")
    assert [row[1:] for row in found[1:]] == [("-", "-")] * 5
    assert headline.table(found).splitlines()[0].split() == ["value", "95", "%", "interval"]


def test_a_changed_and_a_new_stage_are_written_as_dvc_writes_them(tmp_path: Path) -> None:
    for folder, modify in (("ours", quick_dvc.modify), ("theirs", modify_yaml)):
        (tmp_path / folder).mkdir()
        file = shutil.copy(ROOT / "dvc.lock", tmp_path / folder)
        with modify(str(file)) as content:
            known = content["stages"]["train_judge"]
            for name in ("train_judge", "new@one"):
                stage = copy.deepcopy(known) | {"cmd": "python -m " + "a_module " * 20}
                stage["params"] = {"params.yaml": {"a.b": 1e-08, "c": None, "d": [True, "true", "1.0", 2.5], "e": {}}}
                content["stages"].update({name: stage})
    assert (tmp_path / "ours/dvc.lock").read_bytes() == (tmp_path / "theirs/dvc.lock").read_bytes()
