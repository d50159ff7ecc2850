"""``rowtide status``: the state of the server at a glance."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from rowtide.cli.client import ProtocolClient
from rowtide.cli.connection import ClientCommand
from rowtide.cli.output import Output, emit_fields, emit_json, emit_table
from rowtide.core.values.time_span import span_text

__all__ = ["MB", "status"]

MB = 1_000_000


@click.command(cls=ClientCommand)
def status(client: ProtocolClient, output: Output) -> None:
    """Show the state of the server.

    Needs a key with the admin right. The process is the one that answers; the slots are those
    of all workers. A slot is open when its shards are open, except those whose logs do not
    answer. It serves reads only while it has its lease. Dirty rows wait for the changelog; they
    are safe in the log.
    """
    found = _join_workers(client.call_json("RowtideClusterStatus", {})["workers"])
    found = {"endpoint": client.endpoint, **found}
    if output == "json":
        emit_json(found)
        return
    emit_fields(_summary(found))
    click.echo()
    header = ("slot", "open", "lease", "shards", "dirty rows", "closed shards")
    emit_table(header, [_slot(slot) for slot in found["slots"]])


def _join_workers(workers: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the first worker's status, with the slots of all workers, and the silent ones."""
    answering = [worker for worker in workers if "error" not in worker]
    slots = [{**slot, "worker": w["address"]} for w in answering for slot in w["slots"]]
    return {
        **workers[0],
        "workers": len(workers),
        "silent": [worker for worker in workers if "error" in worker],
        "slots": sorted(slots, key=lambda slot: int(slot["slot"])),
    }


def _summary(found: dict[str, Any]) -> list[tuple[str, object]]:
    return [
        ("endpoint", found["endpoint"]),
        ("process", f"{found['pid']}, up {span_text(found['uptime_s'])}"),
        *_workers(found),
        ("kernels", found["kernels"]),
        ("log", f"{found['log']}, {found['durability']}"),
        ("instances", found["instances"]),
        ("tables", found["tables"]),
        ("connections", found["connections"]),
        ("free disk", _free(found["free_bytes"], found["free_bytes_min"])),
    ]


def _workers(found: dict[str, Any]) -> list[tuple[str, object]]:
    """Return the number of workers, if there are several."""
    silent = ", ".join(worker["address"] for worker in found["silent"])
    if found["workers"] == 1:
        return []
    missing = f"; {silent} silent, their slots are not shown" if silent else ""
    return [("workers", f"{found['workers']}{missing}")]


def _free(free: int, least: int) -> str:
    text = f"{free // MB:,} MB"
    return f"{text}: writes are rejected below {least // MB:,} MB" if free < least else text


def _slot(slot: dict[str, Any]) -> tuple[object, ...]:
    closed = "; ".join(f"{shard}: {why}" for shard, why in slot["closed"].items())
    dirty = sum(shard["dirty_rows"] for shard in slot["shards"])
    return (
        slot["slot"],
        "yes" if slot["open"] else "no",
        "held" if slot["lease"] else "none",
        len(slot["shards"]),
        dirty,
        closed,
    )
