"""Answers searches from an index in SQLite.

A search is one read transaction. It sees the positions of the index and the rows of one moment, so
an answer is as of a position of the stream.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from rowtide.client.changes.leases import ReaderLease
from rowtide.client.row_values import RowDict
from rowtide.client.search.query import SearchPage, SearchRequest, Sort
from rowtide.client.search.row_json import decode_row_json
from rowtide.client.search.search_file import ELEMENT, connect, read_positions
from rowtide.client.search.statements import FEW, Clause, Sql, compile_query
from rowtide.core.values.errors import Unavailable

__all__ = ["SearchReader"]

COUNT_MAX = 1000
"""Estimates are exact up to this number of rows. A search with fewer rows sorts all of them."""

Positions = Mapping[str, ReaderLease]


class _Ordering(NamedTuple):
    """The joins and the terms of an order."""

    joins: Sql
    terms: str


class SearchReader:
    """The index in ``folder``, to read. One thread at a time may use it."""

    def __init__(self, folder: Path) -> None:
        self._file = connect(folder)

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def positions(self) -> Positions:
        """Return how far each shard is read."""
        with self._snapshot():
            return read_positions(self._file)

    def count_rows(self) -> int:
        """Return the number of rows in the index."""
        return self._number(Sql("SELECT count(*) FROM rows"))

    def answer(
        self,
        request: SearchRequest,
        *,
        expired_ms: int | None,
        is_ready: Callable[[Positions], bool],
    ) -> SearchPage[RowDict] | None:
        """Return the rows that match; None if ``is_ready`` says that the index lags.

        A row whose newest version is not above ``expired_ms`` has expired.
        """
        with self._snapshot():
            if not is_ready(read_positions(self._file)):
                return None
            fields = dict(self._file.execute("SELECT name, number FROM fields"))
            clause = compile_query(request.query, fields, self._estimate)
            living = Sql("1") if expired_ms is None else Sql("r.newest_ms > ?", (expired_ms,))
            total, found = _Search(self._file, request, fields, clause, living).run()
            return SearchPage(total, [self._row(number) for number in found])

    def _row(self, number: int) -> RowDict:
        [text] = self._file.execute("SELECT document FROM rows WHERE id = ?", (number,)).fetchone()
        row: RowDict = decode_row_json(text)
        return row

    def _estimate(self, source: Sql) -> int:
        text = f"SELECT count(*) FROM (SELECT 1 FROM ({source.text}) LIMIT {COUNT_MAX})"
        return self._number(Sql(text, source.values))

    def _number(self, statement: Sql) -> int:
        [number] = self._file.execute(statement.text, statement.values).fetchone()
        return int(number)

    @contextmanager
    def _snapshot(self) -> Iterator[None]:
        try:
            self._file.execute("BEGIN")
            try:
                yield
            finally:
                self._file.execute("ROLLBACK")
        except sqlite3.Error as error:
            raise Unavailable(f"The search index cannot be read: {error}.") from error


class _Search:
    """One search in a transaction. ``living`` is a condition on the table ``rows AS r``."""

    def __init__(
        self,
        file: sqlite3.Connection,
        request: SearchRequest,
        fields: Mapping[str, int],
        clause: Clause,
        living: Sql,
    ) -> None:
        self._file = file
        self._request = request
        self._fields = fields
        self._clause = clause
        self._living = living

    def run(self) -> tuple[int, list[int]]:
        """Return how many rows match, and the ids of those of the page in order."""
        request, clause = self._request, self._clause
        end = request.offset + request.limit
        if clause.source is not None and clause.count < COUNT_MAX:
            found = self._collect(None)
            return len(found), found[request.offset : end]
        total = self._count()
        wanted = min(end, total)
        if wanted <= request.offset:
            return total, []
        found = self._walk(wanted, total) if total > COUNT_MAX else []
        if len(found) < wanted:
            found = self._collect(wanted)
        return total, found[request.offset : end]

    def _count(self) -> int:
        source, row = self._from(needs_rows=self._living.text != "1")
        where = self._where(row)
        [total] = self._file.execute(
            f"SELECT count(*) FROM {source.text} WHERE {where.text}", source.values + where.values
        ).fetchone()
        return int(total)

    def _collect(self, limit: int | None) -> list[int]:
        """Return the ids of the rows that match in order, from the clause's source."""
        source, row = self._from(needs_rows=True)
        where = self._where(row)
        order = self._order()
        return self._ids(
            f"SELECT r.id FROM {source.text} {order.joins.text} WHERE {where.text}"
            f" ORDER BY {order.terms} LIMIT ?",
            (*source.values, *order.joins.values, *where.values, -1 if limit is None else limit),
        )

    def _walk(self, wanted: int, total: int) -> list[int]:
        """Return the first ids by going through the rows in order until there are enough.

        With a sort, rows without the field are not found. Rows are dense enough here: every
        ``rows / total``-th one matches.
        """
        sort = self._request.sort
        if len(sort) > 1 or (sort and sort[0].field not in self._fields):
            return []
        [rows] = self._file.execute("SELECT count(*) FROM rows").fetchone()
        few = wanted * rows // total <= FEW
        if not sort:
            check = self._clause.check("r.id", few)
            return self._ids(
                f"SELECT r.id FROM rows AS r WHERE {check.text} AND {self._living.text}"
                f" ORDER BY r.key LIMIT ?",
                (*check.values, *self._living.values, wanted),
            )
        check = self._clause.check("s.row", few)
        down = " DESC" if sort[0].descending else ""
        return self._ids(
            f"SELECT r.id FROM cells AS s CROSS JOIN rows AS r ON r.id = s.row"
            f" WHERE s.field = ? AND s.kind <> {ELEMENT} AND {check.text} AND {self._living.text}"
            f" ORDER BY s.kind{down}, s.value{down}, r.key LIMIT ?",
            (self._fields[sort[0].field], *check.values, *self._living.values, wanted),
        )

    def _from(self, *, needs_rows: bool) -> tuple[Sql, str]:
        """Return the tables to read, and the expression of a row's id."""
        source = self._clause.source
        if source is None:
            return Sql("rows AS r"), "r.id"
        if not needs_rows:
            return Sql(f"({source.text}) AS found", source.values), "found.row"
        joined = f"({source.text}) AS found CROSS JOIN rows AS r ON r.id = found.row"
        return Sql(joined, source.values), "found.row"

    def _where(self, row: str) -> Sql:
        if self._clause.source is not None:
            return self._living  # The source yields only rows that match.
        check = self._clause.check(row, False)
        return Sql(f"{check.text} AND {self._living.text}", check.values + self._living.values)

    def _order(self) -> _Ordering:
        joins, values, terms = "", [], []
        for number, sort in enumerate(self._request.sort):
            if sort.field not in self._fields:
                continue  # No row has it.
            name = f"s{number}"
            joins += (
                f" LEFT JOIN cells AS {name} INDEXED BY cells_by_row ON {name}.row = r.id"
                f" AND {name}.field = ? AND {name}.kind <> {ELEMENT}"
            )
            values.append(self._fields[sort.field])
            terms.append(_terms(name, sort))
        return _Ordering(Sql(joins, tuple(values)), ", ".join([*terms, "r.key"]))

    def _ids(self, text: str, values: Sequence[object]) -> list[int]:
        return [number for (number,) in self._file.execute(text, tuple(values))]


def _terms(name: str, sort: Sort) -> str:
    down = " DESC" if sort.descending else ""
    return f"{name}.kind IS NULL, {name}.kind{down}, {name}.value{down}"
