"""Between a source and its tables: rows that rowtide refuses are parked, and their keys with them.

A shard skips what is not above the position it has, so a parked row can't be written later at its
own place: others have passed it. It is copied again instead, as a copy of the whole table would:
the source reads the row as it is by then and gives it in its turn among the changes, at a position
above all before (``CopiesRows``). So it is as good as any row of a copy, and nothing goes back.

What is refused is parked before anything behind it is written. A row that is given again after a
crash is known by its position.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Callable, Sequence

from rowtide.connectors.rows import Key, Refused, SinkRow, SourceRow, TableShape
from rowtide.connectors.runtime.parking import SKIP, ParkedEntry, ParkedRows
from rowtide.connectors.runtime.progress import Progress
from rowtide.connectors.sources.source import CopiesRows, RowRefused, SourceTarget
from rowtide.core.records.change import DELETE, PUT_ROW, UPDATE
from rowtide.core.values import key as key_order
from rowtide.core.values import variant
from rowtide.core.values.errors import Rejected

__all__ = ["ParkingTarget"]

logger = logging.getLogger(__name__)

OF_THE_ROW = frozenset(
    {
        "OTSParameterInvalid",
        "OTSInvalidPK",
        "OTSOutOfColumnCountLimit",
        "OTSOutOfRowSizeLimit",
        "OTSRequestBodyTooLarge",
    }
)
"""Refusals that are about a row; any other is about the table, the source or the key pair."""

KEY_BYTES_MAX = 1000
"""Of a key as the table of parked rows has it. Of a longer one, and of one with a value that is
nothing in rowtide, it has the digest; they can only be skipped."""
_DIGEST = b"\xff"


class ParkingTarget:
    """See ``SourceTarget``. ``most`` keys may be parked; ``written`` is told of durable rows."""

    def __init__(
        self,
        target: SourceTarget,
        parked: ParkedRows,
        progress: Progress,
        *,
        most: int,
        written: Callable[[int], None],
    ) -> None:
        self._target = target
        self._parked = parked
        self._progress = progress
        self._most = most
        self._written = written
        self._deciding = asyncio.Lock()
        """Held while rows are held back and counted: none is lost between that and a skip."""

    async def ensure_table(self, table: TableShape) -> None:
        """See ``SourceTarget``."""
        await self._target.ensure_table(table)

    async def keys(self, table: str, after: Key | None, *, limit: int) -> Sequence[Key]:
        """See ``SourceTarget``."""
        return await self._target.keys(table, after, limit=limit)

    async def checkpoint(self) -> bytes:
        """See ``SourceTarget``."""
        return await self._target.checkpoint()

    async def keep(self, checkpoint: bytes) -> None:
        """See ``SourceTarget``."""
        await self._target.keep(checkpoint)

    def prepared(self, rows: Sequence[SourceRow]) -> Sequence[SourceRow]:
        """See ``SourceTarget``. Where rows are held back, the others are prepared in vain."""
        return self._target.prepared(rows)

    async def write(self, rows: Sequence[SourceRow]) -> None:
        """Make the changes but those of parked keys; park what is refused.

        Raises ``TooManyParked``, and ``RowRefused`` where the refusal is not about the row.
        """
        rows = await self._flowing(rows)
        while rows:
            try:
                await self._target.write(rows)
                self._written(len(rows))
                return
            except RowRefused as error:
                if error.code not in OF_THE_ROW:
                    raise
                await self._park(error)
                # What comes before it is durable.
                at = next(at for at, row in enumerate(rows) if row is error.row)
                self._written(at)
                rows = await self._flowing(rows[at + 1 :])

    async def _flowing(self, rows: Sequence[SourceRow]) -> Sequence[SourceRow]:
        """Return the rows of keys that are not parked; note that the others wait."""
        if not self._parked.keys:
            return rows
        flowing: list[SourceRow] = []
        waiting: dict[bytes, int] = {}
        async with self._deciding:
            for row in rows:
                key_bytes = _key_bytes(row)
                entries = self._parked.keys.get(key_bytes)
                if entries is None:
                    flowing.append(row)
                elif row.position.hex() > entries[0].position:
                    waiting[key_bytes] = waiting.get(key_bytes, 0) + 1
            for key_bytes, count in waiting.items():
                await self._parked.count_later(key_bytes, count)
        return flowing

    async def _park(self, error: RowRefused) -> None:
        # Whoever is the source no more must not park: the other one would not know of it.
        await self._target.keep(await self._target.checkpoint())
        refused = Refused(_shown(error.row), f"table {error.row.table}: {error}")
        await self._parked.park(
            [refused], error.row.table, most=self._most, position=error.row.position.hex()
        )
        self._progress.failed(f"parked {dict(error.row.key)} {refused.reason}")
        logger.warning("parked %s: %s", dict(error.row.key), refused.reason)

    # Parked rows that somebody wants to be looked at.

    async def look_at_parked(self, source: object) -> None:
        """Copy again, or skip, what is wanted so. Raises ``Unavailable`` until the source runs."""
        async with self._deciding:
            await self._parked.load()
            for entries in list(self._parked.keys.values()):
                if entries[0].wanted == SKIP and not entries[0].later:
                    await self._forget(entries[0].key_bytes)
                    logger.info("skipped a parked row of table %s", entries[0].shard_id)
        for entries in list(self._parked.keys.values()):
            if entries[0].wanted:
                await self._try(entries[0], source)

    async def _forget(self, key_bytes: bytes) -> None:
        # Two processes that were the source one after the other may have parked one each.
        for entry in self._parked.keys.get(key_bytes, []):
            await self._parked.remove(entry)

    async def _try(self, entry: ParkedEntry, source: object) -> None:
        """Have a key's row copied again."""
        skips = entry.wanted == SKIP
        if not isinstance(source, CopiesRows):
            why = "The source can't copy single rows."
            await self._parked.refuse_again(entry, why, alone=skips)
        elif entry.key_bytes.startswith(_DIGEST):
            await self._parked.refuse_again(entry, entry.reason, alone=skips)
        else:
            _, *key = map(variant.decode, key_order.decode(entry.key_bytes))

            async def write(row: SourceRow) -> None:
                await self._write_again(entry, row)

            try:
                await source.copy_again(entry.shard_id, key, write)
            except Rejected as error:
                await self._parked.refuse_again(entry, str(error), alone=skips)

    async def _write_again(self, entry: ParkedEntry, row: SourceRow) -> None:
        """Write a row as it is now; what is parked of its key ends with that."""
        try:
            await self._target.write([row])
        except RowRefused as error:
            if error.code not in OF_THE_ROW:
                raise
            reason = f"table {row.table}: {error}"
            await self._parked.refuse_again(entry, reason, position=row.position.hex())
        else:
            await self._forget(entry.key_bytes)
            self._written(1)
            logger.info("%s of table %s is parked no more", dict(row.key), row.table)


def _key_bytes(row: SourceRow) -> bytes:
    values = [row.table, *(value for _, value in row.key)]
    try:
        encoded = key_order.encode([variant.encode(value) for value in values])
    except Rejected:
        encoded = b""
    if 0 < len(encoded) <= KEY_BYTES_MAX:
        return encoded
    return _DIGEST + hashlib.sha256(repr(values).encode()).digest()


def _shown(row: SourceRow) -> SinkRow:
    """Return a row as parked ones are kept: NULL is no column."""
    columns = None
    if row.columns is not None:
        columns = {name: value for name, value in row.columns.items() if value is not None}
    kind = DELETE if columns is None else PUT_ROW if row.whole else UPDATE
    return SinkRow(row.key, _key_bytes(row), row.time_ms * 1000, columns, kind)
