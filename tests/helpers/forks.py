"""`python -m MODULE` in a process of its own that need not import everything again: a tenth of the time.

A server that has imported libraries forks for each run, which has the folder, the words, the environment and the files
0, 1 and 2 of who asks. A run ends without the interpreter's tidying up, which would take longer than most runs' work.
There are two: that of `run` and `program` has all of our settings and our program, too, but not torch; that of `python`
and of pytest-xdist has torch and DVC, but nothing of ours, so that a copy of the repository runs its own code. They
import when they are first asked; the processes of a test session share them. A run is killed when who asked for it
ends. They need Linux: its sockets, and libraries that can be forked. Elsewhere each run is a process of its own, which
imports everything.

pytest-xdist's processes do tidy up. They all have one hash seed, and begin with one state of NumPy's random numbers."""

import functools
import json
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from editjudge.core import portable

FOLDER = tempfile.TemporaryDirectory(prefix="forks-")  # of addresses, which may not be long
STARTED: list[subprocess.Popen[bytes]] = []  # they end when nobody holds their pipe any more
SHARED = "EDITJUDGE_TEST_FORKS"
WARM = sys.platform == "linux"
ENV = os.environ | portable.environment() | {"PYTHONPATH": str(Path(__file__).parents[2] / "src")}
LIBRARIES = "aiohttp, cv2, jsonschema, matplotlib.pyplot, pandas, PIL.Image, psutil, pyarrow.parquet, pydantic"
OURS = f"{LIBRARIES}, scipy.stats, editjudge.cli.main, tools.check"
HEAVY = f"{LIBRARIES}, scipy.stats, datasets, dvc.cli, dvc.repo.reproduce, peft, torch.distributed.launcher.api, trl"
HEAVY += ", transformers.models.auto.processing_auto, transformers.models.qwen3_vl.modeling_qwen3_vl"
SERVER = """
def serve():
    import atexit, contextlib, fcntl, gc, json, os, runpy, select, signal, socket, sys, traceback
    interrupt = signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal sends it to this process, too
    listening = socket.socket(fileno=int(sys.argv[1]))
    if sys.stdin in select.select([listening, sys.stdin], [], [])[0]:
        return
    import multiprocessing.util as processes
    import {imports}
    gc.freeze()
    spawn = processes.spawnv_passfds

    def spare():
        # multiprocessing's fork server, should this run want one, is a fork of now: it has all imports, and no threads.
        own, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        if pid := os.fork():
            its.close()

            def start(program, words, files):
                if "forkserver" not in words[-1] or own.fileno() < 0:
                    return spawn(program, words, files)
                with own:
                    files = [1, 2, *files]  # which pytest may have changed since
                    socket.send_fds(own, [json.dumps([words[-1], dict(os.environ), files]).encode()], files)
                return pid

            processes.spawnv_passfds = start
            return
        own.close()
        asked.close()
        said, given, *_ = socket.recv_fds(its, 1 << 20, 9)
        if said:
            command, environment, numbers = json.loads(said)
            aside = [fcntl.fcntl(file, fcntl.F_DUPFD, 100 + max(numbers)) for file in given]  # out of the numbers' way
            for file, number in zip(aside, numbers):
                os.dup2(file, number)
            for file in {{its.detach(), *given, *aside}} - {{*numbers}}:
                os.close(file)
            os.environ.clear()
            os.environ.update(environment)
            try:
                exec(command, {{}})
            except SystemExit:
                pass
        os._exit(0)

    own = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    libraries = [place for place in sys.path if place and place not in own]
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while sys.stdin not in select.select([listening, sys.stdin], [], [])[0]:  # else nobody can ask any more
        asked, _ = listening.accept()
        if os.fork():
            asked.close()
            continue
        listening.close()
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        said, files, *_ = socket.recv_fds(asked, 1 << 20, 3)
        fcntl.fcntl(asked, fcntl.F_SETOWN, os.getpid())
        fcntl.fcntl(asked, fcntl.F_SETSIG, signal.SIGKILL)  # once who asked has ended
        fcntl.fcntl(asked, fcntl.F_SETFL, os.O_ASYNC)
        if select.select([asked], [], [], 0)[0]:
            os._exit(1)  # it has ended already
        folder, environment, sys.executable, (kind, *sys.argv) = json.loads(said)
        for number, file in enumerate(files):
            os.dup2(file, number)
            os.close(file)
        os.chdir(folder)
        os.environ.clear()
        os.environ.update(environment)
        given = filter(None, environment.get("PYTHONPATH", "").split(os.pathsep))
        beside = folder if kind in ("-c", "-m") else os.path.dirname(os.path.realpath(sys.argv[0]))
        sys.path[:] = [beside, *map(os.path.abspath, given), *libraries]
        spare()
        signal.signal(signal.SIGINT, interrupt)
        try:
            if kind == "-c":
                exec(sys.argv[0], {{"__name__": "__main__"}})
                atexit._run_exitfuncs()
            elif kind == "-m":
                runpy._run_module_as_main(sys.argv[0])  # as Python's own -m: a worker finds its classes by __mp_main__
            else:
                runpy.run_path(os.path.abspath(sys.argv[0]), run_name="__main__")
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
        with contextlib.suppress(BrokenPipeError):
            asked.send(json.dumps([end, *{{"torch", "transformers", "diffusers"}} & {{*sys.modules}}]).encode())
        os._exit(end)
serve()
"""
PYTHON = """#!{python} -SE
import json, os, signal, socket, sys
words = sys.argv[2:] if sys.argv[1] == "-u" else sys.argv[1:]
if words[0] != "{kind}" and not words[0].endswith(".py"):
    os.execv("{python}", ["{python}", *sys.argv[1:]])
signal.signal(signal.SIGINT, signal.SIG_IGN)  # which a terminal sends to the fork, too
asked = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
asked.connect("{address}")
words = words if words[0] == "{kind}" else ["", *words]
socket.send_fds(asked, [json.dumps([os.getcwd(), dict(os.environ), {executable}, words]).encode()], [0, 1, 2])
status = json.loads(asked.recv(999) or "[1]")[0]
asked.recv(1)  # until it has ended
sys.exit(status)
"""


COLD = """
import atexit, os, runpy, sys
loaded, *sys.argv = sys.argv[1:]
tell = lambda to, names: os.write(to, " ".join(names & {*sys.modules}).encode())
atexit.register(tell, int(loaded), {"torch", "transformers", "diffusers"})
runpy._run_module_as_main(sys.argv[0])
"""


class Done(NamedTuple):
    returncode: int
    stdout: str
    stderr: str
    loaded: str  # of torch, transformers and diffusers


@functools.cache
def server(imports: str) -> str:
    """The address of the server that the test session shares, or of one of this process, which ends with it."""
    if shared := json.loads(os.environ.get(SHARED, "{}")).get(imports):
        return shared
    address = f"{tempfile.mkdtemp(dir=FOLDER.name)}/address"
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listening:
        listening.bind(address)
        listening.listen()
        command = [sys.executable, "-c", SERVER.format(imports=imports), str(listening.fileno())]
        STARTED.append(subprocess.Popen(command, env=ENV, stdin=subprocess.PIPE, pass_fds=[listening.fileno()]))
    return address


def share() -> None:
    """The processes that this one starts ask its servers."""
    if WARM:
        os.environ[SHARED] = json.dumps({imports: server(imports) for imports in (OURS, HEAVY)})


def _program(kind: str, executable: str) -> Path:
    """In a folder of its own, for PATH. executable: what its processes take for their Python, as an expression."""
    if not WARM:
        return Path(sys.executable)
    file = Path(tempfile.mkdtemp(dir=FOLDER.name), "python")
    file.write_text(PYTHON.format(python=sys.executable, address=server(HEAVY), kind=kind, executable=executable))
    file.chmod(0o755)
    return file


@functools.cache
def python() -> Path:
    """A program that does what `python -m` and `python FILE.py` do."""
    return _program("-m", "sys.argv[0]")


def pytest_xdists() -> Path:
    """A program that does what `python -c` does, for pytest-xdist's processes."""
    return _program("-c", repr(sys.executable))


def program(*words: object, env: Mapping[str, str] = ENV) -> Done:
    """The program `editjudge` in the current folder."""
    return run("", *words, env=env)


def run(module: str, *words: object, env: Mapping[str, str] = ENV) -> Done:
    """A module of ours in the current folder; "" is the program."""
    module = f"editjudge.{module}".removesuffix(".")
    if not WARM:
        with tempfile.TemporaryFile() as loaded:
            command = [sys.executable, "-c", COLD, str(loaded.fileno()), module, *map(str, words)]
            done = subprocess.run(
                command, env=env, pass_fds=[loaded.fileno()], stdin=subprocess.DEVNULL, capture_output=True, text=True
            )
            loaded.seek(0)
            return Done(done.returncode, done.stdout, done.stderr, loaded.read().decode() + "\n")
    asked = [os.getcwd(), env, sys.executable, ["-m", module, *map(str, words)]]
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err, open(os.devnull) as none:
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
            connection.connect(server(OURS))
            socket.send_fds(connection, [json.dumps(asked).encode()], [none.fileno(), out.fileno(), err.fileno()])
            status, *loaded = json.loads(connection.recv(999) or "[-9]")
            connection.recv(1)  # until it has ended
        texts = [file.seek(0) or file.read().decode() for file in (out, err)]
    return Done(status, *texts, " ".join(loaded) + "\n")
