"""The form of a client's request heads, which reads the next head by one match.

A client sends the same header names in the same order every time, so its connection learns their
form from a request that the parser has taken. A later request that arrives whole, head and body
in one read, and whose head has the form needs no parser. Whatever differs in any byte but those
of the values goes to the parser, which alone decides what is malformed.

A form admits less than the parser does: HTTP/1.1, POST, a plain path, no blank around a value but
one behind the colon, and no header that changes how a message is read.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

__all__ = ["HeadForm", "learned"]

FORMS_REMEMBERED = 64
"""Compiling one takes 1 ms; clients of one SDK share one."""

FRAMING = frozenset(
    (
        *(b"connection", b"proxy-connection", b"upgrade", b"expect"),
        *(b"transfer-encoding", b"te", b"trailer"),
    )
)
"""Names that change how the message, or what follows it, is read: such a head has no form."""

LENGTH = b"content-length"
_START = rb"POST (/[A-Za-z]++) HTTP/1\.1\r\n"
# Possessive, so that a head of any length is refused in one pass. What the parser would strip, a
# blank at either end, does not match.
_VALUE = rb": ?(?! )([ -~\x80-\xff]*+)(?<! )\r\n"
_LENGTH = rb": ?([0-9]{1,9})\r\n"
_NAME = re.compile(rb"[A-Za-z0-9-]+")


class HeadForm(NamedTuple):
    """Matches a head: its groups are the path, then every header's value in order."""

    pattern: re.Pattern[bytes]
    names: tuple[bytes, ...]
    """In lower case, each once."""
    length_group: int
    """Which group is the length of the content."""


def learned(message: bytes, headers_max: int) -> HeadForm | None:
    """Return the form of a whole request that the parser has taken; None if it has none."""
    head, blank, _ = message.partition(b"\r\n\r\n")
    names = tuple(line.partition(b":")[0] for line in head.split(b"\r\n")[1:])
    if not blank or len(names) > headers_max:
        return None
    return _form(names)


@lru_cache(FORMS_REMEMBERED)
def _form(written: tuple[bytes, ...]) -> HeadForm | None:
    names = tuple(name.lower() for name in written)
    if len(set(names)) < len(names) or LENGTH not in names or FRAMING.intersection(names):
        return None
    if not all(map(_NAME.fullmatch, written)):
        return None
    lines = [re.escape(name) + (_LENGTH if name.lower() == LENGTH else _VALUE) for name in written]
    # The first group is the path.
    return HeadForm(re.compile(_START + b"".join(lines) + rb"\r\n"), names, names.index(LENGTH) + 2)
