"""Operations that the protocol has and this server has not: each raises a typed error."""

from __future__ import annotations

from collections.abc import Callable

from rowtide.core.protocol.authentication import Identity
from rowtide.core.protocol.operations import OPERATIONS
from rowtide.core.values.errors import no_such_operation
from rowtide.stream.http.handlers import answers

__all__ = ["UnbuiltOperations", "refusals"]


class UnbuiltOperations:
    """Two operations that the clean-up code of SDKs calls: they return empty lists."""

    @answers("ListSearchIndex")
    def list_search_index(self, _identity: Identity, _body: bytes) -> bytes:
        """Return no search index."""
        return b""

    @answers("ListTimeseriesTable")
    def list_timeseries_table(self, _identity: Identity, _body: bytes) -> bytes:
        """Return no table of time series."""
        return b""


def refusals() -> dict[str, Callable[[Identity, bytes], bytes]]:
    """Return a handler for each operation that is not built."""
    return {name: _refusal(name) for name, spec in OPERATIONS.items() if not spec.is_built}


def _refusal(operation: str) -> Callable[[Identity, bytes], bytes]:
    def refuse(_identity: Identity, _body: bytes) -> bytes:
        raise no_such_operation(operation)

    return refuse
