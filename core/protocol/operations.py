"""Every operation that a worker answers: one row each, for all code that distinguishes them.

A row defines who may call an operation, where it is answered and how it is counted. It is in
``core`` because clients use it too: for whether a call changes something, and for its messages. A
worker's assembly joins the handler to its row, see ``stream/http/handlers.py``. To add an
operation, add a row here and a method that ``@answers`` it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any

from rowtide.core.protocol import worker_messages as calls
from rowtide.core.protocol.wire import ots_pb2 as pb

__all__ = [
    "OPERATIONS",
    "PUT_ONCE",
    "READ_ROWS",
    "READ_ROWS_KEYS_MAX",
    "Latency",
    "OperationSpec",
    "RequestDivision",
    "Right",
    "Route",
    "StateAccess",
    "is_read_only",
]

PUT_ONCE = "RowtidePutOnce"
"""Puts a new row unless a local index has one like it. Timelines send it."""

READ_ROWS = "RowtideReadRows"
"""Reads rows by encoded keys as of a commit stamp. Change readers send it."""
READ_ROWS_KEYS_MAX = 5000
"""Maximal number of keys in one such request."""


class Route(Enum):
    """Which worker answers an operation. A client may call any worker."""

    KEY = "the owner of one row, found by the row's first key value before the request is checked"
    SHARD = "the owner of the shards that are named; a handler that is not it raises Elsewhere"
    LISTING = "any worker, once it has read the catalog to its end: the answer lists all"
    CATALOG = "the owner of the catalog"
    ANY = "any worker; it asks the others for what it lacks"
    HERE = "the worker that is called; the answer is about that worker alone"


class RequestDivision(Enum):
    """How a request about rows of several workers is divided."""

    NONE = "not at all"
    BATCH = "each worker answers its own rows; the results come back in the request's order"
    RANGE = "the first worker with rows answers, and names the key at which the next one begins"


class StateAccess(Enum):
    """What an operation does to the state of the cluster."""

    READ = "changes nothing"
    WRITE = "may change something, so a lost answer has an unknown outcome"


class Latency(Enum):
    """The classes of latency in the metrics; the value is the label."""

    READ = "read"
    RANGE = "range"
    WRITE = "write"
    BATCH_WRITE = "batch_write"
    TRANSACTION = "transaction"
    STREAM = "stream"
    TABLE = "table"
    ADMIN = "admin"
    OTHER = "other"


class Right(Enum):
    """Who may call an operation."""

    INSTANCE = "a key of the instance"
    ADMIN = "a key with the admin right"
    WORKER = "another worker of the cluster"


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationSpec:
    """One operation.

    ``request`` and ``response`` are classes: protobuf messages, or for calls between workers those
    of ``worker_messages``. None means a JSON object.
    """

    name: str
    request: Any
    response: Any
    route: Route
    access: StateAccess
    latency: Latency
    right: Right = Right.INSTANCE
    key_field: str = ""
    """The field with the row, for an operation with ``Route.KEY``."""
    division: RequestDivision = RequestDivision.NONE
    allows_stale: bool = False
    """True if a copy of the rows may answer a request that accepts stale data."""
    needs_fresh_keys: bool = True
    """False: answered also while the worker cannot read which access keys are revoked."""
    is_built: bool = True
    """False: an operation of the protocol that this server rejects by name."""


def _call(
    name: str, route: Route, access: StateAccess, latency: Latency, **more: Any
) -> OperationSpec:
    """Return a row of the protocol; its messages have the operation's name."""
    fields: dict[str, Any] = {
        "request": getattr(pb, f"{name}Request", None),
        "response": getattr(pb, f"{name}Response", None),
        "route": route,
        "access": access,
        "latency": latency,
    }
    return OperationSpec(name=name, **fields | more)


def _own(name: str, route: Route, access: StateAccess, **more: Any) -> OperationSpec:
    """Return a row of rowtide's own operations, with JSON bodies."""
    return _call(name, route, access, Latency.ADMIN, **{"right": Right.ADMIN, **more})


def _between(request: Any, response: Any, route: Route, access: StateAccess) -> OperationSpec:
    """Return a row of a call from one worker to another."""
    return OperationSpec(
        name=request.operation,
        request=request,
        response=response,
        route=route,
        access=access,
        latency=Latency.OTHER,
        right=Right.WORKER,
    )


_READ, _WRITE = StateAccess.READ, StateAccess.WRITE
_BATCH, _RANGE = RequestDivision.BATCH, RequestDivision.RANGE

_PUT_ONCE = {
    "request": pb.PutOnceRequest,
    "response": pb.PutOnceResponse,
    "key_field": "row",
}
_EXACT_ROWS = {"request": pb.ReadRowsRequest, "response": pb.ReadRowsResponse}

_REFUSED = (
    # Search indexes and SQL.
    *("CreateSearchIndex", "UpdateSearchIndex", "DescribeSearchIndex", "DeleteSearchIndex"),
    *("Search", "ParallelScan", "ComputeSplits", "SQLQuery"),
    # Time series.
    *(f"{verb}TimeseriesTable" for verb in ("Create", "Describe", "Update", "Delete")),
    *("PutTimeseriesData", "GetTimeseriesData", "QueryTimeseriesMeta", "UpdateTimeseriesMeta"),
    *("DeleteTimeseriesMeta", "SplitTimeseriesScanTask", "ScanTimeseriesData"),
    *(f"{verb}TimeseriesAnalyticalStore" for verb in ("Create", "Describe", "Update", "Delete")),
    *("CreateTimeseriesLastpointIndex", "DeleteTimeseriesLastpointIndex"),
    # Tunnels.
    *("tunnel/create", "tunnel/delete", "tunnel/list", "tunnel/describe", "tunnel/connect"),
    *("tunnel/heartbeat", "tunnel/shutdown", "tunnel/getcheckpoint", "tunnel/readrecords"),
    *("tunnel/checkpoint", "tunnel/getrpo", "tunnel/getrpobyoffset", "tunnel/schedule"),
    # Delivery tasks, global tables, loading.
    *(f"{verb}DeliveryTask" for verb in ("Create", "Delete", "Update", "Describe", "List")),
    *(f"{verb}GlobalTable" for verb in ("Create", "Bind", "Describe", "Unbind", "Update")),
    *("LoadTable", "UnloadTable"),
)

_ROWS = (
    # Tables.
    _call("CreateTable", Route.CATALOG, _WRITE, Latency.TABLE),
    _call("ListTable", Route.CATALOG, _READ, Latency.TABLE),
    _call("DescribeTable", Route.CATALOG, _READ, Latency.TABLE),
    _call("UpdateTable", Route.CATALOG, _WRITE, Latency.TABLE),
    _call("DeleteTable", Route.CATALOG, _WRITE, Latency.TABLE),
    # Rows.
    _call("PutRow", Route.KEY, _WRITE, Latency.WRITE, key_field="row"),
    _call(PUT_ONCE, Route.KEY, _WRITE, Latency.WRITE, **_PUT_ONCE),
    _call("UpdateRow", Route.KEY, _WRITE, Latency.WRITE, key_field="row_change"),
    _call("DeleteRow", Route.KEY, _WRITE, Latency.WRITE, key_field="primary_key"),
    _call("GetRow", Route.KEY, _READ, Latency.READ, key_field="primary_key", allows_stale=True),
    _call("BatchGetRow", Route.SHARD, _READ, Latency.READ, division=_BATCH, allows_stale=True),
    _call("BatchWriteRow", Route.SHARD, _WRITE, Latency.BATCH_WRITE, division=_BATCH),
    _call("GetRange", Route.SHARD, _READ, Latency.RANGE, division=_RANGE, allows_stale=True),
    _call(READ_ROWS, Route.SHARD, _READ, Latency.READ, **_EXACT_ROWS),
    _call("StartLocalTransaction", Route.SHARD, _WRITE, Latency.TRANSACTION),
    _call("CommitTransaction", Route.SHARD, _WRITE, Latency.TRANSACTION),
    _call("AbortTransaction", Route.SHARD, _WRITE, Latency.TRANSACTION),
    _call("BulkImport", Route.SHARD, _WRITE, Latency.BATCH_WRITE, division=_BATCH),
    _call("BulkExport", Route.SHARD, _READ, Latency.RANGE, division=_RANGE),
    _call("ComputeSplitPointsBySize", Route.ANY, _READ, Latency.RANGE),
    # Streams.
    _call("ListStream", Route.LISTING, _READ, Latency.STREAM),
    _call("DescribeStream", Route.LISTING, _READ, Latency.STREAM),
    _call("GetShardIterator", Route.SHARD, _READ, Latency.STREAM),
    _call("GetStreamRecord", Route.SHARD, _READ, Latency.STREAM),
    # Indexes and defined columns.
    _call("CreateIndex", Route.CATALOG, _WRITE, Latency.TABLE),
    _call("DropIndex", Route.CATALOG, _WRITE, Latency.TABLE),
    _call("AddDefinedColumn", Route.CATALOG, _WRITE, Latency.TABLE),
    _call("DeleteDefinedColumn", Route.CATALOG, _WRITE, Latency.TABLE),
    # What this server does not have. SDKs call the last two in their clean-up code; the lists are
    # empty.
    *(_call(name, Route.ANY, _READ, Latency.OTHER, is_built=False) for name in _REFUSED),
    _call("ListSearchIndex", Route.ANY, _READ, Latency.OTHER),
    _call("ListTimeseriesTable", Route.ANY, _READ, Latency.OTHER),
    # Administration.
    _own("RowtideStatus", Route.HERE, _READ, needs_fresh_keys=False),
    _own("RowtideListInstances", Route.CATALOG, _READ),
    _own("RowtideCreateInstance", Route.CATALOG, _WRITE),
    _own("RowtideDeleteInstance", Route.CATALOG, _WRITE),
    _own("RowtideListKeys", Route.CATALOG, _READ),
    _own("RowtideDescribeKey", Route.ANY, _READ, right=Right.INSTANCE),
    _own("RowtideCreateKey", Route.CATALOG, _WRITE),
    _own("RowtideRevokeKey", Route.CATALOG, _WRITE),
    _own("RowtideListTokens", Route.CATALOG, _READ),
    _own("RowtideCreateToken", Route.CATALOG, _WRITE),
    _own("RowtideRevokeToken", Route.CATALOG, _WRITE),
    _own("RowtideCheckToken", Route.CATALOG, _READ),
    _own("RowtideListIndexes", Route.ANY, _READ, right=Right.INSTANCE),
    _own("RowtideListShards", Route.CATALOG, _READ),
    _own("RowtideSplitShard", Route.CATALOG, _WRITE),
    _own("RowtideMoveShard", Route.CATALOG, _WRITE),
    _own("RowtideMergeShards", Route.CATALOG, _WRITE),
    _own("RowtideSetClock", Route.HERE, _WRITE),
    _own("RowtideAdvanceClock", Route.HERE, _WRITE),
    _own("RowtideClusterStatus", Route.ANY, _READ, needs_fresh_keys=False),
    _own("RowtideConsumption", Route.ANY, _READ),
    _own("RowtideTableFigures", Route.ANY, _READ),
    _own("RowtideListLoads", Route.ANY, _READ),
    _own("RowtideReclaim", Route.ANY, _WRITE),
    _own("RowtidePauseReclaimer", Route.CATALOG, _WRITE),
    _own("RowtideResumeReclaimer", Route.CATALOG, _WRITE),
    _own("RowtideDrain", Route.ANY, _WRITE),
    _own("RowtideUndrain", Route.ANY, _WRITE),
    _own("RowtideForgetWorker", Route.CATALOG, _WRITE),
    _own("RowtideRepairShard", Route.SHARD, _WRITE),
    # Between workers.
    _between(calls.HandOverRequest, calls.NoFields, Route.HERE, _WRITE),
    _between(calls.LeavingRequest, calls.LeavingAnswer, Route.HERE, _WRITE),
    _between(calls.SettleRequest, calls.NoFields, Route.HERE, _WRITE),
    _between(calls.IndexStateRequest, calls.IndexStateAnswer, Route.HERE, _READ),
    _between(calls.FinishIndexRequest, calls.NoFields, Route.CATALOG, _WRITE),
    _between(calls.WelcomeRequest, calls.NoFields, Route.CATALOG, _WRITE),
    _between(calls.FarewellRequest, calls.NoFields, Route.CATALOG, _WRITE),
    _between(calls.ConsumptionRequest, calls.ConsumptionAnswer, Route.HERE, _READ),
    _between(calls.ReclaimRequest, calls.ObjectAnswer, Route.HERE, _WRITE),
    _between(calls.FinishReshapeRequest, calls.NoFields, Route.CATALOG, _WRITE),
    _between(calls.LoadsRequest, calls.ObjectAnswer, Route.HERE, _READ),
    _between(calls.WrittenMiddleRequest, calls.KeyAnswer, Route.SHARD, _READ),
    _between(calls.BeginCopyRequest, calls.ObjectAnswer, Route.CATALOG, _WRITE),
    _between(calls.ReceivedRequest, calls.OffsetAnswer, Route.SHARD, _READ),
    _between(calls.ForgetShardRequest, calls.NoFields, Route.CATALOG, _WRITE),
    _between(calls.PiecesRequest, calls.PiecesAnswer, Route.SHARD, _READ),
    _between(calls.StatusRequest, calls.ObjectAnswer, Route.HERE, _READ),
    _between(calls.TableFiguresRequest, calls.ObjectAnswer, Route.HERE, _READ),
    _between(calls.RangePartRequest, pb.GetRangeResponse, Route.HERE, _READ),
    _between(calls.ExportPartRequest, pb.BulkExportResponse, Route.HERE, _READ),
)

OPERATIONS: dict[str, OperationSpec] = {spec.name: spec for spec in _ROWS}
"""All operations by their names, in the order in which the metrics list them."""


def is_read_only(name: str) -> bool:
    """True if an operation changes nothing; False also if it is not in the table."""
    spec = OPERATIONS.get(name)
    return spec is not None and spec.access is StateAccess.READ
