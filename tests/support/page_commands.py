"""The commands that a page of the documents shows, and what the page says that they print."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

__all__ = ["list_commands", "path_with_programs", "pattern_of"]


def list_commands(text: str) -> list[tuple[str, str]]:
    """Return (command, what it prints) of every console block of a page's text."""
    found: list[tuple[str, str]] = []
    for block in re.findall(r"^```console\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            lines = part.splitlines()
            count = 1
            while lines[count - 1].endswith("\\"):
                count += 1
            found.append(("\n".join(lines[:count]), "\n".join(lines[count:])))
    return found


def pattern_of(printed: str) -> re.Pattern[str]:
    """Return what matches a text in which ``...`` stands for anything."""
    return re.compile(".*?".join(map(re.escape, printed.split("..."))), re.DOTALL)


def path_with_programs() -> str:
    """Return a PATH on which the ``rowtide`` that is tested comes first."""
    return os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
