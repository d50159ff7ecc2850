"""GetRange: order, bounds, limits and where the next answer goes on, forward and backward."""

from __future__ import annotations

from typing import Any

import pytest

from rowtide.cli.client import ProtocolClient
from rowtide.client.wire_row import Put
from rowtide.core.protocol import plainbuffer
from rowtide.core.protocol.wire import ots_pb2 as pb
from rowtide.core.values import variant
from rowtide.core.values.schema import BINARY, INTEGER, STRING, KeyColumn
from tests.api.calls import INF_MAX, INF_MIN, ask, batch_write, get_range, key, put, puts, rows
from tests.api.conftest import MakeTable

pytestmark = pytest.mark.system

MIB4 = 4 * 1024 * 1024
LOWEST, HIGHEST = key(INF_MIN, INF_MIN), key(INF_MAX, INF_MAX)


def fill(client: ProtocolClient, table: str, keys: list[Any], changes: Any = ()) -> None:
    """Put a row under each key, 200 at a time."""
    for start in range(0, len(keys), 200):
        writes = [put(table, row_key, changes) for row_key in keys[start : start + 200]]
        ask(client, batch_write([(table, writes)]))


def next_key(answer: Any) -> tuple[Any, ...] | None:
    """Return where to go on, or None at the end: then the field must be absent."""
    if not answer.HasField("next_start_primary_key"):
        return None
    row = plainbuffer.decode_row(answer.next_start_primary_key)
    assert not row.cells
    return tuple(variant.decode(value) for _, value in row.key)


def keys_of(answer: Any) -> list[tuple[Any, ...]]:
    """Return the keys of an answer's rows."""
    return [tuple(value for _, value in row.key) for row in rows(answer.rows)]


def pages(client: ProtocolClient, request: Any) -> list[list[tuple[Any, ...]]]:
    """Read to the end; return the keys of every page."""
    found = []
    while True:
        answer = ask(client, request)
        found.append(keys_of(answer))
        if next_key(answer) is None:
            return found
        request.inclusive_start_primary_key = answer.next_start_primary_key


@pytest.fixture(scope="module")
def grid(client: ProtocolClient, make_table: MakeTable) -> str:
    """Return a table of the keys a..d with 1..5."""
    table = make_table()
    fill(client, table, [key(p, n) for p in "abcd" for n in range(1, 6)], puts(c=1))
    return table


GRID = [(p, n) for p in "abcd" for n in range(1, 6)]


@pytest.mark.parametrize("limit", [None, 1, 3, 5, 19, 20, 21])
@pytest.mark.parametrize("backward", [False, True])
def test_pages_join_to_the_whole(
    client: ProtocolClient, grid: str, limit: int | None, backward: bool
) -> None:
    bounds = (HIGHEST, LOWEST) if backward else (LOWEST, HIGHEST)
    direction = pb.BACKWARD if backward else pb.FORWARD
    read = pages(client, get_range(grid, *bounds, direction=direction, limit=limit))
    assert [found for page in read for found in page] == (GRID[::-1] if backward else GRID)
    size = limit or 5000
    assert [len(page) for page in read[:-1]] == [size] * (len(read) - 1)
    assert len(read) == -(-20 // size), "no empty page at the end"


BOUNDS: dict[str, tuple[Any, Any, list[tuple[Any, ...]]]] = {
    "the start is included, the end is not": (
        key("b", 2),
        key("c", 2),
        [("b", 2), ("b", 3), ("b", 4), ("b", 5), ("c", 1)],
    ),
    "bounds that are no rows": (key("b", 0), key("b", 99), [("b", n) for n in range(1, 6)]),
    "one partition": (key("c", INF_MIN), key("c", INF_MAX), [("c", n) for n in range(1, 6)]),
    "from within to the end": (key("d", 4), HIGHEST, [("d", 4), ("d", 5)]),
    "from the start to within": (LOWEST, key("a", 3), [("a", 1), ("a", 2)]),
    "behind a partition": (key("a", INF_MAX), key("b", 2), [("b", 1)]),
    "nothing": (key("b", 6), key("c", INF_MIN), []),
    "one row": (key("b", 3), key("b", 4), [("b", 3)]),
}


@pytest.mark.parametrize("case", BOUNDS)
def test_a_range_forward_has_the_keys_within_its_bounds(
    client: ProtocolClient, grid: str, case: str
) -> None:
    start, end, seen = BOUNDS[case]
    answer = ask(client, get_range(grid, start, end))
    assert (keys_of(answer), next_key(answer)) == (seen, None)
    assert bool(answer.rows) == bool(seen), "no rows are no bytes"


BACKWARD: dict[str, tuple[Any, Any, list[tuple[Any, ...]]]] = {
    "the start is included, the end is not": (
        key("c", 2),
        key("b", 4),
        [("c", 2), ("c", 1), ("b", 5)],
    ),
    "one partition": (key("c", INF_MAX), key("c", INF_MIN), [("c", n) for n in range(5, 0, -1)]),
    "bounds that are no rows": (key("b", 99), key("b", 3), [("b", 5), ("b", 4)]),
    "to the lowest": (key("a", 2), LOWEST, [("a", 2), ("a", 1)]),
    "from the highest": (HIGHEST, key("d", 4), [("d", 5)]),
    "nothing": (key("c", INF_MIN), key("b", 5), []),
}


@pytest.mark.parametrize("case", BACKWARD)
def test_a_range_backward_has_the_keys_within_its_bounds(
    client: ProtocolClient, grid: str, case: str
) -> None:
    start, end, seen = BACKWARD[case]
    answer = ask(client, get_range(grid, start, end, direction=pb.BACKWARD))
    assert (keys_of(answer), next_key(answer)) == (seen, None)


def test_a_limit_names_the_first_unread_row(client: ProtocolClient, grid: str) -> None:
    answer = ask(client, get_range(grid, key("a", 1), HIGHEST, limit=5))
    assert (keys_of(answer)[-1], next_key(answer)) == (("a", 5), ("b", 1))
    answer = ask(client, get_range(grid, key("b", 1), LOWEST, limit=5, direction=pb.BACKWARD))
    assert (keys_of(answer)[-1], next_key(answer)) == (("a", 2), ("a", 1))


def test_keys_sort_by_bytes_and_by_number(client: ProtocolClient, make_table: MakeTable) -> None:
    columns = [KeyColumn("s", STRING), KeyColumn("n", INTEGER), KeyColumn("b", BINARY)]
    names = [column.name for column in columns]
    table = make_table(columns)
    texts = ["", "\0", "A", "B", "a", "aa", "b", "é", "你", "\U0001f30a"]
    numbers = [-(2**63), -256, -1, 0, 1, 255, 256, 2**63 - 1]
    blobs = [b"", b"\0", b"\0\0", b"\0\x01", b"\x01", b"\xfe", b"\xff", b"\xff\0"]
    expected = [(t, 0, b"") for t in texts[:5]]
    expected += [("a", n, b"") for n in numbers if n != 0]
    expected += [("a", 0, b) for b in blobs if b]
    expected += [(t, 0, b"") for t in texts[5:]]
    everywhere = [INF_MIN] * 3, [INF_MAX] * 3
    fill(client, table, [key(*values, names=names) for values in reversed(expected)])
    expected.sort(key=lambda values: (values[0].encode(), *values[1:]))
    low, high = (key(*values, names=names) for values in everywhere)
    assert keys_of(ask(client, get_range(table, low, high))) == expected
    backward = get_range(table, high, low, direction=pb.BACKWARD)
    assert keys_of(ask(client, backward)) == expected[::-1]


@pytest.fixture(scope="module")
def many(client: ProtocolClient, make_table: MakeTable) -> str:
    """Return a table of 10,000 small rows."""
    table = make_table()
    fill(client, table, [key("many", n) for n in range(10_000)], puts(c=1))
    return table


@pytest.mark.parametrize("backward", [False, True])
def test_an_answer_scans_5000_rows_at_most(
    client: ProtocolClient, many: str, backward: bool
) -> None:
    bounds = (HIGHEST, LOWEST) if backward else (LOWEST, HIGHEST)
    direction = pb.BACKWARD if backward else pb.FORWARD
    read = pages(client, get_range(many, *bounds, direction=direction))
    assert [len(page) for page in read] == [5000, 5000]
    read = pages(client, get_range(many, *bounds, direction=direction, limit=7000))
    assert [len(page) for page in read] == [5000, 5000]


def test_rows_count_before_the_filter(client: ProtocolClient, many: str) -> None:
    leaf = pb.SingleColumnValueFilter(
        comparator=pb.CT_GREATER_EQUAL,
        column_name="PK2",
        column_value=variant.encode(9999),
        filter_if_missing=True,
        latest_version_only=True,
    )
    last = pb.Filter(type=pb.FT_SINGLE_COLUMN_VALUE, filter=leaf.SerializeToString())
    request = get_range(many, LOWEST, HIGHEST, filter=last.SerializeToString())
    assert pages(client, request) == [[], [("many", 9999)]]


@pytest.mark.parametrize("backward", [False, True])
def test_an_answer_has_four_mebibytes_at_most(
    client: ProtocolClient, make_table: MakeTable, backward: bool
) -> None:
    table = make_table()
    for number in range(9):
        ask(client, put(table, key("large", number), [Put("c", b"x" * 1024 * 1024)]))
    bounds = (HIGHEST, LOWEST) if backward else (LOWEST, HIGHEST)
    direction = pb.BACKWARD if backward else pb.FORWARD
    request = get_range(table, *bounds, direction=direction)
    assert len(ask(client, request).rows) <= MIB4
    read = pages(client, request)
    assert [len(page) for page in read] == [3, 3, 3]
    found = [number for page in read for _, number in page]
    assert found == (list(range(9))[::-1] if backward else list(range(9)))


def test_a_row_larger_than_an_answer_comes_alone(
    client: ProtocolClient, make_table: MakeTable
) -> None:
    table = make_table()
    for part in range(3):
        ask(
            client,
            pb.UpdateRowRequest(
                table_name=table,
                row_change=put(table, key("huge", 1), [Put(f"c{part}", b"x" * 2**21)]).row,
                condition=pb.Condition(row_existence=pb.IGNORE),
            ),
        )
    ask(client, put(table, key("small", 1), puts(c=1)))
    ask(client, put(table, key("before", 1), puts(c=1)))
    read = pages(client, get_range(table, LOWEST, HIGHEST))
    assert [found for page in read for found in page] == [("before", 1), ("huge", 1), ("small", 1)]


def test_columns_to_get_leave_out_rows_without_them(
    client: ProtocolClient, make_table: MakeTable
) -> None:
    table = make_table()
    ask(client, put(table, key("a", 1), puts(c=1)))
    ask(client, put(table, key("b", 1), puts(d=1)))
    ask(client, put(table, key("c", 1)))

    def read_keys(*names: str) -> list[Any]:
        request = get_range(table, LOWEST, HIGHEST, columns_to_get=names)
        return [found[0] for found in keys_of(ask(client, request))]

    assert read_keys("c") == ["a"]
    assert read_keys("c", "d") == ["a", "b"]
    assert read_keys("x", "PK1") == ["a", "b", "c"]
    assert read_keys() == ["a", "b", "c"]
