"""Between a source and its tables: rows that rowtide refuses are parked with their keys.

A shard skips positions that it has passed, so a parked row can't be written later at its
own position. Instead the source copies the row again (``CopiesRows``): it reads the
current row and gives it in its turn among the changes, above all earlier positions. So
the row is as valid as any row of a copy, and nothing goes back.

A refused row is parked before anything after it is written. After a crash a row that is
given again is recognised by its position.
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
"""Errors about a row. Any other concerns the table, the source or the key pair."""

KEY_BYTES_MAX = 1000
"""Most bytes of a key in the table of parked rows. A longer key, or one with a value that rowtide
lacks, is stored as a digest. Such a row can only be skipped."""
_DIGEST = b"\xff"


class ParkingTarget:
    """A ``SourceTarget`` that parks up to ``most`` keys. ``written`` is called with
    durable rows.
    """

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
        """Held while waiting rows are counted, so that a skip at the same time loses none."""

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

    def prepare(self, rows: Sequence[SourceRow]) -> Sequence[SourceRow]:
        """See ``SourceTarget``. The work is lost if some of the rows must wait."""
        return self._target.prepare(rows)

    async def write(self, rows: Sequence[SourceRow]) -> None:
        """Write rows except those of parked keys. Park refused rows.

        Raises ``TooManyParked``, and ``RowRefused`` if the error is not about the row.
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
                # The rows before it are durable.
                at = next(at for at, row in enumerate(rows) if row is error.row)
                self._written(at)
                rows = await self._flowing(rows[at + 1 :])

    async def _flowing(self, rows: Sequence[SourceRow]) -> Sequence[SourceRow]:
        """Return the rows of keys that are not parked. Count the others as waiting."""
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
        # A process that is no longer the source must not park: the new one would not see
        # the entry.
        await self._target.keep(await self._target.checkpoint())
        refused = Refused(_convert_to_sink_row(error.row), f"table {error.row.table}: {error}")
        await self._parked.park(
            [refused], error.row.table, most=self._most, position=error.row.position.hex()
        )
        self._progress.note_failure(f"parked {dict(error.row.key)} {refused.reason}")
        logger.warning("parked %s: %s", dict(error.row.key), refused.reason)

    # Requests to retry or skip parked rows.

    async def retry_or_skip(self, source: object) -> None:
        """Carry out requests to retry or skip. Raises ``Unavailable`` until the source runs."""
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
        # Two successive source processes may have parked one entry each.
        for entry in self._parked.keys.get(key_bytes, []):
            await self._parked.remove(entry)

    async def _try(self, entry: ParkedEntry, source: object) -> None:
        """Copy the row of a key again."""
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
        """Write the current row. On success the key is no longer parked."""
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
            logger.info("%s of table %s is no longer parked", dict(row.key), row.table)


def _key_bytes(row: SourceRow) -> bytes:
    values = [row.table, *(value for _, value in row.key)]
    try:
        encoded = key_order.encode([variant.encode(value) for value in values])
    except Rejected:
        encoded = b""
    if 0 < len(encoded) <= KEY_BYTES_MAX:
        return encoded
    return _DIGEST + hashlib.sha256(repr(values).encode()).digest()


def _convert_to_sink_row(row: SourceRow) -> SinkRow:
    """Return a row as parked rows are stored: NULL is no column."""
    columns = None
    if row.columns is not None:
        columns = {name: value for name, value in row.columns.items() if value is not None}
    kind = DELETE if columns is None else PUT_ROW if row.whole else UPDATE
    return SinkRow(row.key, _key_bytes(row), row.time_ms * 1000, columns, kind)
