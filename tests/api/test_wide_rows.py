"""A row of very many columns: written, read in parts and by column, changed, replaced.

200,000 columns in every run; a million in the slow one.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from rowtide.cli.client import ProtocolClient
from rowtide.client.wire_row import Increment, Put
from rowtide.core.protocol.wire import ots_pb2 as pb
from tests.api.calls import (
    INF_MAX,
    INF_MIN,
    ask,
    batch_get,
    delete,
    get,
    get_range,
    key,
    put,
    puts,
    read_row,
    refusal,
    rows,
    update,
)
from tests.api.conftest import MakeTable

pytestmark = pytest.mark.system

PER_WRITE = 1024
"""Columns of one UpdateRow, at most."""

WIDE, BEFORE, BEHIND = key("wide", 1), key("a", 1), key("z", 1)


def column(number: int) -> str:
    """Return a column's name; columns are numbered in their order."""
    return f"c{number:07d}"


def widen(client: ProtocolClient, table: str, columns: int) -> None:
    """Write the wide row, its values the columns' numbers, between two narrow ones."""
    for base in range(0, columns, PER_WRITE):
        some = range(base, min(base + PER_WRITE, columns))
        ask(client, update(table, WIDE, [Put(column(number), number) for number in some]))
    for beside in (BEFORE, BEHIND):
        ask(client, put(table, beside, puts(c=1)))


@pytest.fixture(
    scope="module", params=[200_000, pytest.param(1_000_000, marks=pytest.mark.slow)], ids=str
)
def wide(client: ProtocolClient, make_table: MakeTable, request: Any) -> tuple[str, int]:
    """Return a table with a wide row, and its number of columns."""
    table = make_table()
    widen(client, table, request.param)
    return table, request.param


def parts(client: ProtocolClient, request: Any) -> Iterator[list[Any]]:
    """Read one row to its end; yield the cells of each part."""
    while True:
        answer = ask(client, request)
        found = rows(answer.row)
        yield list(found[0].columns) if found else []
        if not answer.next_token:
            return
        request.token = answer.next_token


def test_the_parts_of_a_row_join_to_the_whole(
    client: ProtocolClient, wide: tuple[str, int]
) -> None:
    table, columns = wide
    found = list(parts(client, get(table, WIDE)))
    assert all(len(part) > 200_000 for part in found[:-1]), "a part is as large as it may be"
    assert [cell.value for part in found for cell in part] == list(range(columns))


def test_a_row_is_paged_by_columns(client: ProtocolClient, wide: tuple[str, int]) -> None:
    table, columns = wide
    skip = columns - 5

    def names(**fields: Any) -> list[str]:
        found = read_row(client, table, WIDE, **fields)
        return [cell.name for cell in found.columns] if found else []

    between = names(start_column=column(70), end_column=column(74))
    assert between == [column(number) for number in range(70, 74)]
    assert names(start_column=column(skip)) == [column(n) for n in range(skip, columns)]
    page = pb.ColumnPaginationFilter(offset=2, limit=2).SerializeToString()
    paging = pb.Filter(type=pb.FT_COLUMN_PAGINATION, filter=page).SerializeToString()
    assert names(start_column=column(skip), filter=paging) == [column(skip + 2), column(skip + 3)]
    assert names(columns_to_get=[column(skip), column(1)]) == [column(1), column(skip)]


def test_one_cell_is_changed_and_counted(client: ProtocolClient, wide: tuple[str, int]) -> None:
    table, columns = wide
    at = columns // 2
    for _ in range(3):
        ask(client, update(table, WIDE, [Increment(column(at), 1)]))
    found = read_row(client, table, WIDE, columns_to_get=[column(at)])
    assert found is not None
    assert found.columns[0].value == at + 3
    ask(client, update(table, WIDE, [Put(column(at), at)]))


@pytest.mark.parametrize("direction", [pb.FORWARD, pb.BACKWARD])
def test_a_range_goes_on_inside_the_row(
    client: ProtocolClient, wide: tuple[str, int], direction: Any
) -> None:
    table, columns = wide
    lowest, highest = key(INF_MIN, INF_MIN), key(INF_MAX, INF_MAX)
    bounds = (highest, lowest) if direction == pb.BACKWARD else (lowest, highest)
    request = get_range(table, *bounds, direction=direction)
    keys, count, answers = [], 0, 0
    while True:
        answer = ask(client, request)
        answers += 1
        for row in rows(answer.rows):
            keys.append(row.key[0][1])
            count += len(row.columns)
        if not answer.HasField("next_start_primary_key"):
            break
        request.inclusive_start_primary_key = answer.next_start_primary_key
        request.token = answer.next_token
    order = ["a", *["wide"] * (len(keys) - 2), "z"]
    assert keys == (order[::-1] if direction == pb.BACKWARD else order)
    assert count == columns + 2
    assert answers >= 3


def test_a_batch_reads_parts_too(client: ProtocolClient, wide: tuple[str, int]) -> None:
    table, columns = wide
    tokens, found = [b"", b""], []
    while True:
        answer = ask(client, batch_get([(table, [WIDE, BEFORE])], token=tokens))
        one, other = answer.tables[0].rows
        assert len(rows(other.row)) == 1
        found += [cell.value for row in rows(one.row) for cell in row.columns]
        if not one.next_token:
            break
        tokens[0] = one.next_token
    assert found == list(range(columns))


def test_a_token_of_nobody_is_refused(client: ProtocolClient, wide: tuple[str, int]) -> None:
    said = refusal(client, get(wide[0], WIDE, token=b"no token at all, but long enough"))
    assert said.startswith("400 OTSParameterInvalid The token is invalid")


def test_a_wide_row_is_replaced_and_deleted(client: ProtocolClient, make_table: MakeTable) -> None:
    table = make_table()
    widen(client, table, 5000)
    ask(client, put(table, WIDE, puts(c=1)))
    assert [[cell.name for cell in part] for part in parts(client, get(table, WIDE))] == [["c"]]
    widen(client, table, 5000)
    ask(client, delete(table, WIDE))
    assert read_row(client, table, WIDE) is None
    ask(client, update(table, WIDE, puts(d=1)))
    assert [[cell.name for cell in part] for part in parts(client, get(table, WIDE))] == [["d"]]
