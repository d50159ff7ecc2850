"""The parts of a worker by the operations that they answer."""

from __future__ import annotations

from collections.abc import Container
from typing import NamedTuple

from rowtide.core.cluster.catalog import Catalog
from rowtide.core.protocol.operations import OPERATIONS, RequestDivision, Right
from rowtide.stream.api.admin import AdminOperations
from rowtide.stream.api.admin_request import admin_only
from rowtide.stream.api.bulk import BulkOperations
from rowtide.stream.api.defined_column import DefinedColumnOperations
from rowtide.stream.api.exact_rows import ExactRows
from rowtide.stream.api.index import IndexOperations
from rowtide.stream.api.reshape import ReshapeOperations
from rowtide.stream.api.row import RowOperations
from rowtide.stream.api.share_token import ShareTokenOperations
from rowtide.stream.api.split_point import SplitPointOperations
from rowtide.stream.api.stream import StreamOperations
from rowtide.stream.api.table import TableOperations
from rowtide.stream.api.transaction import TransactionOperations
from rowtide.stream.api.unbuilt import UnbuiltOperations, refusals
from rowtide.stream.cluster.handover import Handover
from rowtide.stream.cluster.placement import Placement
from rowtide.stream.http.edge import Handler
from rowtide.stream.http.handlers import Role, methods_of
from rowtide.stream.routing.fan_out import FanOut
from rowtide.stream.routing.introduction import Introduction
from rowtide.stream.routing.routing import Divided
from rowtide.stream.worker.balancer import Balancer
from rowtide.stream.worker.cluster_operations import ClusterOperations
from rowtide.stream.worker.table_figure_operations import TableFigureOperations
from rowtide.stream.worker.worker_status import WorkerStatus

__all__ = ["WorkerOperations"]


class WorkerOperations(NamedTuple):
    """The parts of one worker that answer. Decorators of their methods name the operations.

    See ``handlers.py``.
    """

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
    tokens: ShareTokenOperations
    status: WorkerStatus
    workers: ClusterOperations
    figures: TableFigureOperations
    fan_out: FanOut

    def handlers(self, catalog: Catalog) -> dict[str, Handler]:
        """Return the handlers of operations that clients may call.

        ``catalog`` has each key's right: without the admin right, an admin operation is
        rejected.
        """
        found = self._find_handlers((Right.INSTANCE, Right.ADMIN))
        for name, handler in found.items():
            if OPERATIONS[name].right is Right.ADMIN:
                found[name] = admin_only(catalog, handler)
        return found

    def among_workers(self) -> dict[str, Handler]:
        """Return the handlers of operations that only other workers may call."""
        return self._find_handlers((Right.WORKER,))

    def _find_handlers(self, rights: Container[Right]) -> dict[str, Handler]:
        """Return the handlers of the table's rows. Raises ``LookupError`` if one is missing."""
        found = methods_of(self, Role.ANSWERS) | refusals()
        wanted = [name for name, spec in OPERATIONS.items() if spec.right in rights]
        if missing := [name for name in wanted if name not in found]:
            raise LookupError(f"no method @answers {', '.join(missing)}: add one, see handlers.py")
        return {name: found[name] for name in wanted}

    def make_divisions(self) -> dict[str, Divided]:
        """Return how requests on rows of several workers are answered."""
        checks, divides = methods_of(self, Role.CHECKS), methods_of(self, Role.DIVIDES)
        return {
            name: Divided(self.fan_out, checks[name], divides[name])
            for name, spec in OPERATIONS.items()
            if spec.division is not RequestDivision.NONE
        }
