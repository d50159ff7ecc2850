"""The way of clients' requests through a worker: routed, divided, passed on, as in the product.

Real are the router, what divides batches and ranges, and the handlers of rows and transactions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from rowtide.core.protocol.worker_messages import RangePartRequest
from rowtide.stream.api.directory import Directory
from rowtide.stream.api.row import RowOperations
from rowtide.stream.api.transaction import TransactionOperations
from rowtide.stream.cluster.catalog_owner import CatalogOwner
from rowtide.stream.cluster.hop import HopClient
from rowtide.stream.routing.destinations import destinations
from rowtide.stream.routing.fan_out import FanOut
from rowtide.stream.routing.routing import Divided, Router
from rowtide.stream.slot.slot import Slot

__all__ = ["router_of"]


def router_of(
    directory: Directory,
    catalog: CatalogOwner,
    hop: HopClient,
    owners: Callable[[], Mapping[int, str]],
    slots: Mapping[int, Slot],
    *,
    address: str,
) -> Router:
    """Join the parts as ``stream/worker/worker.py`` does."""
    rows, transactions = RowOperations(directory), TransactionOperations(directory)

    def serving(number: int) -> bool:
        slot = slots.get(number)
        return slot is not None and slot.opened.is_set() and slot.readable()

    fan_out = FanOut(
        directory,
        owners,
        lambda *asked: router.ask(*asked),
        catalog.refresh,
        address=address,
    )
    router = Router(
        {
            "PutRow": rows.put_row,
            "UpdateRow": rows.update_row,
            "DeleteRow": rows.delete_row,
            "GetRow": rows.get_row,
            "GetRange": rows.get_range,
            "BatchWriteRow": rows.batch_write_row,
            "StartLocalTransaction": transactions.start_local_transaction,
            "CommitTransaction": transactions.commit_transaction,
            "AbortTransaction": transactions.abort_transaction,
        },
        {RangePartRequest.operation: rows.get_range_part},
        catalog,
        hop,
        owners,
        serving,
        {
            "GetRange": Divided(fan_out, rows.check_range, fan_out.scan),
            "BatchWriteRow": Divided(fan_out, rows.check_batch_write, fan_out.write),
        },
        destinations(directory),
        address=address,
    )
    return router
