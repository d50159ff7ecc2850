"""Writes one changelog into a cluster: its entries in order, in separate transactions.

Offsets need not be kept: transaction markers take some, and every row store of the
cluster is built from this changelog. An export has each key once and no removed key. So
compaction leaves all of it, however long an import takes.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator

from rowtide.stream.log.changelog import ChangelogEntry, ChangelogReader, ChangelogWriter
from rowtide.stream.moving.target_log import Differs, Report, batches, entry_bytes

__all__ = ["TargetChangelog"]

FLUSH_BYTES = 8 << 20
FLUSH_ENTRIES = 20_000


class TargetChangelog:
    """One changelog that is to have exactly the entries of an export."""

    def __init__(
        self, name: str, writer: ChangelogWriter, reader: Callable[[], ChangelogReader]
    ) -> None:
        self._name = name
        self._writer = writer
        self._reader = reader

    async def bring(self, entries: Iterator[ChangelogEntry], report: Report) -> None:
        """Write the missing entries. Raises ``Differs``, ``Fenced`` and ``StoreError``."""
        # This ends a transaction that a former call has left open.
        await self._writer.fence()
        records, size = await self._compare(entries, report)
        for batch in batches(entries, bytes_max=FLUSH_BYTES, count_max=FLUSH_ENTRIES):
            await self._writer.flush((key, value, headers) for _, key, value, headers in batch)
            records += len(batch)
            size += sum(map(entry_bytes, batch))
            report(records, size)

    async def verify(self, entries: Iterator[ChangelogEntry], report: Report) -> None:
        """Read everything back. Raises ``Differs`` and ``StoreError``."""
        records, _ = await self._compare(entries, report)
        if next(entries, None) is not None:
            raise Differs(f"{self._name} ends after {records} entries, the export has more")

    async def _compare(self, entries: Iterator[ChangelogEntry], report: Report) -> tuple[int, int]:
        """Compare the changelog with the export; return how many records and bytes are there."""
        records = size = 0
        async for found in self._read_entries():
            wanted = next(entries, None)
            if wanted is None or wanted[1:] != found[1:]:
                raise Differs(f"{self._name} differs from the export at offset {found.offset}")
            records += 1
            size += entry_bytes(found)
            if records % FLUSH_ENTRIES == 0:
                report(records, size)
        report(records, size)
        return records, size

    async def _read_entries(self) -> AsyncIterator[ChangelogEntry]:
        reader = self._reader()
        async for page in reader.read(await reader.start()):
            for entry in page:
                yield entry
