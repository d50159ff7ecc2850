"""``rowtide consumption``: capacity units by table and hour."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import click

from rowtide.cli.client import ProtocolClient
from rowtide.cli.connection import ClientCommand, complete_table
from rowtide.cli.output import Output, emit_json, emit_table, time_text

__all__ = ["consumption"]

HEADER = ("hour", "table", "read", "reserved", "on demand", "write", "reserved", "on demand")
TIMES = click.DateTime(["%Y-%m-%d", "%Y-%m-%dT%H", "%Y-%m-%dT%H:%M", "%Y-%m-%dT%H:%M:%SZ"])


@click.command(cls=ClientCommand)
@click.argument("table", required=False, shell_complete=complete_table)
@click.option(
    "--from",
    "begin",
    type=TIMES,
    metavar="TIME",
    help="First hour, UTC: 2026-11-21 or 2026-11-21T16.",
)
@click.option("--to", "end", type=TIMES, metavar="TIME", help="Hour after the last one, UTC.")
def consumption(
    client: ProtocolClient,
    output: Output,
    table: str | None,
    begin: datetime | None,
    end: datetime | None,
) -> None:
    """Show the capacity units that the instance's tables consumed, by hour (UTC).

    Needs a key with the admin right. Reserved units are averaged over the hour. On-demand units
    are those above the reservation in a second. Units of requests for missing tables are on a
    line without a table.

    The units of a worker that does not answer are missing; stderr names the worker.
    """
    wanted = {"table": table, "from": _seconds(begin), "to": _seconds(end)}
    fields = {name: value for name, value in wanted.items() if value is not None}
    found = client.call_json("RowtideConsumption", fields)
    if output == "json":
        emit_json(found)
    else:
        emit_table(HEADER, [_line(hour) for hour in found["hours"]])
        for worker in found["silent"]:
            text = f"{worker['address']} does not answer, its units are missing: {worker['error']}"
            click.echo(text, err=True)


def _seconds(time: datetime | None) -> int | None:
    return None if time is None else int(time.replace(tzinfo=UTC).timestamp())


def _line(hour: dict[str, Any]) -> tuple[object, ...]:
    return (
        time_text(hour["hour_s"] * 1_000_000),
        hour["table"],
        hour["read"],
        f"{hour['read_reserved']:g}",
        hour["read_on_demand"],
        hour["write"],
        f"{hour['write_reserved']:g}",
        hour["write_on_demand"],
    )
