"""Targets of the analytics sinks: files of each kind, and a real ClickHouse."""

from __future__ import annotations

import secrets
from pathlib import Path

import pytest

from demo.servers.clickhouse import Clickhouse
from tests.connectors.analytics.targets import MAKERS, Target, clickhouse_target


@pytest.fixture(params=[*MAKERS, pytest.param("clickhouse", marks=pytest.mark.system)])
def target(request: pytest.FixtureRequest, tmp_path: Path) -> Target:
    """An empty target of each kind."""
    if request.param != "clickhouse":
        return MAKERS[request.param](tmp_path)
    server: Clickhouse = request.getfixturevalue("clickhouse")
    return clickhouse_target(server, f"t_{secrets.token_hex(4)}")
