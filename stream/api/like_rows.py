"""Rows of a BatchWriteRow that equal earlier ones in every byte but values and checksums.

From a row that was read and is valid, this module learns the form of such rows, for the
table as it is now. Other rows of that form are valid if their values and checksums are.
Those are checked for many rows at a time. The rows themselves are created only on
request.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from rowtide.core.protocol.row_form import FormLearner, Forms
from rowtide.core.protocol.wire import ots_pb2 as pb
from rowtide.core.rows.mutation import ChangeRequest
from rowtide.core.rows.whole_form import WholeForm, WholeRows
from rowtide.core.values.schema import Table
from rowtide.stream.api.batch_write import BatchRow
from rowtide.stream.api.plain_rows import PlainRows
from rowtide.stream.api.row_answers import field

__all__ = ["AlikeRows", "KnownRows", "LikeRows", "Row", "make_rows"]

TOGETHER_MIN = 4
"""Fewer rows of one length are read one by one, which is as fast."""


class Alike(NamedTuple):
    """The form that rows share, with the table against which they were checked."""

    form: WholeForm
    table: Table
    kind: int
    expectation: int


class AlikeRows(NamedTuple):
    """Valid rows, with the first key column's variant of each."""

    alike: Alike
    rows: WholeRows
    first_values: Sequence[bytes]

    def first_value(self, index: int) -> bytes:
        """Return the first key column's variant of a row."""
        return self.first_values[index]

    def expectation(self, _index: int) -> int:
        """Return the existence expectation of a row."""
        return self.alike.expectation

    def key_values(self, index: int) -> tuple[bytes, ...]:
        """Return the variants of a row's key."""
        return self.rows.key_values(index)

    def row(self, index: int) -> BatchRow:
        """Return one row."""
        _, table, kind, expectation = self.alike
        row = self.rows.row(index)
        return BatchRow(row, table, ChangeRequest(kind, row.key, row.cells, expectation), None)


Row = BatchRow | tuple[AlikeRows | PlainRows, int]
"""A row, or its index within rows that are valid."""


def make_rows(rows: Iterable[Row]) -> list[BatchRow]:
    """Return all rows as objects."""
    return [row if isinstance(row, BatchRow) else row[0].row(row[1]) for row in rows]


class KnownRows(NamedTuple):
    """The rows of one table of a batch; None: such a row must be read individually.

    ``unknown`` has the places of most of those, by length, each with the learner of their
    form.
    """

    rows: list[Row | None]
    unknown: Sequence[tuple[FormLearner[Alike], Sequence[int]]]
    plain: PlainRows | None = None
    """Set if all rows are plain."""


class LikeRows:
    """The known forms of batch rows, by table and length."""

    def __init__(self) -> None:
        self._known: Forms[Alike] = Forms()

    def find(self, table: Table, fields: Sequence[bytes]) -> KnownRows:
        """Return the rows that arrived as these fields of a request, if their form is known."""
        rows: list[Row | None] = [None] * len(fields)
        unknown: list[tuple[FormLearner[Alike], Sequence[int]]] = []
        for size, places in _by_size(fields):
            if len(places) < TOGETHER_MIN:
                continue
            spot = self._known.place((table.table_id, size))
            found = _read(spot.form, table, [fields[place] for place in places])
            if found is None:
                unknown.append((spot, places))
                continue
            spot.hits += len(places)
            for index, place in enumerate(places):
                rows[place] = found, index
        return KnownRows(rows, unknown)

    def learn(
        self,
        known: KnownRows,
        items: Sequence[pb.RowInBatchWriteRowRequest],
        fields: Sequence[bytes],
    ) -> None:
        """Learn from a table's rows once all of them are read."""
        for spot, places in known.unknown:
            spot.left -= len(places)
            if spot.left <= 0 and spot.judge():
                last = places[-1]
                row = known.rows[last]
                assert isinstance(row, BatchRow), "the row was read individually"
                spot.learn(_alike(row, items[last], fields[last]))


def _read(alike: Alike | None, table: Table, fields: Sequence[bytes]) -> AlikeRows | None:
    if alike is None or alike.table is not table:
        return None
    rows = alike.form.read(fields)
    return None if rows is None else AlikeRows(alike, rows, rows.first_values())


def _alike(row: BatchRow, item: pb.RowInBatchWriteRowRequest, came: bytes) -> Alike | None:
    """Return the form of a row that arrived as a field; None: nothing is learned.

    The field must have the encoding of every usual writer, for a row with no condition
    but the row's existence.
    """
    if row.table is None or row.change is None:
        return None
    expectation = item.condition.row_existence
    after = field(3, bytes((0x08, expectation))) if item.HasField("condition") else b""
    wire = item.row_change
    if came != field(2, bytes((0x08, item.type)) + field(2, wire) + after):
        return None
    before = came[: len(came) - len(after) - len(wire)]
    form = WholeForm.of(row.row, came, before=before, after=after)
    return Alike(form, row.table, row.change.kind, expectation) if form is not None else None


def _by_size(fields: Sequence[bytes]) -> Iterator[tuple[int, Sequence[int]]]:
    """Yield each length that fields have, with the places of those that have it."""
    if len({*map(len, fields)}) == 1:
        yield len(fields[0]), range(len(fields))
        return
    places: dict[int, list[int]] = {}
    for place, came in enumerate(fields):
        places.setdefault(len(came), []).append(place)
    yield from places.items()
