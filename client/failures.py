"""The meaning of a failed call: from the server's answer, or from the lack of one.

    StoreError
    ├── Rejected              not applied; the same call will fail again
    │   ├── ConditionFailed   the row does not meet the call's condition
    │   └── LogTrimmed        the position is no longer kept
    ├── Unavailable           not applied; the same call may succeed later
    └── OutcomeUnknown        may have been applied: read before you repeat it

Every failure has the server's ``code`` and ``message``, and the ``request_id`` under which the
server logged the request. The id is empty if no answer came.
"""

from __future__ import annotations

from rowtide.core.values.errors import (
    STATUS,
    LogTrimmed,
    OutcomeUnknown,
    Rejected,
    StoreError,
    Unavailable,
)

__all__ = ["ConditionFailed", "failure_of", "no_connection", "without_answer"]

NOT_APPLIED = frozenset(
    (
        "OTSPartitionUnavailable",
        "OTSServerBusy",
        "OTSServerUnavailable",
        "OTSTableNotReady",
        "OTSRowOperationConflict",
        "OTSNotEnoughCapacityUnit",
        "OTSCapacityUnitExhausted",
    )
)
"""Codes of requests that the server has not applied and may apply later."""


class ConditionFailed(Rejected):
    """Not applied: the row does not meet the call's expectation or condition."""

    def __init__(self, message: str = "Condition check failed.") -> None:
        super().__init__("OTSConditionCheckFail", message)


def failure_of(code: str, message: str, request_id: str = "") -> StoreError:
    """Return the failure that an answer reports, for a whole request or for one row."""
    failure = _of_code(code, message)
    failure.request_id = request_id
    failure.add_note(f"{code}, request {request_id or 'unknown'}")
    return failure


def _of_code(code: str, message: str) -> StoreError:
    if code == "OTSTrimmedDataAccess":
        return LogTrimmed(message)
    if code == "OTSConditionCheckFail":
        return ConditionFailed(message)
    if code in NOT_APPLIED or _is_rate(code, message):
        return Unavailable(message, code)
    if code in STATUS and STATUS[code] < 500:
        return Rejected(code, message)
    # An unknown code proves nothing.
    failure = OutcomeUnknown(message)
    failure.code = code
    return failure


def _is_rate(code: str, message: str) -> bool:
    """True if the quota is one of operations per second, which recovers with time."""
    return code == "OTSQuotaExhausted" and "too frequent" in message.lower()


def no_connection(url: str, error: Exception) -> Unavailable:
    """Return the failure of a request that was not sent because no connection could be opened."""
    return Unavailable(_silence(url, error), "OTSServerUnavailable")


def without_answer(url: str, error: Exception) -> OutcomeUnknown:
    """Return the failure of a request that was sent and not answered."""
    return OutcomeUnknown(_silence(url, error))


def _silence(url: str, error: Exception) -> str:
    """Return what is known. A time-out of asyncio has no words of its own."""
    nameless = "timed out" if isinstance(error, TimeoutError) else type(error).__name__
    return f"no answer from {url}: {str(error) or nameless}"
