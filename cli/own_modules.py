"""Connectors and functions of one's own: modules that lie in the folder a command is run in."""

from __future__ import annotations

import sys
from pathlib import Path

__all__ = ["find_modules_here"]


def find_modules_here() -> None:
    """Let them be imported: a program that is installed does not look there by itself."""
    sys.path.insert(0, str(Path.cwd()))
