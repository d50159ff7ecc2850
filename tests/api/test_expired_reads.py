"""What has expired is hidden on every path that reads, before anything has removed it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from rowtide.cli.client import ProtocolClient
from rowtide.client.wire_row import Increment, Put, Row
from rowtide.core.protocol.row_matrix import NULL, decode
from rowtide.core.protocol.wire import ots_pb2 as pb
from tests.api.calls import (
    INF_MAX,
    INF_MIN,
    OK,
    ask,
    batch_get,
    get,
    get_range,
    key,
    put,
    puts,
    refusal,
    rows,
    update,
)
from tests.api.conftest import MakeTable
from tests.api.test_bulk import exports
from tests.api.test_transactions import start
from tests.api.test_writes import make_comparison, on, returning

pytestmark = pytest.mark.system

DAY_S = 86400
ANY_AGE_S = 2**33
ROW = key("a", 1)
EVERYTHING = key(INF_MIN, INF_MIN), key(INF_MAX, INF_MAX)
COLUMNS = "old", "young"
FILLER = [Put(f"filler{n:02}", "x" * 20_000) for n in range(40)]
"""Columns that make a row wide: it is stored in many chunks."""


def names(found: Iterable[Row]) -> set[str]:
    """Return which of the two columns are seen."""
    return {cell.name for row in found for cell in row.columns} & set(COLUMNS)


def read(client: ProtocolClient, table: str, **fields: Any) -> set[str]:
    return names(rows(ask(client, get(table, ROW, **fields)).row))


def read_within(client: ProtocolClient, table: str) -> set[str]:
    return read(client, table, transaction_id=start(client, table))


def read_in_batch(client: ProtocolClient, table: str) -> set[str]:
    [part] = ask(client, batch_get([(table, [ROW])])).tables
    return names(rows(part.rows[0].row))


def read_range(client: ProtocolClient, table: str) -> set[str]:
    return names(rows(ask(client, get_range(table, *EVERYTHING)).rows))


def read_range_backward(client: ProtocolClient, table: str) -> set[str]:
    request = get_range(table, *reversed(EVERYTHING), direction=pb.BACKWARD)
    return names(rows(ask(client, request).rows))


def export(client: ProtocolClient, table: str) -> set[str]:
    request = exports(table, EVERYTHING, data_block_type_hint=pb.DBT_PLAIN_BUFFER)
    return names(rows(ask(client, request).rows))


def export_as_matrix(client: ProtocolClient, table: str) -> set[str]:
    answer = ask(client, exports(table, EVERYTHING, columns_to_get=COLUMNS))
    matrix = decode(answer.rows)
    [row] = matrix.rows
    return {n.decode() for n, field in zip(matrix.names, row, strict=True) if field != NULL}


def filter_columns(client: ProtocolClient, table: str) -> set[str]:
    passing = {name: make_comparison(name, pb.CT_EQUAL, 1).SerializeToString() for name in COLUMNS}
    return {name for name, test in passing.items() if ask(client, get(table, ROW, filter=test)).row}


def on_condition(client: ProtocolClient, table: str) -> set[str]:
    writes = {
        name: update(table, ROW, puts(z=1), condition=on(make_comparison(name, pb.CT_EQUAL, 1)))
        for name in COLUMNS
    }
    return {name for name, write in writes.items() if refusal(client, write) == OK}


def increment(client: ProtocolClient, table: str) -> set[str]:
    changes = [Increment(name, 1) for name in COLUMNS]
    content = returning(pb.RT_AFTER_MODIFY, *COLUMNS)
    [row] = rows(ask(client, update(table, ROW, changes, return_content=content)).row)
    return {cell.name for cell in row.columns if cell.value == 2}


PATHS: dict[str, Callable[[ProtocolClient, str], set[str]]] = {
    "GetRow": read,
    "GetRow within a transaction": read_within,
    "BatchGetRow": read_in_batch,
    "GetRange": read_range,
    "GetRange backward": read_range_backward,
    "BulkExport": export,
    "BulkExport as a matrix": export_as_matrix,
    "a filter": filter_columns,
    "a condition": on_condition,
    "an increment": increment,
}


@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize("path", PATHS)
def test_what_has_expired_is_seen_by_nobody(
    client: ProtocolClient, make_table: MakeTable, path: str, *, wide: bool
) -> None:
    seen: dict[int, set[str]] = {}
    for life_s in (-1, DAY_S):
        options = pb.TableOptions(deviation_cell_version_in_sec=ANY_AGE_S)
        table = make_table(options=options)
        old_ms = int(time.time() - DAY_S - 3600) * 1000
        cells = [Put("old", 1, old_ms), Put("young", 1), *(FILLER if wide else ())]
        ask(client, put(table, ROW, cells))
        changed = pb.TableOptions(time_to_live=life_s)
        ask(client, pb.UpdateTableRequest(table_name=table, table_options=changed))
        seen[life_s] = PATHS[path](client, table)
    assert seen == {-1: {"old", "young"}, DAY_S: {"young"}}
