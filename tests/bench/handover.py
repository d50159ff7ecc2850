"""How long writes and reads of a shard pause when it goes from worker to worker, or is split.

``python -m tests.bench.handover --runs 50 --kind kill9``. Three workers are processes; for each of
six shards there is one client that writes and one that reads, all the time. They repeat what SDKs
repeat, soon and often, so that a pause is the server's and not the client's. A pause is the time
between two answers; only shards whose slot changed hands in a run, or that were split, merged or
moved in it, count.

An *error* is what a client that retries as SDKs do is left with. *Unknown* is a write whose
connection broke, or that was answered OTSTimeout: SDKs do not repeat these by themselves.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import quantiles
from typing import Any

import click

from rowtide.cli.client import NoAnswer, NotConnected, ProtocolClient, ServerError
from rowtide.client.wire_row import Key, Put
from rowtide.core.protocol.wire import ots_pb2 as pb
from rowtide.core.values import variant
from rowtide.deploy.kafka.config import default_cache_dir
from rowtide.deploy.up import Ready
from tests.bench.circumstances import circumstances
from tests.bench.cluster import Cluster

HANDOVERS = ("join", "leave", "sigterm", "rolling", "kill9")
CHANGES = ("split", "move")
"""Of one shard: a split and a merge of its parts, or a move to another slot."""
KINDS = (*HANDOVERS, *CHANGES)
TABLE = "moved"
SHARDS = 6
WORKERS = 3
REPEATED = {"OTSPartitionUnavailable", "OTSServerBusy", "OTSServerUnavailable"}
"""Not done, so SDKs repeat it, whatever it was."""
PACE_S = 0.01
RETRY_S = 0.01
TRIES_S_MAX = 30.0
AFTER_S = 0.5
"""Clients go on so long once all is settled: a pause that began late ends within a run."""


@dataclass(slots=True)
class Seen:
    """What one client saw of its shard. Times are ``time.monotonic``."""

    answered_s: list[float] = field(default_factory=list)
    errors: Counter[str] = field(default_factory=Counter)
    unknown: int = 0

    def pause_s(self) -> float:
        """Return the longest time between two answers."""
        pairs = zip(self.answered_s, self.answered_s[1:], strict=False)
        return max((after - before for before, after in pairs), default=float("inf"))


class Caller(threading.Thread):
    """One client of one shard, which goes to the next worker where one can't be reached."""

    def __init__(self, access: Sequence[Ready], shard: int, *, write: bool) -> None:
        super().__init__(name=f"{'write' if write else 'read'}-{shard}", daemon=True)
        self.seen = Seen()
        self.halt = threading.Event()
        self._access = access
        self._at = shard % len(access)
        self._key: Key = (("name", letter(shard)), ("number", shard))
        self._write = write
        self._client: ProtocolClient | None = None
        self._written = 0

    def run(self) -> None:
        """Call until ``halt`` is set."""
        while not self.halt.is_set():
            self._repeat()
            time.sleep(PACE_S)  # The pace of the load.
        self._leave()

    def _repeat(self) -> None:
        until_s = time.monotonic() + TRIES_S_MAX
        while True:
            failure = self._attempt()
            if failure is None:
                self.seen.answered_s.append(time.monotonic())
                return
            if failure not in REPEATED or time.monotonic() > until_s:
                if failure:
                    self.seen.errors[failure] += 1
                return
            time.sleep(RETRY_S)  # As SDKs do between two attempts, which wait longer.

    def _attempt(self) -> str | None:
        """Call once; return None, or why it failed: empty where a write's outcome is unknown."""
        try:
            self._call()
        except NotConnected:
            self._leave()
            return "OTSServerUnavailable"
        except NoAnswer:
            self._leave()
            return self._count_failure("")
        except ServerError as error:
            return self._count_failure("") if error.code == "OTSTimeout" else error.code
        return None

    def _count_failure(self, code: str) -> str:
        if not self._write:
            return "OTSServerUnavailable"  # A read may always be repeated.
        self.seen.unknown += 1
        return code

    def _call(self) -> None:
        if self._client is None:
            self._client = ProtocolClient(**self._access[self._at]._asdict())
        if self._write:
            self._written += 1
            self._client.put_row(TABLE, self._key, [Put("n", self._written)])
        else:
            self._client.get_row(TABLE, self._key)

    def _leave(self) -> None:
        """Go to the next worker with the next call, as a balancer would send us."""
        client, self._client = self._client, None
        if client is not None:
            client.close()
        self._at = (self._at + 1) % len(self._access)


def letter(shard: int) -> str:
    """Return the partition key of a shard's row."""
    return chr(ord("a") + 4 * shard)


def create_table(client: ProtocolClient) -> None:
    """Create the table, one shard for each slot."""
    points = [b"\x09", *(variant.encode(letter(n)) for n in range(1, SHARDS)), b"\x0a"]
    request = pb.CreateTableRequest(
        table_meta=pb.TableMeta(
            table_name=TABLE,
            primary_key=[
                pb.PrimaryKeySchema(name="name", type=pb.STRING),
                pb.PrimaryKeySchema(name="number", type=pb.INTEGER),
            ],
        ),
        reserved_throughput=pb.ReservedThroughput(capacity_unit=pb.CapacityUnit(read=0, write=0)),
        partitions=[pb.PartitionRange(begin=points[n], end=points[n + 1]) for n in range(SHARDS)],
    )
    client.call("CreateTable", request, pb.CreateTableResponse)


class Measurement:
    """Does one kind of handover again and again, under load, and gathers what clients saw."""

    def __init__(self, cluster: Cluster, kind: str) -> None:
        self._cluster = cluster
        self._kind = kind
        self._slots = self._slots_of_shards()
        self.pauses_s: dict[str, list[float]] = {"write": [], "read": []}
        self.errors: Counter[str] = Counter()
        self.unknown = 0
        self.moved = 0

    def _slots_of_shards(self) -> list[int]:
        """Return each shard's slot, in the order of the shards' keys."""
        found = {
            int(shard["shard"][1:]): slot["slot"]
            for worker in self._cluster.status(0)
            for slot in worker["slots"]
            for shard in slot["shards"]
            if shard["table"] == TABLE
        }
        return [found[number] for number in sorted(found)]

    def run(self, number: int) -> None:
        """Measure once; workers take turns."""
        victim = number % WORKERS
        worker = self._cluster.workers[victim]
        if self._kind == "join":
            worker.stop()
            self._cluster.settle(WORKERS - 1)
        callers = [
            Caller(self._cluster.access, shard, write=write)
            for shard in range(SHARDS)
            for write in (True, False)
        ]
        before = self._cluster.settle(WORKERS - (self._kind == "join"))
        for caller in callers:
            caller.start()
        try:
            time.sleep(AFTER_S)
            if self._kind in CHANGES:
                self._change(number % SHARDS)
            else:
                self._move(victim)
            after = self._cluster.settle(WORKERS)
            time.sleep(AFTER_S)
        finally:
            for caller in callers:
                caller.halt.set()
            for caller in callers:
                caller.join()
        if self._kind in CHANGES:
            self._gather(callers, {number % SHARDS})
            return
        moved = {slot for slot in after if after[slot] != before.get(slot)}
        self._gather(callers, {n for n, slot in enumerate(self._slots) if slot in moved})

    def _move(self, victim: int) -> None:
        worker = self._cluster.workers[victim]
        if self._kind == "kill9":
            worker.kill()
            self._cluster.wait_until_taken_over(WORKERS - 1)
            worker.start()
        elif self._kind == "join":
            worker.start()
        elif self._kind == "sigterm":
            worker.stop()
            self._cluster.settle(WORKERS - 1)
            worker.start()
        elif self._kind == "rolling":
            for each in self._cluster.workers:
                each.stop()
                each.start()
                self._cluster.settle(WORKERS)
        else:
            self._cluster.drain(victim)
            self._cluster.undrain(victim)

    def _change(self, number: int) -> None:
        """Split a shard and merge its parts, or move it."""
        with ProtocolClient(**self._cluster.access[0]._asdict()) as client:
            reply = client.call_json("RowtideListShards", {"table": TABLE})["shards"]
            shard = next(
                s
                for s in reply
                if s["state"] == "open" and s["begin"] == (letter(number) if number else None)
            )
            if self._kind == "move":
                slot = (shard["slot"] + 1) % SHARDS
                self._reshape(client, "Move", shard=shard["shard"], slot=slot)
                return
            cut = letter(number) + "m"
            children = self._reshape(client, "Split", shard=shard["shard"], at=cut)
            time.sleep(AFTER_S)
            self._reshape(client, "Merge", shards=children)

    def _reshape(self, client: ProtocolClient, change: str, **fields: object) -> list[str]:
        plural = "Shards" if change == "Merge" else "Shard"
        reply = client.call_json(f"Rowtide{change}{plural}", {"table": TABLE, **fields})
        if not reply["done"]:
            raise TimeoutError(f"not done: {reply}")
        children: list[str] = reply["children"]
        return children

    def _gather(self, callers: Sequence[Caller], moved: set[int]) -> None:
        for number, caller in enumerate(callers):
            self.errors.update(caller.seen.errors)
            self.unknown += caller.seen.unknown
            if number // 2 in moved:
                self.moved += 1
                name = caller.name.partition("-")[0]
                self.pauses_s[name].append(caller.seen.pause_s())


def distribution(pauses_s: Sequence[float]) -> dict[str, float]:
    """Return what tells a distribution, in milliseconds."""
    if not pauses_s:
        return {"count": 0}
    ordered = sorted(pauses_s)
    at = [*ordered[:1], _quantile(ordered, 50), _quantile(ordered, 90), *ordered[-1:]]
    names = ("min", "p50", "p90", "max")
    percentiles = {name: round(1000 * value, 1) for name, value in zip(names, at, strict=True)}
    return {"count": len(ordered), **percentiles}


def _quantile(ordered: Sequence[float], percent: int) -> float:
    if len(ordered) == 1:
        return ordered[0]
    return quantiles(ordered, n=100, method="inclusive")[percent - 1]


@click.command(context_settings={"show_default": True})
@click.option("--runs", default=10, help="How often it is done.")
@click.option("--kind", type=click.Choice(KINDS), default="sigterm", help="What happens.")
@click.option("--option", "options", multiple=True, help="One more option of rowtide up.")
def main(runs: int, kind: str, options: Sequence[str]) -> None:
    """Move slots from worker to worker under load; print how long each shard paused, as JSON."""
    about = circumstances("handover")
    cache_dir = default_cache_dir(os.environ, sys.platform)
    with (
        tempfile.TemporaryDirectory(prefix="rowtide-handover-") as folder,
        Cluster(Path(folder), cache_dir, count=WORKERS, slots=SHARDS, options=options) as cluster,
    ):
        cluster.settle(WORKERS)
        with ProtocolClient(**cluster.access[0]._asdict()) as client:
            create_table(client)
        measurement = Measurement(cluster, kind)
        try:
            for number in range(runs):
                measurement.run(number)
                click.echo(f"{number + 1}/{runs} {_summarise(measurement)}", err=True)
        finally:
            kept = os.environ.get("ROWTIDE_BENCH_LOG")
            if kept:
                Path(kept).write_bytes((Path(folder) / "workers.log").read_bytes())
    click.echo(
        json.dumps({**about, "kind": kind, "runs": runs, **_summarise(measurement)}, indent=1)
    )


def _summarise(measurement: Measurement) -> dict[str, Any]:
    return {
        "write_pause_ms": distribution(measurement.pauses_s["write"]),
        "read_pause_ms": distribution(measurement.pauses_s["read"]),
        "errors": dict(measurement.errors),
        "unknown": measurement.unknown,
    }


if __name__ == "__main__":
    main()
