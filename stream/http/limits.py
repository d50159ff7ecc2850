"""The bounds of the HTTP edge, for one client and for all of them together."""

from __future__ import annotations

from dataclasses import dataclass, fields

__all__ = ["HttpLimits"]


@dataclass(frozen=True, slots=True)
class HttpLimits:
    """Bounds of the HTTP edge, in bytes and seconds; all must be positive."""

    head_bytes_max: int = 64 * 1024
    """Request line and headers of one request. If too low, long tokens fail. Then 400 and close.
    """
    headers_max: int = 100
    """Headers of one request."""
    body_bytes_max: int = 64 * 1024 * 1024
    """One request's body, on the wire and inflated. Below 4 MiB, full batches are rejected."""
    bodies_bytes_max: int = 512 * 1024 * 1024
    """All bodies held at once, read or being read. Beyond it: 503 OTSServerBusy."""
    connections_max: int = 1000
    """Open connections; the next one gets a 503. Keep it below the process's file limit."""
    pipeline_max: int = 16
    """Requests of one connection read ahead of the one being answered; then reading pauses."""
    receive_timeout_s: float = 60.0
    """From a request's first byte to its last, and for a client to read an answer. Then
    408.
    """
    idle_timeout_s: float = 75.0
    """Time without a request. Clients pool connections: if too low, they reconnect for nothing."""
    linger_s: float = 2.0
    """After an error that closes: how long a client may still send before it is cut off."""

    def __post_init__(self) -> None:
        for field in fields(self):
            if getattr(self, field.name) <= 0:
                raise ValueError(f"{field.name} must be positive: {getattr(self, field.name)}")
        if self.bodies_bytes_max < self.body_bytes_max:
            raise ValueError("bodies_bytes_max must not be below body_bytes_max")
