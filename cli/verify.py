"""``rowtide verify``: compares both ends of a connector, while both run."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click

from rowtide.cli.client import ProtocolClient
from rowtide.cli.connection import ClientCommand, data_dir_given
from rowtide.cli.connector_folder import folder_of
from rowtide.cli.endpoint_call import run_call
from rowtide.cli.exits import CommandRefused
from rowtide.cli.output import Output, emit_json, emit_table
from rowtide.cli.own_modules import find_modules_here
from rowtide.cli.value_syntax import plain_text, to_json
from rowtide.cli.verify_dashboard import verify_named
from rowtide.client.endpoint import Endpoint
from rowtide.connectors.fields import SettingsRefused
from rowtide.connectors.runtime.declaration import Declaration
from rowtide.connectors.runtime.declarations import Declarations
from rowtide.connectors.runtime.place import ProcessContext
from rowtide.connectors.verify.comparison import Compared, Difference, Verdict
from rowtide.connectors.verify.pairs import verify_sink, verify_source
from rowtide.core.values import key, variant

__all__ = ["verify"]


@click.command("verify", cls=ClientCommand)
@click.argument("source", metavar="SOURCE")
@click.argument("sink", metavar="SINK")
@click.option(
    "--folder",
    type=click.Path(path_type=Path, resolve_path=True),
    help="Folder of this machine's connectors. Unless set: that of `rowtide up` on --data-dir, or "
    "that of `rowtide connector run` here if only this one has files of SINK.",
)
@click.option(
    "--wait-s",
    type=click.FloatRange(min=0),
    default=60.0,
    show_default=True,
    help="Seconds to wait until the connector has the table's present rows.",
)
@click.option("--show", default=20, show_default=True, help="Number of differing keys to print.")
@click.option("--ranges", is_flag=True, help="Print each compared range.")
def verify(
    client: ProtocolClient,
    source: str,
    sink: str,
    folder: Path | None,
    wait_s: float,
    show: int,
    output: Output,
    *,
    ranges: bool,
) -> None:
    """Compare a table with its copy by a connector.

    Either SOURCE is a table and SINK a connector that reads it, or SOURCE is a connector that
    fills the table SINK. Writers may continue: each page of the table is exact at a commit
    stamp, and rows that changed since are compared again. The exit code is 1 if a difference
    remains.

    `rowtide verify dashboard NAME` compares each number of a dashboard with DuckDB's over the rows
    at the numbers' positions. The exit code is 3 if that is not possible now.
    """
    if source == "dashboard" and verify_named(client, sink, output, wait_s=wait_s, show=show):
        return

    files = folder or folder_of(sink, data_dir_given())

    async def compare(endpoint: Endpoint) -> tuple[Declaration, Verdict]:
        place = ProcessContext(endpoint, os.environ, str(files))
        declared = await Declarations(endpoint).all()
        known = {name: found.declaration for name, found in declared.items()}
        if (reading := known.get(sink)) is not None and reading.sink:
            _require_table(reading, source)
            return reading, await verify_sink(reading, place, wait_s=wait_s)
        if (filling := known.get(source)) is not None and filling.source:
            return filling, await verify_source(filling, sink, place)
        raise CommandRefused(
            f"{sink} is no connector that reads {source}, and {source} is no source"
        )

    find_modules_here()
    try:
        declaration, verdict = run_call(client, compare)
    except SettingsRefused as error:
        raise click.UsageError(str(error)) from error
    if output == "json":
        emit_json(_document(source, sink, verdict))
    else:
        _print(source, sink, declaration.kind, verdict, show=show, ranges=ranges)
    if not verdict.equal:
        raise SystemExit(CommandRefused.exit_code)


def _require_table(declaration: Declaration, table: str) -> None:
    if declaration.table != table:
        raise CommandRefused(
            f"Connector {declaration.name} reads the table {declaration.table}, not {table}"
        )


def _print(source: str, sink: str, kind: str, verdict: Verdict, *, show: int, ranges: bool) -> None:
    if ranges:
        header = ("from", "below", "rows", "held", "checksum", "its checksum")
        emit_table(header, [_line(compared) for compared in verdict.ranges])
        click.echo()
    for difference in verdict.differences[:show]:
        columns = f": {', '.join(difference.columns)}" if difference.columns else ""
        click.echo(f"{difference.kind:<9}  {_key_text(difference.key_bytes)}{columns}")
    if len(verdict.differences) > show:
        click.echo(f"and {len(verdict.differences) - show:,} more (--show)")
    result = f"{len(verdict.differences):,} rows differ" if verdict.differences else "equal"
    click.echo(
        f"{source} -> {sink} ({kind}): {verdict.rows:,} rows, {verdict.rows_held:,} held, "
        f"{len(verdict.ranges):,} {'range' if len(verdict.ranges) == 1 else 'ranges'}: {result}"
    )


def _line(compared: Compared) -> tuple[str, ...]:
    begin, end = compared.covers
    return (
        _key_text(begin) or "-",
        _key_text(end) or "-",
        f"{compared.rows:,}",
        f"{compared.rows_held:,}",
        f"{compared.checksum:016x}",
        f"{compared.checksum_held:016x}",
    )


def _key_text(encoded: bytes) -> str:
    """Return a key, or the beginning of one, as text."""
    return ", ".join(plain_text(variant.decode(value)) for value in key.decode(encoded))


def _document(source: str, sink: str, verdict: Verdict) -> dict[str, Any]:
    return {
        "source": source,
        "sink": sink,
        "equal": verdict.equal,
        "rows": verdict.rows,
        "rows_held": verdict.rows_held,
        "ranges": [
            {
                "begin": compared.covers[0].hex(),
                "end": compared.covers[1].hex(),
                "rows": compared.rows,
                "rows_held": compared.rows_held,
                "checksum": f"{compared.checksum:016x}",
                "checksum_held": f"{compared.checksum_held:016x}",
            }
            for compared in verdict.ranges
        ],
        "differences": [_difference(found) for found in verdict.differences],
    }


def _difference(found: Difference) -> dict[str, Any]:
    key_values = [to_json(variant.decode(value)) for value in key.decode(found.key_bytes)]
    return {"kind": found.kind, "key": key_values, "columns": list(found.columns)}
