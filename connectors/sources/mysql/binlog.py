"""Reads the binlog from the server, transaction by transaction.

A transaction is an event with its GTID, then events of tables and rows, then its end. Its
events are held until the end arrives: a server that is killed while it writes its binlog
leaves an incomplete transaction that was never committed. Decoded rows are emitted in
*pieces*, as soon as there is nothing more to read.

This blocks and runs in one thread. Another thread may call ``close``. After a statement
changed a table, the schema is read from the server before the following rows are decoded.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from struct import Struct
from types import MappingProxyType
from typing import Any, NamedTuple

import pymysql

from rowtide.connectors.fields import SettingsRefused
from rowtide.connectors.rows import SourceRow
from rowtide.connectors.sources.mysql.charsets import Charsets
from rowtide.connectors.sources.mysql.control import Control, Step, control_of
from rowtide.connectors.sources.mysql.ddl import UNCLEAR, Meaning, What
from rowtide.connectors.sources.mysql.gtid_events import GTID_EVENTS, parse_gtid_event
from rowtide.connectors.sources.mysql.gtids import Gtids
from rowtide.connectors.sources.mysql.held import HeldEvents
from rowtide.connectors.sources.mysql.packets import Packets, length_at
from rowtide.connectors.sources.mysql.position import MySqlCheckpoint, Place, place_of, prefix
from rowtide.connectors.sources.mysql.query import Query, parse_query, without_file
from rowtide.connectors.sources.mysql.row_image import Unreadable, reader_of
from rowtide.connectors.sources.mysql.rows import DELETE, UPDATE, WRITE, BinlogRowDecoder
from rowtide.connectors.sources.mysql.schema import MySqlTable
from rowtide.connectors.sources.mysql.server import MySqlServer, connect, cut
from rowtide.connectors.sources.mysql.statements import Statements
from rowtide.connectors.sources.mysql.table_map import parse_table_map, table_name
from rowtide.connectors.sources.mysql.tables import (
    UnfitMySqlTable,
    find_table,
    list_tables,
)
from rowtide.connectors.sources.mysql.words import Token, UnknownForm, tokens

__all__ = ["Binlog", "BinlogChange", "BinlogPiece", "Purged"]

SILENCE_S = 10
"""A connection without any packet for so long, not even a heartbeat, is closed."""

FLUSH_ROWS, FLUSH_BYTES = 500, 1024 * 1024
"""From this size on, pieces are emitted even if more can be read at once."""

_HEADER = Struct("<IBIIIH")
_ARTIFICIAL = 0x20
"""Event flag: the event is not in the file."""
_CHECKSUM_BYTES = 4
_PURGED = 1236

QUERY, ROTATE, FORMAT, XID, LOAD, TABLE_MAP, INCIDENT, HEARTBEAT = 2, 4, 15, 16, 18, 19, 26, 27
XA_PREPARE, QUERY_COMPRESSED = 38, 165
_ROWS = {23: WRITE, 24: UPDATE, 25: DELETE, 166: WRITE, 167: UPDATE, 168: DELETE}
_ROWS_2 = {30: 23, 31: 24, 32: 25}
"""MySQL's events of rows, with additional data before the rows."""
_COMPRESSED = {166, 167, 168}
_UNCLEAR = {
    INCIDENT: "the server lost a part of its binlog",
    39: "the binlog has parts of JSON values (binlog_row_value_options)",
}
_PAYLOAD = 40
_ROWS_FOLLOW = "START TRANSACTION"
"""How a CREATE TABLE of MySQL ends if its rows are in the same transaction."""


class Purged(Exception):
    """The server no longer has the binlog from the requested place on."""


class BinlogChange(NamedTuple):
    """The meanings of a statement, and the followed tables as they are now."""

    meanings: Sequence[Meaning]
    tables: Mapping[str, MySqlTable | UnfitMySqlTable | None]
    reason: str


class BinlogPiece(NamedTuple):
    """The next part of the binlog: rows of a transaction, or a change of tables.

    ``begin`` is where the transaction begins. ``end`` is where it ends, None if more of
    it follows. ``gtid`` is its GTID. ``time_ms`` is its commit time, ``size`` its size in
    the binlog in bytes. ``looks`` are those of ``Statements`` at its end.
    """

    begin: Place
    rows: list[SourceRow]
    end: Place | None
    gtid: str = ""
    change: BinlogChange | None = None
    time_ms: int = 0
    size: int = 0
    looks: Mapping[str, Place] = MappingProxyType({})


@dataclass(slots=True)
class _Transaction:
    begin: Place
    gtid: str
    single: bool
    time_ms: int
    savepoints: dict[str, int] = field(default_factory=dict)
    """Size of the held events at each savepoint, by name, in order."""

    def forget_savepoints(self, name: str, *, itself: bool) -> None:
        """Remove the savepoints after ``name``, and ``name`` too with ``itself``."""
        names = list(self.savepoints)
        if name in names:
            for later in names[names.index(name) + (not itself) :]:
                del self.savepoints[later]


class Binlog:
    """The binlog of ``server``'s server from a checkpoint on.

    ``tables`` are the followed ones, by full name. ``copied`` has the names of tables
    whose snapshot is done. Both are shared with the reader of the pieces.
    """

    def __init__(
        self,
        server: MySqlServer,
        start: MySqlCheckpoint,
        tables: dict[str, MySqlTable],
        copied: set[str],
        *,
        folder: str | None = None,
    ) -> None:
        self._server = server
        self._epoch = start.epoch
        self._log, self._place = start.log, start.place
        self._tables = tables
        self._copied = copied
        self._charsets = Charsets(server)
        self._statements = Statements(server, start.looks)
        self._folder = folder
        self._connection, self._packets, self._checksum_bytes = self._connect(start.gtids)
        self._transaction: _Transaction | None = None
        self._held = HeldEvents(folder)
        self._decoders: dict[bytes, BinlogRowDecoder | None] = {}
        self._pieces: list[BinlogPiece] = []
        self._rows = self._bytes = 0
        self._emit: Callable[[list[BinlogPiece]], None] = list.clear

    def close(self) -> None:
        """End the connection. A thread that waits for a packet gets ConnectionLost."""
        cut(self._connection)

    def run(self, emit: Callable[[list[BinlogPiece]], None]) -> None:
        """Emit pieces forever. Raises ConnectionLost or Purged, or what ``emit`` raises."""
        packets = self._packets
        self._emit = emit
        while True:
            if self._pieces and (self._is_full() or not packets.ready()):
                self._flush()
            self._read(packets.next())

    def _is_full(self) -> bool:
        return self._rows >= FLUSH_ROWS or self._bytes >= FLUSH_BYTES

    def _flush(self) -> None:
        pieces, self._pieces, self._rows, self._bytes = self._pieces, [], 0, 0
        self._emit(pieces)

    def _add(self, piece: BinlogPiece) -> None:
        self._pieces.append(piece)
        self._rows += len(piece.rows)
        self._bytes += piece.size

    def _connect(self, gtids: Gtids) -> tuple[Any, Packets, int]:
        connection = connect(self._server.settings, silence_s=SILENCE_S)
        with connection.cursor() as cursor:
            cursor.execute("SELECT @@global.binlog_checksum")
            [(checksum,)] = cursor.fetchall()
        packets = Packets(connection)
        number = self._server.settings.server_id
        self._server.log.request(connection, packets, gtids, number)
        return connection, packets, 0 if checksum == "NONE" else _CHECKSUM_BYTES

    def _read(self, packet: bytes) -> None:
        if packet[0]:
            raise _failure(packet)
        time_s, kind, _, size, offset, flags = _HEADER.unpack_from(packet, 1)
        if kind == FORMAT:
            self._checksum_bytes = _CHECKSUM_BYTES if packet[-5] == 1 else 0
        body = packet[20 : len(packet) - self._checksum_bytes]
        if kind == TABLE_MAP or kind in _ROWS:
            self._held.add(kind, body)
        elif kind in _ROWS_2:
            extra = int.from_bytes(body[8:10], "little")
            self._held.add(_ROWS_2[kind], body[:8] + body[8 + extra :])
        elif kind in GTID_EVENTS:
            self._begin(kind, body, packet, Place(self._place.file, offset - size))
        elif kind == XID:
            self._commit(offset, time_s)
        elif kind in (QUERY, QUERY_COMPRESSED):
            plain = _inflate_query(body) if kind == QUERY_COMPRESSED else body
            self._query(parse_query(plain, flags), offset, time_s)
        elif kind == LOAD:
            self._query(parse_query(without_file(body), flags), offset, time_s)
        elif kind == ROTATE:
            self._rotate(body)
        elif kind == XA_PREPARE:
            self._prepare(offset, time_s, one_phase=bool(body[0]))
        elif kind in _UNCLEAR:
            self._unclear(_UNCLEAR[kind], time_s)
        elif kind == _PAYLOAD:
            self._unclear("a transaction is compressed (binlog_transaction_compression)", time_s)
            self._commit(offset, time_s)
        if self._transaction is None and offset and not flags & _ARTIFICIAL and kind != ROTATE:
            self._reach(Place(self._place.file, offset))

    def _reach(self, place: Place) -> None:
        """Report how far the binlog was read, outside of transactions."""
        if place > self._place:
            self._place = place
            self._pieces.append(BinlogPiece(place, [], place, looks=self._statements.looks))

    def _rotate(self, body: bytes) -> None:
        name, place = place_of(body[8:].decode(), int.from_bytes(body[:8], "little"))
        if name != self._log and self._log:
            raise Purged(f"The binlog's name is {name} now, but was {self._log}.")
        if place.file != self._place.file:
            # A transaction that did not end in its file was never committed.
            self._transaction = None
            self._held.clear()
            self._place = place

    def _begin(self, kind: int, body: bytes, packet: bytes, begin: Place) -> None:
        begun = parse_gtid_event(kind, body, int.from_bytes(packet[6:10], "little"))
        self._held.clear()
        self._transaction = _Transaction(begin, begun.gtid, begun.single, begun.time_ms)

    def _query(self, query: Query, offset: int, time_s: int) -> None:
        if self._transaction is None:
            return
        statement = self._charsets.text(query.text, query.collation)
        found = tokens(statement, query.mode)
        try:
            control = control_of(found)
        except UnknownForm:
            control = None
        if control is not None:
            self._control(control, statement, offset, time_s)
            return
        self._statement(found, statement, query, time_s)
        if self._transaction.single and not statement.endswith(_ROWS_FOLLOW):
            self._commit(offset, time_s)

    def _control(self, control: Control, statement: str, offset: int, time_s: int) -> None:
        transaction = self._transaction
        assert transaction is not None, "checked before"
        step, name = control
        if step is Step.BEGIN:
            transaction.single = False
        elif step is Step.COMMIT:
            self._commit(offset, time_s)
        elif step is Step.ROLLBACK:
            self._undo(0, statement, time_s)
            self._commit(offset, time_s)
        elif step is Step.SAVEPOINT:
            transaction.savepoints.pop(name, None)
            transaction.savepoints[name] = self._held.size
        elif step is Step.ROLLBACK_TO:
            if name in transaction.savepoints:
                self._undo(transaction.savepoints[name], statement, time_s)
                transaction.forget_savepoints(name, itself=False)
            else:
                self._unclear(f"the savepoint of {statement[:80]} is not known", time_s)
        elif step is Step.RELEASE:
            transaction.forget_savepoints(name, itself=True)
        elif step is Step.XA_ENDED:
            self._unclear("a transaction of XA ended", time_s)
        if transaction.single and self._transaction is not None:
            self._commit(offset, time_s)

    def _undo(self, mark: int, statement: str, time_s: int) -> None:
        """Drop rows that were rolled back. Copy tables again that do not roll back."""
        names = {table_name(body) for kind, body in self._held.since(mark) if kind == TABLE_MAP}
        self._held.cut(mark)
        keeping = [
            name
            for name in sorted(names)
            if (table := self._tables.get(".".join(name))) and not table.transactional
        ]
        if keeping:
            found = [Meaning(What.REPLACED, *name) for name in keeping]
            self._change(found, f"tables without transactions: {statement[:80]}", time_s)

    def _prepare(self, offset: int, time_s: int, *, one_phase: bool) -> None:
        """Drop rows that XA prepares: they are not committed, and later we have passed them."""
        if one_phase:
            self._commit(offset, time_s)
            return
        if any(kind in _ROWS for kind, _ in self._held):
            self._unclear("a transaction of XA was prepared", time_s)
        self._held.clear()
        self._commit(offset, time_s)

    def _statement(
        self, tokens_of: Sequence[Token], statement: str, query: Query, time_s: int
    ) -> None:
        assert self._transaction is not None, "a statement is a part of a transaction"
        found = self._statements.meanings(tokens_of, query, self._transaction.begin)
        if UNCLEAR in found:
            self._server.log.settle(self._transaction.gtid)
            self._unclear(
                f"which rows were changed is not known up to this: {statement[:80]}", time_s
            )
        elif found:
            self._change(found, statement[:80], time_s)

    def _change(self, found: Sequence[Meaning], reason: str, time_s: int) -> None:
        """Read the tables of a statement again, before the rows that follow."""
        assert self._transaction is not None, "a statement is a part of a transaction"
        self._server.log.settle(self._transaction.gtid)
        now: dict[str, MySqlTable | UnfitMySqlTable | None] = {}
        for meaning in found:
            names = [f"{meaning.database}.{meaning.table}"]
            if not meaning.table:
                names = [name for name in self._tables if name.startswith(meaning.database + ".")]
            for name in names:
                database, _, table = name.partition(".")
                now[name] = find_table(self._server, database, table, self._tables)
                self._replace(name, now[name])
                if meaning.what is not What.ALTERED:
                    self._copied.discard(name)
        self._decoders.clear()
        self._report(BinlogChange(found, now, reason), time_s)

    def _replace(self, name: str, table: MySqlTable | UnfitMySqlTable | None) -> None:
        if isinstance(table, MySqlTable):
            self._tables[name] = table
        else:
            self._tables.pop(name, None)

    def _unclear(self, reason: str, time_s: int) -> None:
        """Read every table again: any may have other rows, another shape, or be new."""
        now: dict[str, MySqlTable | UnfitMySqlTable | None] = dict.fromkeys(self._tables)
        found = list_tables(self._server)
        now |= found.fit
        now |= found.unfit
        self._tables.clear()
        self._tables |= found.fit
        self._copied.clear()
        self._decoders.clear()
        self._report(BinlogChange([UNCLEAR], now, reason), time_s)

    def _report(self, change: BinlogChange, time_s: int) -> None:
        transaction = self._transaction
        begin = transaction.begin if transaction else self._place
        gtid = transaction.gtid if transaction else ""
        self._pieces.append(BinlogPiece(begin, [], None, gtid, change, time_s * 1000))

    def _commit(self, offset: int, time_s: int) -> None:
        transaction = self._transaction
        if transaction is None:
            return
        self._place = end = Place(self._place.file, offset)
        time_ms = transaction.time_ms or time_s * 1000
        rows, size = self._decode(transaction, time_ms, time_s)
        self._transaction = None
        looks = self._statements.looks
        self._add(
            BinlogPiece(transaction.begin, rows, end, transaction.gtid, None, time_ms, size, looks)
        )

    def _decode(
        self, transaction: _Transaction, time_ms: int, time_s: int
    ) -> tuple[list[SourceRow], int]:
        """Return the last rows of a transaction. Earlier ones are emitted during
        decoding.

        A table whose rows can't be decoded is copied again.
        """
        decoders: dict[bytes, BinlogRowDecoder | None] = {}
        spoiled: dict[tuple[str, str], str] = {}
        rows: list[SourceRow] = []
        event = size = 0
        for kind, body in self._held:
            if kind == TABLE_MAP:
                try:
                    decoders[body[:6]] = self._decoder(body)
                except Unreadable as error:
                    decoders[body[:6]], spoiled[table_name(body)] = None, str(error)
                except SettingsRefused as error:
                    decoders[body[:6]] = None
                    self._refuse(self._tables[".".join(table_name(body))], str(error), time_s)
                continue
            event += 1
            decoder = decoders.get(body[:6])
            if decoder is None:
                continue
            start = prefix(self._epoch, transaction.begin, event=event)
            whole = decoder.table.full_name not in self._copied
            plain = _inflate_rows(body, update=kind == 167) if kind in _COMPRESSED else body
            try:
                rows += decoder.rows(_ROWS[kind], plain, start, time_ms, whole=whole)
            except Unreadable as error:
                spoiled[decoder.table.database, decoder.table.name] = str(error)
            size += len(plain)
            if len(rows) >= FLUSH_ROWS or size >= FLUSH_BYTES:
                self._add(BinlogPiece(transaction.begin, rows, None, transaction.gtid, size=size))
                self._flush()
                rows, size = [], 0
        self._held.clear()
        if spoiled:
            found = [Meaning(What.REPLACED, *name) for name in spoiled]
            self._change(found, " ".join(spoiled.values()), time_s)
        return rows, size

    def _refuse(self, table: MySqlTable, why: str, time_s: int) -> None:
        """Stop following a table whose rows have an unreadable form."""
        remedy = "ALTER TABLE .. FORCE rewrites them; or leave the table out under 'except'."
        unfit = UnfitMySqlTable(
            table.full_name, table.target, why.rstrip("."), remedy, until_altered=True
        )
        self._tables.pop(table.full_name)
        self._decoders.clear()
        found = [Meaning(What.REPLACED, table.database, table.name)]
        self._report(BinlogChange(found, {table.full_name: unfit}, why), time_s)

    def _decoder(self, body: bytes) -> BinlogRowDecoder | None:
        described = body[6:]
        if described not in self._decoders:
            self._decoders[described] = self._make_decoder(body)
        return self._decoders[described]

    def _make_decoder(self, body: bytes) -> BinlogRowDecoder | None:
        table = self._tables.get(".".join(table_name(body)))
        if table is None:
            return None
        columns = parse_table_map(
            body, geometries_too=self._server.log.geometries_have_charsets
        ).columns
        if not all(column.name for column in columns):
            raise Unreadable(
                f"Columns of {table.full_name} have no names: binlog_row_metadata was not FULL."
            )
        names = [column.name for column in columns]
        lacking = [column.name for column in table.key if column.name not in names]
        if lacking:
            raise Unreadable(f"Rows of {table.full_name} have no {', '.join(lacking)}.")
        declared = {column.name: column.declared for column in table.columns}
        readers = [
            reader_of(
                column,
                declared.get(column.name, ""),
                self._charsets.decoder(column.collation) if column.collation else None,
            )
            for column in columns
        ]
        return BinlogRowDecoder(table, columns, readers)


def _inflate(body: bytes, head: int) -> bytes:
    """Return an event's body, with the compressed part after ``head`` decompressed.

    That part is a byte with the method and the size of the length, the length, then zlib
    data.
    """
    begin = head + 1 + (body[head] & 7)
    return body[:head] + zlib.decompress(body[begin:])


def _inflate_query(body: bytes) -> bytes:
    return _inflate(body, 13 + int.from_bytes(body[11:13], "little") + body[8] + 1)


def _inflate_rows(body: bytes, *, update: bool) -> bytes:
    # The part before the rows is not compressed: ids, the number of columns, which are
    # present.
    columns, at = length_at(body, 8)
    return _inflate(body, at + (columns + 7) // 8 * (2 if update else 1))


def _failure(packet: bytes) -> Exception:
    """Return the error of a packet that is no event."""
    if packet[0] != 0xFF:
        return pymysql.err.OperationalError(2013, "The server ended the binlog.")
    code = int.from_bytes(packet[1:3], "little")
    at = 9 if packet[3:4] == b"#" else 3  # After the SQL state: "#" and five characters.
    text = packet[at:].decode("utf-8", "replace")
    # The server uses the same code for a replica whose number another one has taken.
    gone = code == _PURGED and "same server_uuid" not in text
    return Purged(text) if gone else pymysql.err.OperationalError(code, text)
