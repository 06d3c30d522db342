"""Edits made by the editor of a setting, whatever its kind: where it works, how it is loaded, what became of all."""

import functools
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from typing import Any

from editjudge.core.code import identity
from editjudge.editors import protocol
from editjudge.editors.procedural import ProceduralEditor
from editjudge.editors.protocol import Editor, Keep, Outcome, Request, Requests
from editjudge.editors.settings import ApiSetting, DiffusersSetting, Making, ProceduralSetting
from editjudge.engine import local, progress
from editjudge.engine.workers import Failure, Workers, engine, gpus_apart, groups, spread
from editjudge.models.serve import launch
from editjudge.vision import packaged

DIFFUSERS, OPENAI = "editjudge.editors.diffusers.editor", "editjudge.editors.api.reply"  # load torch, and aiohttp


def code(setting: Making) -> str:
    """The version of the code that an image depends on. Of an API's, which cost money, what is sent and checked."""
    own = DIFFUSERS
    if isinstance(setting, ApiSetting):
        own = OPENAI if setting.api == "openai" else setting.module
    elif isinstance(setting, ProceduralSetting):
        own = ProceduralEditor.__module__
    return identity(own, protocol.__name__)


def make(model: str, setting: Making, rounds: Iterable[Requests], count: int, keep: Keep) -> dict[str, Any]:
    """Have all edits made, with a progress bar; figures of this run, such as its seconds.

    The requests of a round, which are read as they are made, begin when those before have ended; all have at most
    `count` edits, each with a name. `keep` is called with each name and its outcome, in this process and as soon as it
    is there. Raises ParamsError for a setting that cannot work here, WorkerBroken, and EndpointError for an API that
    takes no request."""
    start, failures = time.monotonic(), 0
    with progress.bar(count, f"candidates of {model}", "image") as bar:

        def kept(name: str, outcome: Outcome) -> None:
            nonlocal failures
            keep(name, outcome)
            failures += outcome.kind is not None
            bar.set_postfix(failed=failures, refresh=False)
            bar.update()

        if isinstance(setting, ApiSetting):
            from editjudge.editors.api.editor import ApiEditor

            with ExitStack() as servers:
                urls = [setting.base_url]
                if (server := setting.server) is not None:
                    gpus = gpus_apart("torch")
                    if engine() is not local:  # those of the cluster, and the program is started on this machine
                        gpus = min(gpus, local.gpus())
                    places = groups(f"editors.{model}.server.gpus", gpus, server.gpus)
                    urls = servers.enter_context(launch.copies(model, urls[0], setting.model, server, places))
                editor = ApiEditor(setting, model, urls)
                for requests in rounds:
                    editor.edit_many(requests, kept)
            return editor.report()
        if isinstance(setting, DiffusersSetting):  # before any worker is started
            gpus = gpus_apart(DIFFUSERS)  # loads diffusers and torch for the workers; this process needs none
            spread(functools.partial(_check, f"editors.{model}"), [setting], "editors")
            where = groups(f"editors.{model}.gpus_per_worker", gpus, setting.gpus_per_worker)[:count]
        else:  # embedded editors have no GPU
            if setting.kind == packaged.STYLE:
                packaged.find(f"editors.{model}", packaged.STYLE)
            where = ["cpu"] * min(setting.workers or engine().cpus(), count)
        start_one = functools.partial(load, model, setting)
        replaced = sum(run_pool(start_one, where, requests, kept, setting.timeout) for requests in rounds)
    return {"seconds": round(time.monotonic() - start, 3), "workers": len(where), "workers_replaced": replaced}


def run_pool(
    load_editor: Callable[[str], Editor], places: Sequence[str], requests: Requests, keep: Keep, timeout: float
) -> int:
    """Has an editor in each worker make the edits; how many workers were replaced."""
    with Workers(functools.partial(_begin, load_editor), places, timeout, by_reference=True) as workers:
        for name, found in workers.map(requests):
            keep(name, Outcome(None, None, found.kind, found.reason) if isinstance(found, Failure) else found)
    return workers.replaced


def _begin(load_editor: Callable[[str], Editor], device: str) -> Callable[[Request], Outcome]:
    return functools.partial(protocol.attempt, load_editor(device).edit)


def load(model: str, setting: ProceduralSetting | DiffusersSetting, device: str) -> Editor:
    """The editor, ready to edit on this torch device, which the embedded ones do not need."""
    if isinstance(setting, ProceduralSetting):
        return ProceduralEditor(model, setting)
    from editjudge.editors.diffusers.editor import DiffusersEditor  # torch is for the workers alone

    return DiffusersEditor(setting, device)


def _check(where: str, setting: DiffusersSetting) -> None:
    """In a process apart, since it loads torch. ParamsError: diffusers cannot run the model."""
    from editjudge.editors.diffusers.editor import check

    check(where, setting)
