"""The report's page in a real browser: headless Chromium, without network. Nightly, and where the report changes."""

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qs

import pytest
import report_data
from cases import each_row, yaml_beside
from pictures import png
from PIL import Image
from playwright.sync_api import Browser, Page, sync_playwright

from editjudge.report import gallery
from editjudge.report import page as pages
from editjudge.report.figures import Files
from editjudge.report.page import one_pair
from editjudge.stages import report
from tools import report_pictures

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
pytestmark = [
    pytest.mark.skipif(CHROMIUM is None, reason="no browser: apt-get install chromium"),
    pytest.mark.nightly("constraints.txt", "dvc.yaml", "metrics", "params.yaml", "pipelines", "plots", "stages"),
]
PATIENCE = 120_000  # ms; a machine may be busy
PHONE = {"width": 390, "height": 844}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page with its images, of a small state of the graph."""
    folder = tmp_path_factory.mktemp("site")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        values = report_data.write(folder)
        report.report(values, Files(), folder / "report")
    return folder / "report/index.html"


def loaded(site: Path, name: str) -> dict:
    """What a file of data/ gives the page."""
    [text] = re.findall(
        rf'^take\("{name}",(.*)\);$', (site.parent / f"data/{name}.js").read_text(encoding="utf-8"), re.S
    )
    return json.loads(text)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as driver:
        process = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield process
        process.close()


@pytest.fixture
def opened(browser: Browser, site: Path, request: pytest.FixtureRequest) -> Iterator[Page]:
    """The page; at the end nothing stands in the console and nothing was asked of a network."""
    page = browser.new_page(**getattr(request, "param", {}))
    page.set_default_timeout(PATIENCE)
    told: list[str] = []
    page.on("console", lambda message: told.append(message.text))
    page.on("pageerror", lambda error: told.append(str(error)))
    page.on("request", lambda asked: None if asked.url.startswith(("file:", "data:")) else told.append(asked.url))
    page.goto(site.as_uri())
    page.wait_for_selector("#gallery .cards li")
    yield page
    assert page.evaluate("window.stolen") is None, "an instruction ran"
    page.close()
    assert told == []


@pytest.fixture
def bare(browser: Browser) -> Iterator[Page]:
    """A page to go to a file with."""
    page = browser.new_page()
    page.set_default_timeout(PATIENCE)
    yield page
    page.close()


def draw_all(page: Page) -> None:
    """Scrolls down to the end, so that every chart is drawn."""
    for chart in page.locator(".chart").all():
        chart.scroll_into_view_if_needed()
    until(page, "[...document.querySelectorAll('.chart')].every((each) => each.querySelector('svg'))")


def until(page: Page, holds: str) -> None:
    """Waits for it. Playwright's own way evaluates in the page, which the page's policy forbids."""
    for _ in range(PATIENCE // 100):
        if page.evaluate(holds):
            return
        page.wait_for_timeout(100)
    pytest.fail(f"never: {holds}")


def open_pair(page: Page, key: str) -> None:
    """By its link."""
    page.goto(f"{page.url}#pair={key}")
    page.reload()


def first_column(page: Page) -> list[str]:
    return page.locator("#leaderboard tbody th").all_inner_texts()


def test_every_chart_is_drawn(opened: Page) -> None:
    draw_all(opened)
    assert opened.locator(".chart").count() > 12
    assert opened.locator("#graph svg rect").count() >= 15


def test_what_the_page_makes_of_made_up_results_stands_beside_to_the_letter(opened: Page) -> None:
    tables = yaml_beside(__file__)
    shown = {call: opened.evaluate(tables["SHOWN"] % call, tables["GIVEN"]).splitlines() for call, _ in tables["TOLD"]}
    assert shown == {call: told.splitlines() for call, told in tables["TOLD"]}


def test_the_leaderboard_is_sorted_by_its_heads(opened: Page) -> None:
    best_first = first_column(opened)
    opened.click("#leaderboard th button:has-text('Rating')")
    assert first_column(opened) == best_first
    assert opened.locator("#leaderboard th[aria-sort=descending]").count() == 1
    opened.click("#leaderboard th button:has-text('Rating')")
    assert first_column(opened) == best_first[::-1]
    opened.click("#leaderboard th button:has-text('Model')")
    assert first_column(opened) == sorted(best_first)
    before = opened.locator("#leaderboard tbody").inner_text()
    opened.select_option("#part", label="task: color alter")
    assert opened.locator("#leaderboard tbody").inner_text() != before


@each_row("name, value")
def test_filters_leave_the_pairs_that_they_name(opened: Page, site: Path, name: str, value: str) -> None:
    opened.select_option(f"#filter-{name}", value)
    said = opened.locator("#gallery [role=status]").inner_text()
    shown, of = map(int, re.findall(r"\d+", said))
    data = loaded(site, "pairs")
    pairs = [(prompt, pair) for prompt in data["prompts"] for pair in prompt["pairs"]]
    fit = {pair["key"] for prompt, pair in pairs if fits(prompt, pair, data["judges"], name, value)}
    assert (shown, of) == (len(fit), len(pairs))
    found = shown_keys(opened)
    assert found
    assert set(found) <= fit
    assert (len(fit) < of) == (name != "task")
    opened.reload()
    opened.wait_for_selector("#gallery .card")
    assert shown_keys(opened) == found, "the address has the filters"
    opened.select_option(f"#filter-{name}", "")
    assert opened.evaluate("location.hash") == "#gallery", "without a filter the address is the section's"


def shown_keys(page: Page) -> list[str]:
    hashes = page.evaluate("[...document.querySelectorAll('#gallery .card')].map((card) => card.hash.slice(1))")
    return [parse_qs(each)["pair"][0] for each in hashes]


def fits(prompt: dict, pair: dict, judges: list[str], name: str, value: str) -> bool:
    """Whether the page's own data say that a filter leaves a pair."""
    said = [dict(zip(gallery.JUDGED[:-1], each, strict=True)) for each in pair["judged"]]
    won = [each["winner"] for each in said if each["winner"]]
    label = [pair["winner"]] if pair.get("made") and pair["winner"] and not said else []
    orders = [(each["forward"], each["backward"]) for each in said]
    state = {
        "right": pair["truth"] is not None and pair["truth"] in won + label,
        "wrong": pair["truth"] is not None and any(winner not in (pair["truth"], "T") for winner in won + label),
        "undecided": "T" in won,
        "disagree": len(set(won)) > 1,
        "order": any(a and b and a != b for a, b in orders),
        "failed": pair["why"] in ("failed", "unscored", "unasked") or len(won) < len(said),
    }
    models = [prompt["edits"][pair[side]]["model"] for side in "ab"]
    given = {"kind": prompt["kind"] == value, "task": prompt["task"] == value, "model": value in models}
    given |= {"tier": f"dropped: {pair['why']}" == value, "answer": state.get(value, False)}
    given["judge"] = value in [judges[each["judge"]] for each in said]
    return given[name]


def test_a_judges_answer_and_numbers_narrow_the_gallery_and_clear_undoes_it(opened: Page, site: Path) -> None:
    opened.select_option("#filter-judge", "pvc_judge")
    opened.select_option("#filter-answer", "right")
    opened.fill("#filter-gap", "5")
    opened.fill("#filter-sure", "0.7")
    until(opened, "location.hash === '#judge=pvc_judge&answer=right&gap=5&sure=0.7'")
    data = loaded(site, "pairs")
    pairs = {pair["key"]: (prompt, pair) for prompt in data["prompts"] for pair in prompt["pairs"]}
    assert shown_keys(opened)
    for prompt, pair in (pairs[key] for key in shown_keys(opened)):
        damages = [prompt["edits"][pair[side]]["damage"] for side in "ab"]
        said = [dict(zip(gallery.JUDGED[:-1], each, strict=True)) for each in pair["judged"]]
        [own] = [each for each in said if data["judges"][each["judge"]] == "pvc_judge"]
        assert own["winner"] == pair["truth"]
        assert max(own["p_a"], 1 - own["p_a"]) >= 0.7
        assert abs(damages[0] - damages[1]) >= 5
    opened.click("#gallery button:has-text('Clear')")
    assert f"{len(pairs)} of {len(pairs)} pairs" in opened.locator("#gallery [role=status]").inner_text()


def test_the_first_screen_has_the_verdict_the_board_and_pairs(opened: Page) -> None:
    opened.set_viewport_size({"width": 1280, "height": 800})
    assert "The trained judge pvc_judge names the better of two edits in" in opened.locator("#verdict").inner_text()
    card = opened.locator("#telling .card").first
    until(opened, "[...document.querySelectorAll('#telling .card img')].slice(0, 3).every((each) => each.naturalWidth)")
    for seen in (card, opened.locator("#leaderboard tbody")):
        box = seen.bounding_box()
        assert box is not None
        assert box["y"] + box["height"] <= 800
    said = opened.locator("#telling .said").all_inner_texts()
    assert said == sorted(said, key=lambda line: not line.startswith("✓")), "what it gets right comes first"
    assert {line[0] for line in said} <= {"✓", "✗"}


def test_two_models_and_a_word_narrow_the_gallery(opened: Page) -> None:
    opened.select_option("#filter-model", "box")
    opened.select_option("#filter-against", "precise")
    opened.fill("#filter-text", "window.stolen")
    cards = opened.locator("#gallery .card")
    assert cards.count() == 3, "a training pair, a match and a benchmark's item of the one prompt"
    assert all(set(each.split()) >= {"box", "precise"} for each in cards.locator(".thumbs").all_inner_texts())
    opened.fill("#filter-text", "no such words")
    assert opened.locator("#gallery .card").count() == 0
    assert "No pair" in opened.locator("#gallery [role=status]").inner_text()


def test_a_link_opens_its_pair_and_closing_it_gives_the_page_back(opened: Page) -> None:
    open_pair(opened, "color_alter-00003_pair_box_vs_precise")
    dialog = opened.locator("dialog")
    assert dialog.locator(".instruction").inner_text() == "Recolour thing 3 in teal."
    judges = dialog.locator("h3:has-text('Judges') + .scroll tbody tr")
    assert judges.locator("th").all_inner_texts() == ["measures", "pvc_judge"], "the column Judge"
    assert re.search(r"A \(p\(A\) 0\.750\)|B \(p\(A\) 0\.250\)", judges.first.inner_text()), "how sure in each order"
    judges.first.locator("summary").click()
    assert (
        judges.first.locator(".said").inner_text().startswith("A shown first: it <b>keeps</b> more.\n\nB shown first")
    )
    assert dialog.locator(".stack svg rect").count() == 3, "the box, on each image"
    assert dialog.locator(".stack svg polygon").count() == 3, "and the mask's outline"
    opened.keyboard.press("ArrowRight")
    until(opened, "!location.hash.includes('box_vs_precise')")
    opened.keyboard.press("Escape")
    assert not dialog.is_visible()
    opened.goto(opened.url.partition("#")[0] + "#pair=nobody")
    assert "no pair" in dialog.inner_text()


def test_more_sources_stand_behind_the_first(opened: Page, site: Path) -> None:
    [prompt] = [each for each in loaded(site, "pairs")["prompts"] if "more" in each]
    open_pair(opened, prompt["pairs"][0]["key"])
    heads = opened.locator("dialog .views figcaption strong").all_inner_texts()
    assert [head.strip() for head in heads] == ["Source", "Source 2", "A", "B"]


def test_a_training_pair_says_its_measures_tiers_and_rule(opened: Page) -> None:
    opened.select_option("#filter-tier", "elite_over_failure")
    opened.locator("#gallery .card").first.click()
    until(opened, "document.querySelector('dialog').innerText.includes('It is a training pair.')")
    said = opened.locator("dialog").inner_text()
    assert "elite over failure, ahead by" in said
    assert "primary ssim; elite above z" in said
    assert "ssim ↑ (primary)" in said
    row = opened.locator("dialog tbody tr:has-text('ssim ↑ (primary)')").first.inner_text().split("\t")
    assert len(row) == 7, "measure, area, A, B, z of A, z of B, better"


def test_details_are_read_from_the_file_and_the_place_of_the_prompt(bare: Page, site: Path) -> None:
    bare.goto(site.as_uri())
    bare.evaluate("""() => {
        data.shard = 4;
        load = async (name) => [0, 1, 2, 3].map((n) => ({ edits: [], layers: `${n} of ${name}` }));
    }""")
    told = "async (number) => { const prompt = { number }; await withDetails({ prompt }); return prompt.layers; }"
    assert [bare.evaluate(told, n) for n in (0, 3, 4, 6)] == [f"{n % 4} of details-{n // 4}" for n in (0, 3, 4, 6)]


def test_swipe_and_difference(opened: Page) -> None:
    open_pair(opened, "color_alter-00003_pair_box_vs_precise")
    opened.check("input[value=swipe]")
    slide = opened.locator("input[type=range]").first
    slide.focus()
    before = opened.locator(".stack .over").first.get_attribute("style")
    for _ in range(5):
        opened.keyboard.press("ArrowRight")
    assert slide.input_value() == "55"
    assert opened.locator(".stack .over").first.get_attribute("style") != before
    assert "box_vs_precise" in opened.url, "arrows move the slide, not the page"
    opened.check("input[value=difference]")
    assert opened.locator(".heatmap").count() == 2
    same = opened.locator(".heatmap").first.screenshot()
    opened.uncheck("label:has-text('Boxes') input")
    opened.uncheck("label:has-text('Masks') input")
    assert opened.locator(".stack svg").count() == 0
    assert same != opened.locator(".heatmap").last.screenshot()


def test_all_edits_of_a_prompt_stand_side_by_side(opened: Page) -> None:
    opened.select_option("#filter-tier", "elite_over_failure")
    opened.locator("#gallery .card").first.click()
    opened.check("label:has-text('All 6 edits') input")
    dialog = opened.locator("dialog")
    assert dialog.locator(".views figure").count() == 1 + 6, "the source and its edits"
    ssim = dialog.locator("tbody tr:has-text('ssim ↑ (primary)')").first
    assert ssim.locator("td").count() == 1 + 6, "the area and a column an edit"
    assert (ssim.locator(".good").count(), ssim.locator(".bad").count()) == (1, 1)
    pairs = dialog.locator("h3:has-text('Pairs of this prompt') + .scroll tbody tr")
    assert pairs.count() == 15
    assert "It is a training pair." in "".join(pairs.all_inner_texts())


def test_each_layer_is_drawn_and_can_be_hidden(bare: Page, tmp_path: Path) -> None:
    seen = {"boxes": [[5, 5, 20, 20]], "masks": [[[5, 5], [20, 5], [12, 20]]], "joints": [[10, 10], [12, 14]]}
    layers = [seen, seen | {"faces": [[2, 2, 9, 9], [4, 4]], "area": [[[5, 5], [20, 5], [20, 20]]]}, {}]
    text = one_pair("Redden", [png(0), png(1), png(2)], ("a", "b"), [], [], layers, [png(3), None])
    (tmp_path / "pair.html").write_text(text, encoding="utf-8")
    page, told = bare, list[str]()
    page.on("console", lambda message: told.append(message.text))
    page.goto((tmp_path / "pair.html").as_uri())
    count = {"boxes": 3, "masks": 3, "area": 1, "faces": 2, "joints": 6}  # b has no layers of its own: the source's
    assert {name: page.locator(f".stack svg .{name}").count() for name in count} == count
    page.uncheck("label:has-text('Faces') input")
    assert page.locator(".stack svg .faces").count() == 0
    assert page.locator(".stack svg .area").count() == 1
    page.check("input[value=difference]")
    assert page.locator(".heatmap").count() == 1, "b has no map of its own"
    assert "20 ΔE" in page.locator("main").inner_text()
    assert told == []


@pytest.mark.parametrize("opened", [{"color_scheme": "dark"}], indirect=True)
def test_dark_mode_is_the_systems_until_it_is_switched(opened: Page) -> None:
    shade = "getComputedStyle(document.body).backgroundColor"
    draw_all(opened)
    dark = opened.evaluate(shade)
    opened.click("#theme")
    assert opened.evaluate(shade) == "rgb(255, 255, 255)" != dark
    assert opened.get_attribute("#theme", "aria-pressed") == "false"


@pytest.mark.parametrize("opened", [{"viewport": PHONE}], indirect=True)
def test_nothing_is_wider_than_a_phone(opened: Page) -> None:
    draw_all(opened)
    wide = "document.documentElement.scrollWidth"
    assert opened.evaluate(wide) == PHONE["width"]
    opened.fill("#filter-text", report_data.LONG)
    opened.locator("#gallery .card").first.click()
    assert opened.evaluate(wide) == PHONE["width"]
    assert opened.locator("dialog").evaluate("(node) => node.scrollWidth <= node.clientWidth")


def test_text_of_others_is_shown_as_text(opened: Page) -> None:
    for number, said in enumerate(report_data.HOSTILE):
        opened.goto(f"{opened.url.partition('#')[0]}#pair=color_alter-{number:05d}_pair_box_vs_precise")
        until(opened, f"document.querySelector('dialog .who')?.textContent.includes('-{number:05d}_')")
        assert opened.locator("dialog .instruction").text_content() == said
    assert opened.locator("dialog .instruction").get_attribute("dir") == "auto"
    assert opened.locator("img[src=x]").count() == 0


@pytest.mark.parametrize("opened", [{}, {"color_scheme": "dark"}, {"viewport": PHONE}], indirect=True)
def test_axe_finds_nothing(opened: Page) -> None:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    draw_all(opened)
    opened.evaluate("document.querySelectorAll('#judges details, #graph details').forEach((e) => { e.open = true; })")
    for what in ("page", "pair"):
        if what == "pair":
            opened.locator("#gallery .card").first.click()
        found = axe.run(opened).response["violations"]
        told = [(each["id"], each["nodes"][0]["html"]) for each in found]
        assert told == [], what


def test_a_page_without_its_folders_says_so(bare: Page, site: Path, tmp_path: Path) -> None:
    bare.goto(Path(shutil.copy(site, tmp_path)).as_uri())
    until(bare, "document.querySelector('#gallery').innerText.includes('data/pairs.js is not beside this page')")
    assert bare.locator("#leaderboard tbody tr").count() == 7
    shutil.copytree(site.parent / "data", tmp_path / "data")
    bare.reload()
    until(bare, "document.querySelector('#telling .none')?.innerText === 'no image here'")
    (tmp_path / "data/details-0.js").unlink()
    open_pair(bare, "color_alter-00003_pair_box_vs_precise")
    until(bare, "document.querySelector('#pair').innerText.includes('regions of this pair are left out')")


def test_blinking_can_be_paused(opened: Page) -> None:
    open_pair(opened, "color_alter-00003_pair_box_vs_precise")
    opened.check("input[value=blink]")
    said = opened.locator(".stack .now").first
    before = said.inner_text()
    until(opened, f"document.querySelector('.stack .now').innerText !== {before!r}")
    opened.click("dialog button:has-text('Pause')")
    before = said.inner_text()
    opened.wait_for_timeout(1_500)
    assert said.inner_text() == before
    opened.click("dialog button:has-text('The other image')")
    assert said.inner_text() != before


def test_another_report_stands_beside_this_one(opened: Page, site: Path, tmp_path: Path) -> None:
    other = re.sub('"benchmark":"probe","items"', '"benchmark":"other","items"', site.read_text(encoding="utf-8"))
    other = re.sub(r'"rating":(\d+)', lambda found: f'"rating":{int(found[1]) + 100}', other)
    (tmp_path / "index.html").write_text(other, encoding="utf-8")
    opened.set_input_files("#compare input", tmp_path / "index.html")
    rows = opened.locator("#compare tbody tr")
    rows.first.wait_for()
    told = rows.all_inner_texts()
    assert any("pvc_judge, other" in line for line in told)
    assert any(line.startswith("Rating") and line.endswith("\t-100") for line in told)
    (tmp_path / "none.html").write_text("<p>no report</p>", encoding="utf-8")
    opened.set_input_files("#compare input", tmp_path / "none.html")
    until(opened, "document.querySelector('#compare [role=status]').innerText.includes('no index.html of a report')")


def test_a_clone_with_metrics_alone_has_a_page_that_says_what_is_missing(bare: Page, workdir: Path) -> None:
    for name in ("metrics", "plots", "pipelines", "dvc.yaml", "stages"):
        (workdir / name).symlink_to(report_data.ROOT / name)
    report.report(report_data.values(), Files(), workdir)
    bare.goto((workdir / "index.html").as_uri())
    until(bare, "document.querySelector('#gallery').innerText.includes('There are no pairs here')")
    bare.click("#missing summary")
    assert "data/train_pairs.parquet" in bare.locator("#missing").inner_text()
    assert bare.locator("#leaderboard tbody tr").count() == 7


def test_its_pictures_are_taken_anew(browser: Browser, site: Path, tmp_path: Path) -> None:
    sizes = {}
    for path in report_pictures.take(browser, site, tmp_path):
        with Image.open(path) as picture:
            sizes[path.name] = picture.size
    assert sizes == {"report.png": (1280, 800), "report_pair.png": (1280, 800), "report_phone.png": (390, 844)}


def test_the_policy_admits_the_pages_own_scripts_alone(site: Path) -> None:
    text = site.read_text(encoding="utf-8")
    [policy] = re.findall(r'Content-Security-Policy" content="([^"]*)"', text)
    assert "default-src 'none'" in policy
    assert "unsafe-eval" not in policy
    assert re.search(r"script-src 'sha256-\S+' 'strict-dynamic'$", policy), "and what that script loads"
    assert len(re.findall(r"<script", text)) == 2, "the data and the script"
    assert "strict-dynamic" not in one_pair("Redden", [png(0), png(1), png(2)], ("a", "b"), [])
    assert pages.embedded({"a": "</script><!--"}) == r'{"a":"\u003c/script\u003e\u003c!--"}'
