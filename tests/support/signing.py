"""Which version of the protocol's signature tests send that do not say it themselves.

Version 2 by default. With ``ROWTIDE_TEST_SIGNATURE=v4`` the same tests sign with version 4, as
``make test-all`` does in its run on Kafka.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from datetime import datetime

from rowtide.core.protocol import signature
from rowtide.core.protocol.signed_request import Access, sign_headers

__all__ = ["REGION", "SIGNATURE", "headers_v4"]

SIGNATURE = os.environ.get("ROWTIDE_TEST_SIGNATURE") or "v2"
REGION = "cn-hangzhou"


def headers_v4(
    access: Access,
    operation: str,
    body: bytes,
    now: datetime,
    more: Mapping[bytes, bytes] | None = None,
) -> dict[str, str]:
    """Return the headers of one request, as ``sign_headers`` does, signed with version 4."""
    date, region = now.strftime("%Y%m%d").encode(), REGION.encode()
    signed = {**(more or {}), b"x-ots-signdate": date, b"x-ots-signregion": region}
    headers = sign_headers(access, operation, body, now, signed)
    del headers["x-ots-signature"]
    key = signature.signing_key_v4(access.key_secret.encode(), date, region)
    encoded = {name.encode(): value.encode() for name, value in headers.items()}
    text = signature.string_to_sign(b"/" + operation.encode(), encoded)
    headers["x-ots-signaturev4"] = signature.request_signature_v4(key, text).decode()
    return headers
