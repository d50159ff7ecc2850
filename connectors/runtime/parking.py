"""Rows that were refused, and later changes of their keys: the table ``rowtide_parked``.

A key is parked while it has an entry. Its changes wait, and all other keys go on. For a
sink that wants each change, every later change becomes an entry. For any other sink only
the first entry is kept, with a count of later changes; the current row is read from the
table when needed.

Entries belong to the connector, not to a process. A process that takes a shard reads them
first. A source changes them under its term. A row beside them stores the newest term, so
late writes of a process that is no longer the source are refused.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from rowtide.client.endpoint import Endpoint
from rowtide.connectors.rows import Refused, SinkRow
from rowtide.connectors.runtime.kept_rows import Columns, KeptRows
from rowtide.connectors.runtime.row_text import read_row, row_text
from rowtide.core.values.errors import Rejected, Unavailable

__all__ = ["PARKED_TABLE", "RETRY", "SKIP", "ParkedEntry", "ParkedRows", "TooManyParked"]

PARKED_TABLE = "rowtide_parked"

TEXT_BYTES_MAX = 1024 * 1024
REASON_MAX = 2000

RETRY, SKIP = "retry", "skip"
"""Requests of operators: retry the entry, or drop it and apply what came after it."""


_TERM = b"", 0
"""Key and stamp of the row that stores the term of the process that is the source."""


class TooManyParked(Exception):
    """More rows were refused than may be parked. Nothing of the batch is parked."""


class ParkedEntry(NamedTuple):
    """A parked row.

    ``text`` is empty if the row is too large to keep. ``later`` counts later changes
    without an entry of their own, and ``last`` is the stamp of the last of them. For a
    source ``shard_id`` is the table, and ``position`` is the row's, in hex.
    """

    key_bytes: bytes
    stamp: int
    reason: str
    text: str
    shard_id: str
    parked_us: int
    wanted: str = ""
    later: int = 0
    position: str = ""
    last: int = 0

    @property
    def row(self) -> SinkRow | None:
        """The row, if it was kept."""
        return read_row(self.text, self.key_bytes) if self.text else None


class ParkedRows:
    """The entries of one connector. ``keys`` has the entries known here, by key."""

    def __init__(self, endpoint: Endpoint, connector: str) -> None:
        self._rows = KeptRows(
            endpoint, PARKED_TABLE, (("connector", str), ("row", bytes), ("stamp", int))
        )
        self._connector = connector
        self._changing = asyncio.Lock()
        self.keys: dict[bytes, list[ParkedEntry]] = {}

    async def begin_term(self, term: int) -> None:
        """Change entries from now on only while no later term has begun.

        Raises ``Rejected`` if a later term has begun. Later changes then raise it too.
        """
        key = (self._connector, *_TERM)
        self._rows.guard = None
        begun = False
        while not begun:
            kept = await self._rows.get(key)
            if kept is not None and int(kept["term"]) > term:
                raise Rejected(
                    "OTSConditionCheckFail", f"Another process is the source '{self._connector}'."
                )
            begun = await self._rows.put(key, {"term": term}, only_if=kept, new=kept is None)
        self._rows.guard = key, {"term": term}

    async def load(self) -> None:
        """Read what is parked now."""
        async with self._changing:
            found: dict[bytes, list[ParkedEntry]] = {}
            for entry in await self.all():
                found.setdefault(entry.key_bytes, []).append(entry)
            self.keys = found

    async def all(self) -> list[ParkedEntry]:
        """Return every entry, those of a key in the order of their stamps."""
        return [
            _entry(key[1], key[2], columns)
            for key, columns in await self._rows.scan(self._connector)
            if key[1:] != _TERM
        ]

    async def park(
        self, refused: Sequence[Refused], shard_id: str, *, most: int, position: str = ""
    ) -> None:
        """Park rows, each with its reason. Raises ``TooManyParked``."""
        async with self._changing:
            self._require_room(refused, most)
            for row, reason in refused:
                await self._put(row, reason, shard_id, position, new=True)

    def _require_room(self, refused: Sequence[Refused], most: int) -> None:
        new = {refusal.row.key_bytes for refusal in refused} - self.keys.keys()
        if len(self.keys) + len(new) > most:
            first = refused[0]
            raise TooManyParked(
                f"{len(new)} more rows are refused, {len(self.keys)} are parked, and parked_max is "
                f"{most}. The first: {dict(first.row.key)}: {first.reason}"
            )

    async def wait_behind(
        self, rows: Iterable[SinkRow], shard_id: str, *, every_change: bool
    ) -> None:
        """Make rows of parked keys wait behind the entries of their keys.

        Raises ``Unavailable`` if another process has resolved such a key. The rows must
        then be applied.
        """
        async with self._changing:
            counts: dict[bytes, int] = {}
            last: dict[bytes, int] = {}
            for row in rows:
                entries = self.keys.get(row.key_bytes, [])
                if any(entry.stamp >= row.stamp for entry in entries):
                    continue  # It is a repetition.
                if not entries:
                    raise self._forget_key(row.key_bytes)
                if every_change:
                    await self._put_behind(row, entries[0], shard_id)
                else:
                    counts[row.key_bytes] = counts.get(row.key_bytes, 0) + 1
                    last[row.key_bytes] = max(last.get(row.key_bytes, 0), row.stamp)
            for key_bytes, count in counts.items():
                await self._count_later(key_bytes, count, last[key_bytes])

    async def _put_behind(self, row: SinkRow, first: ParkedEntry, shard_id: str) -> None:
        """Add a row as an entry. A process that removes the first entry then looks for more."""
        await self._put(row, "", shard_id, new=True)
        if await self._rows.get((self._connector, row.key_bytes, first.stamp)) is None:
            await self._rows.delete((self._connector, row.key_bytes, row.stamp))
            raise self._forget_key(row.key_bytes)

    def _forget_key(self, key_bytes: bytes) -> Unavailable:
        """Forget a key's entries and return the error to raise."""
        self.keys.pop(key_bytes, None)
        return Unavailable("Another process has dealt with a parked row by now.")

    async def count_later(self, key_bytes: bytes, count: int) -> None:
        """Count later rows of a parked key."""
        async with self._changing:
            await self._count_later(key_bytes, count, 0)

    async def _count_later(self, key_bytes: bytes, count: int, last: int) -> None:
        entries = self.keys[key_bytes]
        first = entries[0]
        first = first._replace(later=first.later + count, last=max(first.last, last))
        entries[0] = first
        key = (self._connector, key_bytes, first.stamp)
        if not await self._rows.update(key, {"later": first.later, "last": first.last}):
            raise self._forget_key(key_bytes)

    async def refuse_again(
        self, entry: ParkedEntry, reason: str, *, position: str = "", alone: bool = False
    ) -> None:
        """Store that an entry was tried, and why it stays parked.

        For a source the try covered all rows up to ``position``. ``alone``: later rows
        can't be had in any other way, so skipping the entry again skips them too.
        """
        columns: Columns = {"reason": reason[:REASON_MAX], "wanted": ""}
        if position or alone:
            columns |= {"position": position or entry.position, "later": 0}
        async with self._changing:
            await self._rows.update((self._connector, entry.key_bytes, entry.stamp), columns)
            if position or alone:
                now = entry._replace(position=position or entry.position, later=0, wanted="")
                self.keys[entry.key_bytes] = [now]

    async def want(self, entry: ParkedEntry, what: str) -> None:
        """Request that an entry is retried or skipped."""
        key = (self._connector, entry.key_bytes, entry.stamp)
        await self._rows.update(key, {"wanted": what})

    async def remove(self, entry: ParkedEntry) -> None:
        """Remove an entry. Without entries its key is no longer parked."""
        async with self._changing:
            await self._rows.delete((self._connector, entry.key_bytes, entry.stamp))
            self._forget(entry)

    async def settle(self, entry: ParkedEntry) -> bool:
        """Remove a resolved entry. False if more changes came than the entry counts.

        Another process may have taken the shard and may make changes wait behind the
        entry.
        """
        key = self._connector, entry.key_bytes, entry.stamp
        async with self._changing:
            settled = await self._rows.delete(key, only_if={"later": entry.later})
            if settled or await self._rows.get(key) is None:
                self._forget(entry)
                return True
        return False

    async def replace(self, entry: ParkedEntry, refused: Refused, shard_id: str) -> None:
        """Park a refused row in an entry's place. No change waits behind it yet."""
        row, reason = refused
        async with self._changing:
            await self._put(row, reason, shard_id)
            if row.stamp != entry.stamp:
                await self._rows.delete((self._connector, entry.key_bytes, entry.stamp))
                self._forget(entry)

    def _forget(self, entry: ParkedEntry) -> None:
        left = [e for e in self.keys.get(entry.key_bytes, []) if e.stamp != entry.stamp]
        if left:
            self.keys[entry.key_bytes] = left
        else:
            self.keys.pop(entry.key_bytes, None)

    async def _put(
        self, row: SinkRow, reason: str, shard_id: str, position: str = "", *, new: bool = False
    ) -> None:
        """Store an entry. If it must be ``new`` and exists already, read the stored one instead."""
        text = row_text(row)
        entry = ParkedEntry(
            row.key_bytes,
            row.stamp,
            reason[:REASON_MAX],
            text if len(text.encode()) <= TEXT_BYTES_MAX else "",
            shard_id,
            time.time_ns() // 1000,
            position=position,
        )
        columns: Columns = {
            "reason": entry.reason,
            "text": entry.text,
            "shard": shard_id,
            "parked_us": entry.parked_us,
            "wanted": "",
            "later": 0,
            "position": position,
            "last": 0,
        }
        key = (self._connector, row.key_bytes, row.stamp)
        if not await self._rows.put(key, columns, new=new):
            # It may already count later changes, or have a request.
            there = await self._rows.get(key)
            if there is None:
                raise self._forget_key(row.key_bytes)
            entry = _entry(row.key_bytes, row.stamp, there)
        others = [e for e in self.keys.get(row.key_bytes, []) if e.stamp != row.stamp]
        self.keys[row.key_bytes] = [*others, entry]


def _entry(key_bytes: object, stamp: object, columns: Columns) -> ParkedEntry:
    assert isinstance(key_bytes, bytes), "by the table's schema"
    assert isinstance(stamp, int), "by the table's schema"
    return ParkedEntry(
        key_bytes,
        stamp,
        str(columns.get("reason", "")),
        str(columns.get("text", "")),
        str(columns.get("shard", "")),
        int(columns.get("parked_us", 0)),
        str(columns.get("wanted", "")),
        int(columns.get("later", 0)),
        str(columns.get("position", "")),
        int(columns.get("last", 0)),
    )
