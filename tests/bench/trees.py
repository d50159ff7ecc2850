"""Another commit's source tree, to run servers of it beside those of this tree.

The other tree runs in this tree's virtual environment: ``PYTHONPATH`` puts its ``.src`` before
ours. So it gets this tree's dependencies, and what it has compiled must be built in it.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

__all__ = ["THIS", "Tree", "other_tree", "same_as_this"]

ROOT = Path(__file__).resolve().parents[2]
BUILD, MODULE = "hatch_build.py", "core/native/_kernels.abi3.so"
"""A tree with the first file has a compiled module, the second one, which the file builds."""
BUILD_S_MAX = 600.0


class Tree(NamedTuple):
    """A source tree by its name in tables; ``folder`` is None for the tree of this process."""

    name: str
    folder: Path | None = None

    @property
    def environment(self) -> dict[str, str]:
        """Return what a server of the tree needs in its environment."""
        return {} if self.folder is None else {"PYTHONPATH": str(self.folder / ".src")}


THIS = Tree("this tree")


@contextmanager
def other_tree(commit: str, temporary: Path) -> Iterator[Tree]:
    """Check a commit out into a folder of its own, build both trees, and remove it at the end."""
    _build(ROOT)
    folder = temporary / "other-tree"
    _git("worktree", "add", "--detach", "--force", str(folder), commit)
    try:
        _build(folder)
        yield Tree(_git("rev-parse", "--short", commit).strip(), folder)
    finally:
        _git("worktree", "remove", "--force", str(folder))


def same_as_this(commit: str) -> bool:
    """True if a commit has exactly the files of this tree, changes not committed included."""
    done = subprocess.run(["git", "diff", "--quiet", commit, "--"], cwd=ROOT, check=False)
    return done.returncode == 0


def _build(folder: Path) -> None:
    """Compile what a tree has in C, for the interpreter of this process."""
    if (folder / BUILD).exists():
        command = [sys.executable, BUILD, MODULE]
        subprocess.run(command, cwd=folder, check=True, timeout=BUILD_S_MAX)


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=ROOT, check=True, capture_output=True, text=True)
    return done.stdout
