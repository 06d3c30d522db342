"""DVC that writes dvc.lock in milliseconds: `python tests/helpers/quick_dvc.py repro ...`, and so on.

After each stage DVC reads and writes the whole file in a way that keeps comments, of which a lock has none. With the
settings of eighty stages in it that takes seconds. What stands in the file is the same."""

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import dvc.dvcfile
from dvc.cli import main
from dvc.utils.serialize import load_yaml


@contextmanager
def modify_lock(path: str, fs: Any = None) -> Iterator[dict[str, Any]]:
    """What stands in a lock. It is written when the block ends, as JSON, which is YAML."""
    content: dict[str, Any] = load_yaml(path) if Path(path).exists() else {}
    yield content
    Path(path).write_text(json.dumps(content, indent=1))


if __name__ == "__main__":
    dvc.dvcfile.modify_yaml = modify_lock
    sys.exit(main(sys.argv[1:]))
