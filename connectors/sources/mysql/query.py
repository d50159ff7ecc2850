"""The event of a statement, and the settings of its session.

    thread 4 | seconds 4 | length of the database 1 | error 2 | length of the settings 2 |
    settings | database, 0 | statement

The event of LOAD DATA has 13 more bytes after the length of the settings: the number of
the file that was logged before, the place of the file's name in the statement, and how to
treat duplicate keys.

A setting is a code and a value. The code decides the value's length. Codes nearly always
rise, and the ones needed here come early. At an unknown code the rest is not read.
"""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["Query", "parse_query", "without_file"]

_HEAD_BYTES, _FILE_BYTES = 13, 13
_FLAGS, _SQL_MODE, _CATALOG, _CHARSET, _ZONE, _CATALOG_2, _INVOKER, _DATABASES = (
    *(0, 1, 2, 4, 5, 6, 11, 12),
)
_LENGTHS = {_FLAGS: 4, _SQL_MODE: 8, 3: 4, _CHARSET: 6, 7: 2, 8: 2, 9: 8, 10: 4, 13: 3}
_DATABASES_TOO_MANY = 254
_OF_ITS_THREAD = 0x4
"""Flag of an event: the effect depends on the session, for example on a temporary table."""


class Query(NamedTuple):
    """A statement, run in ``database`` with these bits of ``sql_mode``.

    ``text`` is in the charset of the collation with number ``collation``, or UTF-8 if
    that is 0. ``databases`` are those of the tables that it changed, None if unknown.
    ``temporary``: it may be about a temporary table with the name of a followed table.
    """

    database: str
    text: bytes
    mode: int = 0
    collation: int = 0
    databases: tuple[str, ...] | None = None
    temporary: bool = False


def without_file(body: bytes) -> bytes:
    """Return the body of a LOAD DATA event in the form of other statements."""
    return body[:_HEAD_BYTES] + body[_HEAD_BYTES + _FILE_BYTES :]


def parse_query(body: bytes, flags: int = 0) -> Query:
    """Return the content of an event's body and flags."""
    settings_end = _HEAD_BYTES + int.from_bytes(body[11:13], "little")
    database_end = settings_end + body[8]
    query = Query(body[settings_end:database_end].decode(), body[database_end + 1 :])
    query = query._replace(temporary=bool(flags & _OF_ITS_THREAD))
    at = _HEAD_BYTES
    while at < settings_end:
        code, begin = body[at], at + 1
        if code in _LENGTHS:
            at = begin + _LENGTHS[code]
            number = int.from_bytes(body[begin:at], "little")
            if code == _SQL_MODE:
                query = query._replace(mode=number)
            elif code == _CHARSET:
                query = query._replace(collation=number & 0xFFFF)
        elif code in (_CATALOG, _ZONE, _CATALOG_2):
            at = begin + 1 + body[begin] + (code == _CATALOG)
        elif code == _INVOKER:
            at = begin + 1 + body[begin]
            at += 1 + body[at]
        elif code == _DATABASES and body[begin] != _DATABASES_TOO_MANY:
            parts = body[begin + 1 : settings_end].split(b"\0", body[begin])
            names = parts[: body[begin]]
            query = query._replace(databases=tuple(name.decode() for name in names))
            at = begin + 1 + sum(len(name) + 1 for name in names)
        elif code == _DATABASES:
            at = begin + 1
        else:
            break
    return query
