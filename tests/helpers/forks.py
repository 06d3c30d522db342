"""`python -m MODULE` in a process of its own that need not import everything again: a tenth of the time.

A process that has imported the libraries, all settings and the program (but not torch) forks for each run. A run ends
without the interpreter's tidying up, which would take longer than most runs' work."""

import functools
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

ENV = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2] / "src")}
SERVER = """import gc, json, os, runpy, sys, traceback
import aiohttp, cv2, jsonschema, matplotlib.pyplot, pandas, PIL.Image, psutil, pyarrow.parquet, pydantic, scipy.stats
import editjudge.cli.main, editjudge.stages.graph.check
gc.freeze()
for line in sys.stdin:
    folder, said, module, *words = json.loads(line)
    if not (child := os.fork()):
        for number in (1, 2):
            os.dup2(os.open(f"{said}/{number}", os.O_CREAT | os.O_WRONLY), number)
        os.chdir(folder)
        sys.argv = [module, *words]
        try:
            runpy.run_module(module, run_name="__main__", alter_sys=True)
            end = 0
        except SystemExit as left:
            end = left.code or 0
        except BaseException:
            traceback.print_exc()
            end = 1
        if isinstance(end, str):
            print(end, file=sys.stderr)
        print(*{"torch", "transformers", "diffusers"} & {*sys.modules}, file=open(f"{said}/3", "w"), flush=True)
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(1 if isinstance(end, str) else end)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


class Done(NamedTuple):
    returncode: int
    stdout: str
    stderr: str
    loaded: str  # of torch, transformers and diffusers


@functools.cache
def server() -> subprocess.Popen[str]:
    """It ends when nobody can ask any more."""
    return subprocess.Popen([sys.executable, "-c", SERVER], env=ENV, stdin=-1, stdout=-1, text=True)


def program(*words: object) -> Done:
    """The program `editjudge` in the current folder."""
    return run("", *words)


def run(module: str, *words: object) -> Done:
    """A module of ours in the current folder; "" is the program."""
    module = f"editjudge.{module}".removesuffix(".")
    asked, answers = server().stdin, server().stdout
    assert asked
    assert answers
    with tempfile.TemporaryDirectory() as said:
        print(json.dumps([os.getcwd(), said, module, *map(str, words)]), file=asked, flush=True)
        status = int(answers.readline())
        return Done(status, *(Path(said, name).read_text() for name in "123"))
