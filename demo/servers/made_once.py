"""Folders in the cache that are created once, by the first process that needs them."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

__all__ = ["make_once"]


def make_once(home: Path, make: Callable[[Path], None]) -> Path:
    """Return ``home``; the first call fills it by ``make``, which gets a draft folder.

    A finished draft is renamed into place; several processes may make one at the same time.
    """
    if not home.exists():
        home.parent.mkdir(parents=True, exist_ok=True)
        draft = Path(tempfile.mkdtemp(dir=home.parent, prefix="incoming-"))
        try:
            make(draft)
            draft.chmod(0o755)
            _move_draft(draft, home)
        finally:
            shutil.rmtree(draft, ignore_errors=True)
    return home


def _move_draft(draft: Path, home: Path) -> None:
    """Move a finished folder into place, unless another process was first."""
    try:
        os.rename(draft, home)
    except OSError:
        if not home.exists():
            raise
