"""The stream of a slot, read in a thread: messages become pieces of transactions.

An LSN is confirmed to the server only once everything up to it is durable in rowtide and
the checkpoint names it. The library would confirm more: once the last message is
confirmed, it confirms every end of the log that an idle server sends. So a message's own
LSN is never confirmed, only what is before it. The slot then shows where rowtide is, and
a slot that shows more was moved by another program.
"""

from __future__ import annotations

import select
import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from rowtide.connectors.rows import SourceRow
from rowtide.connectors.sources.pipe import Pipe
from rowtide.connectors.sources.postgres import messages
from rowtide.connectors.sources.postgres.messages import Begin, Relation
from rowtide.connectors.sources.postgres.position import AFTER_ALL_CHANGES, prefix
from rowtide.connectors.sources.postgres.rows import KeyMissing, PostgresRowDecoder
from rowtide.connectors.sources.postgres.server import PostgresServer, connect, decoding
from rowtide.connectors.sources.postgres.tables import PostgresTable, read_table
from rowtide.connectors.sources.postgres.unfit import NOTHING, UnfitPostgresTable

__all__ = [
    "Altered",
    "Emptied",
    "Event",
    "Incomplete",
    "Joined",
    "Lost",
    "ReplicationStream",
    "Shared",
    "StreamPiece",
    "weight",
]

PIECE_ROWS, PIECE_BYTES = 500, 1024 * 1024
LIST_MESSAGES = 1000
ROW_BYTES = 200
"""Weight of a row, and of a piece, beside its values, in bytes."""
FEEDBACK_S = 1.0


class Altered(NamedTuple):
    """A table has changed, or is new."""

    table: PostgresTable


class Lost(NamedTuple):
    """Changes of a table are missing from here on. It must be read and copied again."""

    full_name: str


class Joined(NamedTuple):
    """A table has a partition with changes that the stream has not described before."""

    full_name: str
    partition: int


class Emptied(NamedTuple):
    """Tables were truncated. ``prefix`` is the statement's; a run and a number follow."""

    tables: Sequence[PostgresTable]
    lsn: int
    change: int
    time_ms: int


class Incomplete(NamedTuple):
    """The last row of the piece lacks columns that the server did not send."""

    table: PostgresTable
    missing: tuple[str, ...]


Event = Altered | Lost | Joined | Emptied | Incomplete


class StreamPiece(NamedTuple):
    """A part of a transaction: rows, then an event. ``end`` is 0 if the transaction
    continues.

    ``time_ms`` is its commit time, ``size`` the size of the rows' messages in bytes.
    """

    first: bool
    xid: int
    lsn: int
    time_ms: int
    rows: Sequence[SourceRow]
    event: Event | None
    end: int
    size: int


def weight(pieces: list[StreamPiece]) -> int:
    """Return the approximate size of pieces in bytes."""
    return sum([piece.size + (len(piece.rows) + 1) * ROW_BYTES for piece in pieces])


@dataclass(slots=True)
class Shared:
    """What the stream's thread and the follower share about tables.

    Updates of the tables ``copied`` are merges. ``owners`` has the full name of the table
    that is followed under each name of rowtide's.
    """

    copied: set[str]
    owners: dict[str, str]


class ReplicationStream:
    """Reads a slot from ``lsn`` on. ``generated``: stored generated columns are in the stream."""

    def __init__(
        self,
        server: PostgresServer,
        pipe: Pipe[StreamPiece],
        tables: Sequence[PostgresTable],
        shared: Shared,
        *,
        epoch: int,
        lsn: int,
        generated: bool,
    ) -> None:
        self._server = server
        self._pipe = pipe
        self._tables = {table.oid: table for table in tables}
        self._epoch = epoch
        self._lsn = lsn
        self._shared = shared
        self._generated = generated
        self._decoders: dict[int, PostgresRowDecoder] = {}
        self._set_aside: dict[int, Relation] = {}
        """Descriptions of unfit tables, until the follower finds that they are fit."""
        self._root: PostgresTable | None = None
        """The partitioned table that was described just before."""
        self._closed = False
        self._woken, self._waker = socket.socketpair()
        self._connection: Any = None
        self._cursor: Any = None
        self._feedback_s = 0.0
        self.passed = 0
        """The LSN up to which everything that the server sent is in the pipe."""
        self._pieces: list[StreamPiece] = []
        self._rows: list[SourceRow] = []
        self._bytes = 0
        """Bytes of the messages of ``_rows``."""
        self._listed = 0
        """Bytes of ``_pieces``."""
        self._begin = Begin(0, 0, 0)
        self._first = False
        self._change = 0

    def open(self) -> None:
        """Start reading. Blocks. Raises psycopg2's errors."""
        settings = self._server.settings
        self._connection = connect(settings, replication=True)
        self._cursor = self._connection.cursor()
        options = {
            "proto_version": "1",
            "publication_names": '"' + settings.publication.replace('"', '""') + '"',
            "messages": "true",
        }
        self._cursor.start_replication(
            slot_name=settings.slot, start_lsn=self._lsn, decode=False, options=options
        )

    def confirm(self, lsn: int) -> None:
        """Confirm to the server, soon, that all before an LSN is durable. For any thread."""
        self._lsn = lsn

    def close(self) -> None:
        """Make ``run`` end. For any thread."""
        self._closed = True
        self._waker.send(b".")

    def release(self) -> None:
        """Close everything, after ``run``."""
        if self._connection is not None:
            self._connection.close()
        self._woken.close()
        self._waker.close()

    def run(self) -> None:
        """Read until ``close``. Raises ``LogUnreadable``."""
        # The last reply also fails with the reason for which the stream ended.
        with decoding(self._server.settings):
            try:
                self._read_on()
            finally:
                self._send_feedback(at_once=True)

    def _read_on(self) -> None:
        while not self._closed:
            self._read_what_is_here()
            self._hand_over()
            self.passed = self._cursor.wal_end
            self._send_feedback()
            select.select([self._connection, self._woken], [], [], FEEDBACK_S)

    def _read_what_is_here(self) -> None:
        read = self._cursor.read_message
        count = 0
        while not self._closed and (message := read()) is not None:
            self._take(message.payload)
            count += 1
            if count % LIST_MESSAGES == 0 or self._listed >= PIECE_BYTES:
                self._hand_over()
                self._send_feedback()

    def _hand_over(self) -> None:
        if self._rows:
            self._add_piece(None, 0)
        if self._pieces:
            pieces, self._pieces, self._listed = self._pieces, [], 0
            self._pipe.put(pieces, while_waiting=self._send_feedback)

    def _send_feedback(self, *, at_once: bool = False) -> None:
        now_s = time.monotonic()
        if (at_once or now_s - self._feedback_s >= FEEDBACK_S) and not self._connection.closed:
            self._feedback_s = now_s
            lsn = self._lsn - 1
            self._cursor.send_feedback(write_lsn=lsn, flush_lsn=lsn, apply_lsn=lsn, force=True)

    def _take(self, message: bytes) -> None:
        kind = message[0]
        if kind == messages.BEGIN:
            self._begin, self._first, self._change = messages.parse_begin(message), True, 0
        elif kind in (messages.INSERT, messages.UPDATE, messages.DELETE):
            self._change += 1
            self._take_row(kind, message)
        elif kind == messages.COMMIT:
            self._add_piece(None, messages.commit_end(message))
        elif kind == messages.RELATION:
            self._take_description(messages.parse_relation(message))
        elif kind == messages.TRUNCATE:
            self._change += 1
            self._truncate(message)

    def _take_row(self, kind: int, message: bytes) -> None:
        oid = messages.table_of(message)
        decoder = self._decoders.get(oid) or self._set_aside_decoder(oid)
        if decoder is None:
            return
        begin, table = self._begin, decoder.table
        try:
            decoded = decoder.decode(
                kind,
                message,
                prefix(self._epoch, begin.lsn, change=self._change),
                begin.time_ms,
                whole=table.full_name not in self._shared.copied,
            )
        except KeyMissing:
            del self._decoders[oid]
            self._lose(table.full_name, table.target, decoder.relation)
            return
        self._rows += decoded.rows
        self._bytes += len(message)
        if decoded.missing:
            self._add_piece(Incomplete(decoder.table, decoded.missing), 0)
        elif len(self._rows) >= PIECE_ROWS or self._bytes >= PIECE_BYTES:
            self._add_piece(None, 0)

    def _truncate(self, message: bytes) -> None:
        assert self._change < AFTER_ALL_CHANGES, "a transaction has too many changes"
        self._root = None
        found = [self._decoders.get(oid) for oid in messages.parse_truncate(message)]
        tables = [decoder.table for decoder in found if decoder is not None]
        if tables:
            begin = self._begin
            self._add_piece(Emptied(tables, begin.lsn, self._change, begin.time_ms), 0)

    def _add_piece(self, event: Event | None, end: int) -> None:
        begin, rows, size = self._begin, self._rows, self._bytes
        piece = StreamPiece(
            self._first, begin.xid, begin.lsn, begin.time_ms, rows, event, end, size
        )
        self._pieces.append(piece)
        self._listed += size
        self._first, self._rows, self._bytes = False, [], 0

    def _take_description(self, relation: Relation) -> None:
        """Take a description. A partition is described just after its table."""
        root, self._root = self._root, None
        if root is not None and relation.oid not in self._tables:
            if relation.identity != root.identity:
                self._add_piece(Lost(root.full_name), 0)
            if relation.oid in (parts := root.parts or {}):
                return
            self._tables[root.oid] = root._replace(parts={**parts, relation.oid: ""})
            self._add_piece(Joined(root.full_name, relation.oid), 0)
        self._learn(relation)
        table = self._tables.get(relation.oid)
        if table is not None and table.parts is not None:
            self._root = table

    def _learn(self, relation: Relation) -> None:
        """Take a table's description. If it changed, it comes before the table's changes."""
        self._decoders.pop(relation.oid, None)
        self._set_aside.pop(relation.oid, None)
        full_name = f"{relation.schema}.{relation.name}"
        settings = self._server.settings
        known = self._tables.get(relation.oid)
        if known is not None and known.full_name != full_name:
            # The table of the other name misses the changes made under this name, and may
            # get its name back before the next look.
            del self._tables[relation.oid]
            self._lose(known.full_name, known.target, None)
        if not settings.wants(full_name):
            return
        table = self._tables.get(relation.oid)
        if table is None or not _describes(relation, table):
            found = read_table(self._server, relation.oid, generated=self._generated)
            if found is None:
                return  # The table was dropped meanwhile, so its earlier changes do not matter.
            if isinstance(found, UnfitPostgresTable):
                self._lose(full_name, found.target, relation)
                return
            table = found._replace(
                schema=relation.schema,
                name=relation.name,
                target=settings.target(relation.schema, relation.name),
            )
            self._tables[relation.oid] = table
            self._add_piece(Altered(table), 0)
        owner = self._shared.owners.setdefault(table.target, full_name)
        if owner != full_name:
            self._lose(full_name, table.target, relation)
        elif relation.identity == NOTHING or not _has_key(relation, table):
            # Before changes that can be followed, another description arrives.
            self._lose(full_name, table.target, None)
        else:
            self._decoders[relation.oid] = PostgresRowDecoder(table, relation)

    def _lose(self, full_name: str, target: str, relation: Relation | None) -> None:
        """Leave out a table's changes. Keep its description until it can be followed."""
        if relation is not None:
            self._set_aside[relation.oid] = relation
        if self._shared.owners.get(target) == full_name:
            self._shared.owners.pop(target, None)
        self._add_piece(Lost(full_name), 0)

    def _set_aside_decoder(self, oid: int) -> PostgresRowDecoder | None:
        """Return the decoder of a table that the follower has found fit meanwhile."""
        relation = self._set_aside.get(oid)
        if relation is None:
            return None
        full_name = f"{relation.schema}.{relation.name}"
        target = self._server.settings.target(relation.schema, relation.name)
        if self._shared.owners.get(target) == full_name:
            self._learn(relation)
        return self._decoders.get(oid)


def _has_key(relation: Relation, table: PostgresTable) -> bool:
    names = {column.name for column in relation.columns}
    return all(column.name in names for column in table.key)


def _describes(relation: Relation, table: PostgresTable) -> bool:
    if (relation.schema, relation.name, relation.identity, len(relation.columns)) != (
        table.schema,
        table.name,
        table.identity,
        len(table.columns),
    ):
        return False
    return all(
        sent.name == known.name and (sent.type_oid == known.type_oid or not sent.is_built_in)
        for sent, known in zip(relation.columns, table.columns, strict=True)
    )
