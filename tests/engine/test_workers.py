"""What processes for work on many records import and need; their progress bars. tests/editors/test_edit_pool.py: how
they fail and end."""

import io
import os
import subprocess
import sys
from pathlib import Path

import pytest

from editjudge.editors import making
from editjudge.engine.progress import bar, progress
from editjudge.models.chat import models

IMPORTED = """
import sys
import torch

asked = []
for name in ("device_count", "is_available", "init", "_lazy_init", "current_device", "get_device_capability"):
    setattr(torch.cuda, name, lambda *given, name=name: asked.append(name))
for module in sys.argv[1:]:
    __import__(module)
print(asked)
"""
AHEAD = (making.DIFFUSERS, models.LOCAL, "transformers.modeling_utils", "editjudge.measures.annotation.slots")


def test_what_a_server_of_processes_imports_asks_for_no_gpu() -> None:
    """One that CUDA knows could fork no process that uses a GPU."""
    words = [sys.executable, "-c", IMPORTED, *AHEAD]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_a_program_needs_no_main_guard_and_is_not_begun_again(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "from pathlib import Path\n"
        "from editjudge import api\n"
        "from editjudge.engine import resume, workers\n"
        "with resume.RecordCache(Path('cache.sqlite')) as cache:\n"
        "    print(workers.spread(str, [1], 'numbers'))\n"
    )
    done = subprocess.run([sys.executable, program], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, "['1']\n"), done.stderr


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
