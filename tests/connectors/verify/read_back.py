"""The tests' sink, which can be read back too: what ``rowtide verify`` needs of a sink."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping

from rowtide.connectors.fields import Fields
from rowtide.connectors.registry import ConnectorContext
from rowtide.connectors.sinks.sink import HeldRow, Sink
from rowtide.core.values.variant import Scalar
from tests.connectors.sqlite_sink import SqliteSink

__all__ = ["KIND", "make_sink"]

KIND = "tests.connectors.verify.read_back"


def make_sink(fields: Fields, surroundings: ConnectorContext) -> Sink:
    """Return a sink into the file that ``path`` names."""
    return ReadBack(fields.text("path"))


class ReadBack(SqliteSink):
    """Rows in a SQLite file."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self._held_in = path

    def convert_columns(self, columns: Mapping[str, Scalar]) -> Mapping[str, Scalar]:
        """Return what comes back of columns: JSON keeps what these tests write."""
        return columns

    async def read_rows(self, begin: bytes, end: bytes, *, limit: int) -> list[HeldRow]:
        """Return rows, see ``Comparable.read_rows``."""
        file = sqlite3.connect(self._held_in)
        found = file.execute(
            "select key, stamp, columns from rows where columns is not null and key >= ? "
            "and (? = x'' or key < ?) order by key limit ?",
            (begin, end, end, limit),
        ).fetchall()
        file.close()
        return [HeldRow(key, stamp, json.loads(columns)) for key, stamp, columns in found]
