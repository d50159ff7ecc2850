"""A table's rows as a Delta table, in a folder or an object store.

Delta's calls block, so they are made in one thread. A commit is expensive and leaves
files. So batches that arrive together are one commit, and few rows wait a moment for
others. From time to time small files are joined, and files that no recent version needs
are removed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from rowtide.connectors.declared_types import DeclaredTypes, parse_types
from rowtide.connectors.fields import Fields
from rowtide.connectors.registry import ConnectorContext
from rowtide.connectors.rows import TableShape
from rowtide.connectors.sinks.columnar.blocking_sink import BlockingSink
from rowtide.connectors.sinks.columnar.gathering import Pace
from rowtide.connectors.sinks.lake.delta_table import DeltaRows

__all__ = ["DeltaSettings", "DeltaSink", "make_sink"]

ROWS_ENOUGH = 100
"""From this many waiting rows on, commit at once. Fewer wait for ``commit_every_ms``."""

# Delta has no type for a time of the day.
TYPES: Mapping[str, str] = {"decimal": "decimal", "date": "date", "timestamp": "timestamp"}


@dataclass(frozen=True, slots=True)
class DeltaSettings:
    """Where the rows go, a folder or a URL of an object store, and how often."""

    place: str
    storage: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Options of the object store, such as keys and region."""
    commit_every_ms: int = 1000
    compact_every: int = 100
    """Commits between compactions. 0 leaves them to another program."""
    keep_h: int = 168
    """How long files are kept after the last version that needs them: readers may use them."""
    columns_max: int = 1000
    """Rows that need more are refused: each column adds statistics to every entry of the log."""
    columns: DeclaredTypes = field(default_factory=dict)
    """Declared types of attributes. Other attributes keep the type of each value."""


def make_sink(fields: Fields, surroundings: ConnectorContext) -> DeltaSink:
    """Return the sink that settings describe."""
    storage = fields.inner("storage")
    return DeltaSink(
        DeltaSettings(
            place=fields.text("place", str(Path(surroundings.folder) / "delta")),
            storage={name: storage.text(name) for name in fields.mapping("storage")},
            commit_every_ms=fields.integer("commit_every_ms", 1000, least=0, most=3_600_000),
            compact_every=fields.integer("compact_every", 100, least=0, most=100_000),
            keep_h=fields.integer("keep_h", 168, least=1, most=100_000),
            columns_max=fields.integer("columns_max", 1000, least=1, most=10_000),
            columns=parse_types(fields.inner("columns"), TYPES),
        )
    )


class DeltaSink(BlockingSink):
    """One table at one place. Several processes may write it at the same time."""

    batch_rows = 5000
    """A commit costs as much as thousands of rows in it."""

    def __init__(self, settings: DeltaSettings) -> None:
        self._settings = settings
        # A folder is local to this machine, and connectors run on several.
        self.alone = "://" not in settings.place
        self._delta: DeltaRows | None = None
        self._commits = 0
        pace = Pace(settings.commit_every_ms / 1000, ROWS_ENOUGH)
        super().__init__(self._new_rows, pace, self._compact, types=settings.columns)

    def _new_rows(self, table: TableShape) -> DeltaRows:
        settings = self._settings
        self._delta = DeltaRows(
            settings.place,
            settings.storage,
            table,
            columns_max=settings.columns_max,
            types=settings.columns,
        )
        return self._delta

    def _compact(self) -> None:
        self._commits += 1
        every = self._settings.compact_every
        if self._delta is not None and every and self._commits % every == 0:
            self._delta.compact(keep_h=self._settings.keep_h)
