"""The user's own connectors and functions: modules in the current directory."""

from __future__ import annotations

import sys
from pathlib import Path

__all__ = ["find_modules_here"]


def find_modules_here() -> None:
    """Make them importable: an installed program does not search there."""
    sys.path.insert(0, str(Path.cwd()))
