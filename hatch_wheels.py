"""Builds the wheels of all platforms on one machine: python hatch_wheels.py FOLDER.

The kernels of core/native are compiled by Zig's C compiler, a package from PyPI that brings the
headers and libraries of every target. It takes the headers of the Python that runs it, whatever
its version: with the stable ABI they are the same for every platform, but for pyconfig.h. So they
are copied, with core/native/pyconfig_wheel.h in its place: Debian's asks for that of a machine. On
Windows a module names the library that it imports from, so core/native/python3.def lists the names
that the kernels use.

``make wheels`` runs this and tests what it made.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple
from unittest.mock import patch

from hatch_build import FLAGS, definition_of
from hatchling.builders.wheel import WheelBuilder

ROOT = Path(__file__).resolve().parent
NATIVE = ROOT / "core" / "native"


class Platform(NamedTuple):
    """A platform of wheels: its tag, Zig's name of it, and the module's file name."""

    tag: str
    target: str
    module: str = "_kernels.abi3.so"


PLATFORMS = (
    Platform("manylinux_2_17_x86_64.manylinux2014_x86_64", "x86_64-linux-gnu.2.17"),
    Platform("manylinux_2_17_aarch64.manylinux2014_aarch64", "aarch64-linux-gnu.2.17"),
    Platform("musllinux_1_2_x86_64", "x86_64-linux-musl"),
    Platform("musllinux_1_2_aarch64", "aarch64-linux-musl"),
    Platform("macosx_11_0_x86_64", "x86_64-macos.11.0"),
    Platform("macosx_11_0_arm64", "aarch64-macos.11.0"),
    Platform("win_amd64", "x86_64-windows-gnu", "_kernels.pyd"),
    Platform("win_arm64", "aarch64-windows-gnu", "_kernels.pyd"),
)
# The machine's name as dlltool has it.
MACHINES = {"x86_64-windows-gnu": "i386:x86-64", "aarch64-windows-gnu": "arm64"}


def build_wheels(folder: Path, platforms: Sequence[Platform] = PLATFORMS) -> list[Path]:
    """Write a wheel for each platform, and the one without kernels, to ``folder``."""
    folder.mkdir(parents=True, exist_ok=True)
    wheels = [build_wheel(folder, {"CC": "/nowhere/cc"})]
    with tempfile.TemporaryDirectory(prefix="rowtide-wheels-") as scratch:
        headers = copy_headers(Path(scratch, "include"))
        for platform in platforms:
            made = Path(scratch, platform.target)
            made.mkdir()
            compile_kernels(platform, headers, made / platform.module)
            named = {
                "ROWTIDE_WHEEL_MODULE": str(made / platform.module),
                "ROWTIDE_WHEEL_PLATFORM": platform.tag,
            }
            wheels.append(build_wheel(folder, named))
    return wheels


def build_wheel(folder: Path, environment: dict[str, str]) -> Path:
    """Build one wheel under the variables that hatch_build.py reads."""
    with patch.dict("os.environ", environment):
        return Path(next(iter(WheelBuilder(str(ROOT)).build(directory=str(folder)))))


def copy_headers(folder: Path) -> Path:
    """Copy Python's headers, which are then those of every platform; return the folder."""
    shutil.copytree(sysconfig.get_path("include"), folder)
    shutil.copy(NATIVE / "pyconfig_wheel.h", folder / "pyconfig.h")
    return folder


def compile_kernels(platform: Platform, headers: Path, target: Path) -> None:
    """Compile the kernels for a platform; raises ``CalledProcessError`` where that fails."""
    shared = ["-shared", "-s"]
    libraries: list[str] = []
    if "macos" in platform.target:
        # The names of Python are found in the process that loads the module.
        shared += ["-undefined", "dynamic_lookup"]
    if platform.target in MACHINES:
        libraries.append(str(import_library(platform, target.parent)))
    flags = [flag for flag in FLAGS if flag != "-fPIC" or platform.target not in MACHINES]
    zig(
        "cc",
        "-target",
        platform.target,
        *flags,
        "-Wall",
        "-Wextra",
        "-Werror",
        definition_of(NATIVE),
        "-isystem",
        str(headers),
        *shared,
        *map(str, sorted(NATIVE.glob("*.c"))),
        *libraries,
        "-o",
        str(target),
    )


def import_library(platform: Platform, folder: Path) -> Path:
    """Return a library that says of each name of Python that python3.dll has it."""
    library = folder / "python3.lib"
    names = str(NATIVE / "python3.def")
    zig("dlltool", "-m", MACHINES[platform.target], "-d", names, "-l", str(library))
    return library


def zig(*arguments: str) -> None:
    """Run a command of Zig's."""
    subprocess.run([sys.executable, "-m", "ziglang", *arguments], check=True)


if __name__ == "__main__":
    for wheel in build_wheels(Path(sys.argv[1])):
        print(wheel)  # noqa: T201  # What this command is run for.
