"""A row as a dictionary: what the store means, written from its documents and not from its code.

A row is {column: {version: value}}. Times are milliseconds. ``table_model`` has the other half.
"""

from __future__ import annotations

import operator
from collections.abc import Collection, Iterable, Mapping, Sequence

from rowtide.client.wire_row import Change, Delete, Put
from tests.model.requests import Combined, Compare, Found, Key, Options, Page, Read, Test, Value

Row = dict[str, dict[int, Value]]
Rows = dict[Key, Row]
Seen = Mapping[str, Sequence[Value]]


def keep(versions: dict[int, Value], options: Options, now_ms: int) -> dict[int, Value]:
    """Return a column's visible versions, newest first: the newest N, none expired."""
    return {
        version: versions[version]
        for version in sorted(versions, reverse=True)[: options.max_versions]
        if options.ttl_s < 0 or now_ms // 1000 - version // 1000 <= options.ttl_s
    }


def reclaim_rows(
    rows: Rows, options: Options, now_ms: int, held: Collection[str] = frozenset()
) -> Rows:
    """Return rows without hidden versions, but of ``held`` partition keys; empty ones are gone."""
    left: Rows = {}
    for key, row in rows.items():
        seen = {n: some for n, cells in row.items() if (some := keep(cells, options, now_ms))}
        if seen or not row or key[0] in held:
            left[key] = row if key[0] in held else seen
    return left


def fold(row: Row | None, kind: str, changes: Sequence[Change], max_versions: int) -> Row | None:
    """Return a row after changes whose versions and values are known; None: there is none."""
    only_deletes = all(isinstance(change, Delete) for change in changes)
    if kind == "DELETE" or (kind == "UPDATE" and row is None and only_deletes):
        return None
    before = row if kind == "UPDATE" and row is not None else {}
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
    """True if a row passes; one that is absent (None) must pass each comparison as well."""
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


def choose_cells(row: Row, read: Read, options: Options, now_ms: int) -> list[Put]:
    """Return a row's visible cells of the versions that are read."""
    cells: list[Put] = []
    for name in sorted(row):
        versions = keep(row[name], options, now_ms)
        within = [v for v in versions if read.start_ms <= v < read.end_ms][: read.newest]
        cells += [Put(name, versions[version], version) for version in within]
    return cells


def read_row(row: Row, key: Key, read: Read, options: Options, now_ms: int) -> Found | None:
    """Return a row as it is answered; None where nothing that is read is in it."""
    cells = choose_cells(row, read, options, now_ms)
    if read.columns:
        cells = [cell for cell in cells if cell.name in read.columns]
        if not cells and not {"PK1", "PK2"} & set(read.columns):
            return None
    end = read.end_column
    cells = [c for c in cells if read.start_column <= c.name and (end is None or c.name < end)]
    if isinstance(read.filter, Page):
        names = sorted({c.name for c in cells})[read.filter.offset :][: read.filter.limit]
        cells = [cell for cell in cells if cell.name in names]
    elif read.filter is not None and not passes(read.filter, values(key, cells)):
        return None
    return Found(key, tuple(cells))


def values(key: Key, cells: Sequence[Put]) -> Seen:
    """Return the values that a test sees, by column."""
    seen: dict[str, list[Value]] = {"PK1": [key[0]], "PK2": [key[1]]}
    for cell in cells:
        seen.setdefault(cell.name, []).append(cell.value)
    return seen


def row_bytes(key: Key, cells: Iterable[Change]) -> int:
    """Return the bytes of names and values: a delete has none, an increment its number's."""
    named: list[tuple[str, Value]] = [("PK1", key[0]), ("PK2", key[1])]
    named += [(c.name, getattr(c, "value", getattr(c, "by", b""))) for c in cells]
    return sum(len(name.encode()) + _value_bytes(value) for name, value in named)


def _value_bytes(value: Value) -> int:
    if isinstance(value, int | float):
        return 1 if isinstance(value, bool) else 8
    return len(value.encode() if isinstance(value, str) else value)
