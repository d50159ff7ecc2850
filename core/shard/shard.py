"""One shard's state machine: evaluate, append, apply, without any I/O.

The driver (``stream/shard/owner.py``) passes in changes, the time, and the log's answers; this
module decides. It keeps the append rule: every record names its offset, and is valid only there.
Between evaluation and the log's answer a change is in an overlay. The next change sees it, readers
do not.

Invariants: commit stamps (microseconds) strictly increase. Evaluated changes name consecutive
offsets from ``next_offset``. Only valid records of the log reach the store.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from operator import itemgetter

from rowtide.core.protocol import plainbuffer
from rowtide.core.protocol.row_form import ask_form
from rowtide.core.records import record
from rowtide.core.records.record import IndexWrite
from rowtide.core.rows import capacity, fold
from rowtide.core.rows.chunk import header, row_end, row_key
from rowtide.core.rows.chunk_merge import merge
from rowtide.core.rows.fold import RowAddress, Writes, count_written_bytes
from rowtide.core.rows.increment import apply_increment
from rowtide.core.rows.mutation import (
    DELETE,
    EXPECT_ABSENT,
    EXPECT_PRESENT,
    IGNORE,
    PUT,
    RETURN_AFTER_MODIFY,
    RETURN_KEY,
    UPDATE,
    ChangeRequest,
    Outcome,
)
from rowtide.core.rows.overlay import Overlay, RangeReader
from rowtide.core.shard import plain_write
from rowtide.core.shard.evaluated import Evaluated, Replayed, Resolved
from rowtide.core.shard.numbered_row import fold_numbered
from rowtide.core.shard.originals import KeptRow, find_originals, keep_row
from rowtide.core.shard.reclaim import find_reclaim_range, reclaim
from rowtide.core.shard.reshape import Sealed
from rowtide.core.shard.shard_index import ShardIndexes
from rowtide.core.shard.shard_state import ShardState, stream_settings
from rowtide.core.shard.source_position import SOURCES, SourcePositions, further
from rowtide.core.shard.transaction_id import commit_key, commit_write, parse_id
from rowtide.core.values import key, key_ranges, variant
from rowtide.core.values.cell import DELETE_ONE, INCREMENT, Cell
from rowtide.core.values.errors import condition_failure, invalid
from rowtide.core.values.limits import INT64_MAX, Limits
from rowtide.core.values.schema import Table
from rowtide.core.values.version import Window, check_version, expiry_floor_ms, visible_cells

__all__ = ["ROWS", "Shard"]

ROWS = b"r"
"""First byte of the keys of rows' chunks."""

_new = tuple.__new__
_NEWEST = Window()
_EVERY = Window(max_versions=INT64_MAX)
_KIND_OF: dict[type, int] = {
    record.PutBody: PUT,
    record.UpdateBody: UPDATE,
    record.DeleteBody: DELETE,
}


class Shard:
    """Evaluates and replays for one shard."""

    def __init__(
        self,
        shard_id: str,
        table: Table,
        rows: RangeReader,
        state: ShardState,
        *,
        limits: Limits,
    ) -> None:
        self.shard_id = shard_id
        self.table = table
        self.keys = table.keys_of(shard_id)
        self.state = state
        self.view = Overlay(rows)
        self.next_offset = state.applied + 1
        self.claim = -1
        self.owner = bytes(8)
        self._stamp = state.stamp
        self.limits = limits
        self._in_group = False
        self._group: Writes = []
        """Writes of a replayed group whose last record has not come yet."""
        self.names = tuple(name for name, _ in table.key_wire)
        self.indexes = ShardIndexes(shard_id, table, limits)
        self.sources = SourcePositions(shard_id, table, rows)

    def retable(self, table: Table) -> None:
        """Adopt a table's new definition, except options that come through the log."""
        before, self.keys = self.keys, table.keys_of(self.shard_id)
        if table.indexes != self.table.indexes or self.keys != before:  # A move can change them.
            self.indexes = ShardIndexes(self.shard_id, table, self.limits)
        self.table = self.sources.table = table
        self.state.options = replace(
            self.state.options,
            deviation_s=table.options.deviation_s,
            allow_update=table.options.allow_update,
        )

    @property
    def originals(self) -> tuple[bytes, ...] | None:
        """The original columns that the stream keeps, in order; None if it keeps none."""
        return find_originals(self.state.stream, self.names)

    def adopt_claim(self, claim: int, owner: bytes) -> None:
        """Write under this claim from now on."""
        self.claim, self.owner = claim, owner

    # Evaluation.

    def evaluate(self, change: ChangeRequest, now_us: int) -> Evaluated:
        """Evaluate a change against the newest evaluated state.

        Raises the errors of ``resolve``; then nothing has changed. A result without a body has
        changed nothing either. Like an error, it holds only once everything evaluated before is
        valid.
        """
        stamp = now_us if now_us > self._stamp else self._stamp + 1
        evaluated = self.decide(change, self.view, stamp, now_us)
        if evaluated.body is None:
            return evaluated._replace(stamp=self._stamp)
        self._stamp = stamp
        self.view.add(evaluated.writes)
        return evaluated

    def decide(
        self, change: ChangeRequest, view: RangeReader, stamp: int, now_us: int
    ) -> Evaluated:
        """Return the evaluated change over ``view``. Raises the errors of ``resolve``."""
        evaluated = self._plain(change, view, stamp)
        if evaluated is None:
            resolved = self.resolve(change, view, stamp, now_us)
            evaluated = self.evaluate_resolved(resolved, view, stamp, now_us)
        return evaluated

    def _plain(self, change: ChangeRequest, view: RangeReader, stamp: int) -> Evaluated | None:
        """Return the evaluated plain write, or None for any other change.

        Raises OTSParameterInvalid for a value that an index cannot have.
        """
        table, keys, state = self.table, self.keys, self.state
        stored = None
        if table.auto_increment_index is not None:
            stored = fold_numbered(change, table, keys, state, self.indexes, stamp)
        elif not self.indexes:
            stored = plain_write.fold_plain(change, table, keys, state, view, stamp)
        if stored is None or len(stored.body) > self.limits.record_bytes_max:
            return None
        log_key, body, writes, outcome = stored
        return Evaluated(outcome, stamp, log_key, body, writes)

    def take_stamp(self, now_us: int) -> int:
        """Return a stamp above all earlier ones, which no other record will have."""
        self._stamp = self.next_stamp(now_us)
        return self._stamp

    def next_stamp(self, now_us: int) -> int:
        """Return the lowest stamp that the next record may have."""
        return max(now_us, self._stamp + 1)

    def resolve(
        self,
        change: ChangeRequest,
        view: RangeReader,
        stamp: int,
        now_us: int,
        encoded: bytes | None = None,
    ) -> Resolved:
        """Evaluate a change against ``view`` without changing anything.

        Raises ``Rejected``, and ``Unavailable`` if the shard does not have the key. ``encoded`` is
        the key if the caller has it already; then nothing in the key is left to assign.
        """
        now_ms = now_us // 1000
        auto = self.table.auto_increment_index is not None
        change_key = self._assign_key(change, stamp) if auto else change.key
        key_values = [value for _, value in change_key]
        if encoded is None:
            encoded = key.encode(key_values)
        key_ranges.require(self.keys, encoded)
        piece, state = plainbuffer.key_piece(change_key)
        at = RowAddress(row_key(self.table.table_id, encoded), piece, state)
        read_units = 0
        if change.expectation != IGNORE or change.condition is not None or auto:
            read_units = self._check_condition(change, view, at, now_ms)
        cells: Sequence[Cell] = []
        if change.kind != DELETE:
            version_ms = stamp // 1000
            if change.time_ms is not None:
                version_ms = fold.version_after(view, at, change.cells, change.time_ms)
            cells = self._resolve_cells(change, view, at, version_ms, now_ms)
            if self.indexes:
                self.indexes.check(cells)
        returned = self._encode_returned(change, at, cells) if change.return_type else b""
        return Resolved(change.kind, key_values, encoded, at, cells, read_units, returned)

    def evaluate_resolved(
        self, resolved: Resolved, view: RangeReader, stamp: int, now_us: int
    ) -> Evaluated:
        """Return a resolved change with its record over ``view``; changes nothing.

        Raises ``Rejected`` if the record would be too large, including its pre-image.
        """
        writes = self.fold_resolved(resolved, view, stamp)
        outcome = self.outcome(resolved, writes)
        if not writes:
            return Evaluated(outcome, stamp)
        indexes: Sequence[IndexWrite] = ()
        options, row, kept = self.state.options, resolved.at.row_key, None
        if (originals := self.originals) is not None:
            kept = keep_row(originals, resolved, view, writes, options, now_us // 1000)
        if self.indexes:
            indexes = self.indexes.changes(view, row, resolved.key, writes, options, now_us)
            writes += self.indexes.local_writes(view, indexes, stamp)
        body = record.encode_body(_body(resolved, kept, indexes))
        if len(body) > self.limits.record_bytes_max:
            raise invalid(
                f"The size of the row change exceeds the limit, limit size: "
                f"{self.limits.record_bytes_max}, data size: {len(body)}."
            )
        return Evaluated(outcome, stamp, resolved.encoded_key, body, writes)

    def fold_resolved(self, resolved: Resolved, view: RangeReader, stamp: int) -> Writes:
        """Return the writes of a resolved change over ``view``."""
        return self._fold(resolved.kind, resolved.at, resolved.cells, view, stamp)

    def outcome(self, resolved: Resolved, writes: Writes) -> Outcome:
        """Return the outcome that the client receives."""
        size = len(resolved.at.key_piece) - self.table.key_overhead
        size += count_written_bytes(resolved.cells, writes, whole=resolved.kind == PUT)
        return Outcome(resolved.returned, resolved.read_units, capacity.units(size))

    def take_group(self, group: Sequence[Evaluated]) -> None:
        """Take a group that was evaluated over a separate view, so that the next change sees it."""
        self.view.add([write for evaluated in group for write in evaluated.writes])
        if group:
            self._stamp = max(self._stamp, group[-1].stamp)

    def control(self, body: record.Body, now_us: int) -> Evaluated:
        """Evaluate a hidden record: a no-op, new options, a seal, a reclaim."""
        outcome = Outcome(b"", 0, 0)
        stamp = max(now_us, self._stamp + 1)
        if isinstance(body, record.Options) and body.stream is not None:
            # Another clock may have set the time. Which shards a stream has is decided by their
            # last stamps.
            stamp = max(stamp, body.stream.enabled_at_us)
        writes: Writes = []
        if isinstance(body, record.Reclaim):
            body = self.reclaim_body(body.first, body.last, now_us)  # By the present options.
            writes = reclaim(self.view, self.table.table_id, body, stamp)
            if not writes:
                return Evaluated(outcome, self._stamp)
            self.view.add(writes)
        elif isinstance(body, record.IndexBuild):
            body = self.indexes.build_slice(self.view, body, self.state.options, now_us)
        elif isinstance(body, record.IndexFeed):
            body = self.indexes.drop_known_feed(self.view, body)
        if isinstance(body, record.IndexBuild | record.IndexFeed):
            writes = self.indexes.fold_record(self.view, body, stamp)
            self.view.add(writes)
        self._stamp = stamp
        encoded = record.encode_body(body)
        return Evaluated(outcome, stamp, b"", encoded, writes, self._after(body, -1, stamp))

    def reclaim_body(self, first: bytes, last: bytes, now_us: int) -> record.Reclaim:
        """Return the record that removes what the options now hide between two places."""
        options = self.state.options
        cutoff_ms = expiry_floor_ms(options, now_us // 1000)
        return record.Reclaim(first, last, cutoff_ms, options.max_versions)

    def encode_record(self, evaluated: Evaluated, offset: int) -> bytes:
        """Return the record of ``evaluated`` for ``offset``."""
        assert evaluated.body is not None, "nothing to log"
        place = offset, self.claim, self.owner, evaluated.stamp, evaluated.group
        return record.encode_record(_new(record.Envelope, place), evaluated.body)

    def encode_records(self, batch: Sequence[Evaluated], base: int) -> list[tuple[bytes, bytes]]:
        """Return the log key and the record of each change, for the offsets from ``base`` on."""
        bodies = [evaluated.body or b"" for evaluated in batch]
        made = record.encode_records(batch, bodies, base, self.claim, self.owner)
        if made is not None:
            return made
        return [(e.log_key, self.encode_record(e, base + i)) for i, e in enumerate(batch)]

    def confirm(self, batch: Sequence[Evaluated], base: int) -> Writes:
        """Return the writes for the store, after the log has ``batch`` from ``base`` on."""
        writes: Writes = []
        state = self.state
        for index, evaluated in enumerate(batch):
            writes += evaluated.writes
            if evaluated.state is not None:
                self._adopt(evaluated.state, base + index)
            state.stamp = evaluated.stamp
        state.applied, state.entry = base + len(batch) - 1, None
        return writes

    def settle_writes(self, writes: Writes) -> None:
        """Drop the overlay's copy of ``writes``, which the store has now."""
        self.view.settle(writes)

    def discard(self) -> None:
        """Drop all that is evaluated but not valid. The next change sees only the store."""
        self.view.clear()
        self._in_group, self._group = False, []
        self.next_offset = self.state.applied + 1
        self._stamp = max(self._stamp, self.state.stamp)

    # Replay.

    def replay(self, offset: int, value: bytes) -> Replayed:
        """Fold one entry of the log that this shard did not append itself.

        The caller writes the result to the store and then calls ``settle_writes``. Until then the
        overlay shows it to the next entry. No evaluated change may be pending. Raises
        ``record.CorruptRecord`` if the bytes are not a record.
        """
        envelope, body = record.decode_record(value)
        state = self.state
        self.next_offset = offset + 1
        valid = envelope.at == offset
        self._check_group(offset, envelope.group if valid else record.SINGLE)
        # Only a no-op of an owner that has not read the seal yet can follow a seal.
        if not valid or state.seal is not None:
            state.applied, state.entry = offset, None
            return Replayed(False, [], b"")
        state.stamp = max(state.stamp, envelope.stamp)
        self._stamp = max(self._stamp, state.stamp)  # Open transactions may have used higher ones.
        log_key, writes = self._refold(body, offset, envelope.stamp)
        self._group += writes
        if not envelope.group & record.LAST:
            return Replayed(True, [], log_key)
        whole, self._group = self._group, []
        state.applied, state.entry = offset, None
        return Replayed(True, whole, log_key)

    def _check_group(self, offset: int, group: int) -> None:
        """Check that a group is complete, and void only as a whole. Raises ``CorruptRecord``.

        Its records came in one batch, so anything else is damage. Skipping it would show one half
        of a transaction to some readers of the log and not to others.
        """
        if bool(group & record.FIRST) == self._in_group:
            raise record.CorruptRecord(f"the group before offset {offset} has no end, or no begin")
        self._in_group = not group & record.LAST

    def _refold(self, body: record.Body, offset: int, stamp: int) -> tuple[bytes, Writes]:
        """Fold a replayed record; return its log key and its writes, which evaluation sees."""
        after = self._after(body, offset, stamp)
        if after is not None:
            self._adopt(after, offset)
        if isinstance(body, record.Commit):
            return b"", self._show_writes([commit_write(body.id, stamp)])
        if isinstance(body, record.Reclaim):
            writes = reclaim(self.view, self.table.table_id, body, stamp)
            return b"", self._merge_newer(writes)
        if isinstance(body, record.IndexBuild | record.IndexFeed):
            return b"", self._merge_newer(self.indexes.fold_record(self.view, body, stamp))
        if isinstance(body, record.SourcePosition):
            return b"", self._show_writes(further(self.view, *self.sources.write_of(body)))
        if isinstance(body, record.CopyBody):
            if body.complete:
                self.state.stream_start = offset + 1
            self.sources.forget()
            return b"", self._show_writes(self.fold_copy(body.entries))
        if not isinstance(body, record.PutBody | record.UpdateBody | record.DeleteBody):
            return b"", []
        log_key = key.encode(body.key)
        piece, key_state = plainbuffer.key_piece(list(zip(self.names, body.key, strict=True)))
        at = RowAddress(row_key(self.table.table_id, log_key), piece, key_state)
        cells = [] if isinstance(body, record.DeleteBody) else body.cells
        folded = self._fold(_KIND_OF[type(body)], at, cells, self.view, stamp)
        writes = self._merge_newer(folded)
        local = self.indexes.local_writes(self.view, body.indexes, stamp)
        return log_key, writes + self._merge_newer(local)

    def _fold(
        self, kind: int, at: RowAddress, cells: Sequence[Cell], view: RangeReader, stamp: int
    ) -> Writes:
        if kind == PUT:
            return fold.put_row(view, at, cells, stamp, self.state.options.max_versions)
        if kind == DELETE:
            return fold.delete_row(view, at, stamp)
        return fold.update_row(view, at, cells, stamp, self.state.options.max_versions)

    def _show_writes(self, writes: Writes) -> Writes:
        """Show ``writes`` to evaluation, and return them. A removal must not be shown twice."""
        self.view.add(writes)
        return writes

    def _merge_newer(self, folded: Writes) -> Writes:
        """Show the part of ``folded`` that is newer than the rows to evaluation; return it.

        The rows may be ahead of the log's mark. A removal is not checked: it makes room for a chunk
        that is written with it.
        """
        writes: Writes = []
        for chunk_key, value in folded:
            if value is not None and chunk_key[:1] != ROWS:
                writes += self._show_writes([(chunk_key, value)])
            elif value is not None:
                writes += self._show_writes(merge(self.view, chunk_key, value))
        return writes

    def fold_copy(self, entries: Iterable[record.CopyEntry]) -> Writes:
        """Return the writes for rows that were copied from the shard that this one replaces."""
        view = Overlay(self.view)
        writes: Writes = []
        for chunk_key, value in entries:
            taken: Writes = [(chunk_key, value)]
            if chunk_key[:1] == ROWS:
                taken = merge(view, chunk_key, value)
            elif chunk_key[:1] == SOURCES:
                taken = further(view, chunk_key, value)
            view.add(taken)
            writes += taken
        return writes

    def find_written_ranges(self, log_key: bytes, body: record.Body) -> list[tuple[bytes, bytes]]:
        """Return the key ranges (low <= key < high) in which a record wrote."""
        if isinstance(body, record.Reclaim):
            return [find_reclaim_range(self.view, self.table.table_id, body, self.indexes.place())]
        if isinstance(body, record.CopyBody):
            return [_place_of(entry) for entry in body.entries]
        found = self.indexes.find_written_ranges(body)
        if isinstance(body, record.PutBody | record.UpdateBody | record.DeleteBody):
            first = row_key(self.table.table_id, log_key)
            found.append((first, row_end(first)))
        return found

    def find_note_key(self, body: record.Body) -> bytes | None:
        """Return the key of what a record stores beside the rows, or None."""
        if isinstance(body, record.Commit):
            return commit_key(parse_id(body.id))
        if isinstance(body, record.IndexBuild | record.IndexFeed):
            return self.indexes.progress(body)[0]
        if isinstance(body, record.SourcePosition):
            return self.sources.write_of(body)[0]
        return None

    # The parts of an evaluation.

    def _assign_key(self, change: ChangeRequest, stamp: int) -> list[tuple[bytes, bytes]]:
        """Return the key with AUTO_INCREMENT replaced by the stamp, which always increases."""
        auto = self.table.auto_increment_index
        if auto is None or change.key[auto][1] != variant.V_AUTO_INCREMENT:
            return change.key
        assigned = list(change.key)
        assigned[auto] = (assigned[auto][0], variant.encode(stamp))
        return assigned

    def _check_condition(
        self, change: ChangeRequest, view: RangeReader, at: RowAddress, now_ms: int
    ) -> int:
        """Raise OTSConditionCheckFail unless the change may be made; return the read units."""
        expectation = change.expectation
        named = self._has_auto_value(change)
        if expectation == IGNORE and change.condition is None and not named:
            return 0
        present = fold.is_row_present(view, at.row_key)
        if (
            (expectation == EXPECT_PRESENT and not present)
            or (expectation == EXPECT_ABSENT and present)
            or (named and change.kind != DELETE and not present)
        ):
            raise condition_failure()
        if change.condition is not None:
            names = change.condition.columns
            cells = self._visible(view, at, names, now_ms, _EVERY) if present else None
            if not change.condition.holds(at.key_piece, cells):
                raise condition_failure()
        return 1 if expectation != IGNORE or change.condition is not None else 0

    def _has_auto_value(self, change: ChangeRequest) -> bool:
        """True if the client gave a value for an AUTO_INCREMENT column."""
        auto = self.table.auto_increment_index
        return auto is not None and change.key[auto][1] != variant.V_AUTO_INCREMENT

    def _visible(
        self,
        view: RangeReader,
        at: RowAddress,
        names: Collection[bytes],
        now_ms: int,
        window: Window = _NEWEST,
    ) -> list[Cell]:
        """Return the visible cells of the named columns, and possibly of others."""
        stored = fold.read_cells(view, at.row_key, names) or []
        return visible_cells(stored, self.state.options, window, now_ms)

    def _resolve_cells(
        self, change: ChangeRequest, view: RangeReader, at: RowAddress, version_ms: int, now_ms: int
    ) -> Sequence[Cell]:
        """Return the cells in name order with versions assigned and increments calculated."""
        options = self.state.options
        if ask_form(change.cells).is_checked:
            return plainbuffer.stamp_cells(change.cells, version_ms)
        increments = False
        for _, op, _, version, _ in change.cells:
            if op == INCREMENT:
                increments = True
            elif version is not None and op != DELETE_ONE:
                check_version(version, options, now_ms)
        cells: Sequence[Cell] = change.cells
        if increments:
            names = {cell.name for cell in cells if cell.op == INCREMENT}
            newest = {cell.name: cell for cell in self._visible(view, at, names, now_ms)}
            cells = [
                apply_increment(cell, newest.get(cell.name), version_ms)
                if cell.op == INCREMENT
                else cell
                for cell in cells
            ]
        return sorted(plainbuffer.stamp_cells(cells, version_ms), key=itemgetter(0))

    def _encode_returned(
        self, change: ChangeRequest, at: RowAddress, cells: Sequence[Cell]
    ) -> bytes:
        """Return the answer's row: nothing, the key, or only the named modified cells."""
        if change.return_type not in (RETURN_KEY, RETURN_AFTER_MODIFY):
            return b""
        if change.return_type == RETURN_AFTER_MODIFY and change.return_columns:
            named = [cell for cell in cells if cell.name in change.return_columns]
            return plainbuffer.encode_row((), named)
        checksum = plainbuffer.row_checksum(at.key_state, b"")
        return at.key_piece + bytes((0x09, checksum))

    # Options.

    def _after(self, body: record.Body, offset: int, stamp: int) -> ShardState | None:
        """Return the new state after a control record; None if it changes no state."""
        state = self.state
        if isinstance(body, record.Options):
            options = replace(
                state.options,
                time_to_live_s=body.time_to_live,
                max_versions=body.max_versions,
            )
            return ShardState(options, stream=stream_settings(body.stream), seal=state.seal)
        if isinstance(body, record.Seal):
            return ShardState(state.options, stream=state.stream, seal=Sealed(offset, stamp))
        return None

    def _adopt(self, after: ShardState, offset: int) -> None:
        state = self.state
        # The other options do not come through the log. They may have changed since the evaluation.
        state.options = replace(
            state.options,
            time_to_live_s=after.options.time_to_live_s,
            max_versions=after.options.max_versions,
        )
        # Its offset is known only now.
        state.seal = after.seal and Sealed(offset, after.seal.stamp)
        old, new = state.stream, after.stream
        if new is not None and (old is None or old.stream_id != new.stream_id):
            state.stream_start = offset
        state.stream = new


def _place_of(entry: record.CopyEntry) -> tuple[bytes, bytes]:
    """Return the key range (low <= key < high) of the row of a copied entry."""
    chunk_key, value = entry
    if chunk_key[:1] != ROWS:
        return chunk_key, chunk_key + b"\0"
    first = chunk_key[: len(chunk_key) - header(value)[8]]
    return first, row_end(first)


def _body(resolved: Resolved, row: KeptRow | None, indexes: Sequence[IndexWrite]) -> record.Body:
    before, kept = row if row is not None else (None, None)
    if resolved.kind == PUT:
        return record.PutBody(resolved.key, resolved.cells, before, indexes, kept)
    if resolved.kind == DELETE:
        return record.DeleteBody(resolved.key, before, indexes, kept)
    return record.UpdateBody(resolved.key, resolved.cells, before, indexes, kept)
