"""``rowtide cluster``: all workers at a glance."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import click

from rowtide.cli.client import Client
from rowtide.cli.command_group import CommandGroup
from rowtide.cli.connection import ClientCommand
from rowtide.cli.output import Output, emit_json, emit_table
from rowtide.cli.status import MB, age_text

__all__ = ["cluster", "show"]

Status = dict[str, Any]


@click.group(cls=CommandGroup)
def cluster() -> None:
    """Look after the workers of a cluster."""


@cluster.command("status", cls=ClientCommand)
def status(client: Client, output: Output) -> None:
    """Show every worker, its slots and leases, and what is behind.

    Needs a key with the admin right. Unflushed records are in their log, but not yet in the
    changelog: they are read again where a disk is lost. A closed shard needs an operator.
    """
    found = client.call_json("RowtideClusterStatus", {})
    if output == "json":
        emit_json(found)
        return
    show(found["workers"])


def show(workers: Sequence[Status]) -> None:
    """Print the workers for eyes."""
    answering = [worker for worker in workers if "error" not in worker]
    columns: tuple[str, ...] = (
        "worker",
        "state",
        "up",
        "slots",
        "shards",
        "connections",
        "free disk",
    )
    emit_table(columns, [_worker(worker) for worker in workers])
    click.echo()
    columns = (
        "slot",
        "worker",
        "state",
        "lease age",
        "shards",
        "unflushed",
        "flushed",
        "reclaimer",
    )
    emit_table(columns, [_slot(worker, slot) for worker, slot in _slots(answering)])
    _emit_indexes(answering)
    _emit_faults(workers)


def _worker(worker: Status) -> tuple[object, ...]:
    if "error" in worker:
        return worker["address"], "silent", "", None, None, None, ""
    return (
        worker["address"],
        "ready" if worker["ready"] else "not ready",
        age_text(worker["uptime_s"]),
        len(worker["slots"]),
        sum(len(slot["shards"]) for slot in worker["slots"]),
        worker["connections"],
        f"{worker['free_bytes'] // MB:,} MB",
    )


def _slots(workers: Iterable[Status]) -> list[tuple[Status, Status]]:
    pairs = [(worker, slot) for worker in workers for slot in worker["slots"]]
    return sorted(pairs, key=lambda pair: int(pair[1]["slot"]))


def _slot(worker: Status, slot: Status) -> tuple[object, ...]:
    return (
        slot["slot"],
        worker["address"],
        _state(slot),
        "" if slot["lease_age_s"] is None else f"{slot['lease_age_s']:.1f} s",
        len(slot["shards"]),
        sum(shard["unflushed"] for shard in slot["shards"]),
        "" if slot["flush_age_s"] is None else f"{age_text(slot['flush_age_s'])} ago",
        _reclaimer(slot["reclaimer"]),
    )


def _state(slot: Status) -> str:
    if not slot["open"]:
        return "opening"
    return "open" if slot["lease"] else "no lease"


def _reclaimer(told: Status) -> str:
    if told["paused"]:
        return "paused"
    doing = f"in {told['shard']}, " if told["shard"] else ""
    return f"{doing}{told['passes']} passes"


def _emit_indexes(workers: Iterable[Status]) -> None:
    indexes = [index for worker in workers for index in worker["indexes"]]
    if not indexes:
        return
    click.echo()
    rows = [
        (f"{i['instance']}/{i['table']}", i["index"], i["behind"], f"{i['behind_s']:.1f} s")
        for i in indexes
    ]
    emit_table(("table", "global index", "records behind", "time behind"), rows)


def _emit_faults(workers: Iterable[Status]) -> None:
    """Say what is wrong, in sentences; nothing where nothing is."""
    faults: list[str] = []
    for worker in workers:
        address = worker["address"]
        if "error" in worker:
            faults.append(f"{address} does not answer: {worker['error']}")
            continue
        faults += [f"{address} is not ready: {reason}" for reason in worker["reasons"]]
        faults += [
            f"shard {shard} stays closed: {why}"
            for slot in worker["slots"]
            for shard, why in slot["closed"].items()
        ]
    if faults:
        click.echo()
    for fault in faults:
        click.echo(fault)
