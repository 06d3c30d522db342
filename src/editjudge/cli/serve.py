"""`editjudge serve`."""

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from cyclopts import App

from editjudge.cli.printing import Params
from editjudge.core import hub
from editjudge.core import params as settings
from editjudge.core.errors import UserError
from editjudge.core.settings import read, section
from editjudge.judges.asking import copies_of
from editjudge.judges.opening import find_judge
from editjudge.judges.settings import ChatJudgeSetting, JudgeSetting
from editjudge.models.chat.models import at_hand
from editjudge.models.chat.settings import LocalSetting
from editjudge.models.serve import launch
from editjudge.rewards.reward_settings import RewardSetting

T = TypeVar("T")
serve_app = App("serve", help="Serve a judge over HTTP, a scorer to trainers, or a page to people.")
serve_app.command("editjudge.cli.page:page", name="page", help="Compare edits in the browser, or have people do it.")


@serve_app.default
def serve(
    *,
    judge: str | None = None,
    model: str | None = None,
    scorer: str | None = None,
    host: str | None = None,
    port: int | None = None,
    batch_size: int | None = None,
    replicas: int | None = None,
    reward: str | None = None,
    allow_pickle: bool = False,
    params: Params = None,
) -> None:
    """Serve a judge over the OpenAI-compatible chat API, or a scorer to trainers, until it is interrupted.

    The sections `serve` and `reward_service` of the settings say how.

    Args:
        judge: A judge of the settings that has a model in a folder.
        model: Or a checkpoint: a folder or a hub id.
        scorer: Or a scorer, rater or judge of the settings, for trainers that ask for rewards.
        host: Of a scorer, instead of reward_service.host.
        port: Instead of that in the settings; 0 for a free one.
        batch_size: Of a scorer, instead of reward_service.batch_size.
        replicas: Of a scorer, instead of reward_service.replicas: copies of it, on the GPUs in turn.
        reward: Of a scorer, instead of reward_service.reward.
        allow_pickle: Of a scorer, as reward_service.allow_pickle."""
    if sum(each is not None for each in (judge, model, scorer)) != 1:
        raise UserError("give one of --judge, --model and --scorer")
    values = settings.load_own(params)
    of_scorers = {"host": host, "batch_size": batch_size, "replicas": replicas, "reward": reward}
    of_scorers |= {"allow_pickle": allow_pickle or None}
    if scorer is not None:
        from editjudge.rewards import rewards  # it loads the web server

        how = changed(values, "reward_service", RewardSetting, of_scorers | {"port": port})
        _ = how.key, how.folder  # both are read now: what is wrong with them is told before the scorer is loaded
        opened: list[Callable[[], Any]] = [partial(find_judge, values, scorer)]
        if scorer in (scorers := values.get("scorers") or {}):
            opened = [*copies_of(f"scorers.{scorer}", scorers[scorer], how.replicas)]
        free = launch.free_port(how.host, how.port)
        rewards.run(rewards.RewardService(opened, scorer, how), free)
        return
    for option, value in of_scorers.items():
        if value is not None:
            raise UserError(f"--{option.replace('_', '-')} is for --scorer: set it in `serve` of the settings")
    serving = changed(values, "serve", launch.Serving, {"port": port})
    with launch.running(checkpoint_of(values, judge, model), serving) as server:
        print(f"{server.url} serves {server.model}; log: {server.log}", flush=True)
        code = server.process.wait()
    raise launch.ServingError(f"the server ended with code {code}{launch.tail(server.log)}")


def checkpoint_of(values: dict[str, Any], judge: str | None, model: str | None) -> LocalSetting:
    """The model of a judge, or of a folder in the precision of `serve`. ParamsError: a judge without a folder."""
    how = section(values, "serve", launch.Serving)
    if judge is None:
        folder = str(hub.find("--model", str(model)))
        return LocalSetting(model=folder, dtype=how.dtype, batch_size=how.max_num_seqs)
    setting = section(values, f"judges.{judge}", JudgeSetting)
    own = setting.model if isinstance(setting, ChatJudgeSetting) else None
    if not isinstance(own, LocalSetting):
        backend = values["judges"][judge]["backend"]
        only = "only transformers and served judges can be served"
        raise settings.ParamsError(f"judges.{judge} has no folder: {only}, and it is {backend!r}")
    return at_hand(f"judges.{judge}", own)


def changed(values: dict[str, Any], name: str, kind: type[T], given: dict[str, Any]) -> T:
    """A section with other values where they are given. ParamsError as `section`."""
    known = {field: value for field, value in given.items() if value is not None}
    return read(name, kind, vars(section(values, name, kind)) | known)
