"""The official Java SDK, where ``mvn`` is on the PATH: a test per check of the program in java/."""

from __future__ import annotations

import pytest

from rowtide.deploy.up import Ready
from tests.conformance.program import JAVA, build_java, checks_of, run_program

pytestmark = pytest.mark.system


@pytest.fixture(scope="module")
def results(server: Ready, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Return what the program found."""
    folder, classes = build_java(tmp_path_factory.mktemp("java"))
    return run_program([*JAVA, "-cp", classes, "rowtide.Conformance"], folder, server)


@pytest.mark.parametrize("check", checks_of("java"))
def test_java(results: dict[str, str], check: str) -> None:
    assert results.get(check, "not made") == "ok"


def test_java_checks_nothing_that_is_not_listed(results: dict[str, str]) -> None:
    assert set(results) == set(checks_of("java"))
