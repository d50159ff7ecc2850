"""The examples of docs/testing.md are files that do what the page says."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

DOCS = Path(__file__).resolve().parents[2] / "docs"
EXAMPLES = DOCS / "examples"
BLOCK = re.compile(r"<!-- file: (\S+) -->\n```\w+\n(.*?)```\n", re.DOTALL)
RUN_S_MAX = 600.0
"""A first build downloads an SDK."""


def run(folder: Path, *command: str) -> str:
    """Run an example; return what it printed, and fail with it where it fails."""
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=RUN_S_MAX, check=False
    )
    if done.returncode:
        pytest.fail(f"{command[0]} failed:\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}")
    return done.stdout


def copied(name: str, target: Path) -> Path:
    """Return a copy of an example, so that no run leaves a trace in the tree."""
    return Path(shutil.copytree(EXAMPLES / name, target / name))


def test_the_page_shows_the_files_as_they_are() -> None:
    shown = dict(BLOCK.findall((DOCS / "testing.md").read_text(encoding="utf-8")))
    files = {
        str(path.relative_to(DOCS)): path.read_text(encoding="utf-8")
        for path in EXAMPLES.rglob("*")
        if path.is_file() and path.suffix != ".sum" and "__pycache__" not in path.parts
    }
    assert shown == files


@pytest.mark.system
def test_pytest(tmp_path: Path) -> None:
    folder = copied("pytest", tmp_path)
    (folder / "pytest.ini").write_text(
        # The official SDK says at import that its compiled codec is for another Python.
        "[pytest]\nfilterwarnings =\n error\n ignore:OTS C\\+\\+ SDK:ImportWarning\n"
    )
    options = "-p", "no:asyncio", f"--basetemp={tmp_path / 'temporary'}"
    assert "3 passed" in run(folder, sys.executable, "-m", "pytest", *options)
