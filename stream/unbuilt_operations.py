"""Operations that the protocol has and this server has not: refused by name, with one typed error.

``CreateIndex`` is held to the limits first, so that a client that breaks one learns of it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rowtide.core.authentication import Identity
from rowtide.core.errors import invalid, unsupported
from rowtide.core.limits import Limits
from rowtide.core.schema import check_column_name, check_table_name
from rowtide.core.wire import ots_pb2 as pb
from rowtide.stream.directory import Directory
from rowtide.stream.row_requests import parse

__all__ = ["UnbuiltOperations", "check_indexes"]

SEARCH = (
    "CreateSearchIndex",
    "UpdateSearchIndex",
    "DescribeSearchIndex",
    "DeleteSearchIndex",
    "Search",
    "ParallelScan",
    "ComputeSplits",
)
SQL = ("SQLQuery",)
TIME_SERIES = (
    "CreateTimeseriesTable",
    "DescribeTimeseriesTable",
    "UpdateTimeseriesTable",
    "DeleteTimeseriesTable",
    "PutTimeseriesData",
    "GetTimeseriesData",
    "QueryTimeseriesMeta",
    "UpdateTimeseriesMeta",
    "DeleteTimeseriesMeta",
    "SplitTimeseriesScanTask",
    "ScanTimeseriesData",
    "CreateTimeseriesAnalyticalStore",
    "DescribeTimeseriesAnalyticalStore",
    "UpdateTimeseriesAnalyticalStore",
    "DeleteTimeseriesAnalyticalStore",
    "CreateTimeseriesLastpointIndex",
    "DeleteTimeseriesLastpointIndex",
)
TUNNEL = tuple(
    f"tunnel/{name}"
    for name in (
        "create",
        "delete",
        "list",
        "describe",
        "connect",
        "heartbeat",
        "shutdown",
        "getcheckpoint",
        "readrecords",
        "checkpoint",
        "getrpo",
        "getrpobyoffset",
        "schedule",
    )
)
DELIVERY = tuple(
    f"{verb}DeliveryTask" for verb in ("Create", "Delete", "Update", "Describe", "List")
)
GLOBAL_TABLES = tuple(
    f"{verb}GlobalTable" for verb in ("Create", "Bind", "Describe", "Unbind", "Update")
)
LOADING = ("LoadTable", "UnloadTable")


class UnbuiltOperations:
    """Handlers by operation; each takes the caller's identity and the request's body."""

    def __init__(self, directory: Directory) -> None:
        self._directory = directory
        self._limits = directory.limits

    def handlers(self) -> dict[str, Callable[[Identity, bytes], bytes]]:
        """Return every operation here by its name."""
        names = (*SEARCH, *SQL, *TIME_SERIES, *TUNNEL, *DELIVERY, *GLOBAL_TABLES, *LOADING)
        return {
            **{name: _refusal(name) for name in names},
            "CreateIndex": self.create_index,
            "DropIndex": self.drop_index,
            "ListSearchIndex": _none,
            "ListTimeseriesTable": _none,
        }

    def create_index(self, identity: Identity, body: bytes) -> bytes:
        """Hold an index to the limits and to its table, then refuse it."""
        request = parse(pb.CreateIndexRequest, body)
        check_table_name(request.main_table_name, self._limits)
        check_indexes([request.index_meta], self._limits)
        self._directory.table(identity.instance, request.main_table_name)
        raise unsupported("CreateIndex")

    def drop_index(self, identity: Identity, body: bytes) -> bytes:
        """Refuse: no table has an index."""
        request = parse(pb.DropIndexRequest, body)
        check_table_name(request.index_name, self._limits)
        self._directory.table(identity.instance, request.main_table_name)
        raise unsupported("DropIndex")


def check_indexes(indexes: Sequence[pb.IndexMeta], limits: Limits) -> None:
    """Hold a table's indexes to the limits. Raises OTSParameterInvalid."""
    if len(indexes) > limits.indexes_per_table_max:
        raise invalid(
            f"Number of index per table exceeds the quota:{limits.indexes_per_table_max}."
        )
    for index in indexes:
        if not 1 <= len(index.primary_key) <= limits.key_columns_max:
            raise invalid(
                f"The number of primary key columns must be in range: "
                f"[1, {limits.key_columns_max}] in index."
            )
        if len(index.defined_column) > limits.index_attributes_max:
            raise invalid(
                f"The number of attribute columns must be in range: "
                f"[0, {limits.index_attributes_max}] in index."
            )
        check_table_name(index.name, limits)
        for name in (*index.primary_key, *index.defined_column):
            check_column_name(name, limits)


def _refusal(operation: str) -> Callable[[Identity, bytes], bytes]:
    def refuse(_identity: Identity, _body: bytes) -> bytes:
        raise unsupported(operation)

    return refuse


def _none(_identity: Identity, _body: bytes) -> bytes:
    """Answer an operation that lists what there is none of; SDKs' clean-up code calls these."""
    return b""
