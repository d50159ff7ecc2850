"""Each analytics target behind one face, so that one suite of tests runs on all of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import duckdb
import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder

from demo.servers.clickhouse import Clickhouse
from rowtide.connectors.sinks.clickhouse.sink import ClickhouseSettings, ClickhouseSink
from rowtide.connectors.sinks.duckdb.sink import DuckdbSettings, DuckdbSink
from rowtide.connectors.sinks.lake.delta_sink import DeltaSettings, DeltaSink
from rowtide.connectors.sinks.lake.parquet_sink import ParquetSettings, ParquetSink
from rowtide.connectors.sinks.sink import Comparable, Sink

__all__ = ["MAKERS", "AnySink", "Target", "clickhouse_target", "duckdb_target", "query_duckdb"]


class AnySink(Sink, Comparable, Protocol):
    """What every sink here is."""


class Target(NamedTuple):
    """One place for one table.

    ``make`` gives one more sink on it, as another process has one, with other settings where they
    are named. ``keys_seen`` is the keys that people see with a query of their own, in any order.
    """

    make: Callable[..., AnySink]
    keys_seen: Callable[[], list[tuple[object, ...]]]
    several: bool = True
    """Whether several sinks may have it open at a time."""
    grows: bool = False
    """Whether everything stays in files, so that the reader decides what counts."""


def query_duckdb(file: Path, query: str) -> list[tuple[Any, ...]]:
    """Return what DuckDB answers from a file, or from none."""
    connection = duckdb.connect(str(file) if file.name else ":memory:")
    try:
        found: list[tuple[Any, ...]] = connection.execute(query).fetchall()
        return found
    finally:
        connection.close()


def duckdb_target(folder: Path) -> Target:
    """Return a target in a DuckDB file."""
    settings = DuckdbSettings(folder / "t.duckdb", folder / "copy.duckdb", copy_every_s=0)
    query = 'SELECT customer, "Number", "order" FROM orders'
    return Target(
        make=lambda **other: DuckdbSink(replace(settings, **other)),
        keys_seen=lambda: query_duckdb(settings.file, query),
        several=False,
    )


def delta_target(folder: Path) -> Target:
    """Return a target in a Delta table."""
    settings = DeltaSettings(str(folder / "orders"), commit_every_ms=0, compact_every=3)

    def keys_seen() -> list[tuple[object, ...]]:
        engine = QueryBuilder().register("orders", DeltaTable(settings.place))
        living = 'SELECT customer, "Number", "order" FROM orders WHERE NOT _rowtide_deleted'
        found = pa.table(engine.execute(living))
        return list(zip(*(column.to_pylist() for column in found.columns), strict=True))

    return Target(lambda **other: DeltaSink(replace(settings, **other)), keys_seen)


def parquet_target(folder: Path) -> Target:
    """Return a target of Parquet files. It is read with the query file beside them."""
    settings = ParquetSettings(folder / "orders", file_every_ms=0)

    def keys_seen() -> list[tuple[object, ...]]:
        newest = (settings.folder / "newest.sql").read_text().rstrip().rstrip(";")
        if not list(settings.folder.glob("date=*")):
            return []
        living = f'SELECT customer, "Number", "order" FROM ({newest})'
        return query_duckdb(Path(), living)

    return Target(lambda **other: ParquetSink(replace(settings, **other)), keys_seen, grows=True)


def clickhouse_target(server: Clickhouse, view: str) -> Target:
    """Return a target on a server that runs."""
    settings = ClickhouseSettings(server.url, view=view)

    def keys_seen() -> list[tuple[object, ...]]:
        wanted = "hex(customer), toString(Number), hex(order)"
        lines = server.ask(f"SELECT {wanted} FROM {view}").splitlines()
        found = [line.split("\t") for line in lines]
        return [(bytes.fromhex(a).decode(), int(b), bytes.fromhex(c)) for a, b, c in found]

    return Target(lambda **other: ClickhouseSink(replace(settings, **other)), keys_seen)


MAKERS: dict[str, Callable[[Path], Target]] = {
    "duckdb": duckdb_target,
    "delta": delta_target,
    "parquet": parquet_target,
}
