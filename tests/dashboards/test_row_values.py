"""What a change tells of a row before and after it."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from rowtide.core.native import RowVariants
from rowtide.core.records import record
from rowtide.core.records.body import Body, DeleteBody, Kept, PutBody, UpdateBody
from rowtide.core.records.change import (
    DELETE,
    PUT_ROW,
    ROW,
    UPDATE,
    Change,
    ChangeParts,
    ChangeTable,
    Kind,
    LoggedChange,
)
from rowtide.core.values import variant
from rowtide.core.values.cell import DELETE_ALL, PUT, Cell
from rowtide.core.values.variant import Scalar
from rowtide.dashboards.runtime.row_values import ColumnsMissing, ValueReader

TABLE = ChangeTable("t", (b"id",))
KEPT_COLUMNS = {"a", "b"}
NEEDED = ["a", "id", "b"]
Row = dict[str, Scalar] | None


def put(name: str, value: Scalar, version: int = 1) -> Cell:
    return Cell(name.encode(), PUT, variant.encode(value), version, 0)


def gone(name: str) -> Cell:
    return Cell(name.encode(), DELETE_ALL, b"", None, 0)


def change(
    kind: Kind, cells: Sequence[Cell], before: Sequence[Cell], *, existed: bool = True
) -> Change:
    absent = sorted(KEPT_COLUMNS - {cell.name.decode() for cell in before})
    kept = Kept(existed, [name.encode() for name in absent], ())
    return Change.of(kind, TABLE, "s", 1, ChangeParts([variant.encode("k")], cells, before, kept))


def logged(found: Change) -> Change:
    """Return a change as a source reads it from the log."""
    variants, cells, before, kept = found.parts
    key = list(variants)
    body: Body = UpdateBody(key, cells, before, (), kept)
    if found.kind == PUT_ROW:
        body = PutBody(key, cells, before, (), kept)
    elif found.kind == DELETE:
        body = DeleteBody(key, before, (), kept)
    envelope = record.Envelope(0, 0, bytes(8), found.stamp, record.SINGLE)
    value = record.encode_record(envelope, record.encode_body(body))
    at = record.read_envelope(value)[1]
    return LoggedChange(found.kind, TABLE, "s", 0, found.stamp, value=value, at=at)


def variants(row: Row) -> RowVariants | None:
    """Return a row of ``NEEDED`` whose key is k."""
    if row is None:
        return None
    found = {"id": "k", **row}
    return tuple([variant.encode(found[name]) if name in found else None for name in NEEDED])


@pytest.mark.parametrize(
    ("found", "before", "after"),
    [
        (change(PUT_ROW, [put("a", 1)], [], existed=False), None, {"a": 1}),
        (change(PUT_ROW, [put("a", 1), put("c", 1)], []), {}, {"a": 1}),
        (change(PUT_ROW, [put("a", 1)], [put("b", 2)]), {"b": 2}, {"a": 1}),
        (change(UPDATE, [put("a", 1), gone("b")], [put("b", 2)]), {"b": 2}, {"a": 1}),
        (change(UPDATE, [put("a", 1)], [put("b", 2)]), {"b": 2}, {"a": 1, "b": 2}),
        (change(UPDATE, [put("c", 1)], [put("b", 2)]), {"b": 2}, {"b": 2}),
        # An older version than the one that the row has changes nothing that is visible.
        (change(UPDATE, [put("b", 1, 1)], [put("b", 2, 2)]), {"b": 2}, {"b": 2}),
        (change(DELETE, [], [put("a", 2)]), {"a": 2}, None),
        (change(DELETE, [], [], existed=False), None, None),
    ],
)
def test_a_row_before_and_after(found: Change, before: Row, after: Row) -> None:
    reader = ValueReader(NEEDED)
    assert reader.read_change(found) == (variants(before), variants(after))
    assert reader.read_after(found) == variants(after or {})
    assert reader.read_changes([found, logged(found)]) == [(variants(before), variants(after))] * 2


def test_cells_that_do_not_follow_from_the_change_are_those_after_it() -> None:
    found = change(UPDATE, [gone("a")], [put("a", 2), put("b", 2)])
    kept = found.parts.kept
    assert kept is not None
    kept = kept._replace(after=[put("a", 1), gone("b")])
    found = Change.of(UPDATE, TABLE, "s", 1, found.parts._replace(kept=kept))
    before, after = ValueReader(NEEDED).read_change(found)
    assert (before, after) == (variants({"a": 2, "b": 2}), variants({"a": 1}))
    assert ValueReader(NEEDED).read_changes([logged(found)]) == [(before, after)]


def test_a_row_of_a_snapshot_has_its_newest_cells() -> None:
    cells = [put("a", 2, 2), put("a", 1, 1), put("c", 3)]
    found = Change.of(ROW, TABLE, "s", 1, ChangeParts([variant.encode("k")], cells, None))
    assert ValueReader(NEEDED).read_row(found) == variants({"a": 2})


def test_columns_that_the_stream_does_not_keep_are_named() -> None:
    found = change(UPDATE, [], [])
    for each in (found, logged(found)):
        with pytest.raises(ColumnsMissing, match="no longer keeps c, d"):
            ValueReader([*NEEDED, "c", "d"]).read_changes([each])


def test_a_record_without_original_columns_tells_no_row_before_it() -> None:
    found = Change.of(PUT_ROW, TABLE, "s", 1, ChangeParts([variant.encode("k")], [], None))
    with pytest.raises(ColumnsMissing, match="does not tell whether rows existed"):
        ValueReader(["id"]).read_changes([logged(found)])
    assert ValueReader(["id"]).read_after(found) == (variant.encode("k"),)


def test_kind_and_stamp_are_those_of_the_change() -> None:
    names = ["a", "change_stamp", "change_kind"]
    for kind in (PUT_ROW, UPDATE, DELETE):
        found = change(kind, [], [])
        row = ValueReader(names, of_changes=True).read_after(found)
        assert row[1:] == (variant.encode(found.stamp), variant.encode(kind)), kind


def test_a_change_that_shows_fewer_cells_still_tells_the_row_after_it() -> None:
    found = logged(change(UPDATE, [put("a", 1), put("c", 1)], [put("a", 2)]))
    found.narrow([])
    effect = variants({"a": 2}), variants({"a": 1})
    assert ValueReader(NEEDED).read_changes([found]) == [effect]
