"""params.yaml from a stranger: one line, and neither a traceback nor a signal."""

from pathlib import Path

import pytest

from editjudge.core import params

BOMB = "a0: &a0 [x, x]\n" + "".join(f"a{n + 1}: &a{n + 1} [*a{n}, *a{n}]\n" for n in range(60))


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("a:\n b: " + "[" * 100_000 + "]" * 100_000, "2: lists or mappings stand in each other too deeply"),
        ("a: " + "{b: " * 400 + "1" + "}" * 400, "1: lists or mappings stand in each other too deeply"),
        (BOMB, "18: lists or mappings are too many with their aliases"),
    ],
    ids=["the C loader's stack", "Python's stack", "aliases of aliases"],
)
def test_what_would_end_the_process_is_one_line(text: str, line: str, tmp_path: Path) -> None:
    (tmp_path / "params.yaml").write_text(text)
    with pytest.raises(params.ParamsError) as error:
        params.load(tmp_path / "params.yaml")
    assert str(error.value) == f"{tmp_path / 'params.yaml'}:{line}"
