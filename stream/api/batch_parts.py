"""The parts that several workers get of a BatchWriteRow, and its answer made of theirs.

Request and answer look alike on the wire: tables (field 1), each with its name (1) and its rows
(2). Parts and answers are joined from the very bytes of these rows. Where bytes are not as all
writers have them, they are read as a message, whose rows are written anew.
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
    "Told",
    "divide",
    "joined",
    "marked",
    "part_bodies",
    "row_fields",
]

Part = list[tuple[str, list[int]]]
"""What one worker gets of a batch: tables by name, each with its rows' places in the request."""

Told = bytes | StoreError
"""A worker's answer to its part of a batch, or what went wrong with it."""

_TABLE, _ROW = 0x0A, 0x12
_ATOMIC = pb.BatchWriteRowRequest(is_atomic=True).SerializeToString()


class CheckedBatch(NamedTuple):
    """A BatchWriteRow that nothing refuses whole.

    ``fields`` are its rows as they came, by table; None where that can't be told at a glance.
    ``first_values`` says of every row where it goes; None: it is refused wherever it is. ``write``
    writes a part here. It returns None where that is for the handler, who reads the part again: a
    table is not there, or is not what it was when the rows were checked.
    """

    request: pb.BatchWriteRowRequest
    fields: Sequence[Sequence[bytes]] | None
    first_values: Sequence[bytes | None]
    write: Callable[[Part], Awaitable[bytes] | None]


def divide(request: pb.BatchWriteRowRequest, whose: Sequence[Sequence[str]]) -> dict[str, Part]:
    """Return each worker's part by its address; ``whose`` has that of every row, by table."""
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
    """Return the requests for the parts of one whose rows came as ``fields``, if that is known."""
    rows = [*chain.from_iterable(fields or _written(request))]
    atomic = _ATOMIC if request.is_atomic else b""
    return {
        address: b"".join([*(_table(name, [rows[at] for at in its]) for name, its in part), atomic])
        for address, part in divided.items()
    }


def joined(
    request: pb.BatchWriteRowRequest,
    whose: Sequence[Sequence[str]],
    answers: Mapping[str, Told],
) -> bytes:
    """Return the answer to a divided batch, its rows in the request's order."""
    rows = {address: _results(told) for address, told in answers.items()}
    tables = [
        _table(wanted.table_name, [next(rows[address]) for address in addresses])
        for wanted, addresses in zip(request.tables, whose, strict=True)
    ]
    return marked(b"".join(tables), answers)


def marked(answer: bytes, answers: Mapping[str, Told]) -> bytes:
    """Return an answer's bytes, of a kind of their own where a row's outcome is unknown."""
    unknown = any(isinstance(told, UnknownWithin | OutcomeUnknown) for told in answers.values())
    return UnknownWithin(answer) if unknown else answer


def _results(told: Told) -> Iterator[bytes]:
    """Return the results of the rows of a part, in the order in which its worker got them."""
    if isinstance(told, StoreError):
        return repeat(field(2, row_error(told)))
    rows = row_fields(told) or _written(pb.BatchWriteRowResponse.FromString(told))
    return chain.from_iterable(rows)


def _table(name: str, rows: Sequence[bytes]) -> bytes:
    return field(1, b"".join((field(1, name.encode()), *rows)))


def _written(message: Any) -> list[list[bytes]]:
    """Return the rows of each table as they are written when they are written anew."""
    return [
        [field(2, row.SerializePartialToString()) for row in table.rows] for table in message.tables
    ]


# Slices of bytes that came.


class _Unusual(Exception):
    """Bytes of which it can't be told at a glance where the fields are."""


def row_fields(message: bytes, counts: Sequence[int] = ()) -> list[list[bytes]] | None:
    """Return the rows of each table, each a whole field; None: they can't be told at a glance.

    They can't where there are others than ``counts``, if that is given, has of each table.
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
    """Return where the content of a field begins, behind tag and length."""
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
    """Return the length at ``at``, of which more than one byte is there, and where it ends."""
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
