"""What affects the interpreter's speed: compiled kernels, and the build of Python."""

from __future__ import annotations

import logging
import sys
import sysconfig

from rowtide.core import native

__all__ = ["log_interpreter", "slow_build"]

logger = logging.getLogger(__name__)


def log_interpreter() -> None:
    """Log once which kernels are used, and why Python is slower than possible."""
    logger.info("Python %s, %s kernels", sys.version.split()[0], native.kind())
    variables = {name: str(sysconfig.get_config_var(name) or "") for name in VARIABLES}
    reason = slow_build(variables, windows=sys.platform == "win32")
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
