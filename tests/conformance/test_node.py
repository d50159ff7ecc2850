"""The official Node SDK, where ``npm`` is on the PATH: a test per check of the program in node/."""

from __future__ import annotations

import pytest

from rowtide.deploy.up import Ready
from tests.conformance.program import checks_of, copy_program, need, run, run_program

pytestmark = pytest.mark.system


@pytest.fixture(scope="module")
def results(server: Ready, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Return what the program found."""
    need("node", "npm")
    folder = copy_program("node", tmp_path_factory.mktemp("node"))
    run(["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--prefer-offline"], folder)
    return run_program(["node", "main.js"], folder, server)


@pytest.mark.parametrize("check", checks_of("node"))
def test_node(results: dict[str, str], check: str) -> None:
    assert results.get(check, "not made") == "ok"


def test_node_checks_nothing_that_is_not_listed(results: dict[str, str]) -> None:
    assert set(results) == set(checks_of("node"))
