"""`python -m MODULE` in a process of its own that need not import everything again: a tenth of the time.

A server that has imported libraries forks for each run, which has the folder, the words, the environment and the files
0, 1 and 2 of who asks. A run ends without the interpreter's tidying up, which would take longer than most runs' work.
There are two: that of `run` and `program` has all of our settings and our program, too, but not torch; that of `python`
has torch and DVC, but nothing of ours, so that a copy of the repository runs its own code."""

import functools
import json
import os
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

from editjudge.core import portable

ENV = os.environ | portable.environment() | {"PYTHONPATH": str(Path(__file__).parents[2] / "src")}
LIBRARIES = "aiohttp, cv2, jsonschema, matplotlib.pyplot, pandas, PIL.Image, psutil, pyarrow.parquet, pydantic"
OURS = f"{LIBRARIES}, scipy.stats, editjudge.cli.main, tools.check"
HEAVY = f"{LIBRARIES}, scipy.stats, datasets, dvc.cli, dvc.repo.reproduce, peft, torch.distributed.launcher.api, trl"
HEAVY += ", transformers.models.auto.processing_auto, transformers.models.qwen3_vl.modeling_qwen3_vl"
SERVER = """
def serve():
    import gc, json, os, runpy, select, signal, socket, sys, traceback
    import {imports}
    gc.freeze()
    own = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    libraries = [place for place in sys.path if place and place not in own]
    listening = socket.socket(fileno=int(sys.argv[1]))
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while sys.stdin not in select.select([listening, sys.stdin], [], [])[0]:  # else nobody can ask any more
        asked, _ = listening.accept()
        if os.fork():
            asked.close()
            continue
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        said, files, *_ = socket.recv_fds(asked, 1 << 20, 3)
        folder, environment, sys.executable, (kind, *sys.argv) = json.loads(said)
        for number, file in enumerate(files):
            os.dup2(file, number)
            os.close(file)
        os.chdir(folder)
        os.environ.clear()
        os.environ.update(environment)
        given = filter(None, environment.get("PYTHONPATH", "").split(os.pathsep))
        beside = folder if kind == "-m" else os.path.dirname(sys.argv[0])
        sys.path[:] = [beside, *map(os.path.abspath, given), *libraries]
        try:
            if kind == "-m":
                runpy._run_module_as_main(sys.argv[0])  # as Python's own -m: a worker finds its classes by __mp_main__
            else:
                runpy.run_path(sys.argv[0], run_name="__main__")
            end = 0
        except SystemExit as left:
            end = left.code or 0
        except BaseException:
            traceback.print_exc()
            end = 1
        if isinstance(end, str):
            print(end, file=sys.stderr)
            end = 1
        sys.stdout.flush()
        sys.stderr.flush()
        asked.send(json.dumps([end, *{{"torch", "transformers", "diffusers"}} & {{*sys.modules}}]).encode())
        os._exit(end)
serve()
"""
PYTHON = """#!{python} -SE
import json, os, socket, sys
words = sys.argv[2:] if sys.argv[1] == "-u" else sys.argv[1:]
if words[0] != "-m" and not words[0].endswith(".py"):
    os.execv("{python}", ["{python}", *sys.argv[1:]])
asked = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
asked.connect("{address}")
words = words if words[0] == "-m" else ["", *words]
socket.send_fds(asked, [json.dumps([os.getcwd(), dict(os.environ), sys.argv[0], words]).encode()], [0, 1, 2])
status = json.loads(asked.recv(999) or "[1]")[0]
asked.recv(1)  # until it has ended
sys.exit(status)
"""


class Done(NamedTuple):
    returncode: int
    stdout: str
    stderr: str
    loaded: str  # of torch, transformers and diffusers


class Server(NamedTuple):
    """It ends when nobody can ask any more."""

    folder: tempfile.TemporaryDirectory  # of its socket
    address: str
    process: subprocess.Popen[bytes]


@functools.cache
def server(imports: str) -> Server:
    folder = tempfile.TemporaryDirectory()
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listening:
        listening.bind(address := f"{folder.name}/address")
        listening.listen()
        command = [sys.executable, "-c", SERVER.format(imports=imports), str(listening.fileno())]
        return Server(folder, address, subprocess.Popen(command, env=ENV, stdin=-1, pass_fds=[listening.fileno()]))


@functools.cache
def python() -> Path:
    """A program that does what `python -m` and `python FILE.py` do. It lies in a folder of its own, for PATH."""
    started = server(HEAVY)
    file = Path(started.folder.name, "python")
    file.write_text(PYTHON.format(python=sys.executable, address=started.address))
    file.chmod(0o755)
    return file


def program(*words: object) -> Done:
    """The program `editjudge` in the current folder."""
    return run("", *words)


def run(module: str, *words: object) -> Done:
    """A module of ours in the current folder; "" is the program."""
    module = f"editjudge.{module}".removesuffix(".")
    asked = [os.getcwd(), ENV, sys.executable, ["-m", module, *map(str, words)]]
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err, open(os.devnull) as none:
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
            connection.connect(server(OURS).address)
            socket.send_fds(connection, [json.dumps(asked).encode()], [none.fileno(), out.fileno(), err.fileno()])
            status, *loaded = json.loads(connection.recv(999) or "[-9]")
            connection.recv(1)  # until it has ended
        texts = [file.seek(0) or file.read().decode() for file in (out, err)]
    return Done(status, *texts, " ".join(loaded) + "\n")
