"""What affects the interpreter's speed: compiled kernels, and the build of Python.

As a program it exits with 0 if its interpreter serves well for an environment of rowtide: it is
new enough, makes environments, compiles kernels and is optimised. The Makefile asks so.
"""

from __future__ import annotations

import logging
import sys
import sysconfig
from importlib.util import find_spec
from pathlib import Path

__all__ = ["log_interpreter", "slow_build"]

logger = logging.getLogger(__name__)


def log_interpreter() -> None:
    """Log once which kernels are used, and why Python is slower than possible."""
    from rowtide.core import native  # The Makefile asks before anything is installed.

    logger.info("Python %s, %s kernels", sys.version.split()[0], native.kind())
    reason = _slow_build_here()
    if reason:
        logger.warning(
            "this Python was built %s: each request costs about a quarter more; "
            "use an optimised build",
            reason,
        )


VARIABLES = ("CONFIG_ARGS", "OPT", "PY_CFLAGS", "Py_DEBUG")
"""The build variables that show optimisation; empty on Windows."""


def slow_build(variables: dict[str, str], *, windows: bool) -> str | None:
    """Return what slows down an interpreter with these build variables, or None."""
    if windows:
        return None  # Builds of python.org are optimised; others cannot be recognised.
    if variables["Py_DEBUG"] == "1" or "--with-pydebug" in variables["CONFIG_ARGS"]:
        return "for debugging"
    levels = [
        word
        for name in ("OPT", "PY_CFLAGS")
        for word in variables[name].split()
        if word.startswith("-O")
    ]
    if levels and levels[-1] in ("-O0", "-Og", "-O1"):
        return f"with {levels[-1]}"
    arguments = variables["CONFIG_ARGS"]
    if "--prefix=/usr'" in arguments or "-fprofile-use" in variables["PY_CFLAGS"]:
        return None  # Distributions use profiles without that argument.
    if arguments and "--enable-optimizations" not in arguments:
        return "without --enable-optimizations"
    return None


def _slow_build_here() -> str | None:
    variables = {name: str(sysconfig.get_config_var(name) or "") for name in VARIABLES}
    return slow_build(variables, windows=sys.platform == "win32")


def _serves_well() -> bool:
    headers = Path(sysconfig.get_path("include")) / "Python.h"
    return (
        sys.version_info >= (3, 11)
        and find_spec("ensurepip") is not None
        and headers.exists()
        and _slow_build_here() is None
    )


if __name__ == "__main__":
    sys.exit(not _serves_well())
