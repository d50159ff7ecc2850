"""The row browser: a range of a table, page by page, or the rows whose key begins with something.

The address has all that was asked for, and the key at which the page begins. Nothing is kept
between two pages. The page works without JavaScript.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from aiohttp import web

from rowtide.client.row_values import RowDict
from rowtide.connectors.fields import SettingsRefused
from rowtide.connectors.runtime.row_filter import RowTest, parse_test
from rowtide.console.pages.cell_text import BadValueText, key_text, parse_key_field, show_value
from rowtide.console.pages.row_reading import (
    COLUMNS_SHOWN,
    ROWS_EXAMINED_MAX,
    BrowsedTable,
    RowQuery,
    RowReader,
    RowsPage,
    read_shape,
)
from rowtide.console.web.refusals import RequestRefused
from rowtide.console.web.render import render_status
from rowtide.console.web.routes import CALLS, SETTINGS, WebRoute, wants_json
from rowtide.console.web.sessions import credentials_of
from rowtide.core.values.variant import Scalar

__all__ = ["ROWS_ROUTES", "find_table", "key_query", "parse_key_fields"]

ROWS_MAX = 100
"""Rows of one page: with its frame, less than 200 rows in the page."""
FILTER_CHARACTERS_MAX = 4096
AT_BYTES_MAX = 16 * 1024


@dataclass(frozen=True, slots=True)
class ListedRow:
    """A row of the list. ``values`` has one for each column of the list, None where it has none."""

    address: str
    values: list[Any]
    has_more: bool


async def find_table(request: web.Request) -> tuple[RowReader, BrowsedTable]:
    """Return the table that a page's address names, and what reads it with the person's key."""
    calls, credentials = request.app[CALLS], credentials_of(request)
    instance, table = request.match_info["instance"], request.match_info["table"]
    hidden = request.app[SETTINGS].hidden_columns
    shape = await read_shape(calls, credentials, instance, table, hidden)
    return RowReader(calls, credentials, instance, shape), shape


async def show_rows(request: web.Request) -> web.StreamResponse:
    """Show a page of rows."""
    reader, shape = await find_table(request)
    try:
        query = parse_query(shape, request.query)
    except BadValueText as error:
        problem = {"key": error.key, **error.values}
        return _render(request, shape, RowQuery(), RowsPage(), problem=problem, status=400)
    if len(query.prefix) == len(shape.key):
        end = ".json" if wants_json(request) else ""
        place = f"{_table_address(request)}/row{end}?{urlencode(key_query(shape, query.prefix))}"
        return web.Response(status=303, headers={"Location": place})
    page = await reader.read_page(query)
    return _render(request, shape, query, page)


def parse_query(shape: BrowsedTable, fields: Mapping[str, str]) -> RowQuery:
    """Return what the address asks for. Raises ``BadValueText``."""
    prefix = parse_key_fields(shape, fields, "key")
    start, end = parse_key_fields(shape, fields, "from"), parse_key_fields(shape, fields, "to")
    if prefix and (start or end):
        raise BadValueText("rows.key_or_range")
    return RowQuery(
        prefix=prefix,
        start=start,
        end=end,
        is_reverse=fields.get("reverse") == "1",
        filter=_parse_filter(shape, fields.get("filter", "").strip()),
        columns=_parse_columns(shape, fields.get("columns", "")),
        at=_parse_at(fields.get("at", "")),
        rows_max=_parse_count(fields.get("count", "")),
    )


def parse_key_fields(
    shape: BrowsedTable, fields: Mapping[str, str], name: str
) -> tuple[Scalar, ...]:
    """Return the values of ``name1``, ``name2`` ..., as many as are given, without a gap.

    Raises ``BadValueText``.
    """
    texts = [fields.get(f"{name}{at + 1}", "") for at in range(len(shape.key))]
    while texts and not texts[-1]:
        texts.pop()
    if "" in texts:
        column = shape.key[texts.index("")]
        raise BadValueText("rows.key_gap", column=column)
    return tuple(
        parse_key_field(kind, text) for kind, text in zip(shape.types, texts, strict=False)
    )


def key_query(shape: BrowsedTable, key: Sequence[Scalar]) -> dict[str, str]:
    """Return the fields of an address that names a key."""
    return {f"key{at + 1}": key_text(value) for at, value in enumerate(key)}


def _parse_filter(shape: BrowsedTable, text: str) -> RowTest | None:
    if not text:
        return None
    if len(text) > FILTER_CHARACTERS_MAX:
        raise BadValueText("rows.filter_long", length=len(text), most=FILTER_CHARACTERS_MAX)
    try:
        test = parse_test(text, "filter")
    except SettingsRefused as error:
        raise BadValueText("rows.filter_wrong", reason=str(error)) from error
    if hidden := sorted(test.columns & shape.hidden):
        raise BadValueText("rows.hidden_column", column=hidden[0])
    return test


def _parse_columns(shape: BrowsedTable, text: str) -> tuple[str, ...]:
    names = [name.strip() for name in text.split(",") if name.strip()]
    shown = [name for name in dict.fromkeys(names) if name not in shape.key]
    if len(shown) > COLUMNS_SHOWN:
        raise BadValueText("rows.columns_many", count=len(shown), most=COLUMNS_SHOWN)
    if hidden := sorted(set(shown) & shape.hidden):
        raise BadValueText("rows.hidden_column", column=hidden[0])
    return tuple(shown)


def _parse_at(text: str) -> bytes:
    if len(text) > AT_BYTES_MAX:
        raise RequestRefused(400, "rows.bad_at")
    try:
        padded = text.encode() + b"=" * (-len(text) % 4)
        return base64.b64decode(padded, altchars=b"-_", validate=True)
    except (ValueError, binascii.Error) as error:
        raise RequestRefused(400, "rows.bad_at") from error


def _parse_count(text: str) -> int:
    if not text:
        return RowQuery().rows_max
    if not (text.isascii() and text.isdigit() and len(text) < 6 and 1 <= int(text) <= ROWS_MAX):
        raise BadValueText("rows.bad_count", most=ROWS_MAX)
    return int(text)


def _table_address(request: web.Request) -> str:
    """Return the address of a table's pages, as the browser wrote it."""
    path: str = request.rel_url.raw_path
    return path.rpartition("/rows")[0]


def _render(
    request: web.Request,
    shape: BrowsedTable,
    query: RowQuery,
    page: RowsPage,
    *,
    problem: dict[str, object] | None = None,
    status: int = 200,
) -> web.Response:
    columns = query.columns or _list_columns(shape, page.rows)
    fields = {name: value for name, value in request.query.items() if value and name != "at"}
    next_at = base64.urlsafe_b64encode(page.next_at).decode().rstrip("=")
    place = _table_address(request)
    data: dict[str, Any] = {
        "instance": request.match_info["instance"],
        "table": shape.name,
        "key_columns": [
            {"name": name, "type": kind.__name__}
            for name, kind in zip(shape.key, shape.types, strict=True)
        ],
        "columns": columns,
        "rows": [_list_row(shape, place, columns, row) for row in page.rows],
        "examined": page.examined,
        "examined_max": ROWS_EXAMINED_MAX,
        "is_filtered": query.filter is not None,
        "next": f"{request.path}?{urlencode({**fields, 'at': next_at})}" if next_at else "",
        "first": f"{request.path}?{urlencode(fields)}" if query.at else "",
        "fields": dict(request.query),
        "problem": problem,
    }
    return render_status(request, status, "rows.html", **data)


def _list_columns(shape: BrowsedTable, rows: Sequence[RowDict]) -> list[str]:
    """Return the columns of the list: those that most rows have, by name."""
    counts: dict[str, int] = {}
    for row in rows:
        for name in row:
            if name not in shape.key and name not in shape.hidden:
                counts[name] = counts.get(name, 0) + 1
    chosen = sorted(counts, key=lambda name: (-counts[name], name))[:COLUMNS_SHOWN]
    return sorted(chosen)


def _list_row(shape: BrowsedTable, place: str, columns: Sequence[str], row: RowDict) -> ListedRow:
    is_open = not shape.hidden.intersection(shape.key)
    key = [row[name] for name in shape.key]
    others = set(row) - set(shape.key) - shape.hidden
    shown = [
        None if name in shape.hidden else show_value(row[name]) if name in row else None
        for name in (*shape.key, *columns)
    ]
    return ListedRow(
        address=f"{place}/row?{urlencode(key_query(shape, key))}" if is_open else "",
        values=shown,
        has_more=bool(others - set(columns)),
    )


ROWS_ROUTES = (WebRoute("GET", "/i/{instance}/t/{table}/rows", show_rows),)
