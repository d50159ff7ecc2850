"""What a broker's error code proves about an append, and which requests may be retried.

A produce request with acks=all can fail before the append, during it, or after it. Only
"before" proves that nothing was written. The code alone does not show it. A leader that
is deposed while it waits for its followers answers NOT_LEADER_OR_FOLLOWER for a batch
that is already in its file and may survive. It then reports the batch's base offset
beside the error. An append that never began has base offset -1. So proof needs both: a
code of ``NOT_WRITTEN`` and no offset.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from aiokafka.errors import kafka_errors

from rowtide.core.values.errors import OutcomeUnknown, Rejected, StoreError, Unavailable

__all__ = [
    "ASK_AGAIN",
    "NOT_WRITTEN",
    "BrokerError",
    "NotDurable",
    "append_outcome",
    "code_name",
    "too_large",
]

NO_OFFSET = -1


class NotDurable(Unavailable):
    """A topic's settings could lose an acknowledged write; an operator must change them."""


class BrokerError(Exception):
    """A broker answered with an error code."""

    def __init__(self, code: int, where: str) -> None:
        super().__init__(f"{where}: {code_name(code)}")
        self.code = code


class Proof(NamedTuple):
    """Why ``code`` proves that nothing was written, and the error that the caller gets."""

    failure: Callable[[str], StoreError]
    reason: str


def too_large(message: str) -> Rejected:
    """Return the error for a batch above the log's limit."""
    return Rejected("OTSRequestBodyTooLarge", message)


def make_rejection(message: str) -> Rejected:
    """Return the error for a batch that no broker will ever accept."""
    return Rejected("OTSInternalServerError", message)


NOT_WRITTEN: dict[int, Proof] = {
    2: Proof(Unavailable, "corrupt in transit: the checksum is checked before the append"),
    3: Proof(Unavailable, "this broker has no such partition, so it has no file to append to"),
    6: Proof(Unavailable, "leadership is checked before the append"),
    10: Proof(too_large, "the batch's size is checked before the append"),
    17: Proof(make_rejection, "the topic's name is not a legal one"),
    18: Proof(too_large, "the batch exceeds a segment: checked before the append"),
    19: Proof(Unavailable, "too few replicas in sync, counted before the append"),
    21: Proof(make_rejection, "acks is checked when the request is read"),
    29: Proof(Unavailable, "permission for the topic is checked before the append"),
    31: Proof(Unavailable, "permission for the cluster is checked before the append"),
    32: Proof(
        Unavailable, "times are checked before the append: our clock is ahead of the broker's"
    ),
    35: Proof(make_rejection, "the broker does not know this version of the request"),
    43: Proof(make_rejection, "the topic's message format is checked before the append"),
    76: Proof(make_rejection, "the compression is checked before the append"),
    87: Proof(make_rejection, "records are validated before the append"),
}
"""Broker error codes that prove "not written" if the answer has no offset.

Every other code is unknown, deliberately. 7 REQUEST_TIMED_OUT and 20
NOT_ENOUGH_REPLICAS_AFTER_APPEND come after the append. 56 KAFKA_STORAGE_ERROR may leave
part of a batch that a recovery completes or cuts. -1 UNKNOWN_SERVER_ERROR can be thrown
anywhere.
"""

ASK_AGAIN = frozenset({3, 5, 6, 7, 9, 13, 14, 15, 16, 41, 51, 56, 74, 75, 78, 89})
"""Codes of a leader or coordinator that moved, starts, catches up, still finishes the
former transaction, or throttles us. A request that changes nothing, or is idempotent, is
retried.
"""


def code_name(code: int) -> str:
    """Return a broker error code, with its name if the client library knows one."""
    known: Any = kafka_errors.get(code)
    return f"error {code}" if known is None else f"error {code} ({known.__name__})"


def append_outcome(code: int, offset: int, where: str) -> int | StoreError:
    """Return the base offset of an append, or the error that the broker's answer proves."""
    if code == 0 and offset >= 0:
        return offset
    if code == 0:
        return OutcomeUnknown(f"append to {where}: acknowledged without an offset")
    message = f"append to {where}: {code_name(code)}"
    proof = NOT_WRITTEN.get(code)
    if proof is None or offset != NO_OFFSET:
        return OutcomeUnknown(message)
    return proof.failure(f"{message}: {proof.reason}")
