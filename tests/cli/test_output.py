"""Output that nobody reads, or that cannot be written."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from rowtide.cli.output import require_reader

ROWTIDE = str(Path(sys.executable).with_name("rowtide"))


@contextmanager
def stdout_as(file: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let ``file`` be stdout, and close it after."""
    with os.fdopen(file, "w") as stdout, monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", stdout)
        yield


def test_a_pipe_with_a_reader_is_fine(monkeypatch: pytest.MonkeyPatch) -> None:
    reading, writing = os.pipe()
    with stdout_as(writing, monkeypatch):
        require_reader()
    os.close(reading)


def test_a_pipe_without_a_reader_ends_who_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with stdout_as(writing, monkeypatch), pytest.raises(BrokenPipeError):
        require_reader()


def test_a_file_always_has_a_reader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with stdout_as(os.open(tmp_path / "f", os.O_CREAT | os.O_WRONLY), monkeypatch):
        require_reader()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a file that is always full")
@pytest.mark.parametrize("arguments", [["--help"], ["completion", "bash"]])
def test_output_that_cannot_be_written_is_told_in_a_sentence(arguments: list[str]) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [ROWTIDE, *arguments], stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    said = "Error: Cannot write the output: No space left on device\n"
    assert (done.returncode, done.stderr) == (1, said)
