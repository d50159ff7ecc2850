"""Who owns a slot: the records of its lease partition, and what they add up to.

An ownership is named by the offset of its claim. A later claim ends every earlier one. Lease
records obey the append rule, so a record that does not stand at the offset it names is void.

This module knows no clock: the reader says when it read a record, in seconds on a clock of its own
that runs during suspend. Broker timestamps decide nothing.
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
"""In the order of the schema: a record has their number."""

OWNER_BYTES = 8

DRIFT = 0.05
"""How much faster another worker's clock may run than ours, as a fraction. Chosen generously."""


FINGERPRINT = bytes.fromhex("932c7d3f92c10dfc")
"""CRC-64-AVRO of the newest schema's parsing canonical form, little-endian."""

FINGERPRINT_V1 = bytes.fromhex("881be864ab5352ef")
"""That of the first schema, whose records are still read: it has no length of the lease."""

_MARKER, _MARKER_1 = b"\xc3\x01" + FINGERPRINT, b"\xc3\x01" + FINGERPRINT_V1


class CorruptLease(Exception):
    """Bytes in a lease partition that no worker of ours wrote."""


class Lease(NamedTuple):
    """One record of a lease partition. ``lease_ms`` 0 is as long as the reader's own leases."""

    at: int
    kind: str
    claim: int
    owner: bytes
    address: str
    lease_ms: int = 0


def encode_lease(lease: Lease) -> bytes:
    """Return the record's bytes, as Avro has them; written out, for every worker reads them all."""
    at, kind, claim, owner, address, lease_ms = lease
    assert len(owner) == OWNER_BYTES, f"an owner of {len(owner)} bytes"
    head = (_MARKER, write_long(at), write_long(_KINDS.index(kind)), write_long(claim))
    return b"".join((*head, owner, write_bytes(address.encode()), write_long(lease_ms)))


def decode_lease(value: bytes) -> Lease:
    """Take a record's bytes apart. Raises ``CorruptLease``."""
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
            raise CorruptLease(f"lease record of {len(value)} bytes, {end} are told")
        return Lease(at, _KINDS[kind], claim, owner, address.decode(), lease_ms)
    except (IndexError, ValueError) as error:
        raise CorruptLease(f"lease record cannot be read: {error}") from error


@dataclass(slots=True)
class Ownership:
    """One claim and when we last saw it renewed, in seconds of the reader's clock."""

    claim: int
    owner: bytes
    address: str
    seen_s: float
    lease_s: float = 0.0
    """For how long its owner reads after a renewal, as it says itself."""
    released: bool = False

    def end_s(self, lease_s: float) -> float:
        """Return from when on its owner surely reads no more; its lease is ``lease_s`` at least."""
        return self.seen_s + max(lease_s, self.lease_s) * (1 + DRIFT)


class LeaseView:
    """The fold of one lease partition as one reader has read it."""

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
            # The claim itself may be trimmed away: every later record names it whole.
            known = Ownership(lease.claim, lease.owner, lease.address, read_s)
            self._ownerships[lease.claim] = known
        known.seen_s = read_s
        known.lease_s = lease.lease_ms / 1000
        if lease.kind == RELEASE:
            known.released = True

    @property
    def last(self) -> Ownership | None:
        """Return the latest claim's ownership: the only one that may write and renew."""
        return self._ownerships[max(self._ownerships)] if self._ownerships else None

    def safe_at(self, claim: int, lease_s: float, *, dead: Collection[bytes] = ()) -> float:
        """Return the earliest time at which ``claim`` may serve.

        Every earlier ownership that is not released may serve reads until a lease after its last
        renewal was sent, hence at the latest its lease times (1 + drift) after we read it. A lease
        is as long as its owner says, and ``lease_s`` at least. Owners in ``dead`` are known to have
        ended.
        """
        waits = [
            known.end_s(lease_s)
            for known in self._ownerships.values()
            if known.claim < claim and not known.released and known.owner not in dead
        ]
        return max(waits, default=0.0)

    def free_since(self, lease_s: float) -> float | None:
        """Return from when on no ownership seen here can serve any more, None where none was seen.

        It may lie ahead. A released one counts too: whoever it is handed to needs a moment.
        """
        ends = [known.end_s(lease_s) for known in self._ownerships.values()]
        return max(ends, default=None)

    def copy(self) -> LeaseView:
        """Return another view that has read the same."""
        twin = LeaseView()
        twin.end = self.end
        twin._ownerships = {claim: replace(known) for claim, known in self._ownerships.items()}
        return twin

    def forget_ended(self, now_s: float, lease_s: float) -> None:
        """Drop ownerships that nobody need wait for any more, but for the last."""
        last = max(self._ownerships, default=0)
        self._ownerships = {
            claim: known
            for claim, known in self._ownerships.items()
            if claim == last or known.end_s(lease_s) > now_s
        }

    def forget_before(self, claim: int) -> None:
        """Drop ownerships older than ``claim``, once it has waited for them."""
        self._ownerships = {c: known for c, known in self._ownerships.items() if c >= claim}
