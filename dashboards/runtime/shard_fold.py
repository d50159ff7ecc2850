"""The panels' sums over one source shard, in memory, with what has to be written of them.

A fold knows no server. It takes rows of a snapshot and changes, and gives the rows of its part that
have changed. They are to be written together: then the stored part stands for its position.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from hashlib import blake2b
from typing import NamedTuple

from rowtide.core.native import RowVariants
from rowtide.core.records.change import ROW, Change
from rowtide.core.records.position import decode_position, encode_position
from rowtide.core.values.key_ranges import Range, holds, subtract_ranges
from rowtide.core.values.variant import Scalar
from rowtide.dashboards.declaring.declaration import Dashboard, Panel
from rowtide.dashboards.fold.partial import Additions, Key, PanelPartial
from rowtide.dashboards.fold.partial_codec import (
    decode_partial,
    encode_group,
    encode_key,
    encode_summary,
)
from rowtide.dashboards.fold.plan import PanelPlan
from rowtide.dashboards.fold.state_bytes import CorruptState
from rowtide.dashboards.runtime.row_types import RowTypes, pick_places
from rowtide.dashboards.runtime.row_values import ValueReader
from rowtide.dashboards.runtime.state_rows import ROWS_MAX, PartPosition, PartRows, StateRow

__all__ = ["ShardFold", "read_partial"]

WRITE_BYTES_WANTED = 3 * 1024 * 1024
"""Bytes of groups after which a write is due."""

WRITE_BYTES_MAX = 7 * 1024 * 1024
"""Bytes of groups in a write. A group of the log has at most 8 MiB."""

ROW_BYTES_MAX = 1024 * 1024
"""Bytes of one group. A cell of the table has at most 2 MiB."""

SUMMARY = b""
"""The group of a panel's row that has its summary."""

TOGETHER_MAX = 1000
"""Changes that are added at once: more of them are equal in a panel's columns, but the event loop
waits for longer.
"""

PRUNE_US = 60_000_000
"""Ended groups are dropped when the shard's stamp is so far above that of the last time."""


class ShardFold:
    """The partials of one shard as of ``at``."""

    def __init__(self, dashboard: Dashboard, at: PartPosition, stored: PartRows) -> None:
        self._at = at
        self._stamp = at.stamp
        self._following: int | None = None
        """The offset behind the last change, once there is one."""
        self._dashboard = dashboard
        self._partials = {
            name: read_partial(panel, stored) for name, panel in dashboard.panels.items()
        }
        self._summaries = {
            name: encode_summary(partial) if name in stored.panels else b""
            for name, partial in self._partials.items()
        }
        plans = [panel.plan for panel in dashboard.panels.values()]
        self._names = list(dict.fromkeys(c.name for plan in plans for c in plan.columns))
        self._is_of_changes = dashboard.is_of_changes
        self._reader = ValueReader(self._names, of_changes=self._is_of_changes)
        self._views = [
            _PanelView(partial, plan, [self._names.index(c.name) for c in plan.columns])
            for partial, plan in zip(self._partials.values(), plans, strict=True)
        ]
        self._pruned_us = 0
        self._row_bytes = 100.0
        """Bytes of a group in the last write, on average."""
        self._together = TOGETHER_MAX
        """So many changes are added at once, if they fit."""

    @property
    def at(self) -> PartPosition:
        """What the partials have."""
        at = self._at._replace(stamp=self._stamp)
        if self._following is None:
            return at
        place = decode_position(at.position)
        return at._replace(position=encode_position(place._replace(offset=self._following)))

    def add_rows(self, rows: Sequence[Change]) -> int:
        """Add the first rows of a snapshot's page, see ``add_changes``.

        Their range is covered before the next write.
        """
        return self._add_all(rows, self._read_rows)

    def add_changes(self, changes: Sequence[Change]) -> int:
        """Add as many changes as fit into the next write; return how many.

        Those that are counted already, and those of ranges still to be read, add nothing.
        """
        return self._add_all(changes, self._read_changes)

    def _add_all(
        self, changes: Sequence[Change], read: Callable[[Sequence[Change]], RowEffects]
    ) -> int:
        done = 0
        while done < len(changes):
            part = changes[done : done + self._together]
            if self._add_together(read(part), only=len(part) == 1 and not self._has_touched):
                done += len(part)
                self._note_position(part)
                self._together = min(TOGETHER_MAX, self._together + self._together // 4 + 1)
                continue
            self._together = max(1, len(part) // 2)
            if self._has_touched:
                return done
        return done

    @property
    def _has_touched(self) -> bool:
        return any(partial.touched for partial in self._partials.values())

    def _add_together(self, effects: RowEffects, *, only: bool) -> bool:
        """Add rows and take others back. False if the next write has no room for all their groups.

        ``only`` a change is added in any case: one always fits alone.
        """
        additions = [view.evaluate(effects) for view in self._views]
        touched = sum(
            len(view.partial.touched | more.keys)
            for view, more in zip(self._views, additions, strict=True)
        )
        rows_max = ROWS_MAX - 1 - len(self._views)  # The position, and the summaries.
        if not only and (touched > rows_max or touched * self._row_bytes > WRITE_BYTES_WANTED):
            return False
        for view, more in zip(self._views, additions, strict=True):
            view.partial.apply(more)
        return True

    def _note_position(self, changes: Sequence[Change]) -> None:
        last = changes[-1]
        if last.kind != ROW:
            self._following = last.sequence + 1
            self._stamp = max(self._stamp, last.stamp)

    def cover(self, covered: Range, stamp: int) -> None:
        """Note that a range has been read as of a stamp, which is that of the whole part now."""
        pending = [left for one in self._at.pending for left in subtract_ranges(one, [covered])]
        self._at = self._at._replace(pending=tuple(pending))
        self._stamp = max(self._stamp, stamp)

    def _read_rows(self, rows: Sequence[Change]) -> RowEffects:
        assert all(row.kind == ROW for row in rows), "a page has rows"
        return RowEffects([], list(map(self._reader.read_row, rows)))

    def _read_changes(self, changes: Sequence[Change]) -> RowEffects:
        """Return what changes did to rows, of those that are not counted yet."""
        stamp, pending = self._stamp, self._at.pending
        fresh = [change for change in changes if change.stamp > stamp]
        if pending:
            fresh = [change for change in fresh if not holds(pending, change.key_bytes)]
        if self._is_of_changes:
            return RowEffects([], list(map(self._reader.read_after, fresh)))
        effects = self._reader.read_changes(fresh)
        return RowEffects(
            [before for before, after in effects if before is not None and before is not after],
            [after for before, after in effects if after is not None and before is not after],
        )

    def take_rows(self) -> list[StateRow]:
        """Return the rows that have changed since the last time, with the position.

        A panel whose groups are too large becomes overfull, and the others go on.
        """
        self._prune()
        groups = {name: self._group_rows(name, one) for name, one in self._partials.items()}
        sizes = {name: sum(map(_size, rows)) for name, rows in groups.items()}
        while sum(sizes.values()) > WRITE_BYTES_MAX:
            largest = max(sizes, key=lambda name: sizes[name])
            self._partials[largest].overfill("values")
            groups[largest], sizes[largest] = [], 0
        rows = [row for of_panel in groups.values() for row in of_panel]
        self._row_bytes = max(100.0, sum(sizes.values()) / max(1, len(rows)))
        for name, partial in self._partials.items():
            partial.touched.clear()
            summary = encode_summary(partial)
            if summary != self._summaries[name]:
                self._summaries[name] = summary
                rows.append(StateRow(name, SUMMARY, {"summary": summary}))
        return [*rows, self.at.row()]

    def _group_rows(self, name: str, partial: PanelPartial) -> list[StateRow]:
        """Return the changed groups of a panel."""
        rows = [_group_row(name, key, partial) for key in partial.touched]
        if any(_size(row) > ROW_BYTES_MAX for row in rows):
            partial.overfill("values")
        return [] if partial.overfull else rows

    def _prune(self) -> None:
        """Drop groups whose time has ended, so that the state does not grow for ever."""
        keep_us = self._dashboard.keep_us
        if keep_us is None or self._stamp - self._pruned_us < PRUNE_US:
            return
        touched = sum(len(partial.touched) for partial in self._partials.values())
        room = ROWS_MAX - 1 - len(self._partials) - touched
        for partial in self._partials.values():
            room -= partial.drop_ended(self._stamp - keep_us, most=max(0, room))
        if room > 0:
            self._pruned_us = self._stamp


class RowEffects(NamedTuple):
    """Rows that some changes removed and added; an update does both."""

    removed: list[RowVariants]
    added: list[RowVariants]


class _PanelView:
    """A panel's partial, and where its columns are in the rows of all panels."""

    def __init__(self, partial: PanelPartial, plan: PanelPlan, places: Sequence[int]) -> None:
        self.partial = partial
        self._types = RowTypes(plan.columns)
        self._pick = pick_places(places)

    def evaluate(self, effects: RowEffects) -> Additions:
        """Return what the rows add to the partial, which does not change.

        Sums are linear. So rows that are equal in the panel's columns are evaluated once, and not
        at all if as many of them were removed as added.
        """
        times = Counter(map(self._pick, effects.added))
        for row, count in Counter(map(self._pick, effects.removed)).items():
            times[row] -= count
        convert = self._types.convert_row
        return self.partial.evaluate(
            (*convert(row), count) for row, count in times.items() if count
        )


def read_partial(panel: Panel, stored: PartRows) -> PanelPartial:
    """Return a panel's partial of a part. Raises ``CorruptState``."""
    rows: Mapping[bytes, Mapping[str, Scalar]] = stored.panels.get(panel.name, {})
    if not rows:
        return PanelPartial(panel.plan, panel.bounds)
    try:
        summary = rows.get(SUMMARY, {}).get("summary")
        if summary is None:
            summary = encode_summary(PanelPartial(panel.plan, panel.bounds))
        groups = {_bytes(row["key"]): _bytes(row["body"]) for at, row in rows.items() if at}
    except KeyError as error:
        raise CorruptState(f"a row of panel {panel.name} has no {error}") from error
    partial = decode_partial(panel.plan, panel.bounds, _bytes(summary), groups)
    if partial.overfull:
        partial.groups.clear()  # They were stored before it was overfull.
    return partial


def _size(row: StateRow) -> int:
    return sum(len(_bytes(cell)) for cell in (row.columns or {}).values())


def _bytes(value: Scalar) -> bytes:
    if not isinstance(value, bytes):
        raise CorruptState(f"{value!r} is not bytes")
    return value


def _group_row(name: str, key: Key, partial: PanelPartial) -> StateRow:
    """Return the row of a group. Its own key may be longer than a table's key can be."""
    encoded = encode_key(key)
    digest = blake2b(encoded, digest_size=16).digest()
    group = partial.groups.get(key)
    if group is None:
        return StateRow(name, digest, None)
    return StateRow(name, digest, {"key": encoded, "body": encode_group(group)})
