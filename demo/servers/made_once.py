"""Folders in the cache that are made once, whoever asks first and however that ends."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

__all__ = ["made_once"]


def made_once(home: Path, make: Callable[[Path], None]) -> Path:
    """Return ``home``, filled by ``make``, which is given a draft of it, at the first call.

    A draft is put into place whole; several processes may make one at the same time.
    """
    if not home.exists():
        home.parent.mkdir(parents=True, exist_ok=True)
        draft = Path(tempfile.mkdtemp(dir=home.parent, prefix="incoming-"))
        try:
            make(draft)
            draft.chmod(0o755)
            _moved(draft, home)
        finally:
            shutil.rmtree(draft, ignore_errors=True)
    return home


def _moved(draft: Path, home: Path) -> None:
    """Put a finished folder into place; another process may have been first."""
    try:
        os.rename(draft, home)
    except OSError:
        if not home.exists():
            raise
