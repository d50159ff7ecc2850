"""A server may have more files open than a shell gives it."""

from __future__ import annotations

import subprocess
import sys

import pytest

FROM_SHELL = (
    "import resource; from rowtide.cli.open_files import allow_open_files; "
    "resource.setrlimit(resource.RLIMIT_NOFILE, ({soft}, {hard})); allow_open_files(); "
    "print(*resource.getrlimit(resource.RLIMIT_NOFILE))"
)


@pytest.mark.parametrize(
    ("soft", "hard", "then"),
    [(256, 1000, "1000 1000"), (1000, 1000, "1000 1000"), (256, 512, "512 512")],
)
def test_the_limit_of_open_files_is_raised_as_far_as_it_may(
    soft: int, hard: int, then: str
) -> None:
    program = FROM_SHELL.format(soft=soft, hard=hard)
    finished = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    assert finished.stdout.decode().strip() == then
