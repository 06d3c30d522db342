"""docs/settings.md says of every setting what its class says, and names the line that does not."""

from pathlib import Path

import pytest

from tools import settings_page


def test_the_page_says_what_the_code_says() -> None:
    found = settings_page.stale()
    assert not found, "\n".join([*found, "run `make graph`"])


def test_what_differs_is_named_by_its_heading_and_mended(workdir: Path, monkeypatch, capsys) -> None:
    text = settings_page.PAGE.read_text()
    right, wrong = "| number, above 0, at most 1 | `1.0` |", "| number, 0 to 1 | `1.0` |"
    monkeypatch.setattr(settings_page, "PAGE", workdir / "settings.md")
    settings_page.PAGE.write_text(text.replace(right, wrong))
    assert settings_page.stale() == [
        f"ChatModelSetting: {sign} | `top_p` |  {end}" for sign, end in (("-", wrong), ("+", right))
    ]
    settings_page.PAGE.write_text(text.replace("### Lora\n", "## Lora\n"))
    assert settings_page.stale() == ["the headings, their order, or what stands before them"]
    for write, status in ((False, 1), (True, 0)):
        with pytest.raises(SystemExit) as ended:
            settings_page.settings_page(write=write)
        assert ended.value.code == status
    assert settings_page.PAGE.read_text() == text
