"""The ids of local transactions, and the rows that record which of them were committed.

An id has the transaction's shard, its start time and sixteen random digits, as in
``s12-00065a1f0c3b2e804f1d2c3b4a596877``. So any worker finds the owner by the id. To clients it is
opaque.

A committed transaction leaves a row in its slot's store and changelog. Its key is ``t`` and the
sixteen bytes of the id's digits, its value the commit stamp (int64, little-endian). Keys sort by
start time, so old ones are found without a full scan.
"""

from __future__ import annotations

import re
from struct import Struct
from typing import NamedTuple

from rowtide.core.values.errors import Rejected, invalid

__all__ = [
    "COMMITS",
    "TransactionId",
    "commit_bound",
    "commit_key",
    "commit_value",
    "commit_write",
    "decode_commit_stamp",
    "parse_id",
    "session_missing",
]

COMMITS = b"t"
"""First byte of the keys of committed transactions."""

_ID = re.compile(r"(s[0-9]{1,18})-([0-9a-f]{16})([0-9a-f]{16})\Z")
_STAMP = Struct("<q")


class TransactionId(NamedTuple):
    """A transaction's id. ``started_us`` is Unix microseconds."""

    shard_id: str
    started_us: int
    random: int

    def __str__(self) -> str:
        return f"{self.shard_id}-{self.started_us:016x}{self.random:016x}"


def parse_id(text: str) -> TransactionId:
    """Return the id in a request. Raises OTSParameterInvalid."""
    found = _ID.match(text)
    if found is None:
        raise invalid("TransactionID is invalid.")
    shard_id, started, random = found.groups()
    return TransactionId(shard_id, int(started, 16), int(random, 16))


def commit_key(transaction_id: TransactionId) -> bytes:
    """Return the key of the row that records a transaction's commit."""
    _, started_us, random = transaction_id
    return COMMITS + started_us.to_bytes(8, "big") + random.to_bytes(8, "big")


def commit_bound(started_us: int) -> bytes:
    """Return a key above those of transactions started before ``started_us``, below the others."""
    return COMMITS + max(0, started_us).to_bytes(8, "big")


def commit_value(stamp: int) -> bytes:
    """Return the value of that row."""
    return _STAMP.pack(stamp)


def commit_write(text: str, stamp: int) -> tuple[bytes, bytes | None]:
    """Return the write that records the commit of the transaction ``text``."""
    return commit_key(parse_id(text)), commit_value(stamp)


def decode_commit_stamp(value: bytes) -> int:
    """Return the commit stamp in a row's value."""
    (stamp,) = _STAMP.unpack(value)
    return int(stamp)


def session_missing() -> Rejected:
    """Return the failure for a transaction that is unknown, finished or timed out."""
    return Rejected("OTSSessionNotExist", "Session not exist or may be timeout.")
