"""Stage merge_judge: a peft LoRA adapter merged into its base, as a plain checkpoint that transformers and vLLM load.

The weights are streamed: memory does not grow with the model, and the time is about that of copying the files.
LoRA and rsLoRA are merged as peft does it, and modules_to_save take the place of the base's; anything else is refused
by its name before a byte is written. The folder `out` appears whole or not at all; an old result is replaced.
dtype: of the result: float32, bfloat16, or base: each tensor as in the base, a folder or a hub id."""

from pathlib import Path

from editjudge.core import hub
from editjudge.core.main import stage
from editjudge.core.settings import read
from editjudge.models.weights.merge import Dtype, merge_adapter


def run(base: str, adapter: str, out: str, dtype: str) -> None:
    given: Dtype = read("merge_judge.dtype", Dtype, dtype)
    merge_adapter(hub.find("train_judge.base", base), Path(adapter), Path(out), given)


if __name__ == "__main__":
    stage(__doc__, run, "base", "adapter", "out", "dtype")
