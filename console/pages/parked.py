"""Rows that a connector's target rejected: shown, retried or skipped."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Sequence
from typing import Any

from rowtide.client.endpoint import Endpoint
from rowtide.connectors.runtime.declarations import Declarations, DeclaredConnector
from rowtide.connectors.runtime.parking import ParkedEntry, ParkedRows
from rowtide.console.web.refusals import RequestRefused

__all__ = ["read_parking", "request_parking"]

SHOWN_MAX = 200
"""Rows in a page."""

TEXT_CHARACTERS_MAX = 20_000


async def read_parking(
    endpoint: Endpoint, declared: DeclaredConnector, hidden: Collection[tuple[str, str]]
) -> tuple[list[dict[str, Any]], int]:
    """Return the parked rows of a connector, and how many more there are."""
    found = list((await _entries_by_key(endpoint, declared.name)).values())
    table = declared.declaration.table if declared.declaration is not None else ""
    shown = [_document(entries, table, hidden) for entries in found[:SHOWN_MAX]]
    return shown, max(0, len(found) - SHOWN_MAX)


async def request_parking(
    endpoint: Endpoint, name: str, ids: Sequence[str], action: str, *, is_all: bool
) -> int:
    """Ask for parked rows to be retried or skipped; return how many. The connector's process does.

    Raises ``RequestRefused`` if no row is named, or one that is not parked.
    """
    found = {
        _id(entries[0]): entries for entries in (await _entries_by_key(endpoint, name)).values()
    }
    wanted = list(found) if is_all else list(dict.fromkeys(ids))
    if not wanted:
        raise RequestRefused(400, "connectors.no_parked")
    if missing := [id_ for id_ in wanted if id_ not in found]:
        raise RequestRefused(404, "connectors.unknown_parked", id=missing[0])
    rows = ParkedRows(endpoint, name)
    for id_ in wanted:
        await rows.want(found[id_][0], action)
    await Declarations(endpoint).ask(name)
    return len(wanted)


async def _entries_by_key(endpoint: Endpoint, name: str) -> dict[bytes, list[ParkedEntry]]:
    by_key: dict[bytes, list[ParkedEntry]] = {}
    for entry in await ParkedRows(endpoint, name).all():
        by_key.setdefault(entry.key_bytes, []).append(entry)
    return by_key


def _id(entry: ParkedEntry) -> str:
    """Return a short name of a key, the one that `rowtide connector parked` shows."""
    return hashlib.sha256(entry.key_bytes).hexdigest()[:10]


def _document(
    entries: Sequence[ParkedEntry], table: str, hidden: Collection[tuple[str, str]]
) -> dict[str, Any]:
    first = entries[0]
    row = json.loads(first.text) if first.text else None
    if row is not None:
        _hide(row, table, hidden)
    text = json.dumps(row, ensure_ascii=False, indent=2) if row is not None else ""
    return {
        "id": _id(first),
        "key": json.dumps(row["key"], ensure_ascii=False) if row is not None else "",
        "reason": first.reason,
        "parked_s": first.parked_us // 1_000_000,
        "waiting": len(entries) - 1 + first.later,
        "wanted": first.wanted,
        "row": text[:TEXT_CHARACTERS_MAX],
        "is_cut": len(text) > TEXT_CHARACTERS_MAX,
    }


def _hide(row: dict[str, Any], table: str, hidden: Collection[tuple[str, str]]) -> None:
    """Remove the values of hidden columns. The reason may name a value: it goes with them."""
    for part in ("key", "columns", "before"):
        for name in row.get(part) or {}:
            if (table, name) in hidden:
                row[part][name] = None
