"""Which of a worker's parts answers which operation."""

from __future__ import annotations

from typing import NamedTuple

from rowtide.core.protocol.operations import READ_ROWS
from rowtide.core.protocol.worker_messages import (
    BeginCopyRequest,
    ExportPartRequest,
    FarewellRequest,
    FinishIndexRequest,
    FinishReshapeRequest,
    ForgetShardRequest,
    HandOverRequest,
    IndexStateRequest,
    LeavingRequest,
    LoadsRequest,
    PiecesRequest,
    RangePartRequest,
    ReceivedRequest,
    SettleRequest,
    StatusRequest,
    WelcomeRequest,
    WrittenMiddleRequest,
)
from rowtide.stream.api.admin import AdminOperations
from rowtide.stream.api.bulk import BulkOperations
from rowtide.stream.api.defined_column import DefinedColumnOperations
from rowtide.stream.api.exact_rows import ExactRows
from rowtide.stream.api.index import IndexOperations
from rowtide.stream.api.reshape import (
    ReshapeOperations,
)
from rowtide.stream.api.row import RowOperations
from rowtide.stream.api.split_point import SplitPointOperations
from rowtide.stream.api.stream import StreamOperations
from rowtide.stream.api.table import TableOperations
from rowtide.stream.api.transaction import TransactionOperations
from rowtide.stream.api.unbuilt import UnbuiltOperations
from rowtide.stream.cluster.handover import Handover
from rowtide.stream.cluster.placement import Placement
from rowtide.stream.http.edge import Handler
from rowtide.stream.routing.fan_out import FanOut, part_handler
from rowtide.stream.routing.introduction import Introduction
from rowtide.stream.routing.routing import Divided
from rowtide.stream.worker.balancer import Balancer
from rowtide.stream.worker.cluster_operations import ClusterOperations
from rowtide.stream.worker.worker_status import WorkerStatus

__all__ = ["WorkerOperations"]


class WorkerOperations(NamedTuple):
    """The parts of one worker that answer."""

    rows: RowOperations
    transactions: TransactionOperations
    bulk: BulkOperations
    splits: SplitPointOperations
    streams: StreamOperations
    tables: TableOperations
    indexes: IndexOperations
    defined: DefinedColumnOperations
    unbuilt: UnbuiltOperations
    exact: ExactRows
    reshapes: ReshapeOperations
    balancer: Balancer
    placement: Placement
    handover: Handover
    introduction: Introduction
    admin: AdminOperations
    status: WorkerStatus
    workers: ClusterOperations
    fan_out: FanOut

    def among_workers(self) -> dict[str, Handler]:
        """Return what only other workers may ask."""
        return {
            HandOverRequest.operation: self.handover.hand_over_request,
            LeavingRequest.operation: self.handover.leaving_request,
            SettleRequest.operation: self.placement.settle_request,
            IndexStateRequest.operation: self.indexes.state_request,
            FinishIndexRequest.operation: self.indexes.finish_request,
            WelcomeRequest.operation: self.introduction.welcome,
            FarewellRequest.operation: self.introduction.farewell,
            **self.workers.among_workers(),
            FinishReshapeRequest.operation: self.reshapes.finish_request,
            LoadsRequest.operation: self.balancer.loads_request,
            WrittenMiddleRequest.operation: self.balancer.written_middle_request,
            BeginCopyRequest.operation: self.reshapes.begin_copy_request,
            ReceivedRequest.operation: self.reshapes.received_request,
            ForgetShardRequest.operation: self.reshapes.forget_request,
            PiecesRequest.operation: self.splits.pieces_request,
            StatusRequest.operation: self.status.request,
            RangePartRequest.operation: part_handler(RangePartRequest, self.rows.get_range),
            ExportPartRequest.operation: part_handler(ExportPartRequest, self.bulk.bulk_export),
        }

    def divided(self) -> dict[str, Divided]:
        """Return how requests on rows of several workers are answered."""
        fan_out, rows, bulk = self.fan_out, self.rows, self.bulk
        return {
            "BatchWriteRow": Divided(fan_out, rows.check_batch_write, fan_out.write),
            "BatchGetRow": Divided(fan_out, rows.check_batch_get, fan_out.read),
            "GetRange": Divided(fan_out, rows.check_range, fan_out.scan),
            "BulkImport": Divided(fan_out, bulk.check_import, fan_out.load),
            "BulkExport": Divided(fan_out, bulk.check_export, fan_out.export),
        }

    def handlers(self) -> dict[str, Handler]:
        """Return what clients may ask."""
        rows, tables, streams, admin = self.rows, self.tables, self.streams, self.admin
        transactions = self.transactions
        return {
            "CreateTable": tables.create_table,
            "ListTable": tables.list_table,
            "DescribeTable": tables.describe_table,
            "UpdateTable": tables.update_table,
            "DeleteTable": tables.delete_table,
            "PutRow": rows.put_row,
            "UpdateRow": rows.update_row,
            "DeleteRow": rows.delete_row,
            "GetRow": rows.get_row,
            "BatchGetRow": rows.batch_get_row,
            "BatchWriteRow": rows.batch_write_row,
            "GetRange": rows.get_range,
            READ_ROWS: self.exact.read,
            "StartLocalTransaction": transactions.start_local_transaction,
            "CommitTransaction": transactions.commit_transaction,
            "AbortTransaction": transactions.abort_transaction,
            "BulkImport": self.bulk.bulk_import,
            "BulkExport": self.bulk.bulk_export,
            "ComputeSplitPointsBySize": self.splits.compute_split_points_by_size,
            "ListStream": streams.list_stream,
            "DescribeStream": streams.describe_stream,
            "GetShardIterator": streams.get_shard_iterator,
            "GetStreamRecord": streams.get_stream_record,
            "CreateIndex": self.indexes.create_index,
            "DropIndex": self.indexes.drop_index,
            "AddDefinedColumn": self.defined.add_defined_column,
            "DeleteDefinedColumn": self.defined.delete_defined_column,
            **self.unbuilt.handlers(),
            "RowtideStatus": admin.status,
            "RowtideListInstances": admin.list_instances,
            "RowtideCreateInstance": admin.create_instance,
            "RowtideDeleteInstance": admin.delete_instance,
            "RowtideListKeys": admin.list_keys,
            "RowtideCreateKey": admin.create_key,
            "RowtideRevokeKey": admin.revoke_key,
            "RowtideListIndexes": self.indexes.list_indexes,
            "RowtideListShards": self.reshapes.list_shards,
            "RowtideSplitShard": self.reshapes.split_shard,
            "RowtideMoveShard": self.reshapes.move_shard,
            "RowtideMergeShards": self.reshapes.merge_shards,
            "RowtideSetClock": admin.set_clock,
            "RowtideAdvanceClock": admin.advance_clock,
            **self.workers.handlers(),
        }
