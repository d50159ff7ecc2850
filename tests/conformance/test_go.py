"""The official Go SDK, where ``go`` is on the PATH: one test per check of the program in go/."""

from __future__ import annotations

import pytest

from rowtide.deploy.up import Ready
from tests.conformance.program import checks_of, copy_program, need, run, run_program

pytestmark = pytest.mark.system


@pytest.fixture(scope="module")
def results(server: Ready, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Return what the program found."""
    need("go")
    target = tmp_path_factory.mktemp("go")
    folder = copy_program("go", target)
    program = target / "conformance"
    run(["go", "build", "-mod=readonly", "-o", program, "."], folder)
    return run_program([program], folder, server)


@pytest.mark.parametrize("check", checks_of("go"))
def test_go(results: dict[str, str], check: str) -> None:
    assert results.get(check, "not made") == "ok"


def test_go_checks_nothing_that_is_not_listed(results: dict[str, str]) -> None:
    assert set(results) == set(checks_of("go"))
