"""One row: its columns with their types, the versions of a cell, changes under a condition."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from aiohttp import web

from rowtide.client.operations import condition_message
from rowtide.client.predicates import ColumnPage
from rowtide.client.row_values import RowDict, cells_of, newest
from rowtide.client.wire_row import Change, Delete, Put, encode_row
from rowtide.console.pages.cell_text import (
    KINDS,
    BadValueText,
    ValueText,
    digest_of,
    key_text,
    show_value,
)
from rowtide.console.pages.row_edit import (
    CONDITIONS_MAX,
    RowChangeForm,
    RowHasChanged,
    parse_form,
    same_as,
)
from rowtide.console.pages.row_reading import BrowsedTable, RowReader
from rowtide.console.pages.rows import find_table, key_query, parse_key_fields
from rowtide.console.web.audit import audit
from rowtide.console.web.refusals import RequestRefused
from rowtide.console.web.render import redirect, render_status
from rowtide.console.web.routes import WebRoute
from rowtide.core.protocol import plainbuffer
from rowtide.core.protocol.wire import ots_pb2 as pb
from rowtide.core.values.errors import Rejected
from rowtide.core.values.variant import Scalar

__all__ = ["ROW_ROUTES"]

COLUMNS_MAX = 60
"""Columns of one page: each takes a row of the page, and the next page goes on behind them."""
EDIT_CHARACTERS_MAX = 4096
"""A longer value is edited alone, on a page of its own."""
EDIT_ALONE_CHARACTERS_MAX = 256 * 1024
"""So long that a form with it stays below 1 MiB, whatever its characters."""
BYTES_MAX = 16 * 1024 * 1024
"""Of a row's columns, after which a page ends; one column has 2 MiB at most."""
VERSIONS_MAX = 100


@dataclass(frozen=True, slots=True)
class ShownColumn:
    """A column of the row's page. ``lines`` is the height of its field, 0: it cannot be edited."""

    name: str
    value: ValueText
    lines: int
    version_ms: int | None
    versions_address: str
    alone_address: str


@dataclass(frozen=True, slots=True)
class ShownRow:
    """What was read of a row for one page. ``following`` is the first column of the next page."""

    is_there: bool
    columns: RowDict
    versions_ms: Mapping[str, int]
    following: str


async def show_row(request: web.Request) -> web.StreamResponse:
    """Show one row."""
    reader, shape = await find_table(request)
    return await _render(request, reader, shape, _key_of(shape, request.query))


async def change_row(request: web.Request) -> web.StreamResponse:
    """Set and delete columns of a row, or delete it, if it still is what the form showed."""
    fields = {name: str(value) for name, value in (await request.post()).items()}
    reader, shape = await find_table(request)
    key = _key_of(shape, fields)
    is_delete = fields.get("action") == "delete"
    try:
        form = parse_form(shape, fields)
        audit(request, row="/".join(map(key_text, key)), columns=",".join(form.columns))
        if is_delete:
            await _delete_row(reader, shape, key, form)
        elif form.columns:
            await _update_row(reader, shape, key, form)
    except BadValueText as error:
        problem = {"key": error.key, **error.values}
        return await _render(request, reader, shape, key, problem=problem, status=400)
    except RowHasChanged as error:
        problem = {"key": "rows.has_changed", "columns": ", ".join(error.columns)}
        return await _render(request, reader, shape, key, problem=problem, status=409)
    place = request.rel_url.raw_path.removesuffix(".json")
    if is_delete:
        return redirect(request, f"{place.removesuffix('/row')}/rows", "rows.deleted")
    notice = "rows.saved" if form.columns else "rows.unchanged"
    return redirect(request, f"{place}?{urlencode(key_query(shape, key))}", notice)


def _key_of(shape: BrowsedTable, fields: Mapping[str, str]) -> tuple[Scalar, ...]:
    """Return the whole key that fields name."""
    if shape.hidden.intersection(shape.key):
        raise RequestRefused(403, "rows.hidden_key")
    try:
        key = parse_key_fields(shape, fields, "key")
    except BadValueText as error:
        raise RequestRefused(400, error.key, **error.values) from error
    if len(key) < len(shape.key):
        raise RequestRefused(400, "rows.key_missing", column=shape.key[len(key)])
    return key


def _pairs(shape: BrowsedTable, key: Sequence[Scalar]) -> list[tuple[str, Scalar]]:
    return list(zip(shape.key, key, strict=True))


async def _read_columns(
    reader: RowReader, shape: BrowsedTable, key: Sequence[Scalar], names: Sequence[str]
) -> RowDict | None:
    """Return columns of a row, whole; None if there is no such row."""
    request = pb.GetRowRequest(
        table_name=shape.name,
        primary_key=encode_row(_pairs(shape, key)),
        columns_to_get=[*shape.key, *names],
        max_versions=1,
    )
    found: RowDict | None = None
    while True:
        answer = await reader.call("GetRow", request)
        if answer.row:
            found = (found or {}) | newest(plainbuffer.decode_row(answer.row))
        if not answer.next_token:
            return found
        request.token = answer.next_token


async def _update_row(
    reader: RowReader, shape: BrowsedTable, key: Sequence[Scalar], form: RowChangeForm
) -> None:
    """Write what a form changes. Raises ``RowHasChanged``, ``BadValueText``, ``StoreError``."""
    if len(form.columns) > CONDITIONS_MAX:
        raise BadValueText("rows.changes_many", count=len(form.columns), most=CONDITIONS_MAX)
    row = await _check_row(reader, shape, key, form, form.columns)
    changes: list[Change] = [Put(name, value) for name, value in form.puts.items()]
    changes += [Delete(name) for name in form.deletes]
    request = pb.UpdateRowRequest(
        table_name=shape.name,
        row_change=encode_row(_pairs(shape, key), changes),
        condition=condition_message(
            "exists" if form.was_there else "absent",
            same_as(row, form.columns) if form.was_there else None,
        ),
    )
    await _write(reader, "UpdateRow", request, form.columns)


async def _delete_row(
    reader: RowReader, shape: BrowsedTable, key: Sequence[Scalar], form: RowChangeForm
) -> None:
    """Delete a row as it was shown. Raises ``RowHasChanged``, ``StoreError``."""
    names = [name for name in form.shown if name not in shape.hidden]
    row = await _check_row(reader, shape, key, form, names)
    request = pb.DeleteRowRequest(
        table_name=shape.name,
        primary_key=encode_row(_pairs(shape, key), deleted=True),
        condition=condition_message("exists", same_as(row, names)),
    )
    await _write(reader, "DeleteRow", request, names)


async def _check_row(
    reader: RowReader,
    shape: BrowsedTable,
    key: Sequence[Scalar],
    form: RowChangeForm,
    names: Sequence[str],
) -> RowDict:
    """Return the row as it is now, if it is as it was shown. Raises ``RowHasChanged``."""
    row = await _read_columns(reader, shape, key, names)
    if (row is not None) != form.was_there:
        raise RowHasChanged(shape.key)
    form.check_shown(row or {}, names)
    return row or {}


async def _write(reader: RowReader, operation: str, request: Any, names: Sequence[str]) -> None:
    try:
        await reader.call(operation, request)
    except Rejected as error:
        if error.code != "OTSConditionCheckFail":
            raise
        raise RowHasChanged(names) from error


async def _read_row(
    reader: RowReader, shape: BrowsedTable, key: Sequence[Scalar], query: Mapping[str, str]
) -> ShownRow:
    """Return the columns of one page of a row."""
    alone, begin = query.get("column", ""), query.get("begin", "")
    request = pb.GetRowRequest(
        table_name=shape.name, primary_key=encode_row(_pairs(shape, key)), max_versions=1
    )
    if alone:
        request.columns_to_get.extend([*shape.key, alone])
    else:
        request.filter = ColumnPage(limit=COLUMNS_MAX + 1 + len(shape.hidden)).encode()
        if begin:
            request.start_column = begin
    columns, versions = RowDict(), dict[str, int]()
    is_there, size, is_cut = False, 0, False
    while True:
        answer = await reader.call("GetRow", request)
        size += len(answer.row)
        if answer.row:
            is_there = True
            part = plainbuffer.decode_row(answer.row)
            columns |= newest(part)
            versions |= {cell.name.decode(): cell.version_ms or 0 for cell in part.cells}
        is_cut = bool(answer.next_token) and size >= BYTES_MAX
        if is_cut or not answer.next_token:
            break
        request.token = answer.next_token
    if begin and not is_there:
        # With no column behind `begin` there is nothing to show, though the row may be there.
        is_there = await _read_columns(reader, shape, key, ()) is not None
    others = {name: columns[name] for name in sorted(columns) if name not in shape.key}
    shown = {name: value for name, value in others.items() if name not in shape.hidden}
    names = list(shown)
    count = len(names) - 1 if is_cut else COLUMNS_MAX
    following = names[count] if len(names) > count else ""
    kept = {name: shown[name] for name in names[:count]}
    return ShownRow(is_there, kept, versions, following)


async def _read_versions(
    reader: RowReader, shape: BrowsedTable, key: Sequence[Scalar], name: str
) -> list[dict[str, Any]]:
    """Return the newest versions of a cell."""
    if name in shape.hidden or name in shape.key:
        raise RequestRefused(400, "rows.not_this_column", column=name)
    request = pb.GetRowRequest(
        table_name=shape.name,
        primary_key=encode_row(_pairs(shape, key)),
        columns_to_get=[*shape.key, name],
        max_versions=VERSIONS_MAX,
    )
    answer = await reader.call("GetRow", request)
    if not answer.row:
        return []
    versions = cells_of(plainbuffer.decode_row(answer.row)).get(name, [])
    return [
        {"version_ms": one.version_ms, "value": show_value(one.value, characters_max=1000)}
        for one in versions
    ]


async def _render(
    request: web.Request,
    reader: RowReader,
    shape: BrowsedTable,
    key: Sequence[Scalar],
    *,
    problem: dict[str, object] | None = None,
    status: int = 200,
) -> web.Response:
    # A form that was refused shows the row without what its address had asked for.
    query = request.query if request.method == "GET" else {}
    if query.get("column", "") in shape.hidden | {*shape.key}:
        raise RequestRefused(400, "rows.not_this_column", column=query["column"])
    row = await _read_row(reader, shape, key, query)
    named = query.get("versions", "")
    is_alone = bool(query.get("column"))
    place = request.rel_url.raw_path.removesuffix(".json")
    fields = key_query(shape, key)
    data: dict[str, Any] = {
        "instance": request.match_info["instance"],
        "table": shape.name,
        "is_there": row.is_there,
        "key": [
            {"name": name, "value": show_value(value), "field": key_text(value)}
            for name, value in _pairs(shape, key)
        ],
        "columns": [
            _describe_column(place, fields, row, name, is_alone=is_alone) for name in row.columns
        ],
        "shown": json.dumps({name: digest_of(value) for name, value in row.columns.items()}),
        "kinds": KINDS,
        "is_alone": is_alone,
        "is_part": bool(query.get("begin") or row.following or is_alone),
        "conditions_max": CONDITIONS_MAX,
        "next": _address(place, fields, begin=row.following) if row.following else "",
        "first": _address(place, fields) if query.get("begin") or is_alone else "",
        "versions_of": named,
        "versions": await _read_versions(reader, shape, key, named) if named else [],
        "rows_address": f"{place.removesuffix('/row')}/rows",
        "problem": problem,
    }
    return render_status(request, status, "row.html", **data)


def _describe_column(
    place: str, fields: dict[str, str], row: ShownRow, name: str, *, is_alone: bool
) -> ShownColumn:
    most = EDIT_ALONE_CHARACTERS_MAX if is_alone else EDIT_CHARACTERS_MAX
    value = show_value(row.columns[name], characters_max=most)
    lines = 0 if value.is_cut else min(12, 1 + value.text.count("\n") + len(value.text) // 80)
    return ShownColumn(
        name=name,
        value=value,
        lines=lines,
        version_ms=row.versions_ms.get(name),
        versions_address=_address(place, fields, versions=name),
        alone_address=_address(place, fields, column=name) if value.is_cut else "",
    )


def _address(place: str, fields: dict[str, str], **more: str) -> str:
    return f"{place}?{urlencode({**fields, **more})}"


ROW_ROUTES = (
    WebRoute("GET", "/i/{instance}/t/{table}/row", show_row),
    WebRoute("POST", "/i/{instance}/t/{table}/row", change_row, is_change=True),
)
