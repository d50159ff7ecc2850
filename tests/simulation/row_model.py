"""Rows as dictionaries: the fold of a log written a second time, as simply as it can be.

It knows records and the append rule, and nothing of chunks, overlays, marks or owners. A row's life
goes on in another log when its shard is split, merged or moved; what puts its changes in order is
their commit stamps.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from rowtide.core.records import record
from rowtide.core.rows.chunk import border
from rowtide.core.values import key, variant
from rowtide.core.values.cell import DELETE_ALL, DELETE_ONE, Cell
from rowtide.stream.log.log import Entry

__all__ = [
    "MARK",
    "Changing",
    "Columns",
    "Newest",
    "TableModel",
    "Valid",
    "apply_changes",
    "list_visible",
    "mark_of",
    "name_of",
    "newest_of",
]

Columns = dict[bytes, dict[int, bytes]]
"""Values by column and version."""

Newest = dict[bytes, bytes]
"""Of each column the newest value."""

MARK = b"mark"
"""A column whose value no two changes share."""

Changing = record.PutBody | record.UpdateBody | record.DeleteBody


def name_of(body: Changing) -> str:
    """Return the first key column's value."""
    return str(variant.decode(body.key[0]))


def mark_of(body: Changing) -> str | None:
    """Return what a change put into its mark; None for a delete."""
    cells: Sequence[Cell] = () if isinstance(body, record.DeleteBody) else body.cells
    return next((str(variant.decode(c.variant)) for c in cells if c.name == MARK), None)


class Valid(NamedTuple):
    """A valid change."""

    shard_id: str
    offset: int
    stamp: int
    body: Changing

    @property
    def row_and_mark(self) -> tuple[str, str | None]:
        """Its row and its mark."""
        return name_of(self.body), mark_of(self.body)


@dataclass(slots=True)
class ShardLog:
    """What of one log was folded: up to ``end``; nothing but no-ops follows a seal."""

    max_versions: int
    end: int = 0
    changes: list[Valid] = field(default_factory=list)
    seal: int | None = None
    floor: int = 0
    """The highest stamp of its parents' seals."""
    positions: dict[str, bytes] = field(default_factory=dict)
    """How far it says that it has each source."""


class TableModel:
    """The rows of one table by name, as of every commit stamp; and its shards' valid changes."""

    def __init__(self, max_versions: int) -> None:
        self.logs: dict[str, ShardLog] = {}
        self.stood: dict[str, Valid] = {}
        """The valid changes, by mark."""
        self._floors: dict[str, int] = {}
        self._history: dict[str, list[tuple[int, Columns | None]]] = {}
        self._max_versions = max_versions

    def replay(self, shard_id: str, entries: Sequence[Entry]) -> None:
        """Fold entries of a log, which go on where the former ended; parents' logs come first."""
        log = self.logs.get(shard_id)
        if log is None:
            log = self.logs[shard_id] = ShardLog(self._max_versions)
            log.floor = self._floors.get(shard_id, 0)
        for entry in entries:
            assert entry.offset == log.end
            log.end += 1
            envelope, body = record.decode_record(entry.value)
            if envelope.at == entry.offset:
                self._fold(shard_id, log, envelope, body)

    def _fold(
        self, shard_id: str, log: ShardLog, envelope: record.Envelope, body: record.Body
    ) -> None:
        # Who opens a log fences it with a no-op before it knows of the seal.
        assert log.seal is None or isinstance(body, record.NoOp), (
            f"{body} follows {shard_id}'s seal"
        )
        if isinstance(body, record.Options):
            log.max_versions = body.max_versions
        elif isinstance(body, record.Seal):
            log.seal = envelope.at
            plan = json.loads(body.plan)
            assert shard_id in plan.get("parents", ()), f"{shard_id}'s seal is not its own: {plan}"
            assert plan["children"], f"{shard_id}'s seal names nobody who comes after it"
            for child in plan["children"]:
                floor = max(self._floors.get(child["shard"], 0), envelope.stamp)
                self._floors[child["shard"]] = floor
        elif isinstance(body, record.SourcePosition):
            before = log.positions.get(body.source, b"")
            assert before < body.position, f"{shard_id} goes back to {body} from {before!r}"
            log.positions[body.source] = body.position
        elif isinstance(body, record.Reclaim):
            for name in self._history:
                self._reclaim(name, body, envelope.stamp)
        elif isinstance(body, Changing):
            self._take(log, Valid(shard_id, envelope.at, envelope.stamp, body))

    def _reclaim(self, name: str, body: record.Reclaim, stamp: int) -> None:
        """Remove of a row what the record of its shard says; it covers no other shard's rows."""
        before = self.at(name, stamp)
        after = None if before is None else reclaim_row(name, before, body)
        if after != before:
            assert self.last(name) < stamp, f"stamps of row {name} don't increase: {body}"
            self._history[name].append((stamp, after))

    def at(self, name: str, stamp: int) -> Columns | None:
        """Return a row as of a stamp, inclusive; None: absent."""
        history = self._history.get(name, [])
        at = bisect_right(history, stamp, key=lambda known: known[0])
        return history[at - 1][1] if at else None

    def last(self, name: str) -> int:
        """Return the stamp of a row's last change."""
        history = self._history.get(name)
        return history[-1][0] if history else 0

    def before(self, name: str, stamp: int) -> int:
        """Return the stamp of a row's last change below a stamp."""
        return max((known for known, _ in self._history.get(name, []) if known < stamp), default=0)

    def since(self, name: str, low: int) -> list[Columns | None]:
        """Return what a row was as of ``low`` and of every stamp after; None: absent."""
        later = [columns for stamp, columns in self._history.get(name, []) if low < stamp]
        return [self.at(name, low), *later]

    def _take(self, log: ShardLog, valid: Valid) -> None:
        body, (name, mark) = valid.body, valid.row_and_mark
        before = log.changes[-1].stamp if log.changes else log.floor
        assert before < valid.stamp, f"stamps of {valid.shard_id} don't increase at {valid.offset}"
        assert self.last(name) < valid.stamp, f"stamps of row {name} don't increase: {valid}"
        log.changes.append(valid)
        if mark is not None:
            assert mark not in self.stood, f"stands twice: {mark}"
            self.stood[mark] = valid
        after: Columns | None = None
        if isinstance(body, record.PutBody):
            after = apply_changes({}, body.cells, log.max_versions)
        elif isinstance(body, record.UpdateBody):
            after = apply_changes(self.at(name, valid.stamp) or {}, body.cells, log.max_versions)
        self._history.setdefault(name, []).append((valid.stamp, after))


def apply_changes(before: Columns, cells: Sequence[Cell], max_versions: int) -> Columns:
    """Return a row after changes in order: the newest versions of each touched column are kept."""
    columns = {name: dict(versions) for name, versions in before.items()}
    for cell in cells:
        versions = columns.setdefault(cell.name, {})
        if cell.op == DELETE_ALL:
            versions.clear()
        elif cell.op == DELETE_ONE:
            versions.pop(cell.version_ms or 0, None)
        else:
            versions[cell.version_ms or 0] = cell.variant
    for name in {cell.name for cell in cells}:
        newest = sorted(columns[name], reverse=True)[:max_versions]
        columns[name] = {version: columns[name][version] for version in newest}
    return {name: versions for name, versions in columns.items() if versions}


def newest_of(columns: Columns | None) -> Newest | None:
    """Return of each column of a row the newest value; None where the row is absent."""
    if columns is None:
        return None
    return {column: versions[max(versions)] for column, versions in columns.items()}


def list_visible(columns: Columns | None) -> list[Newest | None]:
    """Return what readers may see of a row, of each column the newest value: old ones expire."""
    seen = [newest_of(columns)]
    left = columns or {}
    while left:
        oldest = min(version for versions in left.values() for version in versions)
        kept = {c: {at: v for at, v in of.items() if at > oldest} for c, of in left.items()}
        left = {column: versions for column, versions in kept.items() if versions}
        seen.append(newest_of(left))
    return seen


def reclaim_row(name: str, before: Columns, body: record.Reclaim) -> Columns | None:
    """Return a row without what is hidden in the columns that a record covers; None: it is gone.

    A place is the encoded key with the border of a column behind it
    (docs/internals/formats/record.md). A row that loses its last cell so is gone; one that had none
    stays.
    """
    row = key.encode([variant.encode(name), variant.encode(1)])
    columns = dict(before)
    for column, versions in before.items():
        if body.first <= row + border(column) <= body.last:
            newest = sorted(versions, reverse=True)[: body.max_versions]
            kept = [version for version in newest if version >= body.version_cutoff_ms]
            columns[column] = {version: versions[version] for version in kept}
    left = {column: versions for column, versions in columns.items() if versions}
    return left if left or not before else None
