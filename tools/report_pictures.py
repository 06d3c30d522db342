"""Writes the pictures of the report in docs/: the first screen, a pair, and the first screen on a phone.

    python -m tools.report_pictures

Reads report/, which `dvc repro report` makes, and needs Chromium: apt-get install chromium.
"""

import argparse
import io
import shutil
from pathlib import Path

from PIL import Image
from playwright.sync_api import Browser, Page, sync_playwright

from editjudge.core.errors import UserError
from editjudge.core.files import write_bytes
from editjudge.core.main import guarded

REPORT, DOCS = Path("report/index.html"), Path("docs")
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
SCREEN, PHONE = (1280, 800), (390, 844)
SHOWN = "[...document.querySelectorAll('%s img')].every((each) => each.complete && each.naturalWidth)"
PATIENCE = 300  # times a tenth of a second


def seen(page: Page, place: str) -> bytes:
    """The screen as a PNG file, once the images of a place are drawn."""
    for _ in range(PATIENCE):
        if page.locator(f"{place} img").count() and page.evaluate(SHOWN % place):
            break
        page.wait_for_timeout(100)
    return page.screenshot()


def take(browser: Browser, report: Path, folder: Path) -> list[Path]:
    """Writes the pictures of a report's index.html into a folder."""
    pictures: dict[str, bytes] = {}
    for name, (width, height) in (("report", SCREEN), ("report_phone", PHONE)):
        page = browser.new_page(viewport={"width": width, "height": height})
        page.goto(report.resolve().as_uri())
        page.wait_for_selector("#telling .card")
        pictures[name] = seen(page, "#telling")
        if name == "report":
            page.locator("#telling .card").first.click()
            page.wait_for_selector("dialog .views")
            pictures["report_pair"] = seen(page, "dialog .views")
        page.close()
    found = [folder / f"{name}.png" for name in pictures]
    for path, data in zip(found, pictures.values(), strict=True):
        few = (
            Image.open(io.BytesIO(data)).convert("RGB").quantize(256, dither=Image.Dither.NONE)
        )  # a third of the bytes
        few.save(buffer := io.BytesIO(), "png", optimize=True)
        write_bytes(path, buffer.getvalue())
    return found


def main() -> None:
    argparse.ArgumentParser(description=__doc__.split("\n", 1)[0]).parse_args()
    program = next(filter(None, map(shutil.which, BROWSERS)), None)
    if program is None:
        raise UserError("no browser: apt-get install chromium")
    if not REPORT.is_file():
        raise UserError(f"{REPORT} not found: run `dvc repro report`")
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=program, args=["--no-sandbox"])
        print(*take(browser, REPORT, DOCS), sep="\n")
        browser.close()


if __name__ == "__main__":
    guarded("report_pictures", main)
