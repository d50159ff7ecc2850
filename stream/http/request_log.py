"""Logs failed requests and slow ones, under the request id that the client has.

A line has the request's id, operation, instance and tables, the error's code and the
seconds. It never has a row's key or value, or an access key's secret. The log record
carries the same as ``fields``, for a log that programs read.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from google.protobuf.message import DecodeError

from rowtide.core.protocol.operations import OPERATIONS
from rowtide.core.values.errors import StoreError
from rowtide.core.values.limits import Limits
from rowtide.core.values.schema import is_table_name
from rowtide.stream.http.request import Request
from rowtide.stream.http.tally import OTHER

__all__ = ["RequestLog", "find_table_names"]

logger = logging.getLogger(__name__)

LOG_EVERY_S = 1.0
TABLES_SHOWN_MAX = 5
BODY_READ_MAX = 8 * 1024 * 1024
"""A longer body is not read a second time for its tables' names: other requests would wait."""

LIMITS = Limits()


class _Seldom:
    """Lets one of many similar events per second be logged, and counts the others."""

    def __init__(self) -> None:
        self._logged_at = float("-inf")
        self._skipped = 0

    def due(self, now_s: float) -> int | None:
        """Return the number of skipped events since the last logged one; None: skip this too."""
        if now_s - self._logged_at < LOG_EVERY_S:
            self._skipped += 1
            return None
        skipped, self._skipped, self._logged_at = self._skipped, 0, now_s
        return skipped


class RequestLog:
    """Logs the requests of an edge.

    A request that takes ``slow_s`` or longer is slow; 0: none is. ``now`` gives steady
    seconds.
    """

    def __init__(self, slow_s: float, now: Callable[[], float]) -> None:
        self.slow_s = slow_s or float("inf")
        self._now = now
        self._slow = _Seldom()
        self._turned_away = _Seldom()

    def log_failure(self, request: Request, failure: StoreError) -> None:
        """Log a request that failed through no fault of its client.

        A request without an id never existed: its connection was beyond the limit. There
        may be thousands, so they are logged once per second.
        """
        if not request.request_id:
            self._log_rejected_connection(failure)
            return
        fields = _fields(request) | {"code": failure.code}
        logger.warning(
            "%s: %s %s", _name(fields), failure.code, failure.message, extra={"fields": fields}
        )

    def _log_rejected_connection(self, failure: StoreError) -> None:
        more = self._turned_away.due(self._now())
        if more is not None:
            fields = {"code": failure.code, "more": more}
            logger.warning(
                "connection rejected: %s%s",
                failure.message.rstrip("."),
                _beside(more),
                extra={"fields": fields},
            )

    def log_unknown_rows(self, request: Request) -> None:
        """Log a batch in which a row's outcome is unknown."""
        fields = _fields(request) | {"code": "OTSTimeout"}
        logger.warning(
            "%s: the outcome of some of its rows is unknown",
            _name(fields),
            extra={"fields": fields},
        )

    def log_fault(self, request: Request, error: BaseException | str) -> None:
        """Log an internal error."""
        fields = _fields(request)
        trace = error if isinstance(error, BaseException) else None
        why = "failed" if trace is not None else error
        logger.error("%s: %s", _name(fields), why, exc_info=trace, extra={"fields": fields})

    def log_slow(self, request: Request, seconds: float) -> None:
        """Log a slow request: one per second, with the number of skipped ones."""
        more = self._slow.due(self._now())
        if more is None:
            return
        fields = _fields(request) | {"seconds": round(seconds, 6)}
        if more:
            fields["more"] = more
        logger.warning(
            "%s: slow: %.3f s%s", _name(fields), seconds, _beside(more), extra={"fields": fields}
        )


def _beside(more: int) -> str:
    return f", and {more} more since the last such line" if more else ""


def _fields(request: Request) -> dict[str, Any]:
    operation = request.operation.name if request.operation is not None else OTHER
    fields: dict[str, Any] = {
        "request_id": request.request_id.decode(),
        "operation": operation,
    }
    if request.identity is not None:
        fields["instance"] = request.identity.instance
        if tables := find_table_names(operation, request.content):
            fields["table"] = ",".join(tables[:TABLES_SHOWN_MAX])
    return fields


def _name(fields: dict[str, Any]) -> str:
    place = "/".join(str(fields[name]) for name in ("instance", "table") if name in fields)
    of = f" of {place}" if place else ""
    return f"request {fields['request_id']} {fields['operation']}{of}"


def find_table_names(operation: str, content: bytes) -> list[str]:
    """Return the tables that a request names; none if it cannot be read or is very long.

    A text that cannot be a table's name is left out: it may be of any length and contain
    line ends.
    """
    spec = OPERATIONS.get(operation)
    if len(content) > BODY_READ_MAX or spec is None or spec.request is None:
        return []
    try:
        message: Any = spec.request.FromString(content)
    except DecodeError:
        return []
    known = {f.name for f in spec.request.DESCRIPTOR.fields}
    names: list[str] = []
    if "table_meta" in known:
        names.append(message.table_meta.table_name)
    names += [getattr(message, f) for f in ("table_name", "main_table_name") if f in known]
    if "stream_id" in known:
        names.append(message.stream_id.rpartition("_")[0])
    if "tables" in known:
        names += [table.table_name for table in message.tables]
    # A name that is not UTF-8 arrives as bytes, whatever its type says.
    return [
        name
        for name in dict.fromkeys(names)
        if isinstance(name, str) and is_table_name(name, LIMITS)
    ]
