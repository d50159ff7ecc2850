"""The state of each table of a source, for reports while it runs."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from rowtide.connectors.sources.postgres.position import PostgresCheckpoint
from rowtide.connectors.sources.postgres.tables import PostgresTable
from rowtide.connectors.sources.postgres.unfit import UnfitPostgresTable
from rowtide.connectors.sources.source import TableState

__all__ = ["TableReport"]


class TableReport:
    """The tables of one life, their progress in ``checkpoint``, and those that can't be
    followed.

    ``waits`` says what the server, and so every copy, waits for; empty if there is
    nothing.
    """

    def __init__(self, checkpoint: PostgresCheckpoint) -> None:
        self._checkpoint = checkpoint
        self._tables: Mapping[str, PostgresTable] = {}
        self._unfit: Mapping[str, UnfitPostgresTable] = {}
        self.waits = ""

    @property
    def unfit(self) -> Collection[UnfitPostgresTable]:
        """The tables that can't be followed."""
        return self._unfit.values()

    def note(
        self, tables: Mapping[str, PostgresTable], unfit: Mapping[str, UnfitPostgresTable]
    ) -> None:
        """Store the result of a look."""
        self._tables, self._unfit = dict(tables), dict(unfit)

    def states(self) -> list[TableState]:
        """Return the states, see ``TableReporting``."""
        states = [
            TableState(name, fault.target, "failed", reason=fault.reason, remedy=fault.remedy)
            for name, fault in self._unfit.items()
        ]
        for name, table in self._tables.items():
            progress = self._checkpoint.tables.get(name)
            following = progress is not None and progress.whole
            states.append(
                TableState(
                    name,
                    table.target,
                    "following" if following else "copying",
                    rows_copied=0 if following or progress is None else progress.rows,
                    rows_estimate=table.estimate if table.estimate >= 0 else None,
                    reason="" if following else self.waits,
                )
            )
        return sorted(states, key=lambda state: state.table)
