"""Stage merge_judge: the adapter merged into its base, as a plain checkpoint."""

import argparse
from pathlib import Path

from editjudge.judges.merge import merge_adapter


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--base", type=Path, required=True)
    parser.add_argument("--adapter", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    merge_adapter(arguments.base, arguments.adapter, arguments.out)


if __name__ == "__main__":
    main()
