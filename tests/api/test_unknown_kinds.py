"""Unknown numbers in place of a kind: rejected, and nothing is written.

The parser takes such a number for a missing field, and a missing field for its first
value: a delete of a later protocol would be a put.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from rowtide.cli.client import ProtocolClient
from rowtide.client.wire_row import encode_row
from rowtide.core.protocol.wire import ots_pb2 as pb
from tests.api.calls import (
    INF_MAX,
    INF_MIN,
    ask,
    batch_write,
    get_range,
    key,
    put,
    puts,
    read_row,
    refusal,
    shown,
)
from tests.api.conftest import MakeTable

pytestmark = pytest.mark.system

PK = key("a", 1)
UNKNOWN = 99
TYPE = "400 OTSParameterInvalid Invalid row: its operation type is missing or unknown."


def without(message: Any, name: str) -> None:
    """Take a field of a message away."""
    message.ClearField(name)


def with_unknown(message: Any, name: str) -> None:
    """Give a field a number that its kind does not have."""
    number = message.DESCRIPTOR.fields_by_name[name].number
    message.ClearField(name)
    message.MergeFromString(bytes((number << 3, UNKNOWN)))


Spoil = Callable[[Any, str], None]


def make_batch(table: str, spoil: Spoil) -> Any:
    request = batch_write([(table, [put(table, PK, puts(new=1))])])
    spoil(request.tables[0].rows[0], "type")
    return request


def make_import(table: str, spoil: Spoil) -> Any:
    request = pb.BulkImportRequest(table_name=table)
    request.rows.add(type=pb.PUT, row_change=encode_row(PK, puts(new=1)))
    spoil(request.rows[0], "type")
    return request


def expecting(table: str, spoil: Spoil) -> Any:
    request = put(table, PK, puts(new=1))
    spoil(request.condition, "row_existence")
    return request


def make_conditional_batch(table: str, spoil: Spoil) -> Any:
    request = batch_write([(table, [put(table, PK, puts(new=1))])])
    spoil(request.tables[0].rows[0].condition, "row_existence")
    return request


WRITES: dict[str, tuple[Callable[[str, Spoil], Any], str]] = {
    "a batch's row": (make_batch, TYPE),
    "an import's row": (make_import, TYPE),
    "an expectation": (
        expecting,
        "400 OTSParameterInvalid Invalid condition: its row existence is missing or unknown.",
    ),
    "an expectation in a batch": (
        make_conditional_batch,
        "400 OTSParameterInvalid Invalid condition: its row existence is missing or unknown.",
    ),
}


@pytest.mark.parametrize("spoil", [without, with_unknown])
@pytest.mark.parametrize("case", WRITES)
def test_a_write_of_an_unknown_kind_changes_nothing(
    client: ProtocolClient, make_table: MakeTable, case: str, spoil: Spoil
) -> None:
    table = make_table()
    ask(client, put(table, PK, puts(old=1)))
    make, text = WRITES[case]
    assert refusal(client, make(table, spoil)) == text
    assert shown(read_row(client, table, PK)) == {"old": 1}


@pytest.mark.parametrize("spoil", [without, with_unknown])
def test_a_range_of_an_unknown_direction_is_refused(
    client: ProtocolClient, make_table: MakeTable, spoil: Spoil
) -> None:
    request = get_range(make_table(), key(INF_MIN, INF_MIN), key(INF_MAX, INF_MAX))
    spoil(request, "direction")
    text = "Invalid range: its direction is missing or unknown."
    assert refusal(client, request) == f"400 OTSParameterInvalid {text}"


@pytest.mark.parametrize("spoil", [without, with_unknown])
def test_a_key_column_of_an_unknown_type_makes_no_table(
    client: ProtocolClient, spoil: Spoil
) -> None:
    request = pb.CreateTableRequest(table_meta=pb.TableMeta(table_name="unknown_key"))
    request.reserved_throughput.capacity_unit.read = 0
    request.reserved_throughput.capacity_unit.write = 0
    spoil(request.table_meta.primary_key.add(name="PK1", type=pb.STRING), "type")
    text = "VT_UNKNOWN is an invalid type for the primary key."
    assert refusal(client, request) == f"400 OTSParameterInvalid {text}"
    assert "unknown_key" not in client.list_table()
