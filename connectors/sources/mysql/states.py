"""The state of each table of a source, and which tables failed.

A table fails alone. What was read of it before is no longer exact, so it is copied again
once it can be followed. Failed tables are checked every ``LOOK_S`` seconds, and when a
statement changes them. A table whose rows can't be read looks fit until they are read.
Each retry starts a new life of the source, so retries of one table are further and
further apart.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from rowtide.connectors.rows import SourceRow
from rowtide.connectors.sources.mysql.schema import MySqlTable
from rowtide.connectors.sources.mysql.tables import MySqlTables, UnfitMySqlTable
from rowtide.connectors.sources.progress import TableProgress
from rowtide.connectors.sources.source import SourceTarget, TableState
from rowtide.core.values.errors import Rejected

__all__ = ["TableStates"]

logger = logging.getLogger(__name__)

LOOK_S = 10.0
PAUSE_S_MAX = 600.0
"""The longest pause between two tries to read a table's rows. The first is ``LOOK_S``."""
_FOR_ALL = {"OTSAuthFailed", "OTSNoPermissionAccess"}
"""Rowtide's errors that do not concern a single table."""


class _Pause(NamedTuple):
    """The pause before an unreadable table is tried again, in seconds of the clock."""

    length_s: float
    end_s: float


class TableStates:
    """The failed tables, and the copied rows of the others.

    ``clock`` returns monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._failed: dict[str, UnfitMySqlTable] = {}
        self._refused: dict[str, str] = {}
        """Names in rowtide of refused tables. The binlog's thread still decodes their rows."""
        self._rows_copied: dict[str, int] = {}
        self._pauses: dict[str, _Pause] = {}
        self._looked_s = clock()

    def fail(self, unfit: UnfitMySqlTable) -> None:
        """Record that a table can't be followed."""
        if self._failed.get(unfit.full_name) != unfit:
            logger.warning(
                "%s is not followed: %s. %s", unfit.full_name, unfit.reason, unfit.remedy
            )
        self._failed[unfit.full_name] = unfit

    def fail_all(self, unfit: Iterable[UnfitMySqlTable]) -> None:
        """Record the unfit tables at the start of a life, in place of all former ones."""
        former, self._failed = self._failed, {}
        self._refused.clear()
        self._rows_copied.clear()
        for each in unfit:
            if former.get(each.full_name) == each:
                self._failed[each.full_name] = each
            else:
                self.fail(each)

    def forget(self, name: str) -> None:
        """Record that a table was dropped, or can be followed."""
        self._failed.pop(name, None)
        self._refused.pop(name, None)
        self._pauses.pop(name, None)

    def note_whole(self, name: str) -> None:
        """Record that every row of a table was read."""
        self._pauses.pop(name, None)

    def waiting(self, name: str) -> UnfitMySqlTable | None:
        """Return why a table is not retried yet, None if it may be."""
        pause = self._pauses.get(name)
        return self._failed.get(name) if pause and self._clock() < pause.end_s else None

    def unreadable(self, table: MySqlTable, why: str) -> UnfitMySqlTable:
        """Return the failure of a table whose rows the server refuses to read.

        It is retried after a pause, twice as long as the one before.
        """
        name, former = table.full_name, self._pauses.get(table.full_name)
        length_s = min(former.length_s * 2, PAUSE_S_MAX) if former else LOOK_S
        self._pauses[name] = _Pause(length_s, self._clock() + length_s)
        remedy = "Do what the server's message asks for, or leave the table out under 'except'."
        return UnfitMySqlTable(
            table.full_name, table.target, f"the server refuses to read it: {why}", remedy
        )

    async def refusal(self, table: MySqlTable, target: SourceTarget) -> UnfitMySqlTable | None:
        """Create a table in rowtide. Return rowtide's refusal, None if it has none."""
        try:
            await target.ensure_table(table.shape)
        except Rejected as error:
            if error.code in _FOR_ALL:
                raise
            self._refused[table.full_name] = table.target
            remedy = (
                f"Do what rowtide's message asks for, or give the table another name under "
                f"'names', by {table.full_name!r}."
            )
            reason = f"rowtide refuses the table {table.target}: {error.message}"
            return UnfitMySqlTable(table.full_name, table.target, reason, remedy)
        self._refused.pop(table.full_name, None)
        return None

    def filter_rows(self, rows: Sequence[SourceRow]) -> Sequence[SourceRow]:
        """Return the rows whose tables rowtide has."""
        if not self._refused:
            return rows
        refused = set(self._refused.values())
        return [row for row in rows if row.table not in refused]

    @property
    def are_due(self) -> bool:
        """True if failed tables are due for a check."""
        if self._clock() - self._looked_s < LOOK_S:
            return False
        return any(
            not unfit.until_altered and self.waiting(name) is None
            for name, unfit in self._failed.items()
        )

    async def is_one_fit(self, found: MySqlTables, target: SourceTarget) -> bool:
        """Compare failed tables with the current ones. True if one can be followed."""
        self._looked_s = self._clock()
        for name in list(self._failed):
            if name in found.fit and (self._failed[name].until_altered or self.waiting(name)):
                continue
            if name in found.fit:
                refused = await self.refusal(found.fit[name], target)
                if refused is None:
                    return True
                self.fail(refused)
            elif name in found.unfit:
                self.fail(found.unfit[name])
            else:
                self.forget(name)
        for name, unfit in found.unfit.items():
            if name not in self._failed:
                self.fail(unfit)
        return False

    def count_rows(self, name: str, rows: int, *, first: bool) -> None:
        """Count the rows of a chunk that was written."""
        self._rows_copied[name] = rows + (0 if first else self._rows_copied.get(name, 0))

    def states(
        self, progress: Mapping[str, TableProgress], tables: Mapping[str, MySqlTable]
    ) -> list[TableState]:
        """Return the state of each table."""
        found = [
            TableState(unfit.full_name, unfit.target, "failed", 0, None, unfit.reason, unfit.remedy)
            for unfit in self._failed.values()
        ]
        for name, table in tables.items():
            if name in progress and name not in self._failed:
                state = "following" if progress[name].whole else "copying"
                copied = self._rows_copied.get(name, 0)
                found.append(TableState(name, table.target, state, copied, table.rows_estimate))
        return sorted(found, key=lambda state: state.table)
