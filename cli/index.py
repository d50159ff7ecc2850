"""``rowtide index``: secondary indexes of a table, and their lag."""

from __future__ import annotations

from typing import Any

import click

from rowtide.cli.client import ProtocolClient
from rowtide.cli.command_group import CommandGroup
from rowtide.cli.confirmation import confirm, yes_option
from rowtide.cli.connection import ClientCommand, complete_table
from rowtide.cli.output import Output, emit_json, emit_table
from rowtide.core.protocol.wire import ots_pb2 as pb

__all__ = ["behind_text", "index"]

TYPES = {
    "integer": pb.DCT_INTEGER,
    "double": pb.DCT_DOUBLE,
    "boolean": pb.DCT_BOOLEAN,
    "string": pb.DCT_STRING,
    "binary": pb.DCT_BLOB,
}

_table = click.argument("table", shell_complete=complete_table)


class _ColumnType(click.ParamType):
    """NAME or NAME:TYPE."""

    name = "NAME[:TYPE]"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, str | None]:
        name, colon, kind = value.rpartition(":")
        if not colon:
            return value, None
        if kind not in TYPES or not name:
            self.fail(f"'{value}': TYPE is one of {', '.join(TYPES)}", param, ctx)
        return name, kind


@click.group(cls=CommandGroup)
def index() -> None:
    """Create, list and drop secondary indexes."""


@index.command("create", cls=ClientCommand, writes=True)
@_table
@click.argument("name")
@click.option(
    "--key",
    "-k",
    "keys",
    type=_ColumnType(),
    multiple=True,
    required=True,
    help="A column of the index's key, in order: of the table's key, or a defined column. With a "
    "TYPE the column is defined first. The rest of the table's key is added automatically.",
)
@click.option(
    "--column",
    "-c",
    "columns",
    type=_ColumnType(),
    multiple=True,
    help="A defined column to store in the index; repeat for more.",
)
@click.option(
    "--local",
    is_flag=True,
    help="A local index: written with the row; its key begins with the table's first key column. "
    "Without: a global index, with any key, which follows the table.",
)
@click.option("--without-base-data", is_flag=True, help="Do not index existing rows.")
def create(
    client: ProtocolClient,
    table: str,
    name: str,
    keys: tuple[tuple[str, str | None], ...],
    columns: tuple[tuple[str, str | None], ...],
    output: Output,
    *,
    local: bool,
    without_base_data: bool,
) -> None:
    """Create the index NAME of TABLE.

    \b
    rowtide index create orders orders_by_customer --key customer:string --column total:double
    """
    defined = {column: TYPES[kind] for column, kind in (*keys, *columns) if kind is not None}
    if defined:
        _define(client, table, defined)
    meta = pb.IndexMeta(
        name=name,
        primary_key=[column for column, _ in keys],
        defined_column=[column for column, _ in columns],
        index_type=pb.IT_LOCAL_INDEX if local else pb.IT_GLOBAL_INDEX,
        index_update_mode=pb.IUM_SYNC_INDEX if local else pb.IUM_ASYNC_INDEX,
    )
    request = pb.CreateIndexRequest(
        main_table_name=table, index_meta=meta, include_base_data=not without_base_data
    )
    client.call("CreateIndex", request, pb.CreateIndexResponse)
    _print_done(output, name, "Created")


def _define(client: ProtocolClient, table: str, columns: dict[str, Any]) -> None:
    """Define those columns that the table does not have yet."""
    known = {c.name: c.type for c in client.describe_table(table).table_meta.defined_column}
    for name, kind in columns.items():
        if known.get(name, kind) != kind:
            raise click.UsageError(f"Column {name} of table {table} is defined with another type.")
    missing = [
        pb.DefinedColumnSchema(name=name, type=kind)
        for name, kind in columns.items()
        if name not in known
    ]
    if missing:
        request = pb.AddDefinedColumnRequest(table_name=table, columns=missing)
        client.call("AddDefinedColumn", request, pb.AddDefinedColumnResponse)


@index.command("list", cls=ClientCommand)
@_table
def list_indexes(client: ProtocolClient, table: str, output: Output) -> None:
    """Show the indexes of TABLE and their lag."""
    found = client.call_json("RowtideListIndexes", {"table": table})["indexes"]
    if output == "json":
        emit_json(found)
        return
    emit_table(
        ["index", "type", "phase", "key", "columns", "behind"],
        [
            [
                one["name"],
                one["type"],
                one["phase"],
                ", ".join(one["key"]),
                ", ".join(one["columns"]),
                behind_text(one),
            ]
            for one in found
        ],
    )


def behind_text(one: dict[str, Any]) -> str:
    """Return an index's lag, or why it has stopped; empty for a local index, which has none."""
    if one["type"] == "local":
        return ""
    if one["behind"] is None:
        return "unknown: it is not open"
    if one["failed"]:
        return f"{one['behind']} records, stopped: {one['failed']}"
    return f"{one['behind']} records, {one['behind_s']:.1f} s"


@index.command("drop", cls=ClientCommand, writes=True)
@_table
@click.argument("name")
@yes_option
def drop(client: ProtocolClient, table: str, name: str, output: Output, *, yes: bool) -> None:
    """Drop the index NAME of TABLE; the table's rows stay."""
    confirm(f"Drop index {name} of table {table}?", yes=yes)
    request = pb.DropIndexRequest(main_table_name=table, index_name=name)
    client.call("DropIndex", request, pb.DropIndexResponse)
    _print_done(output, name, "Dropped")


def _print_done(output: Output, name: str, what: str) -> None:
    if output == "json":
        emit_json({"index": name, "done": what.lower()})
    else:
        click.echo(f"{what} index {name}.")
