"""Serves a judge's checkpoint over the OpenAI-compatible chat API, until it is interrupted.

`python -m editjudge.commands.serve --judge pvc_judge` for a judge of params.yaml that has a model in a folder, or
`--model DIR`; the section `serve` of params.yaml says how.
"""

import argparse
from typing import Any

from editjudge.core import hub, params
from editjudge.core.main import guarded
from editjudge.endpoints import launch
from editjudge.judges.settings import LocalSetting, read_setting


def checkpoint_of(values: dict[str, Any], judge: str | None, model: str | None) -> launch.Checkpoint:
    """The checkpoint of a judge, or of a folder in the precision of `serve`. ParamsError: a judge without a folder."""
    how = launch.read_serving(values)
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
    """The section `serve` with another engine or port, where one is given. ParamsError as `read_serving`."""
    changes = {name: value for name, value in (("engine", engine), ("port", port)) if value is not None}
    return launch.read_serving({"serve": vars(launch.read_serving(values)) | changes})


def serve(given: argparse.Namespace) -> None:
    """Serves until it is interrupted. Raises ParamsError, and ServingError where the server ends by itself."""
    values = params.load()
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
    parser.add_argument("--engine", choices=sorted(launch.COMMANDS), help="instead of serve.engine")
    parser.add_argument("--port", type=int, help="instead of serve.port; 0: a free one")
    guarded("serve", serve, parser.parse_args())


if __name__ == "__main__":
    main()
