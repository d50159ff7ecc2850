"""``rowtide connector parked``: rows that a target rejected, and what to do with them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import Any

import click

from rowtide.cli.client import ProtocolClient
from rowtide.cli.command_group import CommandGroup
from rowtide.cli.connection import ClientCommand
from rowtide.cli.endpoint_call import run_call
from rowtide.cli.exits import CommandRefused
from rowtide.cli.output import Output, emit_fields, emit_json, emit_table, time_text
from rowtide.cli.value_syntax import json_text
from rowtide.client.endpoint import Endpoint
from rowtide.connectors.runtime.declarations import Declarations
from rowtide.connectors.runtime.parking import RETRY, SKIP, ParkedEntry, ParkedRows
from rowtide.core.values import key as key_order
from rowtide.core.values import variant

__all__ = ["parking"]

REASON_SHOWN = 80

_name = click.argument("name")
_ids = click.argument("ids", nargs=-1, metavar="[ID]...")
_all = click.option("--all", "every", is_flag=True, help="All parked rows.")


@click.group("parked", cls=CommandGroup)
def parking() -> None:
    """List, retry or skip rows that the target of a connector rejected.

    Later changes of a parked row's key wait until it is retried or skipped. All other rows
    flow.
    """


@parking.command("list", cls=ClientCommand)
@_name
def list_parked(client: ProtocolClient, name: str, output: Output) -> None:
    """List the parked rows of connector NAME, one line per key."""
    found = _read_parked(client, name)
    if output == "json":
        emit_json([_document(entries) for entries in found.values()])
        return
    header = ("id", "key", "since", "waiting", "reason")
    rows = [
        (
            _id(entries[0]),
            _key_text(entries[0]),
            time_text(entries[0].parked_us),
            _waiting(entries),
            f"{entries[0].wanted}: " * bool(entries[0].wanted) + _short(entries[0].reason),
        )
        for entries in found.values()
    ]
    emit_table(header, rows)


@parking.command("show", cls=ClientCommand)
@_name
@click.argument("id_", metavar="ID")
def show(client: ProtocolClient, name: str, id_: str, output: Output) -> None:
    """Show one parked row as it was rejected, and the reason."""
    entries = _one(_read_parked(client, name), id_)
    document = _document(entries)
    if output == "json":
        emit_json(document)
        return
    row = document.pop("row")
    emit_fields((name, _shown(value)) for name, value in document.items())
    click.echo(json_text(row, indent=2) if row else "The row is too large to be stored here.")


@parking.command("retry", cls=ClientCommand, writes=True, prints=False)
@_name
@_ids
@_all
def retry(client: ProtocolClient, name: str, ids: tuple[str, ...], *, every: bool) -> None:
    """Retry parked rows with their present values."""
    _want(client, name, ids, RETRY, every=every)


@parking.command("skip", cls=ClientCommand, writes=True, prints=False)
@_name
@_ids
@_all
def skip(client: ProtocolClient, name: str, ids: tuple[str, ...], *, every: bool) -> None:
    """Drop parked rows; later changes of their keys continue."""
    _want(client, name, ids, SKIP, every=every)


def _want(client: ProtocolClient, name: str, ids: Sequence[str], what: str, *, every: bool) -> None:
    if bool(ids) == every:
        raise click.UsageError("Give the ids that `parked list` shows, or --all.")
    found = _read_parked(client, name)
    wanted = list(found.values()) if every else [_one(found, id_) for id_ in ids]

    async def ask(endpoint: Endpoint) -> None:
        rows = ParkedRows(endpoint, name)
        for entries in wanted:
            await rows.want(entries[0], what)
        await Declarations(endpoint).ask(name)

    run_call(client, ask)
    verb = "retry" if what == RETRY else "skip"
    rows = f"{len(wanted)} row{'s' * (len(wanted) != 1)}"
    click.echo(f"Requested: the process that runs {name} will {verb} {rows}.")


def _read_parked(client: ProtocolClient, name: str) -> dict[bytes, list[ParkedEntry]]:
    async def read(endpoint: Endpoint) -> list[ParkedEntry]:
        if name not in await Declarations(endpoint).all():
            raise CommandRefused(f"There is no connector {name}")
        return await ParkedRows(endpoint, name).all()

    by_key: dict[bytes, list[ParkedEntry]] = {}
    for entry in run_call(client, read):
        by_key.setdefault(entry.key_bytes, []).append(entry)
    return by_key


def _one(found: dict[bytes, list[ParkedEntry]], id_: str) -> list[ParkedEntry]:
    for entries in found.values():
        if _id(entries[0]) == id_:
            return entries
    raise CommandRefused(f"No row {id_} is parked")


def _id(entry: ParkedEntry) -> str:
    """Return a short name of a key."""
    return hashlib.sha256(entry.key_bytes).hexdigest()[:10]


def _waiting(entries: Sequence[ParkedEntry]) -> int:
    return len(entries) - 1 + entries[0].later


def _key_text(entry: ParkedEntry) -> str:
    if entry.text:
        return json_text(json.loads(entry.text)["key"])
    try:
        values = [variant.decode(value) for value in key_order.decode(entry.key_bytes)]
    except ValueError:
        return "(too long)"  # A source's key, which rowtide cannot have.
    return json_text([v.hex() if isinstance(v, bytes) else v for v in values])


def _short(reason: str) -> str:
    line = " ".join(reason.split())
    return line if len(line) <= REASON_SHOWN else line[: REASON_SHOWN - 3] + "..."


def _document(entries: Sequence[ParkedEntry]) -> dict[str, Any]:
    first = entries[0]
    return {
        "id": _id(first),
        "reason": first.reason,
        "parked": time_text(first.parked_us),
        "shard": first.shard_id,
        "stamp": first.stamp,
        "waiting": _waiting(entries),
        "wanted": first.wanted or None,
        "row": json.loads(first.text) if first.text else None,
    }


def _shown(value: object) -> str:
    return "-" if value is None else str(value)
