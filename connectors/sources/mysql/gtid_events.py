"""The event that begins a transaction, in the forms of both kinds of servers.

MariaDB    sequence 8 | domain 4 | flags 1 | ... MySQL      flags 1 | server's UUID 16 |
number 8 | type 1 | two logical times 8, 8 |
           time of the commit in us 7, whose highest bit means that another one follows | ...
tagged     version, size, last field, then fields: number, value; numbers are of variable
length
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from typing import NamedTuple
from uuid import UUID

from rowtide.connectors.fields import SettingsRefused

__all__ = ["GTID_EVENTS", "Begun", "parse_gtid_event"]

_MARIADB = Struct("<QIB")
_GOES_ON_BY_ITSELF = 1
"""MariaDB's flag: one statement without a separate end."""
_MYSQL = Struct("<B16sQBQQ")
_LOGICAL_TIMES = 2
_UUID, _GNO, _TAG, _COMMITTED = 1, 2, 3, 6
"""Fields of a tagged event. 0 has flags, 4 and 5 logical times."""


class Begun(NamedTuple):
    """The begin of a transaction.

    ``single``: it ends with its first statement, unless that begins one of several.
    ``time_ms`` is 0 if the event does not have the commit time.
    """

    gtid: str
    single: bool
    time_ms: int


def parse_gtid_event(kind: int, body: bytes, server_id: int) -> Begun:
    """Return the content of an event of ``GTID_EVENTS``. Raises SettingsRefused."""
    return GTID_EVENTS[kind](body, server_id)


def _mariadb(body: bytes, server_id: int) -> Begun:
    sequence, domain, flags = _MARIADB.unpack_from(body)
    return Begun(f"{domain}-{server_id}-{sequence}", bool(flags & _GOES_ON_BY_ITSELF), 0)


def _mysql(body: bytes, server_id: int) -> Begun:
    del server_id
    _, uuid, number, kind, _, _ = _MYSQL.unpack_from(body)
    time_us = 0
    if kind == _LOGICAL_TIMES and len(body) >= _MYSQL.size + 7:
        time_us = int.from_bytes(body[_MYSQL.size : _MYSQL.size + 7], "little") & ~(1 << 55)
    return Begun(f"{UUID(bytes=uuid)}:{number}", True, time_us // 1000)


def _anonymous(body: bytes, server_id: int) -> Begun:
    del body, server_id
    raise SettingsRefused("The server can't be followed: transactions have no GTID (gtid_mode).")


def _mysql_with_tags(body: bytes, server_id: int) -> Begun:
    del server_id
    at = 0
    for _ in range(3):  # The format's version, the size, the last field that a reader must know.
        _, at = _number(body, at)
    numbers: dict[int, int] = {}
    uuid = tag = b""
    for wanted in range(_COMMITTED + 1):
        field, at = _number(body, at)
        assert field == wanted, "the first fields always exist"
        if field == _UUID:
            values = []
            for _ in range(16):
                value, at = _number(body, at)
                values.append(value)
            uuid = bytes(values)
        elif field == _TAG:
            length, at = _number(body, at)
            tag = body[at : at + length]
            at += length
        else:
            numbers[field], at = _number(body, at)
    gtid = f"{UUID(bytes=uuid)}:{tag.decode()}:{numbers[_GNO] >> 1}"  # The last bit is the sign.
    return Begun(gtid, True, numbers[_COMMITTED] // 1000)


def _number(body: bytes, at: int) -> tuple[int, int]:
    """Return a number and its end. The low one-bits of the first byte count the bytes after it."""
    first = body[at]
    more = (~first & first + 1).bit_length() - 1
    end = at + 1 + more
    rest = int.from_bytes(body[at + 1 : end], "little")
    return (rest if more >= 7 else first >> more + 1 | rest << 7 - more), end


GTID_EVENTS: dict[int, Callable[[bytes, int], Begun]] = {
    33: _mysql,
    34: _anonymous,
    42: _mysql_with_tags,
    162: _mariadb,
}
