"""The form of a client's request heads: it reads the next head with one match.

A client sends the same header names in the same order every time. So a connection learns
their form from a request that the parser has accepted. A later request needs no parser if
it arrives whole, head and body in one read, and its head has the form. A head that
differs in any byte outside the values goes to the parser. Only the parser decides what is
malformed.

A form accepts less than the parser does: HTTP/1.1, POST, a plain path, one blank behind a
colon at most, and no header that changes how a message is read.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

__all__ = ["HeadForm", "learn_form"]

FORMS_REMEMBERED = 64
"""Number of cached forms. Compiling one takes 1 ms; clients of one SDK share a form."""

FRAMING = frozenset(
    (
        *(b"connection", b"proxy-connection", b"upgrade", b"expect"),
        *(b"transfer-encoding", b"te", b"trailer"),
    )
)
"""Names that change how the message, or the bytes after it, are read: such a head has no form."""

LENGTH = b"content-length"
_START = rb"POST (/[A-Za-z]++) HTTP/1\.1\r\n"
# Possessive, so that a head of any length is rejected in one pass. A blank at either end
# of a value does not match, because the parser would strip it.
_VALUE = rb": ?(?! )([ -~\x80-\xff]*+)(?<! )\r\n"
_LENGTH = rb": ?([0-9]{1,9})\r\n"
_NAME = re.compile(rb"[A-Za-z0-9-]+")


class HeadForm(NamedTuple):
    """Matches a head: its groups are the path, then every header's value in order."""

    pattern: re.Pattern[bytes]
    names: tuple[bytes, ...]
    """Header names in lower case, each once."""
    length_group: int
    """Number of the group with the content's length."""

    def read_headers(self, head: bytes) -> dict[bytes, bytes]:
        """Return the headers of a head that has the form."""
        found = self.pattern.match(head)
        assert found is not None, "a head of another form"
        return dict(zip(self.names, found.groups()[1:], strict=True))


def learn_form(message: bytes, headers_max: int) -> HeadForm | None:
    """Return the form of a whole request that the parser has accepted; None if it has none."""
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
