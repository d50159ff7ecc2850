"""Counts per operation how requests ended, and how long they took.

An outcome is what a client may assume:

- ``ok``: applied.
- ``refused``: nothing changed, and the same request will fail again.
- ``unavailable``: nothing changed, and a retry may succeed.
- ``unknown``: it may have been applied. So is a batch with a row of unknown outcome.
- ``fault``: an internal error, which promises nothing.

Every request is counted, so the counts are plain integers that any code may read.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Awaitable, Callable, Mapping

from rowtide.core.protocol.authentication import Identity
from rowtide.core.protocol.operations import OPERATIONS, Latency
from rowtide.core.values.errors import OutcomeUnknown, Rejected, StoreError, Unavailable
from rowtide.stream.measures.histogram import Histogram
from rowtide.stream.measures.table_tally import naming_of

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
"""Answers a read whose header limits, in ms, how old its result may be."""

OUTCOMES = ("ok", "refused", "unavailable", "unknown", "fault")
OK, REFUSED, UNAVAILABLE, UNKNOWN, FAULT = range(len(OUTCOMES))

OTHER = Latency.OTHER.value
"""The name under which requests count that match no operation of ours."""


class UnknownWithin(bytes):
    """The answer of a batch that succeeded as a whole, but has a row of unknown outcome."""


def latency_class(operation: str) -> Latency:
    """Return the latency class under which an operation is counted."""
    spec = OPERATIONS.get(operation)
    return Latency.OTHER if spec is None else spec.latency


def outcome_of(failure: StoreError) -> int:
    """Return the outcome of a failed request."""
    if isinstance(failure, Rejected):
        return REFUSED
    if isinstance(failure, Unavailable):
        return UNAVAILABLE
    return UNKNOWN if isinstance(failure, OutcomeUnknown) else FAULT


class Operation:
    """One operation: its handler, and how often it ended with each outcome."""

    __slots__ = ("answered", "bounded", "handler", "name", "naming", "took")

    def __init__(
        self, name: str, handler: Handler, took: Histogram, bounded: BoundedHandler | None = None
    ) -> None:
        self.bounded = bounded
        self.name = name
        self.handler = handler
        self.took = took
        self.naming = naming_of(name)
        """Where a request's body names its tables; None: it is not about rows."""
        self.answered = [0] * len(OUTCOMES)

    def count_request(self, outcome: int, seconds: float) -> None:
        """Count a request and its time."""
        self.answered[outcome] += 1
        took = self.took  # Histogram.add, written out, because every request passes here.
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
        """Durations of requests, by class of operation."""
        self.by_path = {
            b"/" + name.encode(): self._make_operation(name, h) for name, h in handlers.items()
        }
        self.other = self._make_operation(OTHER, _never)
        self.codes: dict[str, int] = {}
        self.bytes_in = 0
        self.bytes_out = 0

    def operations(self) -> list[Operation]:
        """Return every operation, and the one for all other requests."""
        return [*self.by_path.values(), self.other]

    def count_error(self, code: str) -> None:
        """Count an error answer."""
        self.codes[code] = self.codes.get(code, 0) + 1

    def _make_operation(self, name: str, handler: Handler) -> Operation:
        took = self.took.setdefault(latency_class(name).value, Histogram())
        return Operation(name, handler, took, self._bounded.get(name))
