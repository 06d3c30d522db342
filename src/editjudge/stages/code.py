"""Stage code: what the code of each stage computes, so that DVC runs a stage again when that changes and not before.

data/code/<stage>.json has a version for each module that the stage uses and for each contract that it names. A comment,
a docstring or a module that a stage does not use moves none of its versions."""

from pathlib import Path

from editjudge.core import code, records
from editjudge.core.main import stage


def stages() -> list[str]:
    return sorted(file.stem for file in Path(__file__).parent.glob("[!_]*.py") if file.name != Path(__file__).name)


def run() -> None:
    for name in stages():
        records.write_json(code.stage_file(name), code.describe(f"editjudge.stages.{name}"))
    code.keep_read()


if __name__ == "__main__":
    stage(__doc__, run)
