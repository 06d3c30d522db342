"""Starts a training as several processes, on one node or on several, and brings their end together."""

import os
import runpy
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from fcntl import LOCK_EX, LOCK_NB, flock
from functools import partial
from pathlib import Path
from typing import Literal

import torch
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError, record
from torch.distributed.launcher.api import LaunchConfig, elastic_launch

from editjudge.core.errors import UserError
from editjudge.engine.local import end_with_parent
from editjudge.engine.workers import LaunchSetting, cores

PATIENCE = 3600  # seconds that a node waits for the others
RETRIES = 3  # of a training on Ray whose workers fail; a node that its cloud takes back counts in none


class TrainingError(UserError, RuntimeError):
    """A process of the training failed; the message has its rank and its error."""


def start(launch: LaunchSetting, command: Sequence[str]) -> None:
    """Runs `python command` in every process until all are done; TrainingError, with all stopped, if one fails.

    torchrun: called on each node, with its number, 0.., in PET_NODE_RANK; they meet at address and port of node 0.
    ray: called once; see `on_ray`."""
    if launch.launcher == "ray":
        return on_ray(launch, command)
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, cores() // launch.processes)))
    if device(launch.processes) == "cpu":
        os.environ["DS_ACCELERATOR"] = "cpu"
        if gpus := torch.cuda.device_count():
            print(f"{launch.processes} processes and {gpus} GPU: the training is on the CPU", file=sys.stderr)
    # Through torch's launcher, in this process: killed, it takes the others with it.
    several = launch.nodes > 1
    config = LaunchConfig(
        min_nodes=launch.nodes,
        max_nodes=launch.nodes,
        nproc_per_node=launch.processes,
        run_id="training",
        max_restarts=0,
        rdzv_backend="static" if several else "c10d",
        rdzv_endpoint=f"{launch.address}:{launch.port}" if several else "localhost:0",  # 0: any free port
        rdzv_configs={"rank": node(), "timeout": PATIENCE} if several else {},
    )
    try:
        elastic_launch(config, sys.executable)(*command)
    except ChildFailedError as error:
        rank, failure = error.get_first_failure()
        written = failure.error_file_data["message"]  # of an exception; a process that was killed writes none
        message = written["message"] if isinstance(written, dict) else failure.message
        raise TrainingError(f"process {rank} of the training failed: {message}") from None


def on_ray(launch: LaunchSetting, command: Sequence[str]) -> None:
    """As workers of Ray Train, wherever the cluster has room; the nodes share the repository's folder.

    A worker that dies, alone or with its node, stops the others. All start again from the last checkpoint."""
    from ray.train.v2.api.config import FailureConfig, RunConfig, ScalingConfig
    from ray.train.v2.api.exceptions import TrainingFailedError, WorkerGroupError
    from ray.train.v2.torch.torch_trainer import TorchTrainer

    from editjudge.engine import ray

    workers, run = launch.nodes * launch.processes, Path(command[-1]).absolute()
    on_gpus = ray.gpus() >= workers
    config = RunConfig(
        name="ray",
        storage_path=str(run),  # where Ray writes its own state; checkpoints lie beside it
        failure_config=FailureConfig(max_failures=RETRIES, controller_failure_limit=PATIENCE // 60),
        worker_runtime_env={"env_vars": {} if on_gpus else {"DS_ACCELERATOR": "cpu"}},
    )
    train = TorchTrainer(
        partial(_ray_worker, Path.cwd(), command),
        scaling_config=ScalingConfig(num_workers=workers, use_gpu=on_gpus),
        run_config=config,
    )
    try:
        train.fit()
    except WorkerGroupError as error:
        rank, failure = next(iter(error.worker_failures.items()))
        raise TrainingError(f"process {rank} of the training failed: {failure}") from error
    except TrainingFailedError as error:
        raise TrainingError(f"Ray could not run the training: {error}") from error


def _ray_worker(folder: Path, command: Sequence[str]) -> None:
    """`python -m command` in a worker of Ray Train, which has begun the process group."""
    os.chdir(folder)
    _, module, *arguments = command
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def device(processes: int) -> Literal["cpu", "cuda"]:
    """Where a node's processes train: on GPUs where there is one for each of them."""
    return "cuda" if torch.cuda.device_count() >= processes else "cpu"


def node() -> int:
    """Which of the nodes this is, 0 being the one that prepares the training and cleans up after it."""
    return int(os.environ.get("PET_NODE_RANK", "0"))


def first() -> bool:
    """Whether this process is the one of the training's that writes the results."""
    return os.environ.get("RANK", "0") == "0"


def worker(train: Callable[[], None]) -> None:
    """Runs `train` as one of the processes that `start` started: its error reaches the launcher, and the launcher's
    death it (on Linux), so that no training goes on unseen."""
    end_with_parent()
    record(train)()
    if torch.distributed.is_initialized():  # gloo's threads, alive when Python ends, abort it now and then
        torch.distributed.destroy_process_group()


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Holds the folder for this process; TrainingError where another one holds it."""
    with (folder / "lock").open("w") as lock:
        try:
            flock(lock, LOCK_EX | LOCK_NB)
        except BlockingIOError:
            raise TrainingError(f"another process is training in {folder}: stop it or wait for it") from None
        yield
