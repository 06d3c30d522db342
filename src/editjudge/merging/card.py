"""What a merged checkpoint says of itself: merge.json for programs, a model card for people. No dates, no paths."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

CARD = """---
library_name: transformers
pipeline_tag: image-text-to-text
base_model: {base}
tags:
- editjudge
---

# {base} with the LoRA adapter {adapter}

A judge of image edits: it is shown a source image and two edits of it, and says which one better preserves the rest of
the source. It is a whole Qwen3-VL checkpoint; nothing of peft is needed to load it.

| | |
|---|---|
| base | {base} |
| adapter | {adapter}: rank {rank}, alpha {alpha}{form} |
| merged | {merged} of {total} tensors, summed in float32 and stored in {dtype} |

`merge.json` has the adapter's settings, how it was trained where the adapter says so, and the SHA-256 of every file of
both that this was made from. The same files give the same bytes again:

```
python -m editjudge.stages.merge_judge --base {base} --adapter {adapter} --out FOLDER --dtype {option}
```

## Loading

```python
from transformers import AutoProcessor, Qwen3VLForConditionalGeneration

model = Qwen3VLForConditionalGeneration.from_pretrained(FOLDER, dtype="auto")
processor = AutoProcessor.from_pretrained(FOLDER)
```

or `vllm serve FOLDER`. As a judge of editjudge it is an entry under `judges` in `params.yaml`, whose `model` is this
folder; the prompt that it was trained with is in `editjudge.qwen.prompt`.
"""


def provenance(
    base: str, adapter: Path, files: Mapping[str, Mapping[str, str]], tensors: Mapping[str, int], dtype: str
) -> dict[str, Any]:
    """merge.json's content. files: the SHA-256 of each file, of the base and of the adapter."""
    config = json.loads((adapter / "adapter_config.json").read_text())
    config["base_model_name_or_path"] = base  # where it lay in training says nothing, and may be a private path
    training = {file.name: json.loads(file.read_text()) for file in sorted(adapter.glob("train*.json"))}
    return {
        "base": {"name": base, "sha256": files["base"]},
        "adapter": {"name": adapter.resolve().name, "sha256": files["adapter"], "config": config, "training": training},
        "tensors": dict(tensors),
        "dtype": dtype,
    }


def card(record: Mapping[str, Any]) -> str:
    """The model card of a merge, from its `provenance`."""
    config = record["adapter"]["config"]
    return CARD.format(
        base=record["base"]["name"],
        adapter=record["adapter"]["name"],
        rank=config["r"],
        alpha=config["lora_alpha"],
        form=", rsLoRA" if config.get("use_rslora") else "",
        merged=record["tensors"]["changed"],
        total=record["tensors"]["all"],
        dtype="the base's dtype" if record["dtype"] == "base" else record["dtype"],
        option=record["dtype"],
    )
