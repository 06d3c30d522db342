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
import requests
from killing import wait_until
from pictures import bomb
from playwright.sync_api import Page, sync_playwright

from editjudge import api
from editjudge.core import images

ROOT = Path(__file__).parents[2]
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
MODELS, KEYS = ("fluxor", "quensor", "stepper"), ("one", "two", "three")
BOX = (30, 20, 66, 52)
VERDICT = {"key": "one_pair_fluxor_vs_quensor", "winner": "Image A", "judge": "vlm"}


@contextmanager
def served(folder: Path, *words: str) -> Iterator[str]:
    """The address of the page without its last part."""
    command = [sys.executable, "-m", "editjudge", "serve", "page", "--port", "0", *words]
    env = os.environ | {"PYTHONPATH": str(ROOT / "src")}
    process = subprocess.Popen(command, cwd=folder, env=env, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        assert re.fullmatch(r"http://127\.0\.0\.1:\d+/[\w-]{22}/served\.html", url)
        wait_until(lambda: not socket.socket().connect_ex(("127.0.0.1", int(url.split(":")[2].split("/")[0]))))
        yield url.rpartition("/")[0]
    finally:
        process.terminate()
        process.wait(60)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Photos, and edits that invert a box: the first model nothing else, the others more and more."""
    folder, rng = tmp_path_factory.mktemp("mine"), np.random.default_rng(0)
    lines = ["key,task,instruction,image"]
    for key in KEYS:
        photo = cv2.GaussianBlur(rng.integers(0, 255, (72, 96, 3), np.uint8), (0, 0), 2)
        lines.append(f"{key},color_alter,<b>Invert</b> {key},{key}.png")
        files = {folder / f"photos/{key}.png": photo}
        for n, model in enumerate(MODELS):
            files[folder / f"edits/{model}/{key}.png"] = edit = (photo // (n + 1)).astype(np.uint8)
            edit[20:52, 30:66] = 255 - photo[20:52, 30:66]
        for path, pixels in files.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(images.encode_png(pixels))
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


def asked(folder: Path, **changes: object) -> dict:
    files = {"source": "photos/one.png", "a": "edits/fluxor/one.png", "b": "edits/stepper/one.png"}
    shown = {name: base64.b64encode((folder / path).read_bytes()).decode() for name, path in files.items()}
    about = {"instruction": "Invert it", "judge": "measures", "dimension": "visual_consistency"}
    return shown | about | {"task": "color_alter", "boxes": [BOX]} | changes


def said(url: str, rater: str, answer: str, pair: int = 0) -> requests.Response:
    return requests.post(f"{url}/answer/{pair}/{answer}", params={"rater": rater}, timeout=60)


def test_a_pair_is_judged_and_measured_as_by_the_functions(judging: str, folder: Path) -> None:
    found = requests.post(f"{judging}/compare", json=asked(folder), timeout=300).json()
    files = [folder / path for path in ("photos/one.png", "edits/fluxor/one.png", "edits/stepper/one.png")]
    same = api.compare(*files, "Invert it", judge="measures", task="color_alter", boxes=[BOX])
    assert (found["winner"], found["undecided"], found["forward"]["winner"]) == (same.winner, False, "Image A")
    assert found["edits"][1]["values"] == api.measure(files[0], files[2], task="color_alter", boxes=[BOX]).values
    whole = requests.post(f"{judging}/compare", json=asked(folder, task=None, boxes=[]), timeout=300).json()
    assert whole["winner"] is None
    assert set(whole["edits"][0]["values"]) == {"image.delta_e", "image.ssim"}


def test_what_cannot_be_used_is_refused_in_one_line(judging: str, folder: Path) -> None:
    wrong = {"draw a box": {"boxes": []}, "reaches beyond": {"boxes": [(0, 0, 900, 9)]}, "no judge": {"judge": "/"}}
    wrong |= {"pixels": {"a": base64.b64encode(bomb(20_000)).decode()}, "not a PNG": {"source": "R0lGODlh"}}
    for words, changes in (wrong | {"x: Extra": {"x": 1}}).items():
        reply = requests.post(f"{judging}/compare", json=asked(folder, **changes), timeout=300)
        assert (reply.status_code, words in reply.json()["error"]) == (400, True), reply.text


def test_strangers_get_nothing(labelling: str) -> None:
    reply = requests.get(f"{labelling}/served.html", timeout=60)
    assert "default-src 'none'" in reply.headers["Content-Security-Policy"]
    assert requests.get(f"{labelling[:-3]}/served.html", timeout=60).status_code == 404, "another token"
    rebound = requests.get(f"{labelling}/told", headers={"Host": "evil.example"}, timeout=60)
    assert rebound.status_code == 400
    assert said(labelling, " ", "Look").json() == {"error": "type your name"}
    assert requests.get(f"{labelling}/image/999/0?rater=x", timeout=60).status_code == 400


def test_answers_are_blind_kept_and_ranked(labelling: str, folder: Path) -> None:
    file, seen = folder / "answers/visual_consistency/ann-lee.jsonl", set()
    for _ in range(9):
        state = said(labelling, "Ann Lee", "Look").json()
        assert not re.search("|".join(MODELS), json.dumps(state))
        pair = state["next"][0]["pair"]
        params = {"rater": "Ann Lee"}
        source, a, b = (requests.get(f"{labelling}/image/{pair}/{n}", params, timeout=60).content for n in range(3))
        right = np.abs(images.decode(a).astype(float) - images.decode(source)).mean()
        answer = (
            "Image A" if right < np.abs(images.decode(b).astype(float) - images.decode(source)).mean() else "Image B"
        )
        seen.add(answer)
        assert said(labelling, "ann lee", answer, pair).json()["left"] == state["left"] - 1
        assert said(labelling, "Ann Lee", "Tie", pair).json()["left"] == state["left"] - 1, "a second click"
    assert seen == {"Image A", "Image B"}, "the sides change"
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    assert {(row["model_a"], row["model_b"], row["winner"]) for row in rows if "stepper" in row["key"]} == {
        ("fluxor", "stepper", "Image A"), ("quensor", "stepper", "Image A")}  # fmt: skip
    assert [row["model"] for row in api.rank(file, replicates=0).models] == list(MODELS)
    assert said(labelling, "Ann Lee", "Undo").json()["left"] == 1
    assert said(labelling, "../../Bob", "Skip").json()["left"] == 8
    assert len(file.read_text().splitlines()) == 8
    assert len(list(folder.glob("answers/visual_consistency/*.jsonl"))) == 2 == len(list(folder.glob("**/*.jsonl"))) - 1
    rows = requests.get(f"{labelling}/agreement", timeout=60).json()
    assert [(row["second"], row["n"]) for row in rows if row["first"] == "ann-lee"][-1][0] == "vlm"


@pytest.fixture
def browsed(request: pytest.FixtureRequest) -> Iterator[Page]:
    """A page of the browser; at the end nothing was in its console, and no other host was asked."""
    with sync_playwright() as driver:
        page = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"]).new_page(**request.param)
        page.set_default_timeout(120_000)
        told: list[str] = []
        page.on("console", lambda message: told.append(message.text))
        page.on("pageerror", lambda error: told.append(str(error)))
        own = ("http://127.0.0.1:", "blob:http://127.0.0.1:", "data:")
        page.on("request", lambda asked: None if asked.url.startswith(own) else told.append(asked.url))
        yield page
        axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
        assert [each["id"] for each in axe.run(page).response["violations"]] == []
        assert page.evaluate("document.documentElement.scrollWidth") == page.viewport_size["width"]
        assert told == []


looks = pytest.mark.parametrize(
    "browsed", [{"color_scheme": "dark"}, {"viewport": {"width": 390, "height": 844}}], indirect=True
)
in_browser = pytest.mark.skipif(CHROMIUM is None, reason="no browser: apt-get install chromium")


@looks
@in_browser
def test_files_a_drawn_box_and_a_verdict(browsed: Page, judging: str, folder: Path) -> None:
    browsed.goto(f"{judging}/served.html")
    files = [folder / path for path in ("photos/one.png", "edits/fluxor/one.png", "edits/stepper/one.png")]
    browsed.set_input_files("input[type=file] >> nth=0", files)
    browsed.fill("input[required]", "Invert it")
    browsed.click("button.go")
    assert "choose a task" in browsed.locator("#problem").inner_text()
    browsed.select_option("select >> nth=0", "color_alter")
    box = browsed.locator(".drawing").bounding_box()
    for at, move in (((0.3, 0.25), browsed.mouse.down), ((0.7, 0.75), browsed.mouse.up)):
        browsed.mouse.move(box["x"] + at[0] * box["width"], box["y"] + at[1] * box["height"])
        move()
    drawn = browsed.locator("input[placeholder^=x0]").input_value()
    assert np.allclose([int(each) for each in drawn.split()], [29, 18, 67, 54], atol=1)
    browsed.click("button.go")
    assert browsed.locator(".result h2").inner_text() == "Edit A is better."
    assert browsed.locator(".heatmap").count() == 2


@looks
@in_browser
def test_keys_answer_and_take_back(browsed: Page, labelling: str) -> None:
    browsed.goto(f"{labelling}/served.html")
    browsed.fill("input", "Cara")
    for key, done in (("Enter", 0), ("a", 1), ("ArrowDown", 2), ("u", 1), ("s", 2), ("u", 1), ("u", 0)):
        browsed.locator("button[data-answer=Tie]:not([disabled])").wait_for() if key not in "Enter" else None
        browsed.keyboard.press(key)
        browsed.get_by_text(f"{done} of 9 pairs answered").wait_for()
    assert browsed.locator(".instruction").inner_text().startswith("<b>Invert</b>"), "others' text is text"
    browsed.click("summary")
    browsed.get_by_text("Cohen's kappa").first.wait_for()
