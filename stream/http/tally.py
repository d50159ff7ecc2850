"""What the edge counts per operation: how requests ended, and how long they took.

An outcome is what a client may assume: ``ok``; ``refused``, nothing changed and never will;
``unavailable``, nothing changed, try again; ``unknown``, it may have been applied; ``fault``, our
own error, of which nothing is promised. A batch with a row of unknown outcome is ``unknown``.

Counting is on every request's way: plain integers, read by whoever wants them.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Awaitable, Callable, Mapping

from rowtide.core.protocol.authentication import Identity
from rowtide.core.protocol.operations import OPERATIONS, Latency
from rowtide.core.values.errors import OutcomeUnknown, Rejected, StoreError, Unavailable
from rowtide.stream.measures.histogram import Histogram

__all__ = [
    "FAULT",
    "OK",
    "OTHER",
    "OUTCOMES",
    "REFUSED",
    "UNAVAILABLE",
    "UNKNOWN",
    "BoundedHandler",
    "Handler",
    "Operation",
    "Tally",
    "UnknownWithin",
    "latency_class",
    "outcome_of",
]

Handler = Callable[[Identity, bytes], bytes | Awaitable[bytes]]
"""Answers one operation: the request's body in, the answer's body out."""

BoundedHandler = Callable[[Identity, bytes, bytes], bytes | Awaitable[bytes]]
"""Answers a read that says, by its header's value, how old what it reads may be."""

OUTCOMES = ("ok", "refused", "unavailable", "unknown", "fault")
OK, REFUSED, UNAVAILABLE, UNKNOWN, FAULT = range(len(OUTCOMES))

OTHER = Latency.OTHER.value
"""The name under which everything counts that is no operation of ours."""


class UnknownWithin(bytes):
    """The answer of a batch that succeeded as such, with a row in it whose outcome is unknown."""


def latency_class(operation: str) -> Latency:
    """Return the class of operations with which one is counted."""
    spec = OPERATIONS.get(operation)
    return Latency.OTHER if spec is None else spec.latency


def outcome_of(failure: StoreError) -> int:
    """Return how a request ended that failed."""
    if isinstance(failure, Rejected):
        return REFUSED
    if isinstance(failure, Unavailable):
        return UNAVAILABLE
    return UNKNOWN if isinstance(failure, OutcomeUnknown) else FAULT


class Operation:
    """One operation: who answers it, and how often it ended in each way."""

    __slots__ = ("answered", "bounded", "handler", "name", "took")

    def __init__(
        self, name: str, handler: Handler, took: Histogram, bounded: BoundedHandler | None = None
    ) -> None:
        self.bounded = bounded
        self.name = name
        self.handler = handler
        self.took = took
        self.answered = [0] * len(OUTCOMES)

    def ended(self, outcome: int, seconds: float) -> None:
        """Count a request."""
        self.answered[outcome] += 1
        took = self.took  # Its ``add``, written out: on every request's way.
        took.within[bisect_left(took.bounds, seconds)] += 1
        took.seconds += seconds


def _never(_identity: Identity, _body: bytes) -> bytes:
    raise AssertionError("no operation of ours")


class Tally:
    """The counts of one edge: its operations by path, error codes, and bytes of all connections."""

    def __init__(
        self,
        handlers: Mapping[str, Handler],
        bounded: Mapping[str, BoundedHandler] | None = None,
    ) -> None:
        self._bounded = bounded or {}
        self.took: dict[str, Histogram] = {}
        """How long requests took, by class of operation."""
        self.by_path = {b"/" + name.encode(): self._made(name, h) for name, h in handlers.items()}
        self.other = self._made(OTHER, _never)
        self.codes: dict[str, int] = {}
        self.bytes_in = 0
        self.bytes_out = 0

    def operations(self) -> list[Operation]:
        """Return every operation, and what stands for the rest."""
        return [*self.by_path.values(), self.other]

    def failed(self, code: str) -> None:
        """Count an error answer."""
        self.codes[code] = self.codes.get(code, 0) + 1

    def _made(self, name: str, handler: Handler) -> Operation:
        took = self.took.setdefault(latency_class(name).value, Histogram())
        return Operation(name, handler, took, self._bounded.get(name))
