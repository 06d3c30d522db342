"""The lock that is written in milliseconds has the bytes of DVC's own."""

import copy
import shutil
from pathlib import Path

from dvc.utils.serialize import modify_yaml

from tools import quick_dvc

ROOT = Path(__file__).parents[2]


def test_a_changed_and_a_new_stage_are_written_as_dvc_writes_them(tmp_path: Path) -> None:
    for folder, modify in (("ours", quick_dvc.modify), ("theirs", modify_yaml)):
        (tmp_path / folder).mkdir()
        file = shutil.copy(ROOT / "dvc.lock", tmp_path / folder)
        with modify(str(file)) as content:
            known = content["stages"]["train_judge"]
            for name in ("train_judge", "new@one"):
                stage = copy.deepcopy(known) | {"cmd": "python -m " + "a_module " * 20}
                stage["params"] = {"params.yaml": {"a.b": 1e-08, "c": None, "d": [True, "true", "1.0", 2.5], "e": {}}}
                content["stages"].update({name: stage})
    assert (tmp_path / "ours/dvc.lock").read_bytes() == (tmp_path / "theirs/dvc.lock").read_bytes()
