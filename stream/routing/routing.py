"""Sends a request to the worker that can answer it: this one, or one hop away.

What concerns the catalog is answered by its owner. A request on one row goes where its first key
says, unread. Everything else is tried here first: where a shard is another worker's the handler
raises ``Elsewhere``, having done nothing, and the request goes there as it came. Whoever was asked
by another worker does not pass on again.

No worker says that something is absent, or a local index not built, before it has read the catalog
to its present end, unless it serves the catalog under a lease that holds, and does not change it
just then. It answers by the catalog that it knows first, and reads only where something is missing
there: a refusal changed nothing, so the request is tried again. A batch tells row by row that a
table is missing, when others may be written: there the tables are looked for before. Who lists
streams, or a stream's shards, reads first. Of a shard whose id was not given out, as far as was
read, the end of the catalog is proven: a leader that was deposed tells an old one, and who hears
that a transaction or a stream's position is gone does not ask again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NamedTuple

from rowtide.core.protocol.authentication import Identity
from rowtide.core.protocol.operations import OPERATIONS, Route
from rowtide.core.values.errors import Elsewhere, NotBuilt, Rejected, Unavailable, invalid
from rowtide.stream.cluster.catalog_owner import CATALOG_SLOT, CatalogOwner
from rowtide.stream.cluster.hop import HopClient
from rowtide.stream.http.edge import Handler
from rowtide.stream.routing.destinations import Destination
from rowtide.stream.routing.fan_out import HERE, FanOut
from rowtide.stream.shard.lapsed_lease import trying_again

__all__ = ["Divided", "Router"]

ABSENT = frozenset({"OTSObjectNotExist", "OTSSessionNotExist", "OTSTrimmedDataAccess"})
"""Codes that say that something is not there. What is not known of a shard is taken for trimmed."""

Awaited = Awaitable[bytes] | bytes
AT_ONCE = (bytes, asyncio.Future)
"""What is passed on as it is: an answer, or a write's future, which no lease that lapses fails."""


class Divided(NamedTuple):
    """How an operation on rows of several workers is answered.

    ``divisible`` takes a request apart for ``answer``; None: it may not be divided. It raises what
    refuses the request whole.
    """

    fan_out: FanOut
    divisible: Callable[[Identity, bytes], Any]
    answer: Callable[[Identity, bytes, Any], Awaitable[bytes]]


class Router:
    """Routes the operations of ``handlers``; those of ``among_workers`` are not for clients.

    ``owners`` tells each slot's worker by address, ``serving`` whether a slot is open and leased
    here, and ``destinations`` by operation where a request goes.
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
        """Operations whose answers omit what the catalog lacks, with no error that tells so."""
        self._destinations = destinations
        self._catalog = catalog
        self._hop = hop
        self._owners = owners
        self._serving = serving
        self._address = address
        self._known: Mapping[int, str] | None = None
        self._all_here = True

    def routed(self) -> dict[str, Handler]:
        """Return the handlers for clients' requests."""
        return {
            name: self._of_catalog(name, handler)
            if OPERATIONS[name].route is Route.CATALOG
            else self._of_several(name, self._of_rows(name, handler))
            for name, handler in self._handlers.items()
        }

    def passed_on(self, identity: Identity, operation: str, body: bytes) -> Awaited:
        """Answer what another worker passed on.

        It may be cut off from Kafka and not know yet that a key is revoked.
        """
        if identity.access_key_id in self._catalog.catalog.revoked:
            raise Rejected("OTSAuthFailed", "The AccessKeyID does not exist.")
        handler = self._among_workers.get(operation)
        if handler is not None:
            return self._tried(operation, handler, identity, body)
        handler = self._handlers.get(operation)
        if handler is None:
            raise invalid(f"Unsupported operation: {operation}.")
        if OPERATIONS[operation].route is Route.CATALOG:
            return self._by_catalog(handler, identity, body)
        return self._tried(operation, handler, identity, body)

    def forward(
        self, slot: int, operation: str, identity: Identity, body: bytes
    ) -> Awaitable[bytes]:
        """Have the worker of ``slot`` answer. Raises ``Unavailable`` where there is none."""
        address = self._owners().get(slot)
        if slot == CATALOG_SLOT and address == self._address and self._catalog.lost:
            raise Unavailable(self._catalog.lost)
        if address is None or address == self._address:
            raise Unavailable
        return self._hop.ask(address, identity, operation, body)

    def ask(self, address: str, operation: str, identity: Identity, body: bytes) -> Awaited:
        """Have a worker answer, this one where the address is ``HERE``."""
        if address != HERE:
            return self._hop.ask(address, identity, operation, body)
        return self.passed_on(identity, operation, body)

    # Where clients' requests go.

    def _of_catalog(self, name: str, handler: Handler) -> Handler:
        def route(identity: Identity, body: bytes) -> Awaited:
            if self._catalog.owning:
                return self._by_catalog(handler, identity, body)
            return self.forward(CATALOG_SLOT, name, identity, body)

        return route

    def _of_several(self, name: str, handler: Handler) -> Handler:
        """Return the handler of what may concern several workers at once."""
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
                result = self._tried(name, handler, identity, body)
            except Elsewhere as error:
                return self.forward(error.slot, name, identity, body)
            if isinstance(result, AT_ONCE):
                return result
            return self._awaited(name, result, identity, body)

        return route

    async def _awaited(
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

    # By which catalog they are answered.

    @property
    def _newest(self) -> bool:
        """True if no other worker can have a newer catalog."""
        catalog = self._catalog
        return catalog.owning and not catalog.changing and self._serving(CATALOG_SLOT)

    def _by_catalog(self, handler: Handler, identity: Identity, body: bytes) -> Awaited:
        """Answer what the catalog alone decides."""
        if self._newest:
            return handler(identity, body)
        return self._current(handler, identity, body)

    def _tried(self, name: str, handler: Handler, identity: Identity, body: bytes) -> Awaited:
        """Answer by the catalog that is known; by the one of now where something is absent."""
        # Most requests succeed, so the newest catalog is asked for only where it matters.
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
        return self._tried_later(result, handler, identity, body)

    def _may_omit(self, name: str, identity: Identity, body: bytes) -> bool:
        """True if an answer may omit, without an error, what the known catalog lacks."""
        divided = self._divided.get(name)
        return divided is None or not divided.fan_out.knows(identity, name, body)

    async def _tried_later(
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
        """Answer by the catalog as it is now, or later; as any leader has it where ``proven``."""
        await (self._catalog.prove() if proven else self._catalog.refresh())
        result = handler(identity, body)
        return result if isinstance(result, bytes) else await result


def _may_be_read_of(error: Rejected) -> bool:
    """True if a request was refused for something absent from the catalog as far as it was read."""
    return error.code in ABSENT or isinstance(error, NotBuilt)
