"""A table's rows, a chunk at a time, each exact as of a place of the binlog.

A chunk is read in a transaction of its own, begun ``WITH CONSISTENT SNAPSHOT``, whose
place in the binlog the server reports. So a chunk needs no watermarks, no lock and no
permission to write. Between two chunks nothing stays open at the server. One chunk is in
memory: at most ``CHUNK_BYTES`` and one row. All calls block and belong to one thread at a
time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

import pymysql

from rowtide.connectors.rows import Key, SourceRow
from rowtide.connectors.sources import chunk_size
from rowtide.connectors.sources.copying.seam import TableUnread
from rowtide.connectors.sources.mysql.gtids import Gtids
from rowtide.connectors.sources.mysql.log import BinlogPlace
from rowtide.connectors.sources.mysql.packets import Packets, length_at
from rowtide.connectors.sources.mysql.position import Place, place_of, prefix
from rowtide.connectors.sources.mysql.schema import (
    BINARIES,
    INTEGERS,
    MySqlColumn,
    MySqlTable,
    cursor_literal,
    fits_key,
    key_part,
    quote_name,
    select_term,
    text_reader,
)
from rowtide.connectors.sources.mysql.server import MySqlServer
from rowtide.connectors.sources.mysql.tables import MySqlTables, is_of_a_table, list_tables
from rowtide.core.values.variant import Scalar

__all__ = [
    "ExistingMySqlTable",
    "Found",
    "MySqlChunk",
    "MySqlTableChanged",
    "Snapshots",
    "TableUnreadable",
]

_QUERY = 3
_NULL = 0xFB
_NO_SUCH_VALUE = {1267, 1525, 3854}
"""Errors of an invalid date, or of a text with characters that the column's charset lacks."""
_CHANGED = {1054, 1146, 1176, 1412, 1049}
"""Errors of a table that changed: it has other columns, or does not exist."""

_Reader = Callable[[bytes], Scalar]


class MySqlTableChanged(TableUnread):
    """The table changed since its schema was read. The binlog has the change."""


class TableUnreadable(TableUnread):
    """The server refuses to read this table. The text has its reason."""


class _NoSuchValue(TableUnreadable):
    """A value that was searched is not valid for its column's type."""


class MySqlChunk(NamedTuple):
    """Rows as of ``place``. The next chunk begins after ``cursor``, None at the end."""

    place: Place
    rows: Sequence[SourceRow]
    cursor: list[str] | None
    settled: Gtids | None = None


class ExistingMySqlTable(NamedTuple):
    """Which of some keys exist as of ``place``, and the prefix for positions of deletes."""

    place: Place
    keys: set[Key]
    prefix: bytes
    time_ms: int
    settled: Gtids | None = None


class Found(NamedTuple):
    """Rows as of ``place``, and the prefix for positions of other rows as of it."""

    place: Place
    rows: list[SourceRow]
    prefix: bytes
    time_ms: int
    settled: Gtids | None = None


class Snapshots:
    """Reads rows on its own connection. Numbers rise over all rows of a ``run``."""

    def __init__(self, server: MySqlServer, *, epoch: int, run: int) -> None:
        self._server = server
        self._packets = Packets(server.connection)
        self._epoch, self._run = epoch, run
        self._made = 0
        self._sizes = chunk_size.ChunkSizes(server.settings.chunk_rows)

    def number(self) -> bytes:
        """Return the last eight bytes of the next position."""
        self._made += 1
        return self._made.to_bytes(8, "big")

    def prefix(self, place: Place) -> bytes:
        """Return the first bytes of positions as of a place."""
        return prefix(self._epoch, place, run=self._run)

    def chunk(self, table: MySqlTable, cursor: Sequence[str] | None, made: Gtids) -> MySqlChunk:
        """Return the rows after a cursor. Raises MySqlTableChanged."""
        limit = self._sizes.rows(table.full_name)
        terms = ", ".join(select_term(column) for column in table.columns)
        order = ", ".join(quote_name(column.name) for column in table.key)
        query = (
            f"SELECT {terms} FROM {_from(table)} WHERE {_behind(table.key, cursor)}"
            f" ORDER BY {order} LIMIT {limit}"
        )
        moment = self._server.log.begin_moment(made)
        try:
            rows, last, whole = self._read_rows(table, self._texts(query), moment)
        finally:
            self._server.end_moment()
        if whole and len(rows) < limit:
            return MySqlChunk(moment.place, rows, None, moment.settled)
        literals = [
            cursor_literal(column, value) for column, value in zip(table.key, last, strict=True)
        ]
        return MySqlChunk(moment.place, rows, literals, moment.settled)

    def existing(self, table: MySqlTable, keys: Sequence[Key], made: Gtids) -> ExistingMySqlTable:
        """Return which of the keys the table has. Raises MySqlTableChanged."""
        names = ", ".join(quote_name(column.name) for column in table.target_key)
        readers = [_key_reader(column) for column in table.target_key]
        moment = self._server.log.begin_moment(made)
        try:
            found = {
                tuple(
                    (column.name, reader(text or b""))
                    for column, reader, text in zip(table.target_key, readers, texts, strict=True)
                )
                for texts in self._texts_of(table, names, keys)
            }
        finally:
            self._server.end_moment()
        start = self.prefix(moment.place)
        return ExistingMySqlTable(moment.place, found, start, moment.time_ms, moment.settled)

    def look_up(self, table: MySqlTable, keys: Sequence[Key], made: Gtids) -> Found:
        """Return the rows of the keys that exist. Raises MySqlTableChanged."""
        terms = ", ".join(select_term(column) for column in table.columns)
        moment = self._server.log.begin_moment(made)
        try:
            rows, _, _ = self._read_rows(table, self._texts_of(table, terms, keys), moment)
        finally:
            self._server.end_moment()
        start = self.prefix(moment.place)
        return Found(moment.place, rows, start, moment.time_ms, moment.settled)

    def tables(self) -> MySqlTables:
        """Return the wanted tables as they are now."""
        return list_tables(self._server)

    def now(self) -> Place:
        """Return the current place of the binlog."""
        return place_of(*self._server.log.end())[1]

    def _read_rows(
        self, table: MySqlTable, answer: Iterable[list[bytes | None]], moment: BinlogPlace
    ) -> tuple[list[SourceRow], list[Scalar], bool]:
        """Return rows, the key of the last in index order, and whether these are all rows."""
        columns = [(column.name, text_reader(column)) for column in table.columns]
        names = [column.name for column in table.columns]
        keys = [
            (column.name, names.index(column.name), _key_reader(column))
            for column in table.target_key
        ]
        key_indexes = {index for _, index, _ in keys}
        # In rowtide's order, so that rowtide need not sort them.
        rest = [
            (index, *columns[index])
            for index in sorted(range(len(names)), key=names.__getitem__)
            if index not in key_indexes
        ]
        start, target, time_ms = self.prefix(moment.place), table.target, moment.time_ms
        rows: list[SourceRow] = []
        size, made, texts, whole = 0, self._made, [], True
        most = chunk_size.CHUNK_BYTES
        for found in answer:
            if size > most:
                whole = False
                continue  # The server sends these rows anyway. The next chunk begins before them.
            texts = found
            key = tuple([(name, reader(texts[index])) for name, index, reader in keys])  # type: ignore[arg-type]
            values: dict[str, Scalar | None] = {
                name: reader(text)
                for index, name, reader in rest
                if (text := texts[index]) is not None
            }
            made += 1
            size += 64 + sum([len(text) for text in texts if text is not None])
            position = start + made.to_bytes(8, "big")
            rows.append(SourceRow(target, key, values, True, time_ms, position))
        self._made = made
        self._sizes.note(table.full_name, len(rows), size)
        last = [
            columns[names.index(column.name)][1](texts[names.index(column.name)] or b"")
            for column in table.key
            if texts
        ]
        return rows, last, whole

    def _texts_of(
        self, table: MySqlTable, terms: str, keys: Sequence[Key]
    ) -> list[list[bytes | None]]:
        """Return the values of the rows of some keys.

        A client may have written keys to rowtide's table that are no values of their
        columns' types. These are compared as texts: a server may have a value that it
        would not accept now.
        """
        select = f"SELECT {terms} FROM {_from(table)} WHERE "
        try:
            return list(self._texts(select + _any_of(table.target_key, keys)))
        except _NoSuchValue:
            pass
        if middle := len(keys) // 2:
            first = self._texts_of(table, terms, keys[:middle])
            return first + self._texts_of(table, terms, keys[middle:])
        return list(self._texts(select + _any_of(table.target_key, keys, as_texts=True)))

    def _texts(self, query: str) -> Iterator[list[bytes | None]]:
        """Yield the values of each row of a query's result."""
        packets = self._packets
        packets.command(_QUERY, query.encode())
        first = packets.next()
        self._check(first)
        for _ in range(length_at(first, 0)[0] + 1):  # Descriptions of columns, and their end.
            packets.next()
        while True:
            packet = packets.next()
            if packet[0] == 0xFE and len(packet) < 9:
                return
            self._check(packet)
            yield _values(packet)

    def _check(self, packet: bytes) -> None:
        if packet[0] != 0xFF or len(packet) < 3:
            return
        code = int.from_bytes(packet[1:3], "little")
        text = packet[9:].decode("utf-8", "replace")
        if code in _CHANGED:
            raise MySqlTableChanged(text)
        if code in _NO_SUCH_VALUE:
            raise _NoSuchValue(text)
        if is_of_a_table(code):
            raise TableUnreadable(text)
        raise pymysql.err.OperationalError(code, text)


def _values(packet: bytes) -> list[bytes | None]:
    values: list[bytes | None] = []
    add = values.append
    at, length = 0, len(packet)
    while at < length:
        first = packet[at]
        if first < _NULL:
            begin = at + 1
            at = begin + first
            add(packet[begin:at])
        elif first == _NULL:
            at += 1
            add(None)
        else:
            size, begin = length_at(packet, at)
            at = begin + size
            add(packet[begin:at])
    return values


def _key_reader(column: MySqlColumn) -> _Reader:
    reader, change = text_reader(column), key_part(column)
    return reader if change is None else lambda text: change(reader(text))


def _from(table: MySqlTable) -> str:
    name = f"{quote_name(table.database)}.{quote_name(table.name)}"
    return f"{name} FORCE INDEX ({quote_name(table.key_index)})"


def _any_of(columns: Sequence[MySqlColumn], keys: Sequence[Key], *, as_texts: bool = False) -> str:
    equal = _equal_texts if as_texts else _equal
    return " OR ".join(equal(columns, key) for key in keys if _fits(columns, key)) or "FALSE"


def _fits(columns: Sequence[MySqlColumn], key: Key) -> bool:
    return all(fits_key(column, value) for column, (_, value) in zip(columns, key, strict=True))


def _equal(columns: Sequence[MySqlColumn], key: Key) -> str:
    """Return the condition for a key.

    MariaDB 10.11 evaluates ``(a, b) IN ((..), (..))`` wrongly for non-ASCII texts in a
    column that is not UTF-8.
    """
    terms = [
        f"{quote_name(column.name)} = {cursor_literal(column, value)}"
        for column, (_, value) in zip(columns, key, strict=True)
    ]
    return f"({' AND '.join(terms)})"


def _equal_texts(columns: Sequence[MySqlColumn], key: Key) -> str:
    """Return a condition for a key that compares texts. No index can be used."""
    terms = []
    for column, (_, value) in zip(columns, key, strict=True):
        name = quote_name(column.name)
        if isinstance(value, str) and column.type not in INTEGERS | BINARIES:
            name = f"CAST({name} AS CHAR CHARACTER SET utf8mb4)"
        terms.append(f"{name} = {cursor_literal(column, value)}")
    return f"({' AND '.join(terms)})"


def _behind(key: Sequence[MySqlColumn], cursor: Sequence[str] | None) -> str:
    """Return the condition for keys above a cursor, as ranges of the index."""
    if cursor is None:
        return "TRUE"
    names = [quote_name(column.name) for column in key]
    ranges = []
    for count in range(len(names)):
        equal = [f"{name} = {value}" for name, value in zip(names[:count], cursor, strict=False)]
        ranges.append(" AND ".join([*equal, f"{names[count]} > {cursor[count]}"]))
    return "(" + ") OR (".join(ranges) + ")"
