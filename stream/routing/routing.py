"""Sends a request to the worker that can answer it: this one, or one hop away.

The catalog's owner answers requests on the catalog. A request on one row goes to the slot
of its first key, unread. Every other request is tried here first. If a shard is another
worker's, the handler has done nothing and raises ``Elsewhere``. The request then goes
there unchanged. A request that another worker forwarded is never forwarded again.

No worker answers "absent" or "index not built" before it has read the catalog to its
present end. The exception is a worker that owns the catalog, has a valid lease and does
not change it at that moment. A worker first answers by the catalog that it knows. It
reads more only if something is missing there. Such a rejection changed nothing, so the
request is tried again.

Some requests need the read first. A batch reports a missing table row by row while other
rows are written, so its tables are looked up before. The same holds for lists of streams
and of a stream's shards. For a shard id beyond those known, the end of the catalog is
proven by an append. The reason: a deposed leader may answer with an old end. A client
that gets "transaction gone" or "position gone" does not retry.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NamedTuple

from rowtide.core.protocol.authentication import Identity
from rowtide.core.protocol.operations import OPERATIONS, Route
from rowtide.core.values.errors import Elsewhere, NotBuilt, Rejected, Unavailable, invalid
from rowtide.stream.cluster.catalog_owner import CATALOG_SLOT, CatalogOwner
from rowtide.stream.cluster.hop_client import HopClient
from rowtide.stream.http.edge import Handler
from rowtide.stream.routing.destinations import Destination
from rowtide.stream.routing.fan_out import HERE, FanOut
from rowtide.stream.shard.lapsed_lease import trying_again

__all__ = ["Divided", "Router"]

ABSENT = frozenset({"OTSObjectNotExist", "OTSSessionNotExist", "OTSTrimmedDataAccess"})
"""Codes that report something absent. An unknown shard is reported as trimmed."""

Awaited = Awaitable[bytes] | bytes
AT_ONCE = (bytes, asyncio.Future)
"""Results that are passed on unchanged: an answer, or a write's future. A lapsed lease
fails neither.
"""


class Divided(NamedTuple):
    """How an operation on rows of several workers is answered.

    ``divisible`` returns a checked request for ``answer``; None: it may not be divided.
    It raises an error that rejects the request whole.
    """

    fan_out: FanOut
    divisible: Callable[[Identity, bytes], Any]
    answer: Callable[[Identity, bytes, Any], Awaitable[bytes]]


class Router:
    """Routes the operations of ``handlers``; those of ``among_workers`` are not for clients.

    ``owners`` returns each slot's worker by address. ``serving`` is true if a slot is
    open and leased here. ``destinations`` finds a request's slot, by operation.
    """

    def __init__(
        self,
        handlers: Mapping[str, Handler],
        among_workers: Mapping[str, Handler],
        catalog: CatalogOwner,
        hop: HopClient,
        owners: Callable[[], Mapping[int, str]],
        serving: Callable[[int], bool],
        divided: Mapping[str, Divided],
        destinations: Mapping[str, Destination],
        *,
        address: str,
    ) -> None:
        self._handlers = {name: trying_again(handler) for name, handler in handlers.items()}
        self._among_workers = among_workers
        self._divided = divided
        listings = {name for name, spec in OPERATIONS.items() if spec.route is Route.LISTING}
        self._silent = listings | divided.keys()
        """Operations whose answers omit what the catalog lacks, without an error."""
        self._destinations = destinations
        self._catalog = catalog
        self._hop = hop
        self._owners = owners
        self._serving = serving
        self._address = address
        self._known: Mapping[int, str] | None = None
        self._all_here = True

    def make_handlers(self) -> dict[str, Handler]:
        """Return the handlers for clients' requests."""
        return {
            name: self._of_catalog(name, handler)
            if OPERATIONS[name].route is Route.CATALOG
            else self._of_several(name, self._of_rows(name, handler))
            for name, handler in self._handlers.items()
        }

    def answer_forwarded(self, identity: Identity, operation: str, body: bytes) -> Awaited:
        """Answer a request that another worker forwarded.

        That worker may be cut off from Kafka and not know yet that a key is revoked.
        """
        if identity.access_key_id in self._catalog.catalog.revoked:
            raise Rejected("OTSAuthFailed", "The AccessKeyID does not exist.")
        handler = self._among_workers.get(operation)
        if handler is not None:
            return self._try(operation, handler, identity, body)
        handler = self._handlers.get(operation)
        if handler is None:
            raise invalid(f"Unsupported operation: {operation}.")
        if OPERATIONS[operation].route is Route.CATALOG:
            return self._by_catalog(handler, identity, body)
        return self._try(operation, handler, identity, body)

    def forward(
        self, slot: int, operation: str, identity: Identity, body: bytes
    ) -> Awaitable[bytes]:
        """Send an operation to the worker of ``slot``. Raises ``Unavailable`` if there is none."""
        address = self._owners().get(slot)
        if slot == CATALOG_SLOT and address == self._address and self._catalog.lost:
            raise Unavailable(self._catalog.lost)
        if address is None or address == self._address:
            raise Unavailable
        return self._hop.ask(address, identity, operation, body)

    def ask(self, address: str, operation: str, identity: Identity, body: bytes) -> Awaited:
        """Send an operation to a worker, to this one if the address is ``HERE``."""
        if address != HERE:
            return self._hop.ask(address, identity, operation, body)
        return self.answer_forwarded(identity, operation, body)

    # The routes of clients' requests.

    def _of_catalog(self, name: str, handler: Handler) -> Handler:
        def route(identity: Identity, body: bytes) -> Awaited:
            if self._catalog.is_owner:
                return self._by_catalog(handler, identity, body)
            return self.forward(CATALOG_SLOT, name, identity, body)

        return route

    def _of_several(self, name: str, handler: Handler) -> Handler:
        """Return the handler of an operation that may concern several workers at once."""
        divided = self._divided.get(name)
        if divided is None:
            return handler

        def route(identity: Identity, body: bytes) -> Awaited:
            if self._alone or (request := divided.divisible(identity, body)) is None:
                return handler(identity, body)
            return divided.answer(identity, body, request)

        return route

    def _of_rows(self, name: str, handler: Handler) -> Handler:
        destination = self._destinations.get(name)

        def route(identity: Identity, body: bytes) -> Awaited:
            if destination is not None and not self._alone:
                slot = destination(identity, body)
                if slot is not None:
                    return self.forward(slot, name, identity, body)
            try:
                result = self._try(name, handler, identity, body)
            except Elsewhere as error:
                return self.forward(error.slot, name, identity, body)
            if isinstance(result, AT_ONCE):
                return result
            return self._wait_for(name, result, identity, body)

        return route

    async def _wait_for(
        self, name: str, result: Awaitable[bytes], identity: Identity, body: bytes
    ) -> bytes:
        try:
            return await result
        except Elsewhere as error:
            return await self.forward(error.slot, name, identity, body)

    @property
    def _alone(self) -> bool:
        """True if this worker serves every slot, as far as it knows."""
        owners = self._owners()
        if owners is not self._known:
            self._known = owners
            self._all_here = set(owners.values()) <= {self._address}
        return self._all_here

    # The catalog by which requests are answered.

    @property
    def _newest(self) -> bool:
        """True if no other worker can have a newer catalog."""
        catalog = self._catalog
        return catalog.is_owner and not catalog.is_changing and self._serving(CATALOG_SLOT)

    def _by_catalog(self, handler: Handler, identity: Identity, body: bytes) -> Awaited:
        """Answer a request that only the catalog decides."""
        if self._newest:
            return handler(identity, body)
        return self._current(handler, identity, body)

    def _try(self, name: str, handler: Handler, identity: Identity, body: bytes) -> Awaited:
        """Answer by the known catalog; by the present one if something is absent."""
        # Most requests succeed, so the newest catalog is read only if it matters.
        if name in self._silent and not self._newest and self._may_omit(name, identity, body):
            return self._current(handler, identity, body)
        try:
            result = handler(identity, body)
        except Rejected as error:
            if not _may_be_read_of(error) or self._newest:
                raise
            return self._current(handler, identity, body, proven=error.beyond)
        if isinstance(result, AT_ONCE) or self._newest:
            return result
        return self._try_later(result, handler, identity, body)

    def _may_omit(self, name: str, identity: Identity, body: bytes) -> bool:
        """True if an answer may omit, without an error, what the known catalog lacks."""
        divided = self._divided.get(name)
        return divided is None or not divided.fan_out.knows(identity, name, body)

    async def _try_later(
        self, result: Awaitable[bytes], handler: Handler, identity: Identity, body: bytes
    ) -> bytes:
        try:
            return await result
        except Rejected as error:
            if not _may_be_read_of(error):
                raise
            proven = error.beyond
        return await self._current(handler, identity, body, proven=proven)

    async def _current(
        self, handler: Handler, identity: Identity, body: bytes, *, proven: bool = False
    ) -> bytes:
        """Answer by the catalog as it is now, or later; ``proven``: as any leader has it."""
        await (self._catalog.prove() if proven else self._catalog.refresh())
        result = handler(identity, body)
        return result if isinstance(result, bytes) else await result


def _may_be_read_of(error: Rejected) -> bool:
    """True if a request was rejected for something absent from the catalog as far as read."""
    return error.code in ABSENT or isinstance(error, NotBuilt)
