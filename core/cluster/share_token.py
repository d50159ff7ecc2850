"""Share tokens: each allows one thing. A feed token lets a program follow the changes of one table,
or of one key of it. A dashboard token shows the numbers of one dashboard.

A token is a text, ``rts_ID_SECRET``. The catalog keeps its id, which is public, and a digest of the
text. The text itself is shown once. It has 256 random bits, so a plain SHA-256 is enough: nobody
can try that many texts.
"""

from __future__ import annotations

import hashlib
from base64 import urlsafe_b64encode
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from hmac import compare_digest
from typing import Any

__all__ = [
    "DASHBOARD",
    "FEED",
    "SECRET_BYTES",
    "ShareToken",
    "share_token_content",
    "share_token_of",
    "token_digest",
    "token_id_of",
    "token_text",
]

PREFIX = "rts"
SECRET_BYTES = 32
"""Random bytes of a token."""

TEXT_BYTES_MAX = 256
"""Longer texts are no tokens."""

FEED = "feed"
"""The purpose of a token that follows changes."""

DASHBOARD = "dashboard"
"""The purpose of a token that shows one dashboard."""


@dataclass(frozen=True, slots=True)
class ShareToken:
    """What the catalog keeps of a token. ``digest`` is SHA-256 of its text, in hex digits.

    ``instance`` is in lower case. ``table_id`` is of the table that had the name when the token was
    made: a later table of that name is another one. ``key`` is an encoded partition key in hex
    digits; empty for the whole table. ``dashboard`` is the name of a dashboard over the table, of a
    token for one.
    """

    token_id: str
    digest: str
    purpose: str
    instance: str
    table: str
    table_id: int
    key: str
    created_us: int
    dashboard: str = ""

    def matches(self, digest: str) -> bool:
        """True if ``digest`` is this token's. Takes the same time for each digest."""
        return compare_digest(self.digest.encode(), digest.encode())


def token_text(token_id: str, secret: bytes) -> str:
    """Return the text of a token, from its id in hex digits and ``SECRET_BYTES`` random bytes."""
    assert len(secret) == SECRET_BYTES, "a token has 256 random bits"
    return f"{PREFIX}_{token_id}_{urlsafe_b64encode(secret).decode().rstrip('=')}"


def token_id_of(text: str) -> str | None:
    """Return the id within a token's text, None if the text is no token."""
    prefix, _, rest = text.partition("_")
    token_id, separator, secret = rest.partition("_")
    is_token = prefix == PREFIX and separator and secret and len(text) <= TEXT_BYTES_MAX
    return token_id if is_token and token_id.isascii() and token_id.isalnum() else None


def token_digest(text: str) -> str:
    """Return the digest of a token's text."""
    return hashlib.sha256(text.encode()).hexdigest()


def share_token_content(token: ShareToken) -> dict[str, Any]:
    """Return a token's document. A feed token has no field ``dashboard``, as ever."""
    content = asdict(token)
    if not token.dashboard:
        del content["dashboard"]
    return content


def share_token_of(content: Mapping[str, Any]) -> ShareToken:
    """Return a token by its document; fields that a later version added are ignored."""
    known = {field.name for field in fields(ShareToken)}
    return ShareToken(**{name: value for name, value in content.items() if name in known})
