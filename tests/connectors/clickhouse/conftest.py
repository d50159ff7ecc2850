"""The ClickHouse of the analytics tests, for those of this folder."""

from tests.connectors.analytics.conftest import clickhouse, clickhouse_program

__all__ = ["clickhouse", "clickhouse_program"]
