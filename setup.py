"""Puts what stands at the top level, and what the package reads, into the wheel: see editjudge.core.params."""

import shutil
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

PATTERNS = ("params.yaml", "pipelines/*.json", "pipelines/*/*.yaml", "stages/*.json")


class BuildWithShipped(build_py):
    def run(self) -> None:
        super().run()
        if not self.editable_mode:
            for file in (file for pattern in PATTERNS for file in Path().glob(pattern)):
                target = Path(self.build_lib, "editjudge/shipped", file)
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(file, target)


setup(cmdclass={"build_py": BuildWithShipped})
