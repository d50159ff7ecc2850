"""A table of flights, a dashboard over it, and what its numbers must be."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import count
from pathlib import Path
from typing import Any

from rowtide.cli.client import ProtocolClient, Write
from rowtide.client.wire_row import Put
from rowtide.core.protocol.wire import ots_pb2 as pb
from rowtide.core.values.schema import STRING, KeyColumn
from rowtide.core.values.variant import Scalar
from tests.workers.conftest import UNAVAILABLE

__all__ = ["Flights", "declare_flights"]

HOUR_US = 3_600_000_000
FIRST_US = 1_704_067_200_000_000
TEXT = """
dashboards:
  {name}:
    table: {table}
    types: {{origin: text, carrier: text, delay: double, leaves: timestamp_us}}
    lease_ms: {lease_ms}
    panels:
      all: {{query: "SELECT count(*) AS n, sum(delay) AS total FROM {table}"}}
      hourly:
        title: Flights an hour
        chart: lines
        query: |
          SELECT time_bucket(INTERVAL '1 hour', leaves) AS hour, origin, count(*) AS n
          FROM {table} GROUP BY ALL ORDER BY hour, origin
      late:
        unit: min
        query: |
          SELECT carrier, avg(delay) AS mean, max(delay) AS worst, count(DISTINCT origin) AS places,
            approx_quantile(delay, 0.9) AS p90
          FROM {table} GROUP BY ALL ORDER BY worst DESC LIMIT 3
      rolling:
        query: |
          SELECT hop(leaves, INTERVAL '3 hours', INTERVAL '1 hour') AS begins, count(*) AS n
          FROM {table} GROUP BY ALL
      bursts:
        query: |
          SELECT origin, session(leaves, INTERVAL '90 minutes') AS begins, count(*) AS n
          FROM {table} GROUP BY ALL
"""
_numbers = count(1)


class Flights:
    """The flights that a test has written, beside the table."""

    def __init__(self, client: ProtocolClient) -> None:
        self.table = f"flights_{next(_numbers)}"
        self.rows: dict[str, dict[str, Scalar]] = {}
        self._client = client
        stream = pb.StreamSpecification(enable_stream=True, expiration_time=24)
        client.create_table(self.table, (KeyColumn("id", STRING),), stream=stream)

    def put(self, rows: Mapping[str, Mapping[str, Scalar]]) -> None:
        """Write whole rows."""
        writes = [
            Write("PUT", [("id", key)], [Put(name, value) for name, value in row.items()])
            for key, row in rows.items()
        ]
        self._write(writes)
        self.rows |= {key: dict(row) for key, row in rows.items()}

    def update(self, key: str, columns: Mapping[str, Scalar]) -> None:
        """Merge columns into a row."""
        puts = [Put(name, value) for name, value in columns.items()]
        self._write([Write("UPDATE", [("id", key)], puts)])
        self.rows.setdefault(key, {}).update(columns)

    def delete(self, *keys: str) -> None:
        """Delete rows."""
        self._write([Write("DELETE", [("id", key)]) for key in keys])
        for key in keys:
            self.rows.pop(key, None)

    def _write(self, writes: list[Write]) -> None:
        for start in range(0, len(writes), 200):
            left = writes[start : start + 200]
            while left:
                errors = self._client.batch_write_row({self.table: left})
                codes = {error.code for error in errors if error is not None}
                assert codes <= UNAVAILABLE, errors  # A shard is on its way: as SDKs do, again.
                left = [w for w, error in zip(left, errors, strict=True) if error is not None]


def flight(number: int) -> dict[str, Scalar]:
    """Return a row that depends on a number alone."""
    return {
        "origin": ("JFK", "LGA", "EWR")[number % 3],
        "carrier": ("AA", "B6", "DL", "UA")[number % 4],
        "delay": number % 97 / 4 - 5,
        "leaves": FIRST_US + number * 17 % 48 * HOUR_US // 2,
    }


def declare_flights(folder: Path, table: str, name: str, *, lease_ms: int = 1000) -> Path:
    """Return a file that declares a dashboard over the table."""
    path = folder / f"{name}.yaml"
    path.write_text(TEXT.format(name=name, table=table, lease_ms=lease_ms), encoding="utf-8")
    return path


def numbers_of(shown: Mapping[str, Any]) -> tuple[int, float | None]:
    """Return count and sum as ``show`` prints them in JSON."""
    [[rows, total]] = shown["panels"]["all"]["rows"]
    return rows, total


def expected_of(flights: Flights) -> tuple[int, float | None]:
    """Return what count and sum must be. Delays are quarters, so sums are exact."""
    delays = [row["delay"] for row in flights.rows.values() if "delay" in row]
    return len(flights.rows), sum(float(delay) for delay in delays) if delays else None
