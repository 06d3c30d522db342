"""Whether diffusers can run an editing model as params.yaml describes it: looked up before any weight is loaded."""

import inspect
import json
import os
from pathlib import Path
from typing import Any

import diffusers
from huggingface_hub import hf_hub_download
from huggingface_hub.errors import GatedRepoError

from editjudge.core import hub
from editjudge.core.params import ParamsError
from editjudge.editors.diffusers.settings import AS_PUBLISHED, DiffusersSetting

INDEX = "model_index.json"
STEP1X = "Step1X-Edit"
STEP1X_CLASS = "Step1XEditPipelineV1P2"
STEP1X_ADVICE = (
    f"Its authors keep {STEP1X_CLASS} in a fork (github.com/Peyton-Chen/diffusers, branch step1xedit_v1p2) that needs"
    " an older transformers. Install that in an environment of its own, serve the model there behind an"
    " OpenAI-compatible images/edits endpoint and enter it as `kind: api`, or make its images there and import them"
    " into the gallery"
)


def check(where: str, setting: DiffusersSetting) -> None:
    """Raises ParamsError, which names a field of the section `where` and what to do, if the model cannot be run.

    Looked up are the model's model_index.json (in its folder or on the hub), its pipeline class in diffusers, that
    this class takes the call arguments given for `data` and `benchmark`, and that a LoRA in a local folder is there.
    """
    try:
        name = pipeline_name(setting)
    except ParamsError as error:
        raise ParamsError(f"{where}.model: {error}") from error
    found = getattr(diffusers, name) if name in dir(diffusers) else None
    if not (inspect.isclass(found) and issubclass(found, diffusers.DiffusionPipeline)):
        field = "model" if setting.pipeline == AS_PUBLISHED else "pipeline"
        advice = STEP1X_ADVICE if name.startswith("Step1X") else "Install the version that has it"
        missing = f"needs the pipeline class {name}, which diffusers {diffusers.__version__} does not have"
        raise ParamsError(f"{where}.{field}: {setting.model} {missing}. {advice}")
    known = call_arguments(name)
    for use, given in (("data", setting.data), ("benchmark", setting.benchmark)):
        for argument in given:
            if argument not in known:
                raise ParamsError(f"{where}.{use}.{argument} is no argument of {name}; it takes {', '.join(known)}")
    lora = setting.lora
    if lora is not None and os.path.isdir(lora.model) and not (Path(lora.model) / lora.file).is_file():
        raise ParamsError(f"{where}.lora.file: {lora.model} has no {lora.file}")


def pipeline_name(setting: DiffusersSetting) -> str:
    """The setting's pipeline class, else that of model_index.json. ParamsError: it is missing, or code of its own."""
    automatic = setting.pipeline == AS_PUBLISHED
    if automatic and STEP1X in setting.model and not os.path.isdir(setting.model):
        return STEP1X_CLASS  # known without the hub, so that the advice below comes first
    published = read_index(setting).get("_class_name")
    name = published if automatic else setting.pipeline
    if not isinstance(name, str):
        raise ParamsError(f"{setting.model} names code of its own as its pipeline, which is never run")
    return name


def call_arguments(pipeline: str) -> tuple[str, ...]:
    """The arguments, by name, of a call of a pipeline class of diffusers."""
    parameters = inspect.signature(getattr(diffusers, pipeline).__call__).parameters.values()
    return tuple(p.name for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD and p.name != "self")


def read_index(setting: DiffusersSetting) -> dict[str, Any]:
    """The model's model_index.json, from its folder or the hub. ParamsError: it is not there or cannot be read."""
    try:
        if os.path.isdir(setting.model):
            path = Path(setting.model) / INDEX
        else:
            name, revision = hub.pinned(setting.model)
            path = Path(hf_hub_download(name, INDEX, revision=revision))
            hub.record(setting.model, path.parent.name)
        index = json.loads(path.read_text())
    except GatedRepoError:
        raise ParamsError(hub.gated(setting.model)) from None
    except (OSError, ValueError, RecursionError) as error:
        why = next(iter(str(error).strip().splitlines()), type(error).__name__)
        raise ParamsError(
            f"{setting.model} is neither a folder with a {INDEX} nor a model of the hub that can be read from here "
            f"({type(error).__name__}: {why}). Give the folder of a downloaded model, or allow the hub"
        ) from error
    if not isinstance(index, dict):
        raise ParamsError(f"the {INDEX} of {setting.model} is not a JSON object")
    return index
