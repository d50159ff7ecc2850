"""Operations that the protocol has and this server has not: refused by name, with a typed error."""

from __future__ import annotations

from collections.abc import Callable

from rowtide.core.protocol.authentication import Identity
from rowtide.core.values.errors import unsupported

__all__ = ["UnbuiltOperations"]

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

    def handlers(self) -> dict[str, Callable[[Identity, bytes], bytes]]:
        """Return every operation here by its name."""
        names = (*SEARCH, *SQL, *TIME_SERIES, *TUNNEL, *DELIVERY, *GLOBAL_TABLES, *LOADING)
        return {
            **{name: _refusal(name) for name in names},
            "ListSearchIndex": _none,
            "ListTimeseriesTable": _none,
        }


def _refusal(operation: str) -> Callable[[Identity, bytes], bytes]:
    def refuse(_identity: Identity, _body: bytes) -> bytes:
        raise unsupported(operation)

    return refuse


def _none(_identity: Identity, _body: bytes) -> bytes:
    """Answer an operation that lists what there is none of; SDKs' clean-up code calls these."""
    return b""
