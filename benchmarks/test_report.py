"""How long the report's page takes to show something, and to filter, with 5,000 pairs.

`pytest -s benchmarks/test_report.py` prints medians in ms, in headless Chromium. On an idle machine the first is to be
below 1,000 and the second below 100.
"""

import shutil
import sys
from pathlib import Path
from statistics import median

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "tests/helpers"))

import report_data
from playwright.sync_api import sync_playwright

from editjudge.report.figures import Files
from editjudge.stages import report

CHROMIUM = shutil.which("chromium")
PROMPTS, RUNS = 193, 5  # with 26 pairs each: 5,018
PAINT = "performance.getEntriesByName('first-contentful-paint')[0].startTime"
# From the choice to the next frame, with the layout of what is then shown.
FILTER = """([id, value]) => new Promise((done) => {
  const select = document.getElementById(id), begin = performance.now();
  select.value = value;
  select.dispatchEvent(new Event("change"));
  document.body.getBoundingClientRect();
  requestAnimationFrame(() => done(performance.now() - begin));
})"""
FILTERS = (("filter-kind", "arena"), ("filter-answer", "wrong"), ("filter-model", "box"), ("filter-kind", ""))


@pytest.mark.skipif(CHROMIUM is None, reason="no browser: apt-get install chromium")
def test_first_paint_and_filter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    values = report_data.write(tmp_path, PROMPTS)
    report.report(values, Files(), tmp_path / "report")
    file = tmp_path / "report/index.html"
    paints, filters = [], []
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        for _ in range(RUNS):
            page = browser.new_page()
            page.set_default_timeout(120_000)
            page.goto(file.as_uri())
            page.wait_for_selector("#gallery .card")
            page.wait_for_timeout(1_000)
            paints.append(page.evaluate(PAINT))
            filters += [page.evaluate(FILTER, list(each)) for each in FILTERS]
            said = page.locator("#gallery [role=status]").inner_text()
            page.close()
        browser.close()
    size = file.stat().st_size / 1e6
    took = f"first paint {median(paints):.0f} ms, a filter {median(filters):.0f} ms (most {max(filters):.0f})"
    print(f"\n{said}, {size:.2f} MB: {took}")
    assert size < 1
