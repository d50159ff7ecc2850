"""Linters of the files under ``deploy/``: libraries of the extra ``linters``, and ``helm``.

Where one is missing the test that needs it is skipped and says so; nothing is fetched here.
"""

from __future__ import annotations

import importlib
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

__all__ = ["DEPLOY", "find_program", "library", "program", "run"]

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
TOOLS = ROOT / "build/tools"
"""Where ``make tools`` puts what it builds."""


def library(name: str) -> Any:
    """Return a module of the extra ``linters``."""
    try:
        return importlib.import_module(name)
    except ImportError:
        pytest.skip(f"NOT CHECKED: {name} is missing: pip install -e '.[linters]'")


def find_program(name: str) -> str | None:
    """Return a program beside the interpreter, from ``make tools`` or on the PATH."""
    places = [str(Path(sys.executable).parent), str(TOOLS), os.environ.get("PATH", "")]
    return shutil.which(name, path=os.pathsep.join(places))


def program(name: str, how: str) -> str:
    """Return a program; ``how`` says how to get it."""
    found = find_program(name)
    if found is None:
        pytest.skip(f"NOT CHECKED: {name} is missing: {how}")
    return found


def run(*command: str | Path) -> str:
    """Run a linter; return what it printed, and fail with it where it finds something."""
    done = subprocess.run(
        [str(word) for word in command], capture_output=True, text=True, timeout=60, check=False
    )
    if done.returncode:
        pytest.fail(f"{command[0]}:\n{done.stdout}\n{done.stderr}")
    return done.stdout
