"""``rowtide row``: reading and writing single rows and ranges.

Each command first reads the table's key columns, to separate them from the other columns.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Any

import click

from rowtide.cli.client import ProtocolClient
from rowtide.cli.command_group import CommandGroup
from rowtide.cli.connection import ClientCommand
from rowtide.cli.exits import CommandRefused
from rowtide.cli.output import Output, emit_json, emit_table
from rowtide.cli.row_arguments import (
    change_of,
    delete_of,
    expectation_of,
    only_key,
    parse_assignments,
    put_of,
    range_ends,
    schema_of,
    split,
)
from rowtide.cli.table import table_argument
from rowtide.cli.value_syntax import assignment_text, json_text, plain_text, to_json, type_name
from rowtide.client.wire_row import Key, Row, Special
from rowtide.core.protocol.wire import ots_pb2 as pb

__all__ = ["row"]

BLOCK_ROWS = 1000
"""Rows of a scan that are printed as one table."""

_columns_argument = click.argument("columns", nargs=-1, required=True, metavar="NAME=VALUE...")
_expect = click.option(
    "--expect",
    type=click.Choice(["exist", "not-exist"]),
    help="Write only if the row exists, or does not exist.",
)
_column = click.option(
    "--column",
    "names",
    multiple=True,
    metavar="NAME",
    help="Read this column; repeat for more. Rows with none of them are left out.",
)
_versions = click.option(
    "--versions",
    type=click.IntRange(min=1),
    help="Number of versions of each column to show, with their times in ms.",
)
_staleness = click.option(
    "--max-staleness-ms",
    type=click.IntRange(min=0, max=3_600_000),
    help="Allow a read from a copy that has every write older than this.",
)


@click.group(cls=CommandGroup)
def row() -> None:
    """Read and write rows.

    Write a column in one of these forms, in any order. The table defines the key columns:

    \b
    NAME=TEXT      a string; for a key column, TEXT read as the column's type
    NAME:=JSON     5 integer, 1.5 double, true boolean, {"base64": "AAE="} binary
    NAME@=FILE     binary, the bytes of FILE (- is standard input)
    NAME+=INTEGER  an increment, in update alone
    '{...}'        a JSON object of columns, as `get --output json` prints it

    \b
    rowtide row put inbox user=ann id:=7 subject="Hello" size:=5
    rowtide row get inbox user=ann id=7
    rowtide row update inbox user=ann id=7 seen:=true reads+=1
    rowtide row scan inbox --prefix user=ann --output json
    """


# Writing.


@row.command("put", cls=ClientCommand, writes=True)
@table_argument
@_columns_argument
@_expect
@click.option("--version", "version_ms", type=int, metavar="MS", help="Version of every cell.")
def put(
    client: ProtocolClient,
    table: str,
    columns: tuple[str, ...],
    expect: str | None,
    version_ms: int | None,
    output: Output,
) -> None:
    """Write a row of TABLE and replace an existing one.

    An AUTO_INCREMENT key column may be left out; its value is printed.
    """
    schema = schema_of(client, table)
    key, rest = split(schema, parse_assignments(columns), assign=True)
    puts = [put_of(assignment, version_ms) for assignment in rest]
    stored = client.put_row(table, key, puts, expect=expectation_of(expect))
    assigned = [pair for pair, asked in zip(stored, key, strict=True) if pair != asked]
    _print_done(output, stored, "Put", [f"{name} is {value!r}" for name, value in assigned])


@row.command("update", cls=ClientCommand, writes=True)
@table_argument
@click.argument("columns", nargs=-1, required=True, metavar="NAME=VALUE...")
@click.option(
    "--delete-column",
    "deletes",
    multiple=True,
    metavar="NAME[@MS]",
    help="Delete a column, or one version of it; repeat for more.",
)
@_expect
@click.option("--version", "version_ms", type=int, metavar="MS", help="Version of every cell.")
def update(
    client: ProtocolClient,
    table: str,
    columns: tuple[str, ...],
    deletes: tuple[str, ...],
    expect: str | None,
    version_ms: int | None,
    output: Output,
) -> None:
    """Change columns of a row of TABLE, or create the row.

    NAME+=N adds N to an integer column.
    """
    schema = schema_of(client, table)
    key, rest = split(schema, parse_assignments(columns))
    changes = [change_of(a, version_ms) for a in rest] + [delete_of(text) for text in deletes]
    if not changes:
        raise click.UsageError("Nothing to change: name a column that is not part of the key.")
    client.update_row(table, key, changes, expect=expectation_of(expect))
    _print_done(output, key, "Updated")


@row.command("delete", cls=ClientCommand, writes=True)
@table_argument
@_columns_argument
@_expect
def delete(
    client: ProtocolClient, table: str, columns: tuple[str, ...], expect: str | None, output: Output
) -> None:
    """Delete the row of TABLE with this key."""
    key = only_key(schema_of(client, table), columns)
    client.delete_row(table, key, expect=expectation_of(expect))
    _print_done(output, key, "Deleted")


# Reading.


@row.command("get", cls=ClientCommand)
@table_argument
@_columns_argument
@_column
@_versions
@_staleness
def get(
    client: ProtocolClient,
    table: str,
    columns: tuple[str, ...],
    names: tuple[str, ...],
    versions: int | None,
    max_staleness_ms: int | None,
    output: Output,
) -> None:
    """Show the row of TABLE with this key. The exit code for an absent row is 1."""
    key = only_key(schema_of(client, table), columns)
    client.max_staleness_ms = max_staleness_ms
    found = client.get_row(table, key, columns=names, versions=versions or 1)
    if found is None:
        raise CommandRefused(f"No such row in {table}: {_key_text(key)}")
    if output == "json":
        emit_json(row_document(found, versions=versions is not None))
        return
    rows: list[tuple[object, ...]]
    rows = [(name, type_name(value), plain_text(value), None) for name, value in found.key]
    rows += [(p.name, type_name(p.value), plain_text(p.value), p.version_ms) for p in found.columns]
    width = None if versions else 3
    emit_table(("column", "type", "value", "version")[:width], [line[:width] for line in rows])


@row.command("scan", cls=ClientCommand)
@table_argument
@click.option("--limit", type=click.IntRange(min=1), help="Number of rows to show.")
@click.option("--backward", is_flag=True, help="From the largest key to the smallest.")
@click.option(
    "--from",
    "start",
    multiple=True,
    metavar="NAME=VALUE",
    help="First key, inclusive, by leading key columns; repeat for more.",
)
@click.option(
    "--to",
    "end",
    multiple=True,
    metavar="NAME=VALUE",
    help="Last key, exclusive, by leading key columns; repeat for more.",
)
@click.option(
    "--prefix",
    multiple=True,
    metavar="NAME=VALUE",
    help="Value of a leading key column of every row; repeat for more.",
)
@_column
@_versions
@_staleness
def scan(
    client: ProtocolClient, table: str, limit: int | None, output: Output, **given: Any
) -> None:
    """Show the rows of TABLE in key order; JSON has one object per line."""
    schema = schema_of(client, table)
    client.max_staleness_ms = given["max_staleness_ms"]
    start, end = range_ends(schema, given)
    page = pb.GetRangeRequest(
        direction=pb.BACKWARD if given["backward"] else pb.FORWARD,
        columns_to_get=given["names"],
        max_versions=given["versions"] or 1,
        limit=limit if limit is not None and limit < 5000 else None,
    )
    pages = client.get_range(table, start, end, page=page)
    rows = islice((row for rows in pages for row in rows), limit)
    if output == "json":
        for found in rows:
            click.echo(json_text(row_document(found, versions=given["versions"] is not None)))
    else:
        _emit_blocks(rows, versions=given["versions"] is not None)


def row_document(found: Row, *, versions: bool = False) -> dict[str, Any]:
    """Return a row as one flat object; with ``versions``, key and cells are separate."""
    key = {name: to_json(value) for name, value in found.key}
    if not versions:
        return key | {put.name: to_json(put.value) for put in found.columns}
    cells = [
        {"name": put.name, "value": to_json(put.value), "version_ms": put.version_ms}
        for put in found.columns
    ]
    return {"key": key, "columns": cells}


def _emit_blocks(rows: Iterable[Row], *, versions: bool) -> None:
    """Print rows as tables of ``BLOCK_ROWS`` rows: a scan may be larger than memory."""
    remaining = iter(rows)
    while block := list(islice(remaining, BLOCK_ROWS)):
        names = list(dict.fromkeys(name for row in block for name, _ in row.key))
        names += list(dict.fromkeys(put.name for row in block for put in row.columns))
        emit_table(names, [_line(row, names, versions=versions) for row in block])


def _line(row: Row, names: Sequence[str], *, versions: bool) -> list[object]:
    cells: dict[str, list[str]] = {name: [plain_text(value)] for name, value in row.key}
    for put in row.columns:
        text = plain_text(put.value)
        cells.setdefault(put.name, []).append(f"{text}@{put.version_ms}" if versions else text)
    return [" ".join(cells.get(name, ())) for name in names]


def _key_text(key: Key) -> str:
    return " ".join(assignment_text(name, _scalar(value)) for name, value in key)


def _scalar(value: Any) -> Any:
    assert not isinstance(value, Special), "a row's own key has values"
    return value


def _print_done(output: Output, key: Key, what: str, notes: Sequence[str] = ()) -> None:
    if output == "json":
        emit_json({"done": what.lower(), "key": {n: to_json(_scalar(v)) for n, v in key}})
    else:
        click.echo("; ".join([f"{what} {_key_text(key)}", *notes]) + ".")
