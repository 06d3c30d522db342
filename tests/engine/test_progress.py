"""Progress bars: on a terminal they count, elsewhere they are silent, and nothing is lost either way."""

import io

import pytest

from editjudge.engine.progress import bar, progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("stream", "shown"), [(Terminal, True), (io.StringIO, False)])
def test_a_bar_is_drawn_on_a_terminal_alone(stream: type, shown: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stderr", stderr := stream())
    assert list(progress(iter("abc"), 3, "letters")) == ["a", "b", "c"]
    with bar(2, "edits", "image") as counted:
        counted.set_postfix(failed=1, refresh=False)
        counted.update(2)
    said = stderr.getvalue()
    assert (said != "") is shown
    assert ("letters: 100%" in said and "image/s" in said) is shown
