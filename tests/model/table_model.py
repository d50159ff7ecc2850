"""A table as a dictionary of ``row_model``'s rows: transactions, stream, defined columns.

Time and the version that the server gives are arguments. What fails raises ``Refused``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from rowtide.client.wire_row import Change, Delete, Increment, Put
from tests.model import row_model
from tests.model.requests import (
    NO_KEY,
    Done,
    Entry,
    Found,
    Key,
    Options,
    Originals,
    Read,
    Reclaimed,
    Refused,
    Stream,
    Write,
)
from tests.model.row_model import Row, Rows, choose_cells, fold, keep, passes, read_row, row_bytes


@dataclass
class Transaction:
    """What an open transaction sees, and what it will write; over at ``until_s``."""

    partition: str
    rows: Rows
    until_s: int
    decided: list[Write] = field(default_factory=list)


class TableModel:
    """One table, with its history per shard; ``split`` is the second shard's first partition."""

    def __init__(
        self, options: Options, *, split: str | None, auto: bool, stream: Stream | None
    ) -> None:
        self.options, self.split, self.auto, self.stream = options, split, auto, stream
        self.rows: Rows = {}
        self.history: list[list[Entry | Reclaimed]] = [[], []] if split else [[]]
        self.held: dict[str, Transaction] = {}
        self.defined: dict[str, type] = {}

    def write(self, write: Write, now_ms: int, version_ms: int) -> Done:
        """Write outside of transactions."""
        if write.key[0] in self.held:
            raise Refused("OTSRowOperationConflict")
        write, done = self._decide(self.rows, write, now_ms, version_ms)
        self._commit(write, now_ms, version_ms)
        return done

    def write_bulk(self, write: Write, now_ms: int, version_ms: int) -> int:
        """Write a row of a BulkImport; return its bytes."""
        for change in write.changes:
            value = change.value if isinstance(change, Put) else 0
            kind = self.defined.get(change.name, type(value))
            if type(value) is not kind and not isinstance(change, Delete):
                raise Refused("OTSParameterInvalid")
        self.write(write, now_ms, version_ms)
        return row_bytes(write.key, write.changes)

    def write_within(self, held: Transaction, write: Write, now_ms: int, version_ms: int) -> Done:
        """Write within a transaction."""
        if write.key[0] != held.partition:
            raise Refused("OTSDataOutOfRange")
        write, done = self._decide(held.rows, write, now_ms, version_ms)
        if self._fold(held.rows, write):
            held.decided.append(write)
        return done

    def write_atomically(self, writes: Sequence[Write], now_ms: int, at_ms: int) -> list[Done]:
        """Write all rows or none."""
        partition = writes[0].key[0]
        if any(write.key[0] != partition for write in writes):
            raise Refused("OTSDataOutOfRange")
        if partition in self.held:
            raise Refused("OTSRowOperationConflict")
        group = Transaction(partition, dict(self.rows), 0)
        answers = [self.write_within(group, write, now_ms, at_ms) for write in writes]
        self.commit(self.held.setdefault(partition, group), now_ms, at_ms)
        return answers

    def _commit(self, write: Write, now_ms: int, at_ms: int) -> None:
        row, read = self.rows.get(write.key), Read(newest=1)
        if self._fold(self.rows, write) and self.stream is not None:
            changes = tuple(sorted(write.changes, key=lambda change: change.name))
            rows, names = (row or {}, self.rows.get(write.key, {})), self.stream.originals
            both = [choose_cells(seen, read, self.options, now_ms) for seen in rows]
            before, after = (tuple(c for c in cells if c.name in names) for cells in both)
            original = Originals(before, after, row is not None) if names else None
            shard = int(self.split is not None and write.key[0] >= self.split)
            made = Entry(write.kind, write.key, changes, original, self.options.max_versions, at_ms)
            self.history[shard].append(made)

    def _fold(self, rows: Rows, write: Write) -> bool:
        """Change a row; return whether there is anything to tell."""
        row = rows.pop(write.key, None)
        if (made := fold(row, write.kind, write.changes, self.options.max_versions)) is not None:
            rows[write.key] = made
        return not (row is None and made is None and write.kind == "UPDATE")

    def _decide(self, rows: Rows, write: Write, now_ms: int, version_ms: int) -> tuple[Write, Done]:
        """Return a change with versions and values, and its answer."""
        row = rows.get(write.key)
        self._check_condition(row, write, now_ms)
        changes = tuple(self._change(row, c, now_ms, version_ms) for c in write.changes)
        returned = None
        if write.returns is not None:
            cells = [c for c in changes if isinstance(c, Put) and c.name in write.returns]
            key = NO_KEY if write.returns else write.key
            returned = Found(key, tuple(sorted(cells, key=lambda c: c.name)))
        conditional = write.expect != "IGNORE" or write.condition is not None
        units = max(1, -(-row_bytes(write.key, changes) // 4096))
        return write._replace(changes=changes), Done(returned, int(conditional), units)

    def check_generated(self, write: Write) -> None:
        """Refuse a condition that a generated key does not allow, whatever the rows are."""
        allowed = ("IGNORE",) if write.assigned else ("IGNORE", "EXPECT_EXIST")
        if self.auto and (write.expect not in allowed or (write.assigned and write.condition)):
            raise Refused("OTSParameterInvalid")

    def _check_condition(self, row: Row | None, write: Write, now_ms: int) -> None:
        if write.expect != "IGNORE" and (write.expect == "EXPECT_EXIST") != (row is not None):
            raise Refused("OTSConditionCheckFail")
        if self.auto and row is None and write.kind != "DELETE" and not write.assigned:
            raise Refused("OTSConditionCheckFail")
        if write.condition is not None:
            cells = choose_cells(row or {}, Read(), self.options, now_ms)
            seen = None if row is None else row_model.values(write.key, cells)
            if not passes(write.condition, seen):
                raise Refused("OTSConditionCheckFail")

    def _change(self, row: Row | None, change: Change, now_ms: int, version_ms: int) -> Change:
        if isinstance(change, Increment):
            return self._increment(row or {}, change, now_ms, version_ms)
        if isinstance(change, Delete):
            return change
        if change.version_ms is None:
            return change._replace(version_ms=version_ms)
        age_s = now_ms // 1000 - change.version_ms // 1000
        offset_s, ttl_s = self.options.deviation_s, self.options.ttl_s
        if not -offset_s < age_s <= offset_s or 0 <= ttl_s < age_s:
            raise Refused("OTSParameterInvalid")
        return change

    def _increment(self, row: Row, change: Increment, now_ms: int, version_ms: int) -> Put:
        versions = keep(row.get(change.name, {}), self.options, now_ms)
        newest = next(iter(versions), version_ms)
        value = versions.get(newest, 0)
        if type(value) is not int or not -(2**63) <= value + change.by < 2**63:
            raise Refused("OTSParameterInvalid")
        # A version below the newest would hide the result.
        return Put(change.name, value + change.by, max(newest, version_ms))

    def range(
        self, rows: Rows, keys: Iterable[Key], read: Read, limit: int | None, now_ms: int
    ) -> tuple[list[Found], Key | None, int]:
        """Return the rows of keys in order, up to a limit; the first key not read; the units."""
        answer: list[Found] = []
        following = None
        for key in keys:
            if len(answer) == limit:
                following = key
                break
            if (row := read_row(rows[key], key, read, self.options, now_ms)) is not None:
                answer.append(row)
        return answer, following, max(1, -(-sum(row_bytes(*row) for row in answer) // 4096))

    def export(self, keys: Sequence[Key], read: Read, now_ms: int) -> tuple[list[Found], int]:
        """Return rows, and the bytes read for them: a filter's refusals count too."""
        answer, _, _ = self.range(self.rows, keys, read, None, now_ms)
        seen, _, _ = self.range(self.rows, keys, read._replace(filter=None), None, now_ms)
        return answer, sum(row_bytes(*row) for row in seen)

    def begin(self, partition: str, until_s: int) -> Transaction:
        """Hold a partition key."""
        if partition in self.held:
            raise Refused("OTSRowOperationConflict")
        return self.held.setdefault(partition, Transaction(partition, dict(self.rows), until_s))

    def commit(self, held: Transaction, now_ms: int, at_ms: int) -> None:
        """Apply a transaction."""
        del self.held[held.partition]
        for write in held.decided:
            self._commit(write, now_ms, at_ms)

    def pass_time(self, passed_s: int) -> None:
        """End the transactions whose time is over."""
        self.held = {p: held for p, held in self.held.items() if passed_s < held.until_s}

    def reclaim(self, now_ms: int) -> None:
        """Remove what nobody sees, but of rows whose partition keys are held."""
        held = frozenset(self.held)
        self.rows = row_model.reclaim_rows(self.rows, self.options, now_ms, held)
        for history in self.history:
            history.append(Reclaimed(self.options, now_ms, held))

    def define(self, more: Sequence[tuple[str, type]]) -> None:
        """Define columns."""
        names = [*self.defined, "PK1", "PK2", *(name for name, _ in more)]
        if not more or len(set(names)) < len(names):
            raise Refused("OTSParameterInvalid")
        self.defined.update(more)

    def undefine(self, names: Sequence[str]) -> None:
        """Make columns ordinary ones again."""
        if not names or not set(names) <= set(self.defined):
            raise Refused("OTSParameterInvalid")
        self.defined = {n: kind for n, kind in self.defined.items() if n not in names}

    def change_stream(self, stream: Stream | None) -> None:
        """End the stream, begin another, or change the one there is."""
        if stream is None or self.stream is None:
            self.history = [[] for _ in self.history]
        self.stream = stream

    def count_expired(self, shard: int, now_ms: int) -> int:
        """Return how many of a shard's records are older than the stream shows."""
        assert self.stream is not None
        oldest_ms = now_ms - self.stream.hours * 3_600_000
        return sum(isinstance(e, Entry) and e.at_ms < oldest_ms for e in self.history[shard])
