"""The servers of each kind of source."""

from __future__ import annotations

import pytest

from rowtide.connectors.sources.copying import checkpoint_keeper
from tests.connectors.mysql_source.conftest import mariadb, mysql
from tests.connectors.postgres.conftest import postgres

__all__ = ["mariadb", "mysql", "postgres"]


@pytest.fixture(autouse=True)
def keep_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Store checkpoints more often: tests read from them how far the source is."""
    monkeypatch.setattr(checkpoint_keeper, "KEEP_S", 0.05)
