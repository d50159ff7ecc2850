"""Calls of a worker, each signed with the key of the person or program for whom it is made.

The console decides nothing about rights: it signs an action with the caller's key, and the worker
allows or refuses it. Calls of all keys share the connections to one worker.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from google.protobuf.message import Message

from rowtide.client.connection_pool import ConnectionPool
from rowtide.client.endpoint import Endpoint
from rowtide.client.http_exchange import parse_address
from rowtide.client.server_clock import ServerClock
from rowtide.core.protocol.operations import OPERATIONS, OperationSpec, Right

__all__ = ["KeyPair", "WorkerCalls"]

TIMEOUT_S = 10.0
"""A page that waits longer for a worker says so."""

RESHAPES = frozenset({"RowtideSplitShard", "RowtideMergeShards", "RowtideMoveShard"})
RESHAPE_TIMEOUT_S = 20.0
"""A worker waits 10 s for such a change, then answers that it goes on."""

PATIENCE_S = 2.0
"""A call that was not applied is repeated for so long. A shard changes hands within that."""


@dataclass(frozen=True, slots=True)
class KeyPair:
    """An access key. ``repr`` does not show the secret, so that no log line has it."""

    access_key_id: str
    access_key_secret: str = field(repr=False)


class WorkerCalls:
    """Signed calls of the worker at ``endpoint``, ``http://HOST:PORT``. Belongs to one event loop.

    A call that the worker did not apply is repeated for ``patience_s``. A call whose outcome is
    unknown is never repeated.
    """

    def __init__(
        self, endpoint: str, *, timeout_s: float = TIMEOUT_S, patience_s: float = PATIENCE_S
    ) -> None:
        self.endpoint = endpoint
        self._timeout_s = timeout_s
        self._patience_s = patience_s
        # The clock of this machine may be wrong: the worker's is the one that counts.
        clock = ServerClock(follows=True)
        self._pool = ConnectionPool(parse_address(endpoint), timeout_s=timeout_s, clock=clock)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the idle connections."""
        self._pool.close()

    def endpoint_of(
        self, credentials: KeyPair, instance: str, *, timeout_s: float = 0.0
    ) -> Endpoint:
        """Return the client's endpoint for a key and an instance; it shares the connections.

        An answer may take ``timeout_s`` if that is more than usual.
        """
        return Endpoint(
            self.endpoint,
            instance=instance,
            access_key_id=credentials.access_key_id,
            access_key_secret=credentials.access_key_secret,
            timeout_s=max(timeout_s, self._timeout_s),
            patience_s=self._patience_s,
            pool=self._pool,
        )

    async def call(
        self,
        credentials: KeyPair,
        instance: str,
        operation: str,
        request: Message | Mapping[str, object] | None = None,
    ) -> Any:
        """Send one request of a row of ``OPERATIONS`` and return its parsed answer.

        An operation of the protocol takes a message and returns one. An operation of rowtide takes
        and returns a JSON object; None stands for an empty request. Raises the failures of
        ``core/values/errors.py``: ``Rejected``, ``Unavailable`` and ``OutcomeUnknown``.
        """
        spec = OPERATIONS[operation]
        body = _body_of(spec, request)
        timeout_s = RESHAPE_TIMEOUT_S if operation in RESHAPES else 0.0
        endpoint = self.endpoint_of(credentials, instance, timeout_s=timeout_s)
        content = await endpoint.ask(operation, body)
        return json.loads(content) if spec.response is None else spec.response.FromString(content)


def _body_of(spec: OperationSpec, request: Message | Mapping[str, object] | None) -> bytes:
    """Return a request's bytes. Raises ``TypeError`` if the operation takes another kind."""
    if spec.right is Right.WORKER:
        raise TypeError(f"{spec.name} is called by workers alone")
    if isinstance(request, Message):
        if spec.request is None or not isinstance(request, spec.request):
            raise TypeError(f"{spec.name} does not take a {type(request).__name__}")
        return bytes(request.SerializeToString())
    if spec.request is not None:
        if request is not None:
            raise TypeError(f"{spec.name} takes a {spec.request.__name__}, not a JSON object")
        return b""
    return json.dumps(dict(request or {})).encode()
