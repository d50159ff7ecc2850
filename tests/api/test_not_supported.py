"""What is not built is refused by name with one code."""

from __future__ import annotations

import pytest

from rowtide.cli.client import ProtocolClient, ServerError
from rowtide.core.protocol.wire import ots_pb2 as pb

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
def test_an_operation_that_is_not_built_is_refused_by_name(
    client: ProtocolClient, operation: str
) -> None:
    with pytest.raises(ServerError) as refused:
        client.call(operation, pb.ListTableRequest(), pb.ListTableResponse)
    error = (refused.value.status, refused.value.code, refused.value.message)
    assert error == (400, "OTSUnsupportOperation", f"Unsupported operation: {operation}.")


@pytest.mark.parametrize("operation", ["ListSearchIndex", "ListTimeseriesTable"])
def test_what_clean_up_code_lists_is_empty(client: ProtocolClient, operation: str) -> None:
    answer = client.call(operation, pb.ListTableRequest(), pb.ListTableResponse)
    assert answer == pb.ListTableResponse()
