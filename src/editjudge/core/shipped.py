"""Files of the repository that a wheel carries too: params.yaml, pipelines/ and stages/.

In git they stand at the top level, where people edit them; setup.py copies them into the wheel, below FOLDER.
"""

from pathlib import Path

PACKAGE = Path(__file__).parents[1]
FOLDER = PACKAGE / "shipped"  # only in a wheel
ROOT = FOLDER if FOLDER.is_dir() else PACKAGE.parents[1]
PARAMS, PIPELINES, CONTRACTS = ROOT / "params.yaml", ROOT / "pipelines", ROOT / "stages"


def settings_file(given: Path | None = None) -> Path:
    """The file of settings that a program outside of the graph reads.

    It is `given`, else params.yaml of the current folder, else the one that comes with the package.
    """
    own = Path("params.yaml")
    return given or (own if own.is_file() else PARAMS)
