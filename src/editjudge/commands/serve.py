"""Serves a judge's checkpoint over the OpenAI-compatible chat API, or a scorer to trainers, until it is interrupted.

`python -m editjudge.commands.serve --judge pvc_judge` for a judge of params.yaml that has a model in a folder, or
`--model DIR`; the section `serve` of params.yaml says how. `--scorer NAME` for a scorer of params.yaml: the section
`reward_service`.
"""

import argparse
from typing import Any

from editjudge.core import hub, params
from editjudge.core.main import guarded
from editjudge.core.settings import read, section
from editjudge.judges.scorers.opening import open_scorer
from editjudge.judges.settings import read_setting
from editjudge.models.chat.settings import LocalSetting
from editjudge.models.serve import launch
from editjudge.rewards.reward_settings import RewardSetting


def checkpoint_of(values: dict[str, Any], judge: str | None, model: str | None) -> launch.Checkpoint:
    """The checkpoint of a judge, or of a folder in the precision of `serve`. ParamsError: a judge without a folder."""
    how = section(values, "serve", launch.Serving)
    if judge is None:
        return launch.Checkpoint(str(hub.checkpoint("--model", str(model))), how.dtype, how.max_num_seqs)
    setting = read_setting(f"judges.{judge}", params.leaf(values, f"judges.{judge}"))
    if not isinstance(setting, LocalSetting):
        backend = values["judges"][judge]["backend"]
        raise params.ParamsError(
            f"judges.{judge} has no folder: only transformers and served judges can be served, and it is {backend!r}"
        )
    folder = str(hub.checkpoint(f"judges.{judge}.model", setting.model))
    return launch.Checkpoint(folder, setting.dtype, setting.batch_size, setting.lora)


def changed(values: dict[str, Any], engine: str | None, port: int | None) -> launch.Serving:
    """The section `serve` with another engine or port, where one is given. ParamsError as `section`."""
    changes = {name: value for name, value in (("engine", engine), ("port", port)) if value is not None}
    return read("serve", launch.Serving, vars(section(values, "serve", launch.Serving)) | changes)


def reward_setting(values: dict[str, Any], given: argparse.Namespace) -> RewardSetting:
    """The section `reward_service` with what the command line says instead. ParamsError."""
    how = vars(section(values, "reward_service", RewardSetting))
    changes = {name: value for name in ("host", "port", "batch_size") if (value := getattr(given, name)) is not None}
    pickles = given.allow_pickle or how["allow_pickle"]
    return read("reward_service", RewardSetting, how | changes | {"allow_pickle": pickles})


def serve_scorer(values: dict[str, Any], given: argparse.Namespace) -> None:
    """Serves a scorer in this process. ParamsError, FileError; ServingError: its port is taken."""
    from editjudge.rewards import rewards

    if given.engine:
        raise params.ParamsError("--engine is for judges: a scorer runs in this process")
    how = reward_setting(values, given)
    where = f"scorers.{given.scorer}"
    entry, port, _ = params.leaf(values, where), launch.free_port(how.host, how.port), (how.key, how.folder)
    rewards.run(rewards.RewardService(open_scorer(where, entry), given.scorer, how), port)


def serve(given: argparse.Namespace) -> None:
    """Serves until it is interrupted. Raises ParamsError, and ServingError where the server ends by itself."""
    values = params.load()
    if given.scorer is not None:
        return serve_scorer(values, given)
    for option in ("host", "batch_size", "allow_pickle"):
        if getattr(given, option):
            raise params.ParamsError(f"--{option.replace('_', '-')} is for --scorer: set it in `serve` of params.yaml")
    checkpoint = checkpoint_of(values, given.judge, given.model)
    with launch.running(checkpoint, changed(values, given.engine, given.port)) as server:
        print(f"{server.url} serves {server.model}; log: {server.log}", flush=True)
        code = server.process.wait()
    raise launch.ServingError(f"the server ended with code {code}{launch.tail(server.log)}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--judge", help="a judge of params.yaml")
    which.add_argument("--model", help="folder or hub id of a checkpoint")
    which.add_argument("--scorer", help="a scorer of params.yaml, for trainers that ask for rewards")
    parser.add_argument("--engine", choices=sorted(launch.COMMANDS), help="instead of serve.engine")
    parser.add_argument("--port", type=int, help="instead of that in params.yaml; 0: a free one")
    parser.add_argument("--host", help="of a scorer, instead of reward_service.host")
    parser.add_argument("--batch-size", type=int, help="of a scorer, instead of reward_service.batch_size")
    parser.add_argument("--allow-pickle", action="store_true", help="of a scorer: reward_service.allow_pickle")
    guarded("serve", serve, parser.parse_args())


if __name__ == "__main__":
    main()
