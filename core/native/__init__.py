"""Kernels in C for the hottest steps, and the stand-ins where there are none.

A kernel takes bytes and plain values, and returns bytes and plain values. It does no I/O and keeps
nothing. It returns None for whatever is unusual: the Python function that calls it is the reference
and does the rest, refusals included. So what is accepted, stored and answered does not depend on
kernels, and tests hold both ways to the same bytes.

Which are used is decided once, before anything is served (``choose``).
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Protocol, cast

from rowtide.core.values.cell import Cell

__all__ = ["Kernels", "PlainRow", "choose", "compiled", "kernels", "kind"]

INTERFACE = 4
"""What the compiled module must say of itself. One of other sources is not used."""

Columns = list[tuple[bytes, bytes]]

PlainRow = tuple[int, int, bytes, bytes, bytes, int, bytes, int, int]
"""A row of a batch that is a plain write: the kind of change, what is expected of the row, the key
of its first chunk, its encoded key, its key's piece and that one's state, its cells as they were
sent in the order of their names, how many they are, and the bytes of piece and cells that capacity
units count."""


class Kernels(Protocol):
    """The kernels; each is described where it is called."""

    def key_row(self, buffer: bytes, /) -> tuple[Columns, bytes, int] | None:
        """Return the columns, the piece and the checksum's state of a row that is a key alone."""

    def read_cells(
        self, buffer: bytes, at: int, end: int, state: int, most: int, cell: type[Cell], /
    ) -> tuple[list[Cell], int, int] | None:
        """Return the cells at ``at``, where they end, and the row's checksum after them."""

    def parse_cells(self, piece: bytes, cell: type[Cell], /) -> list[Cell] | None:
        """Return the cells of a piece that this project wrote."""

    def cells_piece(self, cells: object, /) -> bytes | None:
        """Return the bytes of a list of cells, or a tuple, back to back."""

    def read_plain(
        self, buffer: bytes, bytes_max: int, value_bytes_max: int, /
    ) -> tuple[Columns, bytes, int, bytes, int, int] | None:
        """Return columns, piece and state of a plain write's key; its cells; their number and size.

        The cells are as they were sent, in the order of their names. The size is what capacity
        units count.
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
        """Return the chunk of a row whose cells ``wire`` are merged into ``first``, and the body.

        The body is that of a put of a ``whole`` row or of an update.
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
        """Return a chunk of a list of cells, or a tuple, in order."""

    def logged_cells(self, cells: object, /) -> bytes | None:
        """Return a list of cells, or a tuple, as the log has them."""

    def read_envelope(
        self, record: bytes, /
    ) -> tuple[tuple[int, int, bytes, int, int], int] | None:
        """Return the parts of a record's envelope, and where the body begins."""

    def read_change(
        self, record: bytes, at: int, indexed: bool, cell: type[Cell], /
    ) -> tuple[list[bytes], list[Cell]] | None:
        """Return key and cells of a put or an update, with nothing else in it, to the end."""

    def stream_row(
        self, record: bytes, at: int, indexed: bool, stamp: int, names: Sequence[bytes], /
    ) -> bytes | None:
        """Return the stream's row of a put, an update or a delete with nothing else in it."""

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
        """Return the rows from ``at`` on that answer as stored, their bytes, and what they count.

        Rows are keys and first chunks. It ends before the first one that has to be looked into, or
        does not fit into what is left.
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
        """Return the rows that came as these fields of a BatchWriteRow; None for one that is odd.

        Rows have a key of these names and types; where ``updates`` says so they may be updates.
        """

    def stored_writes(
        self,
        rows: list[PlainRow],
        firsts: list[bytes | None],
        stamp: int,
        max_versions: int,
        chunk_bytes_max: int,
        /,
    ) -> list[tuple[bytes, bytes] | None] | None:
        """Return each row's chunk, over its first one, and its body; the stamps count up."""

    def write_record(
        self, head: bytes, at: int, claim: int, owner: bytes, stamp: int, group: int, body: bytes, /
    ) -> bytes | None:
        """Return a whole record of the log: head, envelope, body."""


class _Absent:
    """Stands in for the compiled module: all is unusual, so Python does it."""

    @staticmethod
    def key_row(*_: object) -> None:
        return None

    read_cells = parse_cells = cells_piece = read_plain = row_keys = key_row
    stored_write = logged_cells = read_envelope = read_change = key_row
    stream_row = whole_rows = stored_chunk = key_row
    row_fields = read_rows = stored_writes = write_record = key_row


def compiled() -> Kernels | None:
    """Return the compiled module, or None where there is none that fits."""
    try:
        found = importlib.import_module("rowtide.core.native._kernels")
    except ImportError:
        return None
    return cast(Kernels, found) if getattr(found, "INTERFACE", 0) == INTERFACE else None


def choose(*, pure: bool) -> None:
    """Use the compiled kernels from now on if there are any, or Python alone."""
    global kernels
    kernels = (None if pure else compiled()) or _Absent()


def kind() -> str:
    """Return what is used: "native" or "Python"."""
    return "Python" if isinstance(kernels, _Absent) else "native"


kernels: Kernels = compiled() or _Absent()
