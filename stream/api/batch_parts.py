"""The parts of a BatchWriteRow for several workers, and the answer joined from theirs.

Request and answer have the same shape on the wire: tables (field 1), each with its name
(1) and its rows (2). Parts and answers are joined from the bytes of these rows, without
decoding. Bytes that are not in the usual form are decoded as a message, and its rows are
encoded again.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from itertools import chain, repeat
from typing import Any, NamedTuple

from rowtide.core import native
from rowtide.core.protocol.wire import ots_pb2 as pb
from rowtide.core.values.errors import OutcomeUnknown, StoreError
from rowtide.stream.api.batch_reply import row_error
from rowtide.stream.api.row_answers import field
from rowtide.stream.http.tally import UnknownWithin

__all__ = [
    "CheckedBatch",
    "Part",
    "PartResult",
    "divide",
    "join_answers",
    "mark_unknown",
    "part_bodies",
    "row_fields",
]

Part = list[tuple[str, list[int]]]
"""One worker's part of a batch: tables by name, each with its rows' places in the request."""

PartResult = bytes | StoreError
"""A worker's answer to its part of a batch, or the error of its part."""

_TABLE, _ROW = 0x0A, 0x12
_ATOMIC = pb.BatchWriteRowRequest(is_atomic=True).SerializeToString()


class CheckedBatch(NamedTuple):
    """A BatchWriteRow without an error that rejects it as a whole.

    ``fields`` are its rows as they arrived, by table; None if their bounds are not easily
    found. ``first_values`` has the first key value of every row, which decides its
    worker; None: the row is rejected on any worker. ``write`` writes a part on this
    worker. It returns None if the handler must read the part again, because a table is
    missing or has changed since the check.
    """

    request: pb.BatchWriteRowRequest
    fields: Sequence[Sequence[bytes]] | None
    first_values: Sequence[bytes | None]
    write: Callable[[Part], Awaitable[bytes] | None]


def divide(request: pb.BatchWriteRowRequest, whose: Sequence[Sequence[str]]) -> dict[str, Part]:
    """Return each worker's part by its address; ``whose`` has every row's address, by table."""
    found: dict[str, Part] = {}
    place = 0
    for wanted, addresses in zip(request.tables, whose, strict=True):
        places: dict[str, list[int]] = {}
        for at, address in enumerate(addresses, place):
            places.setdefault(address, []).append(at)
        place += len(addresses)
        for address, its in places.items():
            found.setdefault(address, []).append((wanted.table_name, its))
    return found


def part_bodies(
    request: pb.BatchWriteRowRequest,
    fields: Sequence[Sequence[bytes]] | None,
    divided: Mapping[str, Part],
) -> dict[str, bytes]:
    """Return the request for each part. ``fields`` are the rows as they arrived, if known."""
    rows = [*chain.from_iterable(fields or _encode_rows(request))]
    atomic = _ATOMIC if request.is_atomic else b""
    return {
        address: b"".join([*(_table(name, [rows[at] for at in its]) for name, its in part), atomic])
        for address, part in divided.items()
    }


def join_answers(
    request: pb.BatchWriteRowRequest,
    whose: Sequence[Sequence[str]],
    answers: Mapping[str, PartResult],
) -> bytes:
    """Return the answer to a divided batch, its rows in the request's order."""
    rows = {address: _results(result) for address, result in answers.items()}
    tables = [
        _table(wanted.table_name, [next(rows[address]) for address in addresses])
        for wanted, addresses in zip(request.tables, whose, strict=True)
    ]
    return mark_unknown(b"".join(tables), answers)


def mark_unknown(answer: bytes, answers: Mapping[str, PartResult]) -> bytes:
    """Return an answer's bytes, as ``UnknownWithin`` if a row's outcome is unknown."""
    unknown = any(isinstance(result, UnknownWithin | OutcomeUnknown) for result in answers.values())
    return UnknownWithin(answer) if unknown else answer


def _results(result: PartResult) -> Iterator[bytes]:
    """Return the results of the rows of a part, in the order in which its worker got them."""
    if isinstance(result, StoreError):
        return repeat(field(2, row_error(result)))
    rows = row_fields(result) or _encode_rows(pb.BatchWriteRowResponse.FromString(result))
    return chain.from_iterable(rows)


def _table(name: str, rows: Sequence[bytes]) -> bytes:
    return field(1, b"".join((field(1, name.encode()), *rows)))


def _encode_rows(message: Any) -> list[list[bytes]]:
    """Return the rows of each table, encoded again from the message."""
    return [
        [field(2, row.SerializePartialToString()) for row in table.rows] for table in message.tables
    ]


# Slices of received bytes.


class _Unusual(Exception):
    """Bytes in which the bounds of the fields are not easily found."""


def row_fields(message: bytes, counts: Sequence[int] = ()) -> list[list[bytes]] | None:
    """Return the rows of each table, each a whole field; None if they are not easily found.

    Returns None, too, if a table has another number of rows than ``counts`` says, if
    given.
    """
    tables = native.kernels.row_fields(message)
    try:
        tables = tables or [
            _fields(table, _ROW, _content(table)) for table in _fields(message, _TABLE, 0)
        ]
    except (IndexError, _Unusual):
        return None
    return None if counts and [*map(len, tables)] != [*counts] else tables


def _content(whole: bytes) -> int:
    """Return where the content of a field begins, after tag and length."""
    at = 1
    while whole[at] > 127:
        at += 1
    return at + 1


def _fields(message: bytes, wanted: int, at: int) -> list[bytes]:
    """Return the fields of one tag from ``at`` on, each whole: tag, length and content."""
    found: list[bytes] = []
    end = len(message)
    while at < end:
        begin, tag, size = at, message[at], message[at + 1]
        at += 2
        if tag & 0x87 == 0:  # A number; a larger tag takes more than a byte.
            while size > 127:
                size, at = message[at], at + 1
            continue
        if tag & 0x87 != 2:
            raise _Unusual
        if size > 127:
            size, at = _length(message, begin + 1)
        at += size
        if tag == wanted:
            found.append(message[begin:at])
    if at != end:
        raise _Unusual
    return found


def _length(message: bytes, at: int) -> tuple[int, int]:
    """Return the length at ``at``, which has several bytes, and the offset after it."""
    high = message[at + 1]
    if high < 128:
        return message[at] & 127 | high << 7, at + 2
    size = shift = 0
    while shift < 35:
        byte = message[at]
        size |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return size, at
    raise _Unusual
