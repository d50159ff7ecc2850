"""Who owns a slot: the records of its lease partition, and their fold.

The offset of its claim names an ownership. A later claim ends every earlier one. Lease records obey
the append rule: a record at another offset than it names is void.

This module has no clock. The reader passes the time at which it read a record, in seconds of its
own clock, which includes suspend. Broker timestamps are never used.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import NamedTuple

from rowtide.core.records.avro import read_long, write_bytes, write_long

__all__ = [
    "CLAIM",
    "DRIFT",
    "RELEASE",
    "RENEW",
    "CorruptLease",
    "Lease",
    "LeaseView",
    "Ownership",
    "decode_lease",
    "encode_lease",
]

CLAIM, RENEW, RELEASE = _KINDS = "CLAIM", "RENEW", "RELEASE"
"""In the order of the schema: a record has the index."""

OWNER_BYTES = 8

DRIFT = 0.05
"""How much faster another worker's clock may run than ours, as a fraction. Generous."""


FINGERPRINT = bytes.fromhex("932c7d3f92c10dfc")
"""CRC-64-AVRO of the newest schema's parsing canonical form, little-endian."""

FINGERPRINT_V1 = bytes.fromhex("881be864ab5352ef")
"""Fingerprint of the first schema, without the lease's length. Its records can still be read."""

_MARKER, _MARKER_1 = b"\xc3\x01" + FINGERPRINT, b"\xc3\x01" + FINGERPRINT_V1


class CorruptLease(Exception):
    """Bytes in a lease partition that no worker wrote."""


class Lease(NamedTuple):
    """One record of a lease partition. ``lease_ms`` 0 means the length of the reader's leases."""

    at: int
    kind: str
    claim: int
    owner: bytes
    address: str
    lease_ms: int = 0


def encode_lease(lease: Lease) -> bytes:
    """Return the record's Avro bytes. Written by hand, because every worker reads all of them."""
    at, kind, claim, owner, address, lease_ms = lease
    assert len(owner) == OWNER_BYTES, f"an owner of {len(owner)} bytes"
    head = (_MARKER, write_long(at), write_long(_KINDS.index(kind)), write_long(claim))
    return b"".join((*head, owner, write_bytes(address.encode()), write_long(lease_ms)))


def decode_lease(value: bytes) -> Lease:
    """Return the record of ``value``. Raises ``CorruptLease``."""
    marker = value[: len(_MARKER)]
    if marker not in (_MARKER, _MARKER_1):
        raise CorruptLease(f"lease record begins {marker.hex()}, expected {_MARKER.hex()}")
    try:
        at, end = read_long(value, len(_MARKER))
        kind, end = read_long(value, end)
        claim, end = read_long(value, end)
        owner, end = value[end : end + OWNER_BYTES], end + OWNER_BYTES
        size, begin = read_long(value, end)
        address = value[begin : begin + size]
        lease_ms, end = 0, begin + size
        if marker == _MARKER:
            lease_ms, end = read_long(value, end)
        if end != len(value) or not 0 <= kind < len(_KINDS) or size < 0 or lease_ms < 0:
            raise CorruptLease(f"lease record of {len(value)} bytes, but its fields take {end}")
        return Lease(at, _KINDS[kind], claim, owner, address.decode(), lease_ms)
    except (IndexError, ValueError) as error:
        raise CorruptLease(f"lease record cannot be read: {error}") from error


@dataclass(slots=True)
class Ownership:
    """One claim, and when its last renewal was read, in seconds of the reader's clock."""

    claim: int
    owner: bytes
    address: str
    seen_s: float
    lease_s: float = 0.0
    """How long its owner may read after a renewal, as the owner states."""
    released: bool = False

    def end_s(self, lease_s: float) -> float:
        """Return when its owner surely stops reading; its lease is at least ``lease_s``."""
        return self.seen_s + max(lease_s, self.lease_s) * (1 + DRIFT)


class LeaseView:
    """The fold of one lease partition, as far as one reader has read it."""

    def __init__(self, end: int = 0) -> None:
        self.end = end
        self._ownerships: dict[int, Ownership] = {}

    def read(self, offset: int, value: bytes, read_s: float) -> None:
        """Fold one entry, read at ``read_s``."""
        lease = decode_lease(value)
        self.end = offset + 1
        if lease.at != offset:
            return
        known = self._ownerships.get(lease.claim)
        if known is None:
            # The claim itself may be trimmed. Every later record repeats its data.
            known = Ownership(lease.claim, lease.owner, lease.address, read_s)
            self._ownerships[lease.claim] = known
        known.seen_s = read_s
        known.lease_s = lease.lease_ms / 1000
        if lease.kind == RELEASE:
            known.released = True

    @property
    def last(self) -> Ownership | None:
        """Return the latest claim's ownership, the only one that may write and renew."""
        return self._ownerships[max(self._ownerships)] if self._ownerships else None

    def safe_at(self, claim: int, lease_s: float, *, dead: Collection[bytes] = ()) -> float:
        """Return the earliest time at which ``claim`` may serve.

        An earlier ownership that is not released may serve reads until one lease after it sent its
        last renewal. That is at the latest its lease times (1 + drift) after we read the renewal. A
        lease has the length that its owner states, but at least ``lease_s``. Owners in ``dead`` are
        known to have ended.
        """
        waits = [
            known.end_s(lease_s)
            for known in self._ownerships.values()
            if known.claim < claim and not known.released and known.owner not in dead
        ]
        return max(waits, default=0.0)

    def free_since(self, lease_s: float) -> float | None:
        """Return when the last ownership seen here can no longer serve; None if none was seen.

        It may be in the future. Released ownerships count too, because a handover takes a moment.
        """
        ends = [known.end_s(lease_s) for known in self._ownerships.values()]
        return max(ends, default=None)

    def copy(self) -> LeaseView:
        """Return another view with the same state."""
        twin = LeaseView()
        twin.end = self.end
        twin._ownerships = {claim: replace(known) for claim, known in self._ownerships.items()}
        return twin

    def forget_ended(self, now_s: float, lease_s: float) -> None:
        """Drop ownerships that no claim must wait for any more, except the last."""
        last = max(self._ownerships, default=0)
        self._ownerships = {
            claim: known
            for claim, known in self._ownerships.items()
            if claim == last or known.end_s(lease_s) > now_s
        }

    def forget_before(self, claim: int) -> None:
        """Drop ownerships older than ``claim``, after it has waited for them."""
        self._ownerships = {c: known for c, known in self._ownerships.items() if c >= claim}
