"""What is not built is refused by name with one code; indexes are held to their limits first."""

from __future__ import annotations

import pytest

from rowtide.cli.client import Client, ServerError
from rowtide.core.wire import ots_pb2 as pb
from tests.api.calls import refusal
from tests.api.conftest import MakeTable

pytestmark = pytest.mark.system

OPERATIONS = """
CreateSearchIndex UpdateSearchIndex DescribeSearchIndex DeleteSearchIndex Search ParallelScan
ComputeSplits SQLQuery
CreateTimeseriesTable DescribeTimeseriesTable UpdateTimeseriesTable DeleteTimeseriesTable
PutTimeseriesData GetTimeseriesData QueryTimeseriesMeta UpdateTimeseriesMeta DeleteTimeseriesMeta
SplitTimeseriesScanTask ScanTimeseriesData
tunnel/create tunnel/delete tunnel/list tunnel/describe tunnel/connect tunnel/heartbeat
tunnel/shutdown tunnel/getcheckpoint tunnel/readrecords tunnel/checkpoint
CreateDeliveryTask ListDeliveryTask CreateGlobalTable DescribeGlobalTable LoadTable UnloadTable
"""


@pytest.mark.parametrize("operation", OPERATIONS.split())
def test_an_operation_that_is_not_built_is_refused_by_name(client: Client, operation: str) -> None:
    with pytest.raises(ServerError) as refused:
        client.call(operation, pb.ListTableRequest(), pb.ListTableResponse)
    told = (refused.value.status, refused.value.code, refused.value.message)
    assert told == (400, "OTSUnsupportOperation", f"Unsupported operation: {operation}.")


@pytest.mark.parametrize("operation", ["ListSearchIndex", "ListTimeseriesTable"])
def test_what_clean_up_code_lists_is_empty(client: Client, operation: str) -> None:
    answer = client.call(operation, pb.ListTableRequest(), pb.ListTableResponse)
    assert answer == pb.ListTableResponse()


def index(name: str = "i", keys: int = 1, attributes: int = 0, *, first: str = "d") -> pb.IndexMeta:
    return pb.IndexMeta(
        name=name,
        primary_key=[f"{first}{n}" for n in range(keys)],
        defined_column=[f"a{n}" for n in range(attributes)],
        index_update_mode=pb.IUM_ASYNC_INDEX,
        index_type=pb.IT_GLOBAL_INDEX,
    )


KEYS = (
    "400 OTSParameterInvalid The number of primary key columns must be in range: [1, 4] in index."
)
ATTRIBUTES = (
    "400 OTSParameterInvalid The number of attribute columns must be in range: [0, 32] in index."
)
INDEXES = [
    (index(keys=0), KEYS),
    (index(keys=5), KEYS),
    (index(attributes=33), ATTRIBUTES),
    (index(name="3i"), "400 OTSParameterInvalid Invalid table name: '3i'."),
    (index(first="#"), "400 OTSParameterInvalid Invalid column name: '#0'."),
]


@pytest.mark.parametrize(("meta", "told"), INDEXES)
def test_an_index_is_held_to_its_limits_before_its_table(
    client: Client, meta: pb.IndexMeta, told: str
) -> None:
    request = pb.CreateIndexRequest(main_table_name="no_such_table", index_meta=meta)
    assert refusal(client, request) == told


def create(*indexes: pb.IndexMeta) -> pb.CreateTableRequest:
    return pb.CreateTableRequest(
        table_meta=pb.TableMeta(
            table_name="with_index",
            primary_key=[pb.PrimaryKeySchema(name="uid", type=pb.STRING)],
            defined_column=[pb.DefinedColumnSchema(name="d0", type=pb.DCT_STRING)],
        ),
        reserved_throughput=pb.ReservedThroughput(capacity_unit=pb.CapacityUnit(read=0, write=0)),
        index_metas=indexes,
    )


@pytest.mark.parametrize(("meta", "told"), INDEXES)
def test_the_indexes_of_a_new_table_are_held_to_the_same_limits(
    client: Client, meta: pb.IndexMeta, told: str
) -> None:
    assert refusal(client, create(index("good"), meta)) == told


def test_a_new_table_may_ask_for_five_indexes(client: Client) -> None:
    told = "400 OTSParameterInvalid Number of index per table exceeds the quota:5."
    assert refusal(client, create(*(index(f"i{n}") for n in range(6)))) == told
    told = "400 OTSUnsupportOperation Unsupported operation: CreateTable with an index."
    assert refusal(client, create(*(index(f"i{n}") for n in range(5)))) == told
    assert "with_index" not in client.list_table()


def test_an_index_within_its_limits_is_refused_as_not_built(
    client: Client, make_table: MakeTable
) -> None:
    request = pb.CreateIndexRequest(main_table_name=make_table(), index_meta=index())
    told = "400 OTSUnsupportOperation Unsupported operation: CreateIndex."
    assert refusal(client, request) == told
    request.main_table_name = "no_such_table"
    assert refusal(client, request) == "404 OTSObjectNotExist Requested table does not exist."


def test_an_index_cannot_be_dropped(client: Client, make_table: MakeTable) -> None:
    request = pb.DropIndexRequest(main_table_name=make_table(), index_name="i")
    assert refusal(client, request) == "400 OTSUnsupportOperation Unsupported operation: DropIndex."
    request.main_table_name = "no_such_table"
    assert refusal(client, request) == "404 OTSObjectNotExist Requested table does not exist."
