"""Makes one page of GetRange: at once if that is quick, otherwise in turns with other requests.

A page shows its rows as of one moment. So all of its reads from the store come before any
other request gets a turn. Rows that are answered as stored cost little more than that
read. A selection of cells from every row costs several times as much. Such rows are first
held as stored, up to a bound, and then answered slice by slice.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import NamedTuple

from rowtide.core import native
from rowtide.core.rows.chunk import DELETED, header
from rowtide.core.rows.overlay import RangeReader
from rowtide.core.rows.read import Selection, StoredRow, answer
from rowtide.core.values.limits import Limits
from rowtide.core.values.schema import TableOptions
from rowtide.core.values.version import expiry_floor_ms
from rowtide.stream.api.range_scan import Forward, RangePage, next_key

__all__ = ["PageMaker", "PageSource", "Scan"]

SLICE = 128
"""Rows answered before other requests get their turn: about two milliseconds."""

HELD_PAGES = 4
"""Bound of the held rows' bytes, in pages: a selection may keep little of each."""


class Scan(NamedTuple):
    """What a range read wants of its rows; ``token`` belongs to the row at which it starts."""

    selection: Selection
    limit: int | None
    token: bytes
    started: bytes
    """The chunk key of the row at which the read starts."""


class PageSource(NamedTuple):
    """Rows of one shard in order, and the chunks and options that answer them."""

    rows: Iterable[StoredRow]
    chunks: RangeReader
    options: TableOptions
    forward: Forward | None = None
    """The chunks of all ``rows``, if they come in the order of their keys."""


class PageMaker:
    """Takes the rows of a range in order until the page is full."""

    def __init__(self, scan: Scan, limits: Limits, now_ms: int) -> None:
        self._scan = scan
        self._limits = limits
        self._now_ms = now_ms
        self._rows: list[bytes] = []
        self._wire_bytes = self._size = self._scanned = 0
        self._begun: PageSource

    def begin(self, sources: Iterator[PageSource]) -> RangePage | None:
        """Return the page if that is quick; None: ``hold`` and ``finish`` make it.

        The page has the rows that are taken from ``sources``; ``hold`` takes the rest.
        """
        whole = self._scan.selection.whole
        for source in sources:
            if not whole:
                few = list(islice(source.rows, SLICE - self._scanned))
                page = self._take(source._replace(rows=few))
            else:
                page = self._take(source)
            if page is not None:
                return page
            if not whole and self._scanned >= SLICE:
                self._begun = source
                return None
        return self._page()

    def hold(self, sources: Iterator[PageSource]) -> tuple[list[PageSource], StoredRow | None]:
        """Return the rows that may still be in the page, in slices, and the row before
        which it ends.

        The page ends before a row of several chunks, which would have to be read now.
        """
        held: list[PageSource] = []
        count = self._limits.range_rows_max - self._scanned
        bytes_left = HELD_PAGES * self._limits.range_bytes_max
        for source in chain((self._begun,), sources):
            stored: list[StoredRow] = []
            for row in source.rows:
                if len(stored) == SLICE:
                    held.append(source._replace(rows=stored))
                    stored = []
                if count <= 0 or bytes_left < 0 or header(row.first)[2]:
                    return [*held, source._replace(rows=stored)], row
                stored.append(row)
                count -= 1
                bytes_left -= len(row.first)
            held.append(source._replace(rows=stored))
        return held, None

    async def finish(self, held: list[PageSource], stop: StoredRow | None) -> RangePage:
        """Return the page of the rows that were taken and held."""
        for source in held:
            await asyncio.sleep(0)
            page = self._take(source)
            if page is not None:
                return page
        return self._page(stop)

    def _take(self, source: PageSource) -> RangePage | None:
        """Take rows; return the page if it ends before one of them, or within it."""
        as_stored = self._scan.selection.whole and not self._scan.token
        if as_stored and source.forward is not None and native.kind() == "native":
            return self._take_chunks(source, source.forward)
        return self._take_rows(iter(source.rows), source, as_stored=as_stored)

    def _take_chunks(self, source: PageSource, forward: Forward) -> RangePage | None:
        """Take rows directly from the store's chunks; most rows are one chunk.

        From the first row of several chunks on, rows are read in the general way.
        """
        chunks = forward.chunks()
        while few := list(islice(chunks, self._slice)):
            at = 0
            while at < len(few):
                at += self._take_stored(few, at, source.options) or 0
                if at == len(few):
                    break
                stored = StoredRow(*few[at])
                _, flags, end_bytes, key_bytes, *_ = header(stored.first)
                if end_bytes or not key_bytes:
                    rest = forward.rows_from(stored.row_key)
                    return self._take_rows(rest, source, as_stored=True)
                page = None if flags & DELETED else self._take_row(stored, source)
                if page is not None:
                    return page
                at += 1
        return None

    def _take_rows(
        self, rows: Iterator[StoredRow], source: PageSource, *, as_stored: bool
    ) -> RangePage | None:
        while few := list(islice(rows, self._slice)):
            at = 0
            while at < len(few):
                if as_stored:
                    taken = self._take_stored(few, at, source.options)
                    as_stored = taken is not None
                    at += taken or 0
                    if at == len(few):
                        break
                page = self._take_row(few[at], source)
                if page is not None:
                    return page
                at += 1
        return None

    @property
    def _slice(self) -> int:
        """Return the number of rows to read from the store at once: about as many as fit."""
        fitting = SLICE
        if self._wire_bytes:
            left = self._limits.range_bytes_max - self._wire_bytes
            fitting = left * len(self._rows) // self._wire_bytes + 1
        return max(1, min(SLICE, fitting, self._rows_left + 1))

    @property
    def _rows_left(self) -> int:
        """Return the number of rows that the page may still read."""
        limit, left = self._scan.limit, self._limits.range_rows_max - self._scanned
        return left if limit is None else min(left, limit - len(self._rows))

    def _take_stored(
        self, rows: Sequence[tuple[bytes, bytes]], at: int, options: TableOptions
    ) -> int | None:
        """Take rows from ``at`` on that are answered as stored; return their number.

        None: there is no kernel, so rows are taken one by one.
        """
        window = self._scan.selection.window
        found = native.kernels.whole_rows(
            rows,
            at,
            expiry_floor_ms(options, self._now_ms),
            min(options.max_versions, window.max_versions),
            self._limits.range_bytes_max - self._wire_bytes,
            self._rows_left,
        )
        if found is None:
            return None
        wires, wire_bytes, size = found
        self._rows += wires
        self._scanned += len(wires)
        self._wire_bytes += wire_bytes
        self._size += size
        return len(wires)

    def _take_row(self, stored: StoredRow, source: PageSource) -> RangePage | None:
        """Take one row; return the page if it ends before the row, or within it."""
        selection, _, first_token, started = self._scan
        limits, rows = self._limits, self._rows
        if self._rows_left <= 0:
            return self._page(stored)
        self._scanned += 1
        token = first_token if stored.row_key == started else b""
        left = limits.range_bytes_max - self._wire_bytes
        bytes_max = left if rows else limits.row_bytes_max
        found = answer(
            source.chunks,
            stored,
            selection,
            source.options,
            self._now_ms,
            token=token,
            bytes_max=bytes_max,
        )
        if found is None:
            return None
        if rows and (len(found.wire) > left or found.token):
            return self._page(stored)
        self._wire_bytes += len(found.wire)
        if found.wire:
            rows.append(found.wire)
            self._size += found.size
        return self._page(stored, found.token) if found.token else None

    def _page(self, following: StoredRow | None = None, token: bytes = b"") -> RangePage:
        key = b"" if following is None else next_key(following.first)
        return RangePage(self._rows, self._size, key, token)
