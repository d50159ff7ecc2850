"""The headers that sign one request for a key pair; all of our clients send them.

They are of version 2 of the protocol's signature; ``signature.py`` has what is signed.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import NamedTuple

from rowtide.core.protocol import signature

__all__ = ["Access", "sign_headers"]


class Access(NamedTuple):
    """The sender of a request, and the instance that it addresses."""

    instance: str
    key_id: str
    key_secret: str


def sign_headers(
    access: Access,
    operation: str,
    body: bytes,
    now: datetime,
    more: Mapping[bytes, bytes] | None = None,
) -> dict[str, str]:
    """Return the headers of one request. The server accepts them within 15 minutes of ``now``.

    ``more`` are further ``x-ots-`` headers, names in lower case.
    """
    date = now.strftime("%Y-%m-%dT%H:%M:%S.") + f"{now.microsecond // 1000:03}Z"
    headers = {
        b"x-ots-accesskeyid": access.key_id.encode(),
        b"x-ots-apiversion": b"2015-12-31",
        b"x-ots-contentmd5": signature.content_md5(body),
        b"x-ots-date": date.encode(),
        b"x-ots-instancename": access.instance.encode(),
        **(more or {}),
    }
    text = signature.string_to_sign(b"/" + operation.encode(), headers)
    headers[b"x-ots-signature"] = signature.request_signature_v2(access.key_secret.encode(), text)
    return {name.decode(): value.decode() for name, value in headers.items()}
