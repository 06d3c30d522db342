"""`editjudge serve page`: a process of its own on loopback, asked over HTTP and by headless Chromium."""

import base64
import json
import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import cv2
import numpy as np
import pytest
import report_data
import requests
from cases import yaml_beside
from killing import wait_until
from pictures import bomb
from playwright.sync_api import Page, sync_playwright

from editjudge import api
from editjudge.cli import page
from editjudge.core import images
from editjudge.core.errors import UserError

SRC = Path(__file__).parents[2] / "src"
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
MODELS, BOX, TASK = ("fluxor", "quensor", "stepper"), (30, 20, 66, 52), "color_alter"
FILES = ("photos/one.png", "edits/fluxor/one.png", "edits/stepper/one.png")
SHOWN = yaml_beside(__file__)["SHOWN"]
VERDICT = {"key": "one_pair_fluxor_vs_quensor", "winner": "Image A", "judge": "vlm"}


@contextmanager
def served(folder: Path, *words: str) -> Iterator[str]:
    """The address of the page without its last part."""
    command = [sys.executable, "-m", "editjudge", "serve", "page", "--port", "0", *words]
    env = os.environ | {"PYTHONPATH": str(SRC)}
    with subprocess.Popen(command, cwd=folder, env=env, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        found = re.fullmatch(r"(http://127\.0\.0\.1:(\d+)/[\w-]{22})/served\.html", url)
        assert found
        wait_until(lambda: not socket.socket().connect_ex(("127.0.0.1", int(found[2]))))
        yield found[1]
        process.terminate()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Photos and edits that invert a box: the first model does nothing else, the others darken the rest, too."""
    folder, rng, lines = tmp_path_factory.mktemp("mine"), np.random.default_rng(0), ["key,task,instruction,image"]
    for key in ("one", "two", "three"):
        photo = cv2.GaussianBlur(rng.integers(0, 255, (72, 96, 3), np.uint8), (0, 0), 2)
        edits = [(photo // (n + 1)).astype(np.uint8) for n in range(3)]
        for path, pixels in zip(("photos", *(f"edits/{model}" for model in MODELS)), (photo, *edits), strict=True):
            if pixels is not photo:
                pixels[20:52, 30:66] = 255 - photo[20:52, 30:66]
            (folder / path).mkdir(parents=True, exist_ok=True)
            (folder / path / f"{key}.png").write_bytes(images.encode_png(pixels))
        lines.append(f"{key},{TASK},<b>Invert</b> {key},{key}.png")
    (folder / "table.csv").write_text("\n".join(lines))
    (folder / "verdicts.jsonl").write_text(json.dumps(VERDICT))
    return folder


@pytest.fixture(scope="module")
def judging(folder: Path) -> Iterator[str]:
    with served(folder) as url:
        yield url


@pytest.fixture(scope="module")
def labelling(folder: Path) -> Iterator[str]:
    with served(folder, "--label", ".", "--verdicts", "verdicts.jsonl") as url:
        yield url


def compared(url: str, folder: Path, **changes: object) -> requests.Response:
    encoded = [base64.b64encode((folder / name).read_bytes()).decode() for name in FILES]
    about = {"instruction": "Invert it", "judge": "measures", "dimension": "visual_consistency", "task": TASK}
    body = dict(zip(("source", "a", "b"), encoded, strict=True)) | about | {"boxes": [BOX]} | changes
    return requests.post(f"{url}/compare", json=body, timeout=300)


def said(url: str, rater: str, answer: str, pair: int = 0) -> dict:
    return requests.post(f"{url}/answer/{pair}/{answer}", params={"rater": rater}, timeout=60).json()


def test_a_pair_is_judged_and_measured_as_by_the_functions(judging: str, folder: Path) -> None:
    found, files = compared(judging, folder).json(), [folder / name for name in FILES]
    same = api.compare(*files, "Invert it", judge="measures", task=TASK, boxes=[BOX])
    assert (found["winner"], found["undecided"], found["forward"]["winner"]) == (same.winner, False, "Image A")
    assert found["edits"][1]["values"] == api.measure(files[0], files[2], task=TASK, boxes=[BOX]).values
    whole = compared(judging, folder, task=None, boxes=[]).json()
    assert (whole["winner"], *whole["edits"][0]["values"]) == (None, "image.delta_e", "image.ssim")


def test_what_cannot_be_used_is_refused_in_one_line(judging: str, folder: Path) -> None:
    wrong = {"draw a box": {"boxes": []}, "reaches beyond": {"boxes": [(0, 0, 900, 9)]}, "no judge": {"judge": "/"}}
    wrong |= {"pixels": {"a": base64.b64encode(bomb(20_000)).decode()}, "not a PNG": {"source": "R0lGODlh"}}
    for words, changes in (wrong | {"x: Extra": {"x": 1}, "at most 4000": {"instruction": "a" * 4001}}).items():
        reply = compared(judging, folder, **changes)
        assert (reply.status_code, words in reply.json()["error"]) == (400, True), reply.text


def test_strangers_get_nothing(labelling: str) -> None:
    reply = requests.get(f"{labelling}/served.html", timeout=60)
    assert "default-src 'none'" in reply.headers["Content-Security-Policy"]
    assert requests.get(f"{labelling[:-3]}/served.html", timeout=60).status_code == 404, "another token"
    assert requests.get(f"{labelling}/told", headers={"Host": "evil.example"}, timeout=60).status_code == 400
    assert said(labelling, " ", "Look") == {"error": "type your name"}


def test_answers_are_blind_kept_and_ranked(labelling: str, folder: Path) -> None:
    kept, seen = folder / "answers/visual_consistency", set()
    for _ in range(9):
        state = said(labelling, "Ann Lee", "Look")
        assert not re.search("|".join(MODELS), json.dumps(state))
        pair, params = state["next"][0]["pair"], {"rater": "Ann Lee"}
        shown = [requests.get(f"{labelling}/image/{pair}/{n}", params, timeout=60).content for n in range(3)]
        source, a, b = (images.decode(each).astype(float) for each in shown)
        seen.add(answer := "Image A" if np.abs(a - source).mean() < np.abs(b - source).mean() else "Image B")
        for name, word in (("Ann Lee", answer), (" ann  LEE", "Tie")):  # a second click
            assert said(labelling, name, word, pair)["left"] == state["left"] - 1
    assert seen == {"Image A", "Image B"}, "the sides change"
    assert [row["model"] for row in api.rank(kept / "ann-lee.jsonl", replicates=0).models] == list(MODELS)
    rows = {(row["first"], row["second"]): row for row in requests.get(f"{labelling}/agreement", timeout=60).json()}
    assert (rows["ann-lee", "vlm"]["n"], rows["ann-lee", "vlm"]["observed"]) == (1, 1.0)
    assert said(labelling, "Ann Lee", "Undo")["left"] == 1
    assert said(labelling, "../../Bob", "Skip")["left"] == 8
    files = [kept / "ann-lee.jsonl", *folder.parent.rglob("*bob*.jsonl")]
    assert [(file.parent, len(file.read_text().splitlines())) for file in files] == [(kept, 8), (kept, 1)]


def test_the_arena_and_its_verdicts(workdir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    report_data.write(workdir)
    arena = page.LabelPage("arena", Path("answers"), [Path("data/matches.parquet")], "visual_consistency")
    asked, _, (source, *_) = arena.pairs[0]
    assert (len(arena.pairs), source()[:4]) == (60, b"\x89PNG")
    assert set(arena.judges["pvc_judge"]) <= {own["key"] for own, *_ in arena.pairs}
    assert asked["origin"]
    with pytest.raises(UserError, match=r"--label nobody: nobody not found"):
        page.LabelPage("nobody", Path("answers"), [], "overall")

    def told(label: str, kept: Path, known: list[Path], dimension: str) -> None:
        raise UserError(f"{kept} beside {' '.join(map(str, known))}")

    monkeypatch.setattr(page, "LabelPage", told)
    for given, known in ((None, "data/matches.parquet"), ([Path("mine.jsonl")], "mine.jsonl")):
        with pytest.raises(UserError, match=f"^answers/arena/visual_consistency beside {known}$"):
            page.page(label="arena", verdicts=given)


@pytest.fixture(params=[{"color_scheme": "dark"}, {"viewport": {"width": 390, "height": 844}}])
def browsed(request: pytest.FixtureRequest) -> Iterator[Page]:
    """Dark or on a phone. At the end axe finds nothing, nothing is logged or too wide, and no other host was asked."""
    if CHROMIUM is None:
        pytest.skip("no browser: apt-get install chromium")
    with sync_playwright() as driver:
        launched, told = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"]), list[str]()
        shown = launched.new_page(**request.param)
        shown.set_default_timeout(60_000)
        shown.on("console", lambda message: told.append(message.text))
        shown.on("pageerror", lambda error: told.append(str(error)))
        shown.on("request", lambda asked: told.append(asked.url) if "//127.0.0.1:" not in asked.url[:25] else None)
        yield shown
        axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
        assert [each["id"] for each in axe.run(shown).response["violations"]] == []
        assert shown.evaluate("document.documentElement.scrollWidth === innerWidth")
        assert [each for each in told if not each.startswith("data:")] == []


def check_shown(page: Page, where: str, told: str) -> None:
    """What is told of it to who listens. A phone has tables and keys otherwise."""
    if page.evaluate("innerWidth") > 390:
        assert page.locator(where).aria_snapshot().splitlines() == SHOWN[told].splitlines()


def test_files_a_drawn_box_and_a_verdict(browsed: Page, judging: str, folder: Path) -> None:
    browsed.goto(f"{judging}/served.html")
    browsed.set_input_files("input[type=file] >> nth=0", [folder / name for name in FILES])
    browsed.fill("input[required]", "Invert it")
    browsed.click("button.go")
    assert "choose a task" in browsed.locator("#problem").inner_text()
    browsed.select_option("select >> nth=0", TASK)
    browsed.locator(".drawing").scroll_into_view_if_needed()
    box = browsed.locator(".drawing").bounding_box() or {}
    for (x, y), move in (((0.3, 0.25), browsed.mouse.down), ((0.7, 0.75), browsed.mouse.up)):
        browsed.mouse.move(box["x"] + x * box["width"], box["y"] + y * box["height"])
        move()
    typed = browsed.locator("input[placeholder^=x0]")
    drawn = typed.input_value()
    assert np.allclose([int(each) for each in drawn.split()], [29, 18, 67, 54], atol=1)
    typed.fill("1 2 3")
    typed.blur()
    assert browsed.locator("#problem").inner_text() == "A box is four whole numbers: x0 y0 x1 y1."
    assert typed.input_value() == drawn, "the boxes stay"
    typed.fill(" ".join(map(str, BOX)))
    browsed.click("button.go")
    assert browsed.locator(".result h2").inner_text() == "Edit A is better."
    assert browsed.locator("figure:has(.heatmap) figcaption").all_inner_texts() == ["Edit A", "Edit B"]
    check_shown(browsed, "main", "judging")


def test_keys_answer_and_take_back(browsed: Page, labelling: str) -> None:
    said(labelling, "Dan", "Tie")  # whom the table of agreement has
    browsed.goto(f"{labelling}/served.html")
    browsed.fill("input", "Cara")
    check_shown(browsed, "main", "begin")
    browsed.keyboard.press("Enter")
    browsed.locator("button[data-answer=Tie]:not([disabled])").wait_for()
    check_shown(browsed, "main", "pair")
    for key, done in (("a", 1), ("ArrowDown", 2), ("u", 1), ("s", 2), ("u", 1), ("u", 0)):
        browsed.locator("button[data-answer=Tie]:not([disabled])").wait_for()
        browsed.keyboard.press(key)
        browsed.get_by_text(f"{done} of 9 pairs answered").wait_for()
    assert browsed.locator(".instruction").inner_text().startswith("<b>Invert</b>"), "others' text is text"
    browsed.route("**/image/**", lambda _: None)  # they never come: a pair may be skipped, and no more
    for done in (1, 2):
        browsed.keyboard.press("s")
        browsed.get_by_text(f"{done} of 9 pairs answered").wait_for()
    usable = browsed.locator("button[data-answer]:not([disabled])")
    assert [each.get_attribute("data-answer") for each in usable.all()] == ["Skip", "Undo"]
    for done in (1, 0):
        browsed.keyboard.press("u")
        browsed.get_by_text(f"{done} of 9 pairs answered").wait_for()
    browsed.unroute_all(behavior="ignoreErrors")
    browsed.click("summary")
    browsed.locator("details tbody tr").first.wait_for()
    check_shown(browsed, "details thead", "agreement")
