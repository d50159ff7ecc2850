"""Kernels in C for the hottest functions, and replacements if there are none.

A kernel takes and returns bytes and plain values. It does no I/O and keeps no state. It returns
None for any unusual input: then the calling Python function, which is the reference, does the work
and rejects what is invalid. So what is accepted, stored and answered does not depend on kernels.
Tests check that both ways give the same bytes.

``choose`` selects the kernels once, before the first request.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Protocol, TypeVar, cast

from rowtide.core.values.cell import Cell

__all__ = [
    "KeptChange",
    "Kernels",
    "PlainRow",
    "ReadChange",
    "RowEffect",
    "RowVariants",
    "choose",
    "kernels",
    "kind",
    "load_compiled",
]

INTERFACE = 10
"""The interface number of the compiled module. A module with another number is not used."""

Made = TypeVar("Made")

Columns = list[tuple[bytes, bytes]]

PlainRow = tuple[int, int, bytes, bytes, bytes, int, bytes, int, int]
"""A plain write of a row: kind of change, row expectation, key of its first chunk, encoded key, key
piece and its checksum state, cells as sent in the order of their names, number of cells, and the
bytes of piece and cells for capacity units. Cells are puts without versions. Those of an update may
also be increments, and deletes of whole columns. A row to be deleted has none.
"""


ReadChange = tuple[list[bytes], list[Cell]]
"""Key and cells."""

KeptChange = tuple[list[bytes], list[Cell], list[Cell], bool, list[bytes], list[Cell]]
"""Key and cells, then the cells before, whether the row existed, absent columns, cells after."""

RowVariants = tuple[bytes | None, ...]
"""The variants of some columns of a row. None: the row has no value there."""

RowEffect = tuple[RowVariants | None, RowVariants | None]
"""A row before and after a change. None: there is no row."""


class Kernels(Protocol):
    """The kernels; each is described where it is called."""

    def key_row(self, buffer: bytes, /) -> tuple[Columns, bytes, int] | None:
        """Return the columns, the piece and the checksum state of a row that is only a key."""

    def read_key_columns(
        self, buffer: bytes, at: int, end: int, /
    ) -> tuple[Columns, bytes, int, int] | None:
        """Return the columns of a key, its piece, the row's checksum after them, and their end.

        ``at`` is behind the key's tag, where a column begins.
        """

    def read_cells(
        self, buffer: bytes, at: int, end: int, state: int, most: int, cell: type[Cell], /
    ) -> tuple[list[Cell], int, int] | None:
        """Return the cells at ``at``, their end, and the row's checksum after them."""

    def parse_cells(self, piece: bytes, cell: type[Cell], /) -> list[Cell] | None:
        """Return the cells of a piece that this project wrote."""

    def cells_piece(self, cells: object, /) -> bytes | None:
        """Return the bytes of a list or tuple of cells, one after another."""

    def read_plain(
        self, buffer: bytes, bytes_max: int, value_bytes_max: int, /
    ) -> tuple[Columns, bytes, int, bytes, int, int] | None:
        """Return a plain write's key (columns, piece, state), its cells, their number and size.

        The cells are as sent, in the order of their names. The size is their size for capacity
        units.
        """

    def row_keys(self, table_id: int, key_piece: bytes, /) -> tuple[bytes, bytes] | None:
        """Return the key of a row's first chunk, and its encoded key."""

    def stored_write(
        self,
        whole: bool,
        key_piece: bytes,
        key_state: int,
        wire: bytes,
        count: int,
        version_ms: int,
        stamp: int,
        first: bytes | None,
        max_versions: int,
        chunk_bytes_max: int,
        /,
    ) -> tuple[bytes, bytes] | None:
        """Return the chunk ``first`` with the cells ``wire`` merged into it, and the body.

        The body is that of a put (``whole``) or of an update.
        """

    def stored_chunk(
        self,
        cells: object,
        stamp: int,
        deleted: bool,
        end: bytes,
        key_piece: bytes,
        key_state: int,
        begin_bytes: int,
        /,
    ) -> bytes | None:
        """Return a chunk of a list or tuple of cells, in order."""

    def logged_cells(self, cells: object, /) -> bytes | None:
        """Return a list or tuple of cells in the log's encoding."""

    def read_envelope(
        self, record: bytes, /
    ) -> tuple[tuple[int, int, bytes, int, int], int] | None:
        """Return the parts of a record's envelope, and the offset of the body."""

    def read_change(
        self, record: bytes, at: int, indexed: bool, cell: type[Cell], /
    ) -> ReadChange | KeptChange | None:
        """Return key and cells of a put or an update that has no other fields.

        Of a change with original columns return all fields, if it changes no index.
        """

    def row_values(
        self,
        records: list[tuple[bytes, int] | None],
        head: bytes,
        columns: tuple[tuple[bytes, int], ...],
        /,
    ) -> list[RowEffect | None] | None:
        """Return what changes with original columns did to rows; None for an unusual record.

        Records are given with the offset of their body. One that does not begin with ``head``
        is unusual, as is one that changes an index, or that lacks a column. A column is a name with
        its place in the key, -1 if it is not of the key.
        """

    def stream_row(
        self, record: bytes, at: int, indexed: bool, stamp: int, names: Sequence[bytes], /
    ) -> bytes | tuple[bytes, bytes, bool, list[bytes]] | None:
        """Return the stream's row of a put, an update or a delete that has no other fields.

        Of a change with original columns return also the row before, whether it existed, and the
        columns that were absent, if all else follows from that.
        """

    def whole_rows(
        self,
        rows: Sequence[tuple[bytes, bytes]],
        at: int,
        version_min: int,
        versions_max: int,
        bytes_left: int,
        rows_left: int,
        /,
    ) -> tuple[list[bytes], int, int] | None:
        """Return the rows from ``at`` on that answer as stored, their bytes and their size.

        Rows are keys and first chunks. The result ends before the first row that must be decoded,
        or that does not fit into the remaining bytes or rows.
        """

    def row_fields(self, message: bytes, /) -> list[list[bytes]] | None:
        """Return the rows of each table of a BatchWriteRow, or of its answer, as whole fields."""

    def read_rows(
        self,
        fields: list[bytes],
        table_id: int,
        key: tuple[tuple[bytes, int], ...],
        updates: bool,
        key_value_bytes_max: int,
        bytes_max: int,
        value_bytes_max: int,
        cells_max: int,
        /,
    ) -> list[PlainRow | None] | None:
        """Return the rows of these fields of a BatchWriteRow; None for an unusual row.

        Rows have a key of these names and types. They may be updates if ``updates`` is set.
        """

    def read_write(
        self,
        message: bytes,
        at: int,
        kind: int,
        table_id: int,
        key: tuple[tuple[bytes, int], ...],
        updates: bool,
        key_value_bytes_max: int,
        bytes_max: int,
        value_bytes_max: int,
        cells_max: int,
        /,
    ) -> PlainRow | None:
        """Return the row of a PutRow, UpdateRow or DeleteRow; ``at`` is behind the table's name.

        ``kind`` says which. The other arguments are as for ``read_rows``.
        """

    def stored_writes(
        self,
        rows: list[PlainRow],
        firsts: list[bytes | None],
        stamp: int,
        version_min: int,
        max_versions: int,
        chunk_bytes_max: int,
        key_overhead: int,
        evaluated: type[Made],
        outcome: type[object],
        /,
    ) -> list[Made | None] | None:
        """Return each row as evaluated, merged over its first chunk; stamps count up.

        An increment adds to the newest version of its column, unless that is below ``version_min``.
        The results are tuples of the last two arguments. ``key_overhead`` is a part of the rows'
        sizes that costs no units.
        """

    def keep_columns(
        self, body: bytes, first: bytes | None, names: tuple[bytes, ...], version_min: int, /
    ) -> bytes | None:
        """Return the body of a change with the newest cells of these columns before it.

        ``first`` is the row's first chunk then. The names are in order. Cells below ``version_min``
        are absent. After the change the columns are what follows from these cells and the body.
        """

    def write_record(
        self, head: bytes, at: int, claim: int, owner: bytes, stamp: int, group: int, body: bytes, /
    ) -> bytes | None:
        """Return a whole log record: head, envelope, body."""

    def write_records(
        self, head: bytes, at: int, claim: int, owner: bytes, changes: Sequence[object], /
    ) -> list[tuple[bytes, bytes]] | None:
        """Return the log key and the record of each change, which are a list of ``Evaluated``.

        The offsets count up from ``at``. All changes have a body.
        """

    def content_md5(self, body: bytes, /) -> bytes | None:
        """Return a text's MD5 as Base64."""

    def hmac_states(self, key: bytes, wide: bool, /) -> bytes | None:
        """Return the hash states behind HMAC's two pads, of SHA-256 (``wide``) or of SHA-1.

        They are as secret as the key.
        """

    def hmac_text(self, states: bytes, text: bytes, /) -> bytes | None:
        """Return a text's HMAC as Base64; the length of ``states`` decides which."""

    def read_signed(
        self,
        message: bytes,
        head: bytes,
        text: bytes,
        states: bytes,
        now_s: int,
        head_bytes_max: int,
        body_bytes_max: int,
        /,
    ) -> tuple[bytes, bytes, bytes] | None:
        """Return path, head and body of a whole request that has a form and is authentic.

        ``head`` and ``text`` are the steps of the form (core/protocol/signed_form.py). The
        request's date is within the limit, its signature is that of the key of ``states``, and
        its body has the head's MD5.
        """

    def write_answer(
        self,
        status: bytes,
        body: bytes,
        date: bytes,
        request_id: bytes,
        path: bytes,
        signer: bytes,
        states: bytes,
        /,
    ) -> bytes | None:
        """Return a whole signed answer; ``signer`` is what stands before the signature."""

    def read_get(
        self,
        message: bytes,
        at: int,
        table_id: int,
        key: tuple[tuple[bytes, int], ...],
        key_value_bytes_max: int,
        /,
    ) -> tuple[bytes, bytes, int] | None:
        """Return the keys of a GetRow for a whole row, as ``row_keys``, and its newest versions.

        ``at`` is behind the table's name. The row has a key of these names and types.
        """

    def whole_answer(
        self, first: bytes, version_min: int, versions_max: int, key_overhead: int, /
    ) -> tuple[bytes, int] | None:
        """Return the answer of a GetRow whose first chunk answers as stored, and its read units."""

    def record_batch(
        self,
        entries: Sequence[tuple[bytes | None, bytes | None]]
        | Sequence[tuple[bytes | None, bytes | None, Sequence[object]]],
        attributes: int,
        time_ms: int,
        producer_id: int,
        epoch: int,
        sequence: int,
        bytes_max: int,
        /,
    ) -> bytes | None:
        """Return entries (key, value, perhaps no headers) as a batch of records for Kafka."""


class _Absent:
    """Replaces the compiled module: returns None, so that Python does the work."""

    @staticmethod
    def key_row(*_: object) -> None:
        return None

    read_key_columns = read_cells = parse_cells = cells_piece = read_plain = row_keys = key_row
    stored_write = logged_cells = read_envelope = read_change = key_row
    stream_row = whole_rows = stored_chunk = key_row
    row_fields = read_rows = stored_writes = write_record = key_row
    content_md5 = hmac_states = hmac_text = read_signed = write_answer = key_row
    write_records = read_get = whole_answer = read_write = keep_columns = record_batch = key_row
    row_values = key_row


def load_compiled() -> Kernels | None:
    """Return the compiled module, or None if there is none with our interface."""
    try:
        found = importlib.import_module("rowtide.core.native._kernels")
    except ImportError:
        return None
    return cast(Kernels, found) if getattr(found, "INTERFACE", 0) == INTERFACE else None


def choose(*, pure: bool) -> None:
    """Use the compiled kernels if there are any; with ``pure`` use Python only."""
    global kernels
    kernels = (None if pure else load_compiled()) or _Absent()


def kind() -> str:
    """Return what is in use: "native" or "Python"."""
    return "Python" if isinstance(kernels, _Absent) else "native"


kernels: Kernels = load_compiled() or _Absent()
