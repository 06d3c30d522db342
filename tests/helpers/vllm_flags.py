"""Run with vLLM's own interpreter: parses the words of a `vllm serve`, after `serve`, and prints which flags there are.

`.vllm/bin/python tests/helpers/vllm_flags.py > tests/models/vllm_flags.txt` makes the committed list."""

import sys

import vllm
import vllm.platforms
from vllm.platforms.cpu import CpuPlatform

vllm.platforms._current_platform = CpuPlatform()  # the parser asks for a device

from vllm.entrypoints.launchers.cli_args import make_arg_parser  # noqa: E402
from vllm.utils.argparse_utils import FlexibleArgumentParser  # noqa: E402

parser = make_arg_parser(FlexibleArgumentParser())
parser.parse_args(sys.argv[1:])
print(f"vllm {vllm.__version__}")
print("\n".join(sorted(flag for action in parser._actions for flag in action.option_strings if flag.startswith("--"))))
