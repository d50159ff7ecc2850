"""Copies all that a virtual environment needs to run into a folder, the root of an image.

    /opt/rowtide/bin/python deploy/container/root_files.py /image

The folder gets the environment of the interpreter that runs this, its Python without what no server
imports, every shared library that one of them needs, and a few files of the system. There is no
shell and no package manager. A test runs ``rowtide dev`` in such a folder as its root.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

__all__ = ["LEFT_OUT", "copy_root"]

LEFT_OUT = {
    "site-packages": "pip, which the environment does not use",
    "test": "tests of Python",
    "idlelib": "an editor",
    "tkinter": "windows",
    "turtledemo": "windows",
    "turtle.py": "windows",
    "lib2to3": "a converter of Python 2",
    "pydoc_data": "a manual",
    "ensurepip": "an installer",
    "distutils": "an installer",
    "lib-dynload/_tkinter*": "windows",
    "lib-dynload/_curses*": "full-screen terminals",
    "lib-dynload/readline*": "editing of lines",
    "lib-dynload/_dbm*": "old databases",
    "lib-dynload/_gdbm*": "old databases",
    "lib-dynload/_test*": "tests of Python",
    "config-*": "what programs are linked with that embed Python",
}
"""Parts of the standard library that no server imports, and what they are."""

FILES = ("/etc/passwd", "/etc/group", "/etc/nsswitch.conf", "/etc/ssl/certs/ca-certificates.crt")
"""Who the user is, how names are looked up, and which certificates are trusted."""

ELF = b"\x7fELF"


def copy_root(root: Path) -> None:
    """Copy everything to the same places below ``root``."""
    environment, library = Path(sys.prefix), Path(sysconfig.get_path("stdlib"))
    python = Path(sys.executable).resolve()
    left_out = {path for pattern in LEFT_OUT for path in library.glob(pattern)}
    _copy_tree(environment, root, set())
    _copy_tree(library, root, left_out)
    _copy_file(python, root)
    for name in ("python", "python3", python.name):
        link = _below(root, environment) / "bin" / name
        link.unlink(missing_ok=True)
        link.symlink_to(python)
    for needed in sorted({path for one in _elf_files(root) for path in _libraries(one)}):
        _copy_file(needed, root)
    for name in FILES:
        if Path(name).exists():
            _copy_file(Path(name), root)


def _below(root: Path, path: Path) -> Path:
    return root / path.relative_to("/")


def _copy_tree(folder: Path, root: Path, left_out: set[Path]) -> None:
    def ignore(parent: str, names: list[str]) -> list[str]:
        return [name for name in names if Path(parent, name) in left_out]

    target = _below(root, folder)
    shutil.copytree(folder, target, symlinks=True, ignore=ignore, dirs_exist_ok=True)


def _copy_file(path: Path, root: Path) -> None:
    """Copy a file, or what a link points to, to the same place below ``root``."""
    target = _below(root, path)
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy2(path, target)


def _elf_files(root: Path) -> Iterator[Path]:
    """Yield the programs and modules below ``root``."""
    for folder, _, names in os.walk(root):
        for path in (Path(folder, name) for name in names):
            if path.is_file() and not path.is_symlink():
                with path.open("rb") as file:
                    if file.read(len(ELF)) == ELF:
                        yield path


def _libraries(program: Path) -> list[Path]:
    """Return the paths of the shared libraries that a program or module loads, and its loader."""
    done = subprocess.run(["ldd", program], capture_output=True, text=True, check=False)
    if missing := re.findall(r"(\S+) => not found", done.stdout):
        raise FileNotFoundError(f"{program} needs {', '.join(missing)}, which is not installed")
    return [Path(found) for found in re.findall(r"(?:=> |^\s*)(/\S+) \(0x", done.stdout, re.M)]


if __name__ == "__main__":
    copy_root(Path(sys.argv[1]))
