"""Ready editing models entered into params.yaml."""

from pathlib import Path

import pytest
import yaml

from editjudge.cli import add_editor
from editjudge.cli.main import main
from editjudge.core.params import ParamsError

ROOT = Path(__file__).parents[2]
PARAMS = """# Every setting.
filter:
  sample_num: 30      # pairs kept

# Editing models.
editors:
  box:
    kind: box
    amount: 3.0       # mean colour difference
    seed: 13

  shifted:
    kind: shifted
    amount: 9.0
    seed: 16

# Thresholds.
train_pairs:
  secondary:
  - emd
"""
TABLE = (ROOT / "configs/editors.yaml").read_text()


def test_an_entry_is_added_and_all_else_stays_to_the_byte() -> None:
    text = add_editor.add(PARAMS, TABLE, ["flux2_dev_turbo", "instruct_pix2pix"])
    before, after = yaml.safe_load(PARAMS), yaml.safe_load(text)
    assert list(after["editors"]) == [*before["editors"], "flux2_dev_turbo", "instruct_pix2pix"]
    ready = yaml.safe_load(TABLE)
    assert after["editors"]["flux2_dev_turbo"] == ready["flux2_dev_turbo"]
    assert after["editors"] | before["editors"] == after["editors"]
    assert after | {"editors": None} == before | {"editors": None}
    kept = iter(text.splitlines())
    assert all(line in kept for line in PARAMS.splitlines()), "a line of the old text is gone or out of order"
    assert text.endswith("\n")


def test_an_entry_can_be_added_at_the_end_of_the_file() -> None:
    text = add_editor.add("seed: 1\neditors:\n  box:\n    kind: box\n\n", TABLE, ["flux2_klein_4b"])
    assert list(yaml.safe_load(text)["editors"]) == ["box", "flux2_klein_4b"]


@pytest.mark.parametrize(
    ("values", "names", "says"),
    [
        (PARAMS, ["flux3"], "no entry flux3; it has qwen_image_edit"),
        (add_editor.add(PARAMS, TABLE, ["glm_image"]), ["glm_image"], "editors.glm_image is in params.yaml already"),
        ("seed: 1\n", ["glm_image"], "no section editors"),
        ("editors:\n    box:\n        kind: box\n", ["glm_image"], "not in block style with 2 spaces"),
        ("editors: {box: {kind: box}}\n", ["glm_image"], "not in block style with 2 spaces"),
    ],
    ids=["unknown", "twice", "no_section", "other_indent", "flow_style"],
)
def test_what_cannot_be_added_is_said(values: str, names: list[str], says: str) -> None:
    with pytest.raises(ParamsError, match=says):
        add_editor.add(values, TABLE, names)


def test_the_command_says_in_one_line_what_is_wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit, match=r"add-editor: .*params\.yaml"):
        main(["add-editor", "flux3"])
    Path("params.yaml").write_text(PARAMS)
    Path("configs").mkdir()
    Path("configs/editors.yaml").write_text(TABLE)
    with pytest.raises(SystemExit, match=r"add-editor: .*no entry flux3"):
        main(["add-editor", "flux3"])
    assert Path("params.yaml").read_text() == PARAMS
