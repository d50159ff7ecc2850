"""Compiles core/native into the wheel, or in place for an editable install.

An install never fails for it: without a compiler, or where it fails, a line says why and rowtide
runs in Python alone. The module uses the stable ABI of Python 3.11, so one wheel of a platform
serves every later version. hatch_wheels.py, which compiles for other platforms, names its module
and the wheel's platform by ROWTIDE_WHEEL_MODULE and ROWTIDE_WHEEL_PLATFORM.
"""

from __future__ import annotations

import hashlib
import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from packaging.tags import sys_tags

MODULE = "_kernels.abi3.so"
FLAGS = ("-std=c11", "-O2", "-fPIC", "-fvisibility=hidden", "-DPy_LIMITED_API=0x030B0000")


class NativeKernels(BuildHookInterface[Any]):
    """Adds the compiled module to what is built."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile; tell the builder where the module is and which interpreters may load it."""
        folder = Path(self.root, "core", "native")
        if version == "editable":
            compiled(folder, folder / MODULE)
            return
        self._scratch = tempfile.mkdtemp(prefix="rowtide-native-")
        made = Path(self._scratch, MODULE)
        if given := os.environ.get("ROWTIDE_WHEEL_MODULE"):
            _include(Path(given), os.environ["ROWTIDE_WHEEL_PLATFORM"], build_data)
        elif compiled(folder, made):
            _include(made, _platform(), build_data)

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove what was only made for the wheel."""
        if version != "editable":
            shutil.rmtree(self._scratch, ignore_errors=True)


def compiled(folder: Path, target: Path, extra: Sequence[str] = ()) -> bool:
    """Compile the kernels in ``folder`` to ``target``; return False, and say why, where it fails.

    An older module at ``target`` is removed first: it may be of other sources.
    """
    target.unlink(missing_ok=True)
    if os.name == "nt":
        return _pure("nothing is compiled on Windows")
    compiler = next(_compilers(), None)
    if compiler is None:
        return _pure("no C compiler was found")
    include = f"-I{sysconfig.get_path('include')}"
    shared = ["-bundle", "-undefined", "dynamic_lookup"]
    if sys.platform != "darwin":
        shared = ["-shared"]
    files = map(str, sorted(folder.glob("*.c")))
    # Written beside and renamed: a process that has the old one loaded keeps it.
    beside = target.with_name(f"{target.name}.{os.getpid()}")
    command = [*compiler, *FLAGS, *extra, definition_of(folder), include, *shared, *files]
    command += ["-o", str(beside)]
    try:
        found = subprocess.run(command, capture_output=True, text=True, timeout=300)
    except (OSError, subprocess.SubprocessError) as error:
        return _pure(f"the compiler {compiler[0]} did not run: {error}")
    if found.returncode:
        beside.unlink(missing_ok=True)
        return _pure(f"the compiler {compiler[0]} failed:\n{found.stderr[-2000:]}")
    beside.replace(target)
    return True


def sources(folder: Path) -> str:
    """Return a digest of the C sources, which the compiled module carries."""
    files = sorted([*folder.glob("*.c"), *folder.glob("*.h")])
    text = b"\0".join(file.name.encode() + b"\0" + file.read_bytes() for file in files)
    return hashlib.sha256(text).hexdigest()


def definition_of(folder: Path) -> str:
    """Return the flag that gives the compiled module the digest of its sources."""
    return f'-DROWTIDE_SOURCES="{sources(folder)}"'


def _compilers() -> Iterator[list[str]]:
    """Yield compilers that are there, as commands: CC's, the one Python was built with, others."""
    named = os.environ.get("CC")
    commands = [named] if named else [sysconfig.get_config_var("CC"), "cc", "gcc", "clang"]
    for command in commands:
        words = shlex.split(command or "")
        if words and shutil.which(words[0]):
            yield words


def _include(module: Path, platform: str, build_data: dict[str, Any]) -> None:
    build_data["force_include"][str(module)] = f"rowtide/core/native/{module.name}"
    build_data["pure_python"] = False
    build_data["tag"] = f"cp311-abi3-{platform}"


def _pure(why: str) -> bool:
    print(f"rowtide: native kernels are left out, Python is used: {why}", file=sys.stderr)  # noqa: T201  # What pip -v shows.
    return False


def _platform() -> str:
    """Return this platform as a wheel's tag has it."""
    platforms = (tag.platform for tag in sys_tags())
    return next(name for name in platforms if "manylinux" not in name and "musllinux" not in name)


if __name__ == "__main__":
    # make native: python hatch_build.py TARGET [FLAG]...
    root = Path(__file__).resolve().parent
    if not compiled(root / "core/native", Path(sys.argv[1]), sys.argv[2:]):
        sys.exit(1)
