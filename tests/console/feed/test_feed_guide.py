"""The commands of docs/guides/live-feed.md print what the page says, in the order of the page."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.consoles import RunningConsole
from tests.support.page_commands import list_commands, path_with_programs, pattern_of

pytestmark = pytest.mark.system

PAGE = Path(__file__).resolve().parents[3] / "docs/guides/live-feed.md"
URL = "http://127.0.0.1:9087"
COMMAND_S_MAX = 120.0
MARK = "-- next command --"


@pytest.mark.skipif(shutil.which("curl") is None, reason="the page's commands need curl")
def test_the_commands_of_the_page(console: RunningConsole, tmp_path: Path) -> None:
    shown = list_commands(PAGE.read_text(encoding="utf-8"))
    (tmp_path / "rowtide-data").symlink_to(console.folder / "data")
    # One shell for all: the page's variables live on.
    commands = [command.replace(URL, console.url) for command, _ in shown]
    script = "\n".join(f"{command}\necho '{MARK}'" for command in commands)
    ran = subprocess.run(
        ["/bin/bash", "-c", script],
        cwd=tmp_path,
        env={**os.environ, "PATH": path_with_programs()},
        capture_output=True,
        text=True,
        timeout=COMMAND_S_MAX,
        check=False,
    )
    printed = ran.stdout.split(f"{MARK}\n")
    assert len(printed) == len(commands) + 1, ran.stderr
    for (command, wanted), found in zip(shown, printed, strict=False):
        given = f"$ {command}\n{found}\n{ran.stderr}"
        assert pattern_of(wanted).fullmatch(found.rstrip("\n")), given
