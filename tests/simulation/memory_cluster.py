"""The broker in memory as one process reaches it: the contract of ``LogCluster``."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from functools import partial
from itertools import islice
from typing import Any

from rowtide.core.values.errors import OutcomeUnknown, Rejected, StoreError, Unavailable
from rowtide.stream.log.changelog import Change, ChangelogEntry, Changes, Fenced
from rowtide.stream.log.cluster import Appends, Reads
from rowtide.stream.log.log import Entry, Log
from rowtide.stream.log.topics import TopicSpec
from tests.simulation.broker import Changelog, Pairs, Partition, Place
from tests.simulation.network import Fate, Link, Reply, resolve

__all__ = ["MemoryCluster", "MemoryReader", "SimulatedLog"]

FLUSH_S = 30.0
"""How long a flush is tried."""
PAGE = 7
"""Entries of one read of a changelog: few, so that a row's chunks fall on two pages."""


class SimulatedLog:
    """A ``Log`` of the broker in memory."""

    def __init__(self, link: Link, place: Place, *, batch_bytes_max: int = 16 << 20) -> None:
        self.name = f"{place[0]}[{place[1]}]"
        self.place = place
        self._link = link
        self._batch_bytes_max = batch_bytes_max
        self._in_flight: asyncio.Future[Any] | None = None
        self._outcome_open = False

    @property
    def partition(self) -> Partition:
        """The log at whom this process takes for its leader."""
        return self._link.leaders.log(self.place)

    async def append(self, entries: Pairs, *, deadline_s: float) -> int:
        """Append one batch, see ``Log.append``."""
        try:
            base: int = await self.send(entries, deadline_s=deadline_s)
        except OutcomeUnknown:
            self._outcome_open = True
            raise
        return base

    def send(self, entries: Pairs, *, deadline_s: float) -> asyncio.Future[Any]:
        """Send one batch; return the future of its base offset, or of the known outcome."""
        assert entries, "an append needs an entry"
        assert not self._outcome_open, "disconnect after an unknown outcome, before appending"
        size = sum(len(key) + len(value) for key, value in entries)
        if size > self._batch_bytes_max:
            message = f"append to {self.name}: {size} bytes, the limit is {self._batch_bytes_max}"
            raise Rejected("OTSRequestBodyTooLarge", message)
        link, sent = self._link, list(entries)
        of_shard = ".shard." in self.place[0]
        self._in_flight = link.once(
            f"append to {self.name}",
            link.draw_fate(link.fates if of_shard else deque()),
            lambda: link.network.broker.append(self.place, sent),
            deadline_s=deadline_s,
            held=of_shard and link.holding,
            place=self.place,
        )
        return self._in_flight

    async def read(self, offset: int, *, bytes_max: int, wait_s: float = 0.0) -> list[Entry]:
        """Return entries from ``offset`` on, see ``Log.read``."""
        bytes_max = min(bytes_max, self._link.network.read_bytes_max)

        def read_now() -> Any:
            if self._link.network.knows_less() and offset <= self.partition.end:
                return []
            return capture_outcome(lambda: self.partition.read(offset, bytes_max))

        def work(reply: Reply) -> None:
            log = self.partition
            if offset != log.end or wait_s <= 0:
                reply(read_now())
                return
            once = _Once(lambda: reply(read_now()))
            log.waiters.append(once)
            self._link.network.later(wait_s, once)

        found: list[Entry] = await self._link.ask(self.name, work)
        await self._link.network.late()
        return found

    async def tail(self, offset: int, *, wait_s: float) -> tuple[list[Entry], int]:
        """Return entries from ``offset`` on, and the log's end; wait a while where it is there."""
        bytes_max = self._link.network.read_bytes_max

        def read_tail() -> Any:
            log = self.partition
            return capture_outcome(lambda: (log.read(offset, bytes_max), log.end))

        def work(reply: Reply) -> None:
            log = self.partition
            if offset != log.end:
                reply(read_tail())
                return
            once = _Once(lambda: reply(read_tail()))
            log.waiters.append(once)
            self._link.network.later(wait_s, once)

        found: tuple[list[Entry], int] = await self._link.ask(self.name, work)
        return found

    async def bounds(self) -> tuple[int, int]:
        """Return (start, end), see ``Log.bounds``."""
        found: tuple[int, int] = await self._link.ask(
            self.name, lambda reply: reply((self.partition.start, self.partition.end))
        )
        await self._link.network.late()
        return found

    async def end(self) -> int:
        """Return the next offset, see ``Log.end``."""
        return int(await self._link.ask(self.name, lambda reply: reply(self.partition.end)))

    async def trim(self, before: int) -> None:
        """Delete every entry below ``before``, see ``Log.trim``."""
        await self._link.ask(
            self.name, lambda reply: reply(capture_outcome(lambda: self._trim(before)))
        )

    def _trim(self, before: int) -> None:
        if self._link.leaders.is_deposed(self.place):
            raise Unavailable(f"trim of {self.name}: not enough replicas")
        self.partition.trim(before)

    async def disconnect(self) -> None:
        """Forget what is in flight, see ``Log.disconnect``; it may still land."""
        self._outcome_open = False
        if self._in_flight is not None:
            resolve(self._in_flight, OutcomeUnknown(f"append to {self.name}: disconnected"))


class _Once:
    """Called by the first caller."""

    def __init__(self, call: Callable[[], None]) -> None:
        self._call: Callable[[], None] | None = call

    def __call__(self) -> None:
        call, self._call = self._call, None
        if call is not None:
            call()


def capture_outcome(work: Callable[[], Any]) -> Any:
    """Return what ``work`` returns or raises."""
    try:
        return work()
    except (StoreError, Fenced) as error:
        return error


class MemoryWriter:
    """A ``ChangelogWriter``: one owner's, under the one transactional id of its partition."""

    def __init__(self, link: Link, place: Place) -> None:
        self.name = f"{place[0]}[{place[1]}]"
        self._link = link
        self._place = place
        self._changelog = link.network.broker.changelog(place)
        """At the coordinator, which cannot be deposed, and the true leader."""
        self._epoch: int | None = None

    @property
    def ready(self) -> bool:
        """Whether a flush may follow without fencing first."""
        return self._epoch is not None

    async def prepare(self) -> None:
        """There is no coordinator to be found."""

    async def fence(self) -> None:
        """Take over from every writer so far."""
        self._epoch = None
        self._epoch = await self._ask(self._changelog.fence)

    def leave(self) -> None:
        """Write no more before it is fenced again."""
        self._epoch = None

    async def flush(self, changes: Changes) -> int:
        """Commit ``changes`` unless fenced: first they are sent, then they are committed."""
        epoch, self._epoch = self._epoch, None
        assert epoch is not None, "fence before a flush"
        await self._ask(lambda: self._prepare(epoch))
        sent = [change for change in changes if change is not None]
        assert sent, "a flush needs a change"
        fate = self._link.draw_fate(self._link.flush_fates)
        if self._link.leaders.is_deposed(self._place):
            self._link.leaders.learn(self._place)
            fate = Fate.LOST_REQUEST
        if fate in (Fate.REFUSED, Fate.LOST_REQUEST):
            raise Unavailable(f"flush to {self.name}: refused before the commit")
        committed = Commit(self._changelog, epoch, sent)
        position: int = await self._link.once(
            f"commit to {self.name}",
            fate,
            lambda: capture_outcome(committed),
            deadline_s=FLUSH_S,
            held=self._link.holding,
        )
        self._epoch = epoch
        return position

    def _prepare(self, epoch: int) -> None:
        self._changelog.require(epoch)
        self._link.landing(f"flush to {self.name}")

    async def _ask(self, work: Callable[[], Any]) -> Any:
        return await self._link.ask(
            self.name, lambda reply: reply(capture_outcome(work)), asked_s=FLUSH_S
        )


class Commit:
    """The commit of one transaction. Repeated it changes nothing: the coordinator knows."""

    def __init__(self, changelog: Changelog, epoch: int, changes: Sequence[Change]) -> None:
        self._changelog = changelog
        self._epoch = epoch
        self._changes = changes
        self._position: int | None = None

    def __call__(self) -> int:
        if self._position is None:
            self._changelog.require(self._epoch)
            self._position = self._changelog.commit(self._changes)
        return self._position


class MemoryReader:
    """A ``ChangelogReader`` of one partition."""

    def __init__(self, link: Link, place: Place) -> None:
        self.name = f"{place[0]}[{place[1]}]"
        self.position = 0
        self._link = link
        self._place = place

    @property
    def _changelog(self) -> Changelog:
        """The changelog at whom this process takes for its leader."""
        return self._link.leaders.changelog(self._place)

    async def start(self) -> int:
        """Return the first offset still kept."""
        return int(await self._ask(lambda: 0))

    async def end(self) -> int:
        """Return the next offset."""
        return int(await self._ask(lambda: self._changelog.end))

    async def read(
        self, from_offset: int, until: int | None = None
    ) -> AsyncIterator[list[ChangelogEntry]]:
        """Yield pages of entries in order, up to the end as of the call or earlier."""
        end = await self.end() if until is None else until
        self.position = from_offset
        while self.position < end:
            page = await self._ask(lambda: self._page(self.position, end))
            await self._link.network.late()
            if not page:
                break
            self.position = page[-1].offset + 1
            yield page
        self.position = end

    def _page(self, low: int, high: int) -> list[ChangelogEntry]:
        changelog = self._changelog
        page = list(islice((e for e in changelog.entries if low <= e.offset < high), PAGE))
        if not page and changelog.end < high:
            raise Unavailable(f"{self.name}: offset {high} lies beyond the end {changelog.end}")
        return page

    async def _ask(self, work: Callable[[], Any]) -> Any:
        return await self._link.ask(
            self.name, lambda reply: reply(capture_outcome(work)), asked_s=FLUSH_S
        )


class MemoryCluster:
    """A ``LogCluster`` for one process. Every topic that is named exists."""

    def __init__(self, link: Link) -> None:
        self.link = link

    def log(self, topic: str, partition: int = 0) -> SimulatedLog:
        """Return a handle of its own on a log."""
        return SimulatedLog(self.link, (topic, partition))

    def leader(self, log: Log) -> None:
        """Return the leader of a log: there is one broker."""

    async def append_many(self, items: Appends, *, deadline_s: float) -> list[int | StoreError]:
        """Append to several logs at once, see ``LogCluster``."""
        ours = [(log, entries) for log, entries in items if isinstance(log, SimulatedLog)]
        assert len(ours) == len(items), "the logs are the simulation's"
        sent = [log.send(entries, deadline_s=deadline_s) for log, entries in ours]
        answers: list[int | StoreError] = []
        for future in sent:
            try:
                answers.append(await future)
            except StoreError as error:
                answers.append(error)
        return answers

    async def read_many(
        self, items: Reads, *, bytes_max: int, wait_s: float
    ) -> list[list[Entry] | StoreError]:
        """Read several logs at once, see ``LogCluster``."""
        ours = [(log, offset) for log, offset in items if isinstance(log, SimulatedLog)]
        assert len(ours) == len(items), "the logs are the simulation's"
        bytes_max = min(bytes_max, self.link.network.read_bytes_max)

        def read() -> list[list[Entry] | StoreError]:
            return [capture_outcome(partial(log.partition.read, at, bytes_max)) for log, at in ours]

        def work(reply: Reply) -> None:
            if any(offset != log.partition.end for log, offset in ours):
                reply(read())
                return
            once = _Once(lambda: reply(read()))
            for log, _ in ours:
                log.partition.waiters.append(once)
            self.link.network.later(wait_s, once)

        try:
            replies: list[list[Entry] | StoreError] = await self.link.ask("read many", work)
        except StoreError as error:
            return [error] * len(items)
        return replies

    def changelog_writer(self, topic: str, partition: int, transactional_id: str) -> MemoryWriter:
        """Return a writer; the last one to fence may flush."""
        return MemoryWriter(self.link, (topic, partition))

    def changelog_reader(self, topic: str, partition: int) -> MemoryReader:
        """Return a reader of what is committed."""
        return MemoryReader(self.link, (topic, partition))

    async def exists(self, topic: str) -> bool:
        """Say that there is: a log is made when it is first used."""
        return True

    async def topics(self) -> dict[str, int]:
        """Return the topics there are."""
        places = (place for place, _ in self.link.network.broker.logs())
        return {topic: partition + 1 for topic, partition in sorted(places)}

    async def create_topics(self, specs: Sequence[TopicSpec]) -> None:
        """Reach the broker; a log is made when it is first used."""
        await self.link.ask("create topics", lambda reply: reply(len(specs)))

    async def delete_topics(self, names: Sequence[str]) -> None:
        """Reach the broker; deleted topics are kept, and no one reads them."""
        await self.link.ask("delete topics", lambda reply: reply(len(names)))
