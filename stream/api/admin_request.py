"""Requests to rowtide itself: bodies and answers are JSON, and most need an admin key."""

from __future__ import annotations

import json
from collections.abc import Awaitable
from typing import Any

from rowtide.core.cluster.catalog import Catalog
from rowtide.core.protocol.authentication import Identity
from rowtide.core.values.errors import Rejected, invalid
from rowtide.stream.http.tally import Handler

__all__ = ["admin_only", "json_answer", "json_fields"]


def admin_only(catalog: Catalog, handler: Handler) -> Handler:
    """Return a handler that raises OTSNoPermissionAccess unless the key has the admin right."""

    def answer(identity: Identity, body: bytes) -> bytes | Awaitable[bytes]:
        _require_admin(catalog, identity)
        return handler(identity, body)

    return answer


def _require_admin(catalog: Catalog, identity: Identity) -> None:
    key = catalog.keys.get(identity.access_key_id)
    if key is None or not key.admin:
        raise Rejected(
            "OTSNoPermissionAccess",
            "You have no permission to access the requested resource, please contact the "
            "resource owner",
        )


def json_fields(body: bytes, known: set[str]) -> dict[str, Any]:
    """Return a JSON object with no other fields than ``known``. Raises OTSParameterInvalid."""
    try:
        fields = json.loads(body or b"{}")
        # Half of a surrogate pair is JSON, but no text that an answer could repeat.
        json.dumps(fields, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:
        raise invalid(f"Invalid request body: not JSON: {error}.") from error
    if not isinstance(fields, dict):
        raise invalid("Invalid request body: not a JSON object.")
    if unknown := sorted(set(fields) - known):
        raise invalid(f"Unknown field '{unknown[0]}': known are {', '.join(sorted(known))}.")
    return fields


def json_answer(answer: dict[str, Any]) -> bytes:
    """Return an answer's body."""
    return json.dumps(answer).encode()
