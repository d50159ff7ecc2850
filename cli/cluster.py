"""``rowtide cluster``: the workers of a cluster."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import click

from rowtide.cli.client import ProtocolClient
from rowtide.cli.command_group import CommandGroup
from rowtide.cli.connection import ClientCommand
from rowtide.cli.output import Output, emit_json, emit_table
from rowtide.cli.status import MB
from rowtide.core.values.time_span import span_text

__all__ = ["cluster", "show"]

Status = dict[str, Any]


@click.group(cls=CommandGroup)
def cluster() -> None:
    """Show and manage the workers of a cluster."""


@cluster.command("status", cls=ClientCommand)
def status(client: ProtocolClient, output: Output) -> None:
    """Show every worker, its slots, its leases and its lag.

    Needs a key with the admin right. Unflushed records are in their log, but not yet in the
    changelog: after the loss of a disk they are read again. A closed shard needs an operator.
    """
    found = client.call_json("RowtideClusterStatus", {})
    if output == "json":
        emit_json(found)
        return
    show(found["workers"])


_worker_argument = click.argument("worker", default="")


@cluster.command("drain", cls=ClientCommand, writes=True)
@_worker_argument
def drain(client: ProtocolClient, worker: str, output: Output) -> None:
    """Move all slots of WORKER to the others, and give it no new ones.

    WORKER is an address as `rowtide cluster status` shows it; without it, the worker that
    answers. The worker still serves clients by forwarding, but /readyz reports "not ready".
    This ends with `rowtide cluster undrain`, or when the worker restarts. Writes to each slot
    pause during its handover, for a fraction of a second.
    """
    found = client.call_json("RowtideDrain", {"worker": worker})
    _print_result(found, f"{found['worker']} has no slots, and takes none.", output)


@cluster.command("undrain", cls=ClientCommand, writes=True)
@_worker_argument
def undrain(client: ProtocolClient, worker: str, output: Output) -> None:
    """Allow a drained WORKER to take slots again."""
    found = client.call_json("RowtideUndrain", {"worker": worker})
    _print_result(found, f"{found['worker']} takes slots again.", output)


@cluster.command("forget", cls=ClientCommand, writes=True)
@click.argument("worker")
def forget(client: ProtocolClient, worker: str, output: Output) -> None:
    """Remove WORKER, which is dead, from the list.

    A worker that stops removes itself; a killed one is shown as silent. A worker that answers is
    not forgotten.
    """
    found = client.call_json("RowtideForgetWorker", {"worker": worker})
    _print_result(found, f"{found['worker']} is forgotten.", output)


def _print_result(found: Status, sentence: str, output: Output) -> None:
    if output == "json":
        emit_json(found)
    else:
        click.echo(sentence)


def show(workers: Sequence[Status]) -> None:
    """Print the workers as tables."""
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
    _emit_standbys(answering)
    _emit_indexes(answering)
    _emit_faults(workers)


def _worker(worker: Status) -> tuple[object, ...]:
    if "error" in worker:
        return worker["address"], "silent", "", None, None, None, ""
    return (
        worker["address"],
        _readiness(worker),
        span_text(worker["uptime_s"]),
        len(worker["slots"]),
        sum(len(slot["shards"]) for slot in worker["slots"]),
        worker["connections"],
        f"{worker['free_bytes'] // MB:,} MB",
    )


def _readiness(worker: Status) -> str:
    if worker.get("drained"):
        return "drained"
    return "ready" if worker["ready"] else "not ready"


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
        "" if slot["flush_age_s"] is None else f"{span_text(slot['flush_age_s'])} ago",
        _reclaimer(slot["reclaimer"]),
    )


def _state(slot: Status) -> str:
    if not slot["open"]:
        return "opening"
    return "open" if slot["lease"] else "no lease"


def _reclaimer(state: Status) -> str:
    if state["paused"]:
        return "paused"
    doing = f"in {state['shard']}, " if state["shard"] else ""
    return f"{doing}{state['passes']} passes"


def _emit_standbys(workers: Iterable[Status]) -> None:
    pairs = [(worker, copy) for worker in workers for copy in worker["standbys"]]
    if not pairs:
        return
    click.echo()
    rows = [
        (
            copy["slot"],
            worker["address"],
            "warm" if copy["warm"] else "reading",
            copy["shards"],
            copy["lag_records"],
            "" if copy["lag_s"] is None else f"{copy['lag_s']:.1f} s",
        )
        for worker, copy in sorted(pairs, key=lambda pair: int(pair[1]["slot"]))
    ]
    columns = ("slot", "standby", "state", "shards", "records behind", "time behind")
    emit_table(columns, rows)


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
    """Print what is wrong, one sentence per fault."""
    faults: list[str] = []
    for worker in workers:
        address = worker["address"]
        if "error" in worker:
            faults.append(f"{address} does not answer: {worker['error']}")
            continue
        reasons = [reason for reason in worker["reasons"] if reason != "drained"]
        faults += [f"{address} is not ready: {reason}" for reason in reasons]
        faults += [
            f"slot {slot['slot']} does not open at {address}: {slot['failure']}"
            for slot in worker["slots"]
            if slot["failure"] is not None
        ]
        faults += [
            f"shard {shard} stays closed: {why}"
            for slot in worker["slots"]
            for shard, why in slot["closed"].items()
        ]
        faults += [
            f"shard {shard} does not open, retried: {why}"
            for slot in worker["slots"]
            for shard, why in slot["opening"].items()
        ]
        faults += [
            f"shard {shard} is not kept warm at {address}: {why}"
            for copy in worker["standbys"]
            for shard, why in copy["faults"].items()
        ]
    if faults:
        click.echo()
    for fault in faults:
        click.echo(fault)
