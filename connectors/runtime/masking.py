"""Columns of a source's rows are removed or masked here, before the rows go anywhere
else.

So what is parked, logged or compared is masked. A row is masked only once, even if it
passes here again. A source may prepare rows and write some or all of them later.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence

from rowtide.connectors.rows import Key, SourceRow, TableShape
from rowtide.connectors.runtime.source_columns import TableColumns
from rowtide.connectors.sources.source import CopiesRows, SourceSide, SourceTarget
from rowtide.core.values.variant import Scalar

__all__ = ["MaskedCopies", "MaskedSide", "Masking", "MaskingTarget"]

logger = logging.getLogger(__name__)

ROWS_UNTIL_WARNING = 1000

Write = Callable[[SourceRow], Awaitable[None]]


class MaskedRow(SourceRow):
    """A row that was masked."""

    __slots__ = ()


class Masking:
    """Masks rows by ``rules``, given by the table's name in rowtide. Thread-safe."""

    def __init__(self, rules: Mapping[str, TableColumns]) -> None:
        self._rules = rules
        self._unseen = {table: set(rule.named) for table, rule in rules.items()}
        self._rows = dict.fromkeys(rules, 0)
        self._absent = set(rules)

    def check(self, table: TableShape) -> None:
        """Raise ``Rejected`` if a table's rules do not fit its key."""
        self._absent.discard(table.name)
        if (rule := self._rules.get(table.name)) is not None:
            rule.check(table)

    def warn_of_absent(self) -> None:
        """Warn once of tables that were not made so far: their names may be misspelt."""
        if self._absent:
            logger.warning(
                "the settings name columns of %s, but the source follows no such table now; "
                "check the names",
                ", ".join(sorted(self._absent)),
            )
            self._absent.clear()

    def row(self, row: SourceRow) -> SourceRow | None:
        """Return a row as rowtide gets it, None for an update of removed columns only."""
        rule = self._rules.get(row.table)
        if rule is None or row.columns is None or type(row) is MaskedRow:
            return row
        self._look(row)
        columns = rule.apply(row.columns)
        if row.columns and not columns and not row.whole:
            return None
        return MaskedRow(row.table, row.key, columns, row.whole, row.time_ms, row.position)

    def rows(self, rows: Sequence[SourceRow]) -> Sequence[SourceRow]:
        """Return rows as rowtide gets them; the same list if no rule applies."""
        rules = self._rules
        if not rules or all(type(row) is MaskedRow or row.table not in rules for row in rows):
            return rows
        return [masked for row in rows if (masked := self.row(row)) is not None]

    def _look(self, row: SourceRow) -> None:
        """Warn of columns that no row has: their names may be misspelt."""
        unseen = self._unseen[row.table]
        if not unseen or not row.columns:
            return
        unseen.difference_update([name.lower() for name in row.columns])
        self._rows[row.table] += 1
        if unseen and self._rows[row.table] >= ROWS_UNTIL_WARNING:
            logger.warning(
                "table %s: none of the first %d rows has a value in %s, which is left out or "
                "masked; check the names",
                row.table,
                ROWS_UNTIL_WARNING,
                ", ".join(sorted(unseen)),
            )
            unseen.clear()


class MaskingTarget:
    """A ``SourceTarget`` that masks rows."""

    def __init__(self, target: SourceTarget, masking: Masking) -> None:
        self._target = target
        self._masking = masking

    async def ensure_table(self, table: TableShape) -> None:
        """See ``SourceTarget``. Raises ``Rejected`` if a rule masks a column of the key."""
        self._masking.check(table)
        await self._target.ensure_table(table)

    def prepare(self, rows: Sequence[SourceRow]) -> Sequence[SourceRow]:
        """See ``SourceTarget``. The returned rows are masked."""
        return self._target.prepare(self._masking.rows(rows))

    async def write(self, rows: Sequence[SourceRow]) -> None:
        """See ``SourceTarget``."""
        await self._target.write(self._masking.rows(rows))

    async def keys(self, table: str, after: Key | None, *, limit: int) -> Sequence[Key]:
        """See ``SourceTarget``."""
        return await self._target.keys(table, after, limit=limit)

    async def checkpoint(self) -> bytes:
        """See ``SourceTarget``."""
        return await self._target.checkpoint()

    async def keep(self, checkpoint: bytes) -> None:
        """See ``SourceTarget``. By the first checkpoint the source has created its tables."""
        self._masking.warn_of_absent()
        await self._target.keep(checkpoint)


class MaskedCopies:
    """A ``CopiesRows`` that masks rows."""

    def __init__(self, source: CopiesRows, masking: Masking) -> None:
        self._source = source
        self._masking = masking

    async def copy_again(self, table: str, key: Sequence[Scalar], write: Write) -> None:
        """See ``CopiesRows``."""

        async def write_masked(row: SourceRow) -> None:
            if (found := self._masking.row(row)) is not None:
                await write(found)

        await self._source.copy_again(table, key, write_masked)


class MaskedSide:
    """A source's table as rowtide gets it, see ``SourceSide``."""

    def __init__(self, side: SourceSide, rule: TableColumns) -> None:
        self._side = side
        self._rule = rule

    async def rows(self) -> AsyncIterator[tuple[bytes, Mapping[str, Scalar]]]:
        """See ``SourceSide``."""
        async for key, columns in self._side.rows():
            yield key, self._rule.apply(columns)

    async def look_up(self, keys: Sequence[bytes]) -> Mapping[bytes, Mapping[str, Scalar]]:
        """See ``SourceSide``."""
        found = await self._side.look_up(keys)
        return {key: self._rule.apply(columns) for key, columns in found.items()}

    async def close(self) -> None:
        """See ``SourceSide``."""
        await self._side.close()
