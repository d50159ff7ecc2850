"""A table's changes as Parquet files: an export that only grows, for any reader of
Parquet.

Writing files blocks, so it is done in one thread. Batches that arrive together become one
file, and few rows wait a moment for others. ``parquet_files.py`` describes the files and
how to read the current rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from rowtide.connectors.declared_types import DeclaredTypes, parse_types
from rowtide.connectors.fields import Fields
from rowtide.connectors.registry import ConnectorContext
from rowtide.connectors.rows import TableShape
from rowtide.connectors.sinks.columnar.blocking_sink import BlockingSink
from rowtide.connectors.sinks.columnar.gathering import Pace
from rowtide.connectors.sinks.lake.parquet_files import ParquetFiles

__all__ = ["ParquetSettings", "ParquetSink", "make_sink"]

ROWS_ENOUGH = 100
"""From this many waiting rows on, write at once. Fewer wait for ``file_every_ms``."""

TYPES: Mapping[str, str] = {
    "decimal": "decimal",
    "date": "date",
    "time": "time",
    "timestamp": "timestamp",
}


@dataclass(frozen=True, slots=True)
class ParquetSettings:
    """Where the files go, and how often there is a new one."""

    folder: Path
    file_every_ms: int = 1000
    columns_max: int = 1000
    """Rows that need more are refused: every file describes every column."""
    columns: DeclaredTypes = field(default_factory=dict)
    """Declared types of attributes. Other attributes keep the type of each value."""


def make_sink(fields: Fields, surroundings: ConnectorContext) -> ParquetSink:
    """Return the sink that settings describe."""
    return ParquetSink(
        ParquetSettings(
            folder=Path(fields.text("folder", str(Path(surroundings.folder) / "parquet"))),
            file_every_ms=fields.integer("file_every_ms", 1000, least=0, most=3_600_000),
            columns_max=fields.integer("columns_max", 1000, least=1, most=10_000),
            columns=parse_types(fields.inner("columns"), TYPES),
        )
    )


class ParquetSink(BlockingSink):
    """One table in one folder. Several processes may write it at the same time."""

    alone = True
    """The folder is local to this machine, and connectors run on several."""
    every_change = True

    def __init__(self, settings: ParquetSettings) -> None:
        def make(table: TableShape) -> ParquetFiles:
            return ParquetFiles(
                settings.folder, table, columns_max=settings.columns_max, types=settings.columns
            )

        pace = Pace(settings.file_every_ms / 1000, ROWS_ENOUGH)
        super().__init__(make, pace, types=settings.columns)
