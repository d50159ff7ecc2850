"""One run: a cluster, clients, strikes, and then the judgement of all that was told.

What a run found is a ``Report``: counts, pauses, and anomalies, which should be none. A run that
found any leaves its history beside its report, so that it can be judged again.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from tests.histories.client import NoAnswer, NotSent
from tests.histories.cluster import Cluster, Member
from tests.histories.faults import FAULTS, Strike
from tests.histories.linearizable import Undecided, by_key, unexplained
from tests.histories.load import Load
from tests.histories.operation import Kind, Operation, Row, Told, to_json
from tests.histories.pauses import longest_pause_s
from tests.histories.requests import SHARDS, range_request, rows_in
from tests.histories.stream_checks import check_fold, check_shard, check_tail
from tests.histories.stream_reading import Record, Tail, read_shard, shards_of, tail

__all__ = ["Plan", "Report", "Struck", "run"]

WARM_S = 1.5
COOL_S = 2.0


@dataclass(frozen=True, slots=True)
class Plan:
    """What a run does. ``options`` go to every worker."""

    fault: str
    seed: int
    schedule: Sequence[Strike]
    workers: int = 3
    options: Sequence[str] = ()


@dataclass(slots=True)
class Struck:
    """A strike that was made: when, and which shards its victim served then."""

    strike: Strike
    began_s: float
    healed_s: float
    shards: list[str]


@dataclass(slots=True)
class Report:
    """What a run found. ``anomalies`` should be empty."""

    fault: str
    seed: int
    seconds: float = 0.0
    operations: int = 0
    told: dict[str, int] = field(default_factory=dict)
    answers: dict[str, int] = field(default_factory=dict)
    strikes: list[dict[str, Any]] = field(default_factory=list)
    wires: dict[str, int] = field(default_factory=dict)
    records: int = 0
    live_records: int = 0
    keys: int = 0
    undecided: int = 0
    judged_s: float = 0.0
    anomalies: list[str] = field(default_factory=list)

    def line(self) -> str:
        """Return it as one line of JSON."""
        return json.dumps(asdict(self))


async def run(plan: Plan, folder: Path, cache_dir: Path) -> Report:
    """Make one run in ``folder``, leave nothing running, and judge it."""
    report = Report(plan.fault, plan.seed)
    began_s = time.monotonic()
    one = Run(plan, folder, cache_dir)
    with ExitStack() as closing:
        closing.callback(one.cluster.end)
        async with asyncio.TaskGroup() as tasks:
            await one.play(tasks)
    one.judge(report)
    report.seconds = round(time.monotonic() - began_s, 1)
    if report.anomalies:
        history = folder / "history.json"
        history.write_text(json.dumps([to_json(o) for o in one.load.history]))
        report.anomalies.append(f"the history is in {history}")
    return report


class Run:
    """The course of one run."""

    def __init__(self, plan: Plan, folder: Path, cache_dir: Path) -> None:
        self._plan = plan
        self.cluster = Cluster(folder, cache_dir, plan.seed, plan.options)
        self._struck: list[Struck] = []
        self._tails: list[Tail] = []
        self._records: dict[str, dict[str, list[Record]]] = {}
        self._rows: dict[str, dict[str, Row]] = {}
        self.load: Load

    async def play(self, tasks: asyncio.TaskGroup) -> None:
        """Start, load, strike, heal, read everything."""
        plan = self._plan
        await self.cluster.start(tasks, plan.workers)
        clients = [member.client for member in self.cluster.members]
        self.load = Load(clients, plan.seed)
        stream_id, shards = await shards_of(clients)
        stop = asyncio.Event()
        async with asyncio.TaskGroup() as beside:
            beside.create_task(self.load.run(), name="load")
            tails = [
                beside.create_task(
                    tail(clients, stream_id, s.shard_id, stop, f"{plan.seed} {s.shard_id}")
                )
                for s in shards
            ]
            await asyncio.sleep(WARM_S)
            for strike in plan.schedule:
                await self._strike(strike)
            await asyncio.sleep(COOL_S)
            self.load.stop()
            stop.set()
        self._tails = [one.result() for one in tails]
        await self._read_all()
        for member in self.cluster.members:
            await member.kill()
            member.proxy.close()

    async def _strike(self, strike: Strike) -> None:
        await asyncio.sleep(strike.gap_s)
        shards = await asyncio.to_thread(self.cluster.members[strike.victim].shards)
        began_s = time.monotonic()
        await FAULTS[strike.fault].do(self.cluster, strike)
        self._struck.append(Struck(strike, began_s, time.monotonic(), shards))
        await self.cluster.served(divided=True)

    async def _read_all(self) -> None:
        """Read rows and stream through every worker; the reads are part of the history."""
        for number, member in enumerate(self.cluster.members):
            if member.running:
                name = f"worker {number}"
                self._rows[name] = await self._read_rows(number, member)
                stream_id, shards = await shards_of([member.client])
                self._records[name] = {
                    shard.shard_id: await read_shard([member.client], stream_id, shard.shard_id)
                    for shard in shards
                }

    async def _read_rows(self, number: int, member: Member) -> dict[str, Row]:
        found: dict[str, Row] = {}
        invoked_s, start = time.monotonic(), b""
        while True:
            try:
                code, answer = await member.client.call(
                    "GetRange", range_request(None, start), timeout_s=5.0
                )
            except (NoAnswer, NotSent) as error:
                code = str(error)
            if code:
                await asyncio.sleep(0.1)  # Slots may still be on their way.
                continue
            rows, start = rows_in(answer)
            found |= rows
            if not start:
                break
        ended_s = time.monotonic()
        names = {o.key for o in self.load.history}
        for key in names | set(found):
            read = Operation(-1, number, key, Kind.GET, invoked_s, ended_s, Told.OK)
            read.found = found.get(key)
            self.load.history.append(read)
        return found

    # Judging.

    def judge(self, report: Report) -> None:
        """Fill in a report."""
        began_s = time.monotonic()
        history = self.load.history
        report.told = dict(Counter(o.told.value for o in history))
        report.operations = len([o for o in history if o.told is not Told.UNAVAILABLE])
        report.answers = dict(self.load.answers)
        for member in self.cluster.members:
            for what, number in member.proxy.wire.counts.items():
                report.wires[what] = report.wires.get(what, 0) + number
        report.anomalies += self.load.faults
        first = next(iter(self._records.values()))
        records = [record for shard in first.values() for record in shard]
        report.records = len(records)
        report.live_records = sum(len(one.records) for one in self._tails)
        report.anomalies += self._judge_stream(first)
        self._judge_rows(report, records)
        report.strikes = [self._pauses(struck, first) for struck in self._struck]
        report.judged_s = round(time.monotonic() - began_s, 2)

    def _judge_stream(self, first: dict[str, list[Record]]) -> list[str]:
        found = []
        everything: list[Record] = []
        for shard_id, records in first.items():
            letters = {record.key[0] for record in records}
            history = [o for o in self.load.history if o.key[0] in letters]
            found += check_shard(records, history)
            for one in self._tails:
                if one.shard_id == shard_id:
                    found += check_tail(one, records, history)
            everything += records
        stand = {record.key[0] for record in everything}
        found += [
            f"lost: the whole shard of {o.key}"
            for o in self.load.history
            if o.mark and o.told is Told.OK and o.key[0] not in stand
        ]
        for name, other in self._records.items():
            if other != first:
                found.append(f"position: {name} reads another stream than the first worker")
        for name, rows in self._rows.items():
            found += check_fold(rows, everything, name)
        return found

    def _judge_rows(self, report: Report, records: Sequence[Record]) -> None:
        stand = {record.mark for record in records}
        deleted = {record.key for record in records if record.kind == "DELETE"}
        histories = by_key(self.load.history)
        report.keys = len(histories)
        for key, history in histories.items():
            try:
                stuck = unexplained(history)
            except Undecided:
                # What the stream tells of unknown outcomes makes the search short.
                report.undecided += 1
                told = [o for o in history if _happened(o, stand, deleted)]
                stuck = unexplained([replace(o) for o in told], steps_max=50_000_000)
            if stuck is not None:
                report.anomalies.append(f"not linearizable: {key} at {[to_json(o) for o in stuck]}")

    def _pauses(self, struck: Struck, shards: dict[str, list[Record]]) -> dict[str, Any]:
        hit = {shards[name][0].key[0] for name in struck.shards if shards.get(name)}
        told: dict[str, Any] = struck.strike.told()
        told["seconds"] = round(struck.healed_s - struck.began_s, 2)
        told["planned"] = FAULTS[struck.strike.fault].planned
        for what in ("writes", "reads"):
            pauses = {}
            for letter in SHARDS:
                history = [o for o in self.load.history if o.key[0] == letter]
                pause_s = longest_pause_s(
                    history, struck.began_s, struck.healed_s, reads=what == "reads"
                )
                pauses[letter] = None if pause_s is None else round(pause_s, 3)
            told[what] = pauses
        told["hit"] = sorted(hit)
        return told


def _happened(one: Operation, stand: set[str | None], deleted: set[str]) -> bool:
    if one.told is not Told.UNKNOWN:
        return True
    return one.key in deleted if one.kind is Kind.DELETE else one.mark in stand
