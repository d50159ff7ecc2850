"""The commands of docs/guides/live-feed.md print what the page says, in the order of the page."""

from __future__ import annotations

import os
import re
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from rowtide.deploy.up import RUN
from tests.support.consoles import RunningConsole

pytestmark = pytest.mark.system

PAGE = Path(__file__).resolve().parents[3] / "docs/guides/live-feed.md"
URL = "http://127.0.0.1:9087"
COMMAND_S_MAX = 120.0
MARK = "-- next command --"


def list_commands() -> list[tuple[str, str]]:
    """Return (command, what it prints) of every console block."""
    found: list[tuple[str, str]] = []
    text = PAGE.read_text(encoding="utf-8")
    for block in re.findall(r"^```console\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            lines = part.splitlines()
            count = 1
            while lines[count - 1].endswith("\\"):
                count += 1
            found.append(("\n".join(lines[:count]), "\n".join(lines[count:])))
    return found


@pytest.mark.skipif(shutil.which("curl") is None, reason="the page's commands need curl")
def test_the_commands_of_the_page(console: RunningConsole, tmp_path: Path) -> None:
    program = tmp_path / "bin" / "rowtide"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\nexec {sys.executable} -P -c '{RUN}' \"$@\"\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    (tmp_path / "rowtide-data").symlink_to(console.folder / "data")
    # One shell for all: the page's variables live on.
    commands = [command.replace(URL, console.url) for command, _ in list_commands()]
    script = "\n".join(f"{command}\necho '{MARK}'" for command in commands)
    path = f"{program.parent}{os.pathsep}{os.environ['PATH']}"
    ran = subprocess.run(
        ["/bin/bash", "-c", script],
        cwd=tmp_path,
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        timeout=COMMAND_S_MAX,
        check=False,
    )
    printed = ran.stdout.split(f"{MARK}\n")
    assert len(printed) == len(commands) + 1, ran.stderr
    for (command, wanted), found in zip(list_commands(), printed, strict=False):
        pattern = ".*?".join(map(re.escape, wanted.split("...")))
        shown = f"$ {command}\n{found}\n{ran.stderr}"
        assert re.fullmatch(pattern, found.rstrip("\n"), re.DOTALL), shown
