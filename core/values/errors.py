"""What a caller may assume after a failure, and how a client receives each failure.

    StoreError
    ├── Rejected         not applied; the same request will fail again
    │   └── LogTrimmed   the requested position is no longer kept
    ├── Unavailable      not applied; the same request may succeed later
    │   └── Elsewhere    another worker serves the slot
    └── OutcomeUnknown   may have been applied; the log did not answer in time

A failure carries the protocol's error code and a message; ``STATUS`` maps each code to its
HTTP status. Codes and texts are those of the service, as the official SDKs expect them.
"""

from __future__ import annotations

from typing import Self

__all__ = [
    "STATUS",
    "Elsewhere",
    "LogTrimmed",
    "NotBuilt",
    "OutcomeUnknown",
    "Rejected",
    "StoreError",
    "Unavailable",
    "condition_failure",
    "first_failure",
    "invalid",
    "invalid_key",
    "no_such_operation",
    "no_table",
]

STATUS: dict[str, int] = {
    "OTSAuthFailed": 403,
    "OTSNoPermissionAccess": 403,
    "OTSParameterInvalid": 400,
    "OTSInvalidPK": 400,
    "OTSRequestBodyTooLarge": 413,
    "OTSRequestTimeout": 408,
    "OTSMethodNotAllowed": 405,
    "OTSObjectNotExist": 404,
    "OTSObjectAlreadyExist": 409,
    "OTSTableNotReady": 404,
    "OTSPartitionUnavailable": 503,
    "OTSServerBusy": 503,
    "OTSServerUnavailable": 503,
    "OTSTimeout": 503,
    "OTSInternalServerError": 500,
    "OTSRowOperationConflict": 409,
    "OTSConditionCheckFail": 403,
    "OTSNotEnoughCapacityUnit": 403,
    "OTSCapacityUnitExhausted": 403,
    "OTSQuotaExhausted": 403,
    "OTSTooFrequentReservedThroughputAdjustment": 403,
    "OTSOutOfColumnCountLimit": 400,
    "OTSOutOfRowSizeLimit": 400,
    "OTSTrimmedDataAccess": 404,
    "OTSSessionNotExist": 404,
    "OTSDataOutOfRange": 400,
    "OTSUnsupportOperation": 400,
}
"""HTTP status per error code. Unknown codes are a programming error, so there is no default."""

MESSAGE_MAX = 4096
"""Longest message of a failure in characters: four names of maximal length, and the sentence."""


class StoreError(Exception):
    """A failure that a client receives.

    ``code`` is a key of ``STATUS``. ``message`` names the thing, the limit and the value. The value
    may be as long as a request, so the message is cut at ``MESSAGE_MAX`` characters. ``request_id``
    is set by clients: the id that the server gave their request, empty if no answer came.
    """

    request_id = ""

    def __init__(self, code: str, message: str) -> None:
        if len(message) > MESSAGE_MAX:
            message = f"{message[: MESSAGE_MAX - 3]}..."
        super().__init__(message)
        self.code = code
        self.message = message

    @property
    def status(self) -> int:
        """HTTP status of the answer."""
        return STATUS[self.code]


class Rejected(StoreError):
    """Not applied, and the same request will fail again.

    ``beyond``: the missing object may be in a part of the catalog that was not read here.
    """

    beyond = False

    def unless(self, *, beyond: bool) -> Self:
        """Return this failure. ``beyond``: the catalog was not read to its end."""
        self.beyond = beyond
        return self


class NotBuilt(Rejected):
    """A local index cannot be read: it does not have all rows, as far as the catalog was read.

    The catalog must be read to its end before a client receives this. Another worker may have
    reported the index as built already.
    """

    def __init__(self) -> None:
        super().__init__("OTSParameterInvalid", "Disallow read local index")


class Unavailable(StoreError):
    """Not applied, and the same request may succeed later."""

    def __init__(
        self,
        message: str = "The partition is not available.",
        code: str = "OTSPartitionUnavailable",
    ) -> None:
        super().__init__(code, message)


class Elsewhere(Unavailable):
    """Not applied: another worker serves ``slot``, so retry there."""

    def __init__(self, slot: int) -> None:
        super().__init__()
        self.slot = slot


class OutcomeUnknown(StoreError):
    """May have been applied: the log did not answer in time. Never retried as if it had failed."""

    def __init__(self, message: str = "Operation timeout.") -> None:
        super().__init__("OTSTimeout", message)


class LogTrimmed(Rejected):
    """The requested position is before the first record that is still kept."""

    def __init__(
        self, message: str = "Requested stream data is already trimmed or does not exist."
    ) -> None:
        super().__init__("OTSTrimmedDataAccess", message)


def invalid(message: str) -> Rejected:
    """Return an OTSParameterInvalid failure."""
    return Rejected("OTSParameterInvalid", message)


def invalid_key(message: str) -> Rejected:
    """Return an OTSInvalidPK failure."""
    return Rejected("OTSInvalidPK", message)


def no_table() -> Rejected:
    """Return the failure for an operation on a table that does not exist."""
    return Rejected("OTSObjectNotExist", "Requested table does not exist.")


def condition_failure() -> Rejected:
    """Return the failure of a row expectation or a column condition."""
    return Rejected("OTSConditionCheckFail", "Condition check failed.")


def no_such_operation(operation: str) -> Rejected:
    """Return the failure of an operation that the protocol has and this server lacks."""
    return Rejected("OTSUnsupportOperation", f"Unsupported operation: {operation}.")


def first_failure(failures: BaseExceptionGroup[BaseException]) -> BaseException:
    """Return the first failure of a group, at any depth."""
    found: BaseException = failures
    while isinstance(found, BaseExceptionGroup):
        found = found.exceptions[0]
    return found
