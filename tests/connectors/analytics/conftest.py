"""One real ClickHouse for the tests of the analytics sinks."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest

from demo.servers.clickhouse import Clickhouse, NotToBeHad, find_program
from tests.connectors.analytics.targets import MAKERS, Target, clickhouse_target

__all__ = ["clickhouse", "clickhouse_program", "target"]


@pytest.fixture(scope="session")
def clickhouse_program(cache_dir: Path) -> Path:
    """The cache that has the program; tests are skipped where it is not to be had."""
    try:
        find_program(cache_dir)
    except NotToBeHad as error:
        pytest.skip(f"No ClickHouse: {error}")
    return cache_dir


@pytest.fixture(scope="session")
def clickhouse(
    clickhouse_program: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Clickhouse]:
    """A server that lives as long as the test run."""
    with Clickhouse(tmp_path_factory.mktemp("clickhouse"), clickhouse_program) as server:
        yield server


@pytest.fixture(params=[*MAKERS, pytest.param("clickhouse", marks=pytest.mark.system)])
def target(request: pytest.FixtureRequest, tmp_path: Path) -> Target:
    """An empty target of each kind."""
    if request.param != "clickhouse":
        return MAKERS[request.param](tmp_path)
    server: Clickhouse = request.getfixturevalue("clickhouse")
    return clickhouse_target(server, f"t_{secrets.token_hex(4)}")
