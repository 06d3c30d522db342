"""The table `editors` of params.yaml: an entry for each editing model, of a class that its `kind` chooses."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Annotated, Any, Literal, TypeAlias, get_args, get_type_hints

from pydantic import BeforeValidator, Field

from editjudge.core import params
from editjudge.core.keys import FILE_NAME
from editjudge.core.settings import read as read_setting
from editjudge.editors.api.settings import ApiSetting
from editjudge.editors.asked import with_score
from editjudge.editors.diffusers.settings import DiffusersSetting
from editjudge.editors.folder import FolderSetting
from editjudge.editors.procedural.settings import ProceduralSetting

Making: TypeAlias = ProceduralSetting | DiffusersSetting | ApiSetting
Setting: TypeAlias = Making | FolderSetting
PROCEDURAL = get_args(get_type_hints(ProceduralSetting)["kind"])
# Fields that say how the work is done and not what comes out: a change of theirs makes no image anew.
RUNNING = frozenset({"workers", "timeout", "gpus_per_worker", "offload"})


def with_kinds(entries: Any) -> Any:
    """The entries, each embedded editor without a kind having its name as its kind."""
    if not isinstance(entries, Mapping):
        return entries
    return {
        name: {"kind": name, **entry} if name in PROCEDURAL and isinstance(entry, Mapping) else entry
        for name, entry in entries.items()
    }


Editors: TypeAlias = Annotated[
    Mapping[str, Annotated[Setting, Field(discriminator="kind")]], BeforeValidator(with_kinds)
]


def read(values: Mapping[str, Any], model: str) -> Setting:
    """The setting of one model; the other entries are not looked at. Raises ParamsError that names the field."""
    if not FILE_NAME.fullmatch(model):
        raise params.ParamsError(f"editors: a model's name has 1 to 200 of A-Z a-z 0-9 . _ -, not {model!r}")
    entries = params.leaf(values, "editors")
    if not isinstance(entries, Mapping) or model not in entries:
        raise params.ParamsError(f"params.yaml has no key 'editors.{model}'")
    return read_setting("editors", Editors, {model: entries[model]})[model]


def decides(setting: Making, use: Literal["data", "benchmark"]) -> dict[str, Any]:
    """What an image for this use depends on in the setting."""
    if isinstance(setting, ApiSetting):
        return setting.decides(use)
    left_out = RUNNING | {"benchmark" if use == "data" else "data"}
    if isinstance(setting, DiffusersSetting) and setting.ask is None:
        left_out |= {"ask"}  # images that were made before there was such a field stay
    return {name: value for name, value in asdict(setting).items() if name not in left_out}


def told(setting: Making, instruction: str) -> str:
    """The instruction as the model is given it: with the quality that `ask` wants, where there is one."""
    if isinstance(setting, ProceduralSetting) or setting.ask is None:
        return instruction
    return with_score(instruction, setting.ask)
