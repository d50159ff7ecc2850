"""Finds the slot of a request on one row before decoding: by its table and its first key value.

This module checks nothing. The worker that answers the request makes all checks. The
handler decides what is not easily found: an unknown table, a transaction, a malformed
key.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from google.protobuf.message import DecodeError

from rowtide.core.protocol.authentication import Identity
from rowtide.core.protocol.operations import OPERATIONS, Route
from rowtide.core.protocol.plainbuffer import first_key_value
from rowtide.core.values import key
from rowtide.stream.api.directory import Directory

__all__ = ["Destination", "destinations"]

Destination = Callable[[Identity, bytes], int | None]
"""Returns the slot of a request's row if another worker serves it, else None."""


def destinations(directory: Directory) -> dict[str, Destination]:
    """Return the function that finds the slot, by operation."""
    by_key = (spec for spec in OPERATIONS.values() if spec.route is Route.KEY)
    return {spec.name: _destination(directory, spec.request, spec.key_field) for spec in by_key}


def _destination(directory: Directory, message: Any, field: str) -> Destination:
    catalog = directory.catalog
    has_transaction = "transaction_id" in message.DESCRIPTOR.fields_by_name

    def slot(identity: Identity, body: bytes) -> int | None:
        try:
            request = message.FromString(body)
        except DecodeError:
            return None
        table = catalog.tables.get((identity.instance, request.table_name))
        if table is None or (has_transaction and request.transaction_id):
            return None
        value = first_key_value(getattr(request, field))
        if value is None:
            return None
        number = catalog.shard_for(table, key.encode((value,))).slot
        return None if directory.has_slot(number) else number

    return slot
