"""The same bytes from NumPy, OpenCV and torch on any x86-64 machine with AVX2.

These libraries choose their code by the CPU, and the last bits differ. The settings in portable.yaml select the code
that all AVX2 machines share. The libraries read them when they are loaded, so the packages of the stages and of the
program call `set_up` as they are imported; child processes inherit the environment. `import editjudge` alone changes
nothing.

No setting covers `torch.sqrt`, which MKL computes from an approximate instruction (use norms, and the fused AdamW),
onnxruntime, GPUs and other architectures. `EDITJUDGE_PORTABLE=0` keeps the CPU's own code, and all
variables as they are; without it, one that is set otherwise is replaced, with a line that says so."""

import os
import sys
from pathlib import Path

from editjudge.core.params import load

SWITCH = "EDITJUDGE_PORTABLE"
CPU = Path("/proc/cpuinfo")
_TABLE: dict[str, dict[str, str]] = load(Path(__file__).with_name("portable.yaml"))
SETTINGS, AVX512, LIGHT = (_TABLE[name] for name in ("settings", "avx512", "light"))


def set_up() -> None:
    """Puts the settings into this process's environment."""
    others = [name for name, value in environment().items() if os.environ.get(name, value) != value]
    if others:
        given = ", ".join(f"{name}={os.environ[name]}" for name in others)
        print(f"{given}: not used, for results would depend on it ({SWITCH}=0 uses it)", file=sys.stderr)
    os.environ.update(environment())


def environment() -> dict[str, str]:
    """The variables for reproducible bytes, unless EDITJUDGE_PORTABLE is 0, and those that only save memory."""
    if os.environ.get(SWITCH) == "0":
        return LIGHT
    return LIGHT | SETTINGS | (AVX512 if _has_avx512() else {})


def _has_avx512() -> bool:
    try:
        with CPU.open() as lines:
            return any("avx512vl" in line for line in lines if line.startswith("flags"))
    except OSError:  # not Linux
        return False
