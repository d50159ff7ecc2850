"""How the interpreter was built, and what the log says of it."""

import logging

import pytest

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
