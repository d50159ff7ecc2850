"""One run: a cluster, clients, strikes, and then the judgement of all answers.

What a run found is a ``Report``: counts, pauses, and anomalies, which should be none.
"""

from __future__ import annotations

import asyncio
import json
import math
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tests.histories.client import NoAnswer, NotSent
from tests.histories.cluster import Cluster, Member
from tests.histories.faults import FAULTS, Strike
from tests.histories.judgement import Evidence, judge
from tests.histories.load import Load
from tests.histories.makers import Makers, judge_names
from tests.histories.operation import Kind, Operation, Outcome, Row
from tests.histories.pauses import SETTLES_S, longest_pause_s
from tests.histories.requests import SHARDS, range_request, rows_in
from tests.histories.stream_reading import Record, follow, read_shard, shards_of
from tests.support.waiting import until_async
from tests.system.broker_hosts import BrokerHosts

__all__ = ["Plan", "Report", "Struck", "run"]

WARM_S = 1.5
COOL_S = 2.0
ANSWERS_MIN, ANSWERS_S_MAX = 1000, 120.0
"""Successes until clients may stop: with fewer a slow machine would show little."""
READS_MAX = 5
"""Of everything, until no write landed meanwhile."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What a run does. ``options`` go to every worker; ``standbys`` keep copies of each slot.

    With ``makers`` tables and instances are made, changed and removed, too.
    """

    fault: str
    seed: int
    schedule: Sequence[Strike]
    workers: int = 3
    options: Sequence[str] = ()
    brokers: int = 1
    standbys: int = 0
    makers: bool = False


@dataclass(slots=True)
class Struck:
    """A strike that was made: when, and which shards its victim served then."""

    strike: Strike
    began_s: float
    healed_s: float
    shards: list[str]


@dataclass(slots=True)
class Report:
    """What a run found. ``anomalies`` should be empty.

    Of the operations ``bounded`` reads might be stale, of which ``behind`` were; ``copied`` are the
    requests that copies answered, of workers since they were last started. ``named`` are the
    operations on tables and instances, ``names`` what was answered to them. ``loaded_s`` is for how
    long clients asked, ``cpu_s`` what clients and proxies used meanwhile.
    """

    fault: str
    seed: int
    brokers: int = 1
    standbys: int = 0
    seconds: float = 0.0
    loaded_s: float = 0.0
    cpu_s: float = 0.0
    operations: int = 0
    outcomes: dict[str, int] = field(default_factory=dict)
    answers: dict[str, int] = field(default_factory=dict)
    strikes: list[dict[str, Any]] = field(default_factory=list)
    wires: dict[str, int] = field(default_factory=dict)
    records: int = 0
    live_records: int = 0
    shards: int = 0
    rows: int = 0
    undecided: int = 0
    bounded: int = 0
    behind: int = 0
    copied: int = 0
    named: int = 0
    names: dict[str, int] = field(default_factory=dict)
    judged_s: float = 0.0
    anomalies: list[str] = field(default_factory=list)

    def line(self) -> str:
        """Return it as one line of JSON."""
        fields = asdict(self)
        fields["told"] = fields.pop("outcomes")  # The name in stored reports.
        return json.dumps(fields)


async def run(plan: Plan, folder: Path, cache_dir: Path) -> tuple[Report, Evidence]:
    """Make one run in ``folder``, leave nothing running, and judge it. Raises ``NoHosts``."""
    report = Report(plan.fault, plan.seed, plan.brokers, plan.standbys)
    began_s = time.monotonic()
    with ExitStack() as closing:
        apart = any(FAULTS[strike.fault].needs == "hosts" for strike in plan.schedule)
        hosts = closing.enter_context(BrokerHosts(plan.brokers)) if apart else None
        one = Run(plan, folder, cache_dir, hosts)
        closing.callback(one.cluster.end)
        async with asyncio.TaskGroup() as tasks:
            await one.play(tasks)
    report.seconds = round(time.monotonic() - began_s, 1)
    one.report(report)
    return report, one.evidence


class Run:
    """The course of one run."""

    def __init__(
        self, plan: Plan, folder: Path, cache_dir: Path, hosts: BrokerHosts | None
    ) -> None:
        self._plan = plan
        shimmed = any(FAULTS[strike.fault].needs == "shim" for strike in plan.schedule)
        options = ["--standbys", str(plan.standbys), *plan.options]
        self.cluster = Cluster(
            folder,
            cache_dir,
            plan.seed,
            options,
            shimmed=shimmed,
            brokers=plan.brokers,
            hosts=hosts,
        )
        self._struck: list[Struck] = []
        self.load: Load
        self.makers: Makers
        self.evidence: Evidence

    async def play(self, tasks: asyncio.TaskGroup) -> None:
        """Start, load, strike, heal, read everything."""
        plan = self._plan
        await self.cluster.start(tasks, plan.workers)
        clients = [member.client for member in self.cluster.members]
        for client in clients:
            # A clock that jumps makes signatures stale that are on their way.
            client.passing = frozenset(["OTSAuthFailed"] if self.cluster.shimmed else [])
        self.load = self.cluster.load = Load(clients, plan.seed, copies=plan.standbys > 0)
        self.makers = Makers(clients, plan.seed)
        began_s, cpu_s = time.monotonic(), time.process_time()
        stop = asyncio.Event()
        async with asyncio.TaskGroup() as beside:
            beside.create_task(self.load.run(), name="load")
            if plan.makers:
                beside.create_task(self.makers.run(), name="makers")
            tails = beside.create_task(follow(clients, stop, str(plan.seed)), name="tails")
            await asyncio.sleep(WARM_S)
            for strike in plan.schedule:
                await self._strike(strike)
            await asyncio.sleep(COOL_S)
            await until_async(
                lambda: self.load.answers["ok"] > ANSWERS_MIN,
                lambda: f"more answers than {self.load.answers}",
                s_max=ANSWERS_S_MAX,
            )
            self.load.stop()
            self.makers.stop()
            stop.set()
        self._loaded_s = time.monotonic() - began_s
        self._cpu_s = time.process_time() - cpu_s
        self.evidence = Evidence(self.load.history, {}, {}, tails.result())
        await self._read_all()
        self._copied = [
            await member.count_copy_answers() for member in self.cluster.members if member.running
        ]
        for member in self.cluster.members:
            await member.kill()
            member.proxy.close()
            member.hops.close()

    async def _strike(self, strike: Strike) -> None:
        await asyncio.sleep(strike.gap_s)
        shards = await self.cluster.members[strike.victim].shards()
        began_s = time.monotonic()
        await FAULTS[strike.fault].do(self.cluster, strike)
        self._struck.append(Struck(strike, began_s, time.monotonic(), shards))
        await self.cluster.in_sync()
        await self.cluster.wait_until_served(divided=True)

    async def _read_all(self) -> None:
        """Read rows and stream through every worker; the reads are part of the history.

        A write that its client gave up may land meanwhile. Then everything is read again, because
        the judge compares what is of one moment.
        """
        evidence = self.evidence
        running = {
            f"worker {number}": (number, member)
            for number, member in enumerate(self.cluster.members)
            if member.running
        }
        _, first = next(iter(running.values()))
        for _ in range(READS_MAX):
            before = await self._read_streams(first)
            for name, (number, member) in running.items():
                evidence.rows[name] = await self._read_rows(number, member)
                if self._plan.makers:
                    await self.makers.look(number)
                evidence.streams[name] = await self._read_streams(member)
            if all(streams == before for streams in evidence.streams.values()):
                break

    async def _read_streams(self, member: Member) -> dict[str, list[Record]]:
        stream_id, shards = await shards_of([member.client])
        return {
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
            read = Operation(-1, number, key, Kind.GET, invoked_s, ended_s, Outcome.OK)
            read.found = found.get(key)
            self.load.history.append(read)
        return found

    # Reporting.

    def report(self, report: Report) -> None:
        """Judge the answers, and fill in a report."""
        began_s = time.monotonic()
        evidence = self.evidence
        verdict = judge(evidence)
        history = evidence.history
        report.loaded_s, report.cpu_s = round(self._loaded_s, 1), round(self._cpu_s, 1)
        report.judged_s = round(time.monotonic() - began_s, 2)
        report.anomalies += self.load.faults + verdict.anomalies
        report.anomalies += self.makers.faults + judge_names(self.makers.history)
        report.named = len([o for o in self.makers.history if o.outcome is not Outcome.UNAVAILABLE])
        report.names = dict(self.makers.answers)
        report.rows, report.undecided = verdict.rows, verdict.undecided
        report.bounded, report.behind = verdict.bounded, verdict.behind
        report.copied = sum(self._copied)
        report.outcomes = dict(Counter(o.outcome.value for o in history))
        report.operations = len([o for o in history if o.outcome is not Outcome.UNAVAILABLE])
        report.answers = dict(self.load.answers)
        for member in self.cluster.members:
            for wired in (member.proxy, member.hops):
                for what, number in wired.wire.counts.items():
                    report.wires[what] = report.wires.get(what, 0) + number
        shards = next(iter(evidence.streams.values()))
        report.shards = len(shards)
        report.records = sum(len(records) for records in shards.values())
        report.live_records = sum(len(tail.records) for tail in evidence.tails)
        until = [struck.began_s for struck in self._struck[1:]] + [math.inf]
        report.strikes = [
            self._describe_strike(struck, end_s, shards)
            for struck, end_s in zip(self._struck, until, strict=False)
        ]

    def _describe_strike(
        self, struck: Struck, end_s: float, shards: dict[str, list[Record]]
    ) -> dict[str, Any]:
        hit = {shards[name][0].key[0] for name in struck.shards if shards.get(name)}
        fields: dict[str, Any] = struck.strike.to_json()
        fields["seconds"] = round(struck.healed_s - struck.began_s, 2)
        fields["planned"] = FAULTS[struck.strike.fault].planned
        fields["hit"] = sorted(hit)
        end_s = min(struck.healed_s + SETTLES_S, end_s)
        for what in ("writes", "reads"):
            fields[what] = {
                letter: longest_pause_s(
                    [o for o in self.evidence.history if o.key[0] == letter],
                    struck.began_s,
                    end_s,
                    reads=what == "reads",
                )
                for letter in SHARDS
            }
        return fields
