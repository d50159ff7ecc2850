"""A table of a real server into each analytics target, by connector processes that are killed."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from demo.servers.clickhouse import Clickhouse
from rowtide.deploy.up import Ready
from tests.connectors.histories import check_history

pytestmark = [pytest.mark.kafka, pytest.mark.system]

STEPS = 12


@pytest.mark.parametrize("kind", ["duckdb", "delta", "parquet"])
def test_any_history_ends_in_the_files(kind: str, server: Ready, tmp_path: Path) -> None:
    places: dict[str, Mapping[str, object]] = {
        "duckdb": {"file": str(tmp_path / "rows.duckdb")},
        "delta": {"place": str(tmp_path / "delta"), "commit_every_ms": 100, "compact_every": 5},
        "parquet": {"folder": str(tmp_path / "parquet"), "file_every_ms": 100},
    }
    processes = 1 if kind == "duckdb" else 2
    settings = {"kind": kind, **places[kind]}
    check_history(server, tmp_path, settings, mixed=True, processes_max=processes, steps=STEPS)


def test_any_history_ends_in_clickhouse(
    server: Ready, clickhouse: Clickhouse, tmp_path: Path
) -> None:
    settings = {"kind": "clickhouse", "url": clickhouse.url, "view": "whole_path"}
    check_history(server, tmp_path, settings, mixed=True, steps=STEPS)
