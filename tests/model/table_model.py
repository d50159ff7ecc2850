"""A table as a dictionary: what the store means, written from its documents and not from its code.

A row is {column: {version: value}}. Time is an argument, in milliseconds, and so is the version
that the server would give. What is refused raises ``Refused`` with the protocol's code.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from rowtide.cli.wire_row import Change, Delete, Increment, Put
from tests.model.requests import (
    INT64_MAX,
    Combined,
    Compare,
    Done,
    Entry,
    Found,
    Key,
    Options,
    Page,
    Read,
    Reclaimed,
    Refused,
    Test,
    Value,
    Write,
)

Row = dict[str, dict[int, Value]]
Rows = dict[Key, Row]
Seen = Mapping[str, Sequence[Value]]


@dataclass
class Transaction:
    """What an open transaction sees, and what it will write."""

    partition: str
    rows: Rows
    decided: list[Write] = field(default_factory=list)


def kept(versions: dict[int, Value], options: Options, now_ms: int) -> dict[int, Value]:
    """Return a column's visible versions, newest first: the newest N, none expired."""
    return {
        version: versions[version]
        for version in sorted(versions, reverse=True)[: options.max_versions]
        if options.ttl_s < 0 or now_ms // 1000 - version // 1000 <= options.ttl_s
    }


def reclaimed(rows: Rows, options: Options, now_ms: int) -> Rows:
    """Return rows without hidden versions. A row that loses its last cell so is gone."""
    left: Rows = {}
    for key, row in rows.items():
        columns = {name: kept(versions, options, now_ms) for name, versions in row.items()}
        seen = {name: versions for name, versions in columns.items() if versions}
        if seen or not row:
            left[key] = seen
    return left


def folded(row: Row | None, write: Write | Entry, max_versions: int) -> Row | None:
    """Return a row after a change whose versions and values are known; None: there is none."""
    changes = write.changes
    only_deletes = all(isinstance(change, Delete) for change in changes)
    if write.kind == "DELETE" or (write.kind == "UPDATE" and row is None and only_deletes):
        return None
    before = row if write.kind == "UPDATE" and row is not None else {}
    made = {name: dict(versions) for name, versions in before.items()}
    for change in changes:
        versions = made.setdefault(change.name, {})
        if isinstance(change, Put) and change.version_ms is not None:
            versions[change.version_ms] = change.value
        elif isinstance(change, Delete) and change.version_ms is not None:
            versions.pop(change.version_ms, None)
        else:
            versions.clear()
    for name in {change.name for change in changes}:
        newest = sorted(made[name], reverse=True)[:max_versions]
        made[name] = {version: made[name][version] for version in newest}
    return {name: versions for name, versions in made.items() if versions}


def passes(test: Test, seen: Seen | None) -> bool:
    """Say whether a row passes; ``seen`` is its values by column, None where it is absent.

    An absent row passes only where every comparison also passes without its column.
    """
    if seen is None:
        return all(leaf.if_missing for leaf in _leaves(test)) and passes(test, {})
    if isinstance(test, Combined):
        parts = [passes(part, seen) for part in test.tests]
        return {"NOT": not parts[0], "AND": all(parts), "OR": any(parts)}[test.operator]
    if not (values := seen.get(test.column)):
        return test.if_missing
    return any(_holds(test, value) for value in (values[:1] if test.latest_only else values))


def _holds(test: Compare, value: Value) -> bool:
    if type(value) is not type(test.value):
        return test.operator == "NE"
    sides = [side.encode() if isinstance(side, str) else side for side in (value, test.value)]
    return bool(getattr(operator, test.operator.lower())(*sides))


def _leaves(test: Test) -> list[Compare]:
    return [test] if isinstance(test, Compare) else [x for t in test.tests for x in _leaves(t)]


def _value_bytes(value: Value) -> int:
    if isinstance(value, int | float):
        return 1 if isinstance(value, bool) else 8
    return len(value.encode() if isinstance(value, str) else value)


def _row_bytes(key: Key, cells: Iterable[Change]) -> int:
    named: list[tuple[str, Value]] = [("PK1", key[0]), ("PK2", key[1])]
    named += [(cell.name, cell.value if isinstance(cell, Put) else b"") for cell in cells]
    return sum(len(name.encode()) + _value_bytes(value) for name, value in named)


class TableModel:
    """One table, with its history per shard; ``split`` is the second shard's first partition."""

    def __init__(
        self, options: Options, *, split: str | None, auto: bool, originals: Sequence[str]
    ) -> None:
        self.options, self.split, self.auto, self.originals = options, split, auto, originals
        self.rows: Rows = {}
        self.history: list[list[Entry | Reclaimed]] = [[], []] if split else [[]]
        self.held: dict[str, Transaction] = {}

    def write(self, write: Write, now_ms: int, version_ms: int) -> Done:
        """Write outside of transactions."""
        if write.key[0] in self.held:
            raise Refused("OTSRowOperationConflict")
        write, done = self._decided(self.rows, write, now_ms, version_ms)
        self._commit(write, now_ms)
        return done

    def write_within(self, held: Transaction, write: Write, now_ms: int, version_ms: int) -> Done:
        """Write within a transaction."""
        if write.key[0] != held.partition:
            raise Refused("OTSDataOutOfRange")
        write, done = self._decided(held.rows, write, now_ms, version_ms)
        if self._fold(held.rows, write):
            held.decided.append(write)
        return done

    def write_atomically(
        self, held: Transaction | None, writes: Sequence[Write], now_ms: int, version_ms: int
    ) -> list[Done]:
        """Write all rows or none."""
        partition = writes[0].key[0]
        if any(write.key[0] != partition for write in writes):
            raise Refused("OTSDataOutOfRange")
        if held is None and partition in self.held:
            raise Refused("OTSRowOperationConflict")
        scope = held.partition if held is not None else partition
        group = Transaction(scope, dict(held.rows if held is not None else self.rows))
        answers = [self.write_within(group, write, now_ms, version_ms) for write in writes]
        if held is not None:
            held.rows, held.decided = group.rows, [*held.decided, *group.decided]
        for write in group.decided if held is None else ():
            self._commit(write, now_ms)
        return answers

    def begin(self, partition: str) -> Transaction:
        """Hold a partition key."""
        if partition in self.held:
            raise Refused("OTSRowOperationConflict")
        held = self.held[partition] = Transaction(partition, dict(self.rows))
        return held

    def commit(self, held: Transaction, now_ms: int) -> None:
        """Apply a transaction."""
        del self.held[held.partition]
        for write in held.decided:
            self._commit(write, now_ms)

    def reclaim(self, now_ms: int) -> None:
        """Remove what nobody sees."""
        self.rows = reclaimed(self.rows, self.options, now_ms)
        for held in self.held.values():
            own = {w.key: held.rows[w.key] for w in held.decided if w.key in held.rows}
            held.rows = {**reclaimed(held.rows, self.options, now_ms), **own}
        for history in self.history:
            history.append(Reclaimed(self.options, now_ms))

    def _commit(self, write: Write, now_ms: int) -> None:
        before = self._chosen(self.rows.get(write.key, {}), Read(newest=1), now_ms)
        if self._fold(self.rows, write):
            changes = tuple(sorted(write.changes, key=lambda change: change.name))
            original = tuple(c for c in before if c.name in self.originals)
            shown = original if self.originals else None
            shard = int(self.split is not None and write.key[0] >= self.split)
            entry = Entry(write.kind, write.key, changes, shown, self.options.max_versions)
            self.history[shard].append(entry)

    def _fold(self, rows: Rows, write: Write) -> bool:
        """Change a row; return whether there is anything to tell."""
        row = rows.pop(write.key, None)
        if (made := folded(row, write, self.options.max_versions)) is not None:
            rows[write.key] = made
        return not (row is None and made is None and write.kind == "UPDATE")

    def _decided(
        self, rows: Rows, write: Write, now_ms: int, version_ms: int
    ) -> tuple[Write, Done]:
        """Return a change with versions and values, and its answer."""
        row = rows.get(write.key)
        self._check_condition(row, write, now_ms)
        changes = tuple(self._change(row, c, now_ms, version_ms) for c in write.changes)
        returned = None
        if write.returns is not None:
            cells = [c for c in changes if isinstance(c, Put) and c.name in write.returns]
            returned = Found(write.key, tuple(sorted(cells, key=lambda c: c.name)))
        conditional = write.expect != "IGNORE" or write.condition is not None
        units = max(1, -(-_row_bytes(write.key, changes) // 4096))
        return write._replace(changes=changes), Done(returned, int(conditional), units)

    def _check_condition(self, row: Row | None, write: Write, now_ms: int) -> None:
        if write.expect != "IGNORE" and (write.expect == "EXPECT_EXIST") != (row is not None):
            raise Refused("OTSConditionCheckFail")
        if self.auto and row is None and write.kind != "DELETE" and not write.assigned:
            raise Refused("OTSConditionCheckFail")
        if write.condition is not None:
            cells = self._chosen(row or {}, Read(), now_ms)
            if not passes(write.condition, None if row is None else self._seen(write.key, cells)):
                raise Refused("OTSConditionCheckFail")

    def _change(self, row: Row | None, change: Change, now_ms: int, version_ms: int) -> Change:
        if isinstance(change, Increment):
            return self._incremented(row or {}, change, now_ms, version_ms)
        if isinstance(change, Delete):
            return change
        if change.version_ms is None:
            return change._replace(version_ms=version_ms)
        age_s = now_ms // 1000 - change.version_ms // 1000
        offset_s, ttl_s = self.options.deviation_s, self.options.ttl_s
        if not -offset_s < age_s <= offset_s or 0 <= ttl_s < age_s:
            raise Refused("OTSParameterInvalid")
        return change

    def _incremented(self, row: Row, change: Increment, now_ms: int, version_ms: int) -> Put:
        versions = kept(row.get(change.name, {}), self.options, now_ms)
        newest = next(iter(versions), version_ms)
        value = versions.get(newest, 0)
        if type(value) is not int or not -INT64_MAX - 1 <= value + change.by <= INT64_MAX:
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
            if (found := self._found(rows[key], key, read, now_ms)) is not None:
                answer.append(found)
        size = sum(_row_bytes(*found) for found in answer)
        return answer, following, max(1, -(-size // 4096))

    def _found(self, row: Row, key: Key, read: Read, now_ms: int) -> Found | None:
        cells = self._chosen(row, read, now_ms)
        if read.columns:
            cells = [cell for cell in cells if cell.name in read.columns]
            if not cells and not {"PK1", "PK2"} & set(read.columns):
                return None
        end = read.end_column
        cells = [c for c in cells if read.start_column <= c.name and (end is None or c.name < end)]
        if isinstance(read.filter, Page):
            names = sorted({c.name for c in cells})[read.filter.offset :][: read.filter.limit]
            cells = [cell for cell in cells if cell.name in names]
        elif read.filter is not None and not passes(read.filter, self._seen(key, cells)):
            return None
        return Found(key, tuple(cells))

    def _seen(self, key: Key, cells: Sequence[Put]) -> Seen:
        seen: dict[str, list[Value]] = {"PK1": [key[0]], "PK2": [key[1]]}
        for cell in cells:
            seen.setdefault(cell.name, []).append(cell.value)
        return seen

    def _chosen(self, row: Row, read: Read, now_ms: int) -> list[Put]:
        cells: list[Put] = []
        for name in sorted(row):
            versions = kept(row[name], self.options, now_ms)
            within = [v for v in versions if read.start_ms <= v < read.end_ms][: read.newest]
            cells += [Put(name, versions[version], version) for version in within]
        return cells
