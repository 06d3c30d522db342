"""Stage merge_judge: the adapter merged into its base, as a plain checkpoint."""

import argparse
from pathlib import Path

from editjudge.core import hub
from editjudge.core.main import as_stage
from editjudge.models.weights.merge import STORED, Dtype, merge_adapter

DESCRIPTION = """Merges a peft LoRA adapter into its base, as a checkpoint that transformers and vLLM load.

The weights are streamed: memory does not grow with the model, and the time is about that of copying the files.
LoRA and rsLoRA are merged as peft does it, and modules_to_save take the place of the base's; anything else is refused
by its name before a byte is written."""


def run(base: str, adapter: Path, out: Path, dtype: Dtype) -> None:
    merge_adapter(hub.find("train_judge.base", base), adapter, out, dtype)


def main() -> None:
    parser = argparse.ArgumentParser(description=DESCRIPTION, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--base", required=True, metavar="DIR", help="the base, or its hub id: safetensors")
    parser.add_argument("--adapter", type=Path, required=True, metavar="DIR", help="the adapter, as peft saves it")
    whole = "appears whole or not at all; an old result is replaced"
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help=whole)
    stored = "of the result; base: each tensor as in the base (default)"
    parser.add_argument("--dtype", choices=list(STORED), default="base", help=stored)
    as_stage("merge_judge", run, *vars(parser.parse_args()).values())


if __name__ == "__main__":
    main()
