"""A test that hangs ends, shows where it stood, and fails alone."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
HANGING = """
import asyncio
import time

async def test_a_coroutine_that_hangs():
    await asyncio.sleep(600)

def test_a_call_that_hangs():
    time.sleep(600)

def test_what_does_not_hang():
    pass
"""
ENDS_S_MAX = 300.0
CASES = [
    pytest.param((), id="one process"),
    # Starts three processes one after another; a busy machine needs a minute for them.
    pytest.param(("-n", "1"), id="processes of pytest-xdist", marks=pytest.mark.slow),
]


@pytest.mark.parametrize("options", CASES)
def test_a_test_that_hangs_ends_and_shows_where_it_stood(
    tmp_path: Path, options: tuple[str, ...]
) -> None:
    file = tmp_path / "test_hanging_ones.py"
    file.write_text(HANGING)
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *options]
    command += ["-c", str(ROOT / "pyproject.toml"), "--rootdir", str(tmp_path), str(file)]
    # A busy machine may need seconds to come to what hangs.
    command += ["-o", "timeout=8", "-o", "faulthandler_timeout=4"]
    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, timeout=ENDS_S_MAX, check=False
    )
    assert done.returncode == 1
    assert "asyncio/base_events.py" in done.stderr, "no stack of the coroutine's loop"
    if options:  # Each process that ends is replaced, and the others' tests go on.
        assert "in test_a_call_that_hangs" in done.stderr
        assert "2 failed, 1 passed" in done.stdout
