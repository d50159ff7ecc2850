"""How the interpreter was built, and what the log says of it."""

import logging
import subprocess
import sys

import pytest

from rowtide.cli import built_python
from rowtide.cli.built_python import log_interpreter, slow_build
from rowtide.core import native

USUAL = "-Wsign-compare -DNDEBUG -g -fwrapv -O3 -Wall"
BUILDS = {
    "optimised": ("'--enable-optimizations' '--with-lto'", USUAL, "0", None),
    "not optimised": ("'--prefix=/opt/py'", USUAL, "0", "without --enable-optimizations"),
    "not at all": ("'--enable-optimizations'", "-g -O0 -Wall", "0", "with -O0"),
    "the last level counts": ("'--enable-optimizations'", "-O3 -g -Og", "0", "with -Og"),
    "for debugging": ("'--with-pydebug'", "-g -Og", "1", "for debugging"),
    "a distribution's": ("'--prefix=/usr' '--enable-shared'", USUAL, "0", None),
    "with a profile": ("'--prefix=/opt/py'", f"{USUAL} -fprofile-use", "0", None),
    "of which nothing is known": ("", "", "", None),
}


@pytest.mark.parametrize("label", BUILDS)
def test_a_slow_build_is_named(label: str) -> None:
    arguments, flags, debug, reason = BUILDS[label]
    variables = {"CONFIG_ARGS": arguments, "OPT": "", "PY_CFLAGS": flags, "Py_DEBUG": debug}
    assert slow_build(variables, windows=False) == reason
    assert slow_build(variables, windows=True) is None


def test_the_log_says_once_which_kernels_are_used(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "rowtide"):
        log_interpreter()
    (line, *warnings) = [entry.getMessage() for entry in caplog.records]
    assert line.endswith(f"{native.kind()} kernels")
    assert len(warnings) <= 1


@pytest.mark.parametrize(
    ("arguments", "status"), [("'--prefix=/usr'", 0), ("'--prefix=/opt/py'", 1)]
)
def test_the_makefile_takes_an_optimised_python_before_anything_is_installed(
    arguments: str, status: int
) -> None:
    # Without packages of the environment, and as if it were built with these arguments.
    program = f"""
import importlib.util, pathlib, runpy, sys, sysconfig
variables = {{"CONFIG_ARGS": {arguments!r}}}
sysconfig.get_config_var = variables.get
importlib.util.find_spec = lambda name: name
pathlib.Path.exists = lambda path: True
runpy.run_path({built_python.__file__!r}, run_name="__main__")
"""
    ended = subprocess.run([sys.executable, "-I", "-S", "-c", program], check=False, timeout=60)
    assert ended.returncode == status
