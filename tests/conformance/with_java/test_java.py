"""The official Java SDK, where ``mvn`` is on the PATH: a test per check of the program in java/."""

from __future__ import annotations

from pathlib import Path

import pytest

from rowtide.deploy.up import Ready
from tests.conformance.program import JAVA, checks_of, run_program

pytestmark = pytest.mark.system


@pytest.fixture(scope="module")
def results(server: Ready, java_program: tuple[Path, str]) -> dict[str, str]:
    """Return what the program found."""
    folder, classes = java_program
    return run_program([*JAVA, "-cp", classes, "rowtide.Conformance"], folder, server)


@pytest.mark.parametrize("check", checks_of("java"))
def test_java(results: dict[str, str], check: str) -> None:
    assert results.get(check, "not made") == "ok"


def test_java_checks_nothing_that_is_not_listed(results: dict[str, str]) -> None:
    assert set(results) == set(checks_of("java"))
