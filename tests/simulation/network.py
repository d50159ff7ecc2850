"""Messages between processes and the broker: late, lost on either way, landing after all.

A ``Link`` is one process's way to the broker. What it sends arrives outside of the process: a
process that is stopped has sent what it has sent. Chance comes from one generator, so a run can be
repeated. Times are seconds.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any

from rowtide.core.values.errors import OutcomeUnknown, StoreError, Unavailable
from rowtide.stream.log.changelog import Fenced
from tests.simulation.broker import Broker, Place
from tests.simulation.deposed import Leaders
from tests.simulation.virtual_time import OUTSIDE

__all__ = ["Fate", "Link", "Network", "Weather"]

RETRY_S = 0.25
"""After this long a request without an answer is repeated."""
ASKED_S = 5.0
"""For how long."""
RESET_S = 0.02
"""A broken connection is often noticed at once."""

Reply = Callable[[Any], None]
Work = Callable[[Reply], None]


class Fate(Enum):
    """What becomes of what is sent once."""

    DONE = "written and answered"
    REFUSED = "refused, provably not written"
    LOST_REQUEST = "never arrives, and the writer cannot know"
    LOST_ANSWER = "written, and the writer cannot know"
    DELAYED = "arrives later, perhaps after others', and the writer cannot know"
    DOUBLED = "written and answered, and arrives once more later"


FAULTS = tuple(fate for fate in Fate if fate is not Fate.DONE)


@dataclass(slots=True)
class Weather:
    """How bad the network is. ``latency_s`` is the longest usual one."""

    latency_s: float = 0.002
    faults: float = 0.0
    """Part of all appends and flushes that meets a fault."""
    lost: float = 0.0
    """Part of all questions that gets no answer at first."""
    slow: float = 0.0
    """Part of all messages that takes thirty times as long."""
    late_s_max: float = 4.0
    """What is delayed lands within."""


LATE_S = (0.02, 0.1, 0.4, 1.0)
"""For one of these an answer that comes late is held back."""


class Network:
    """State that all links share. ``away`` is a broker that no process can reach."""

    def __init__(self, broker: Broker, chance: random.Random) -> None:
        self.broker = broker
        self.chance = chance
        self.weather = Weather()
        self.away = False
        self.read_bytes_max = 16 << 20
        """What one read of a log brings at most, but for its first entry."""
        self.lateness: random.Random | None = None
        """Says which answers to reads of logs come late, if any do."""
        self.late_often = 0.0
        """Part of them that does."""
        self.ignorance: random.Random | None = None
        """Says which reads of logs a new leader answers that does not know yet how much it has."""
        self.ignorant_often = 0.0
        """Part of them that it does."""
        self.over = False
        self.held: deque[Callable[[], None]] = deque()
        """Work that is delayed until it is released."""

    def latency_s(self) -> float:
        """Return how long the next message takes."""
        usual = self.chance.uniform(0.0003, self.weather.latency_s)
        return usual * 30 if self.chance.random() < self.weather.slow else usual

    async def late(self) -> None:
        """Hold an answer back now and then: what is decided by it may be old by then."""
        chance = self.lateness
        if chance is not None and chance.random() < self.late_often:
            await asyncio.sleep(chance.choice(LATE_S))

    def knows_less(self) -> bool:
        """True if a read returns nothing, although the log's end is reported correctly."""
        chance = self.ignorance
        return chance is not None and chance.random() < self.ignorant_often

    def land_held(self) -> None:
        """Let the oldest of what is held arrive."""
        if self.held:
            self.held.popleft()()

    def later(self, delay_s: float, call: Callable[..., None], *args: Any) -> None:
        """Call outside of every process."""
        asyncio.get_running_loop().call_later(delay_s, call, *args, context=OUTSIDE)


class Link:
    """One process's way to the broker. ``cut`` is a way that is broken."""

    def __init__(self, network: Network) -> None:
        self.network = network
        self.leaders = Leaders(network.broker)
        self.cut = False
        self.holding = False
        """True if delayed work waits until it is released."""
        self.landing: Callable[[str], None] = lambda _where: None
        """Called after all work at the broker, before any answer."""
        self.fates: deque[Fate] = deque()
        """Of the next appends to logs of shards."""
        self.flush_fates: deque[Fate] = deque()
        """Of the next flushes."""

    @property
    def reaches(self) -> bool:
        """Whether a message gets through now."""
        return not (self.network.away or self.cut)

    async def ask(self, where: str, work: Work, *, asked_s: float = ASKED_S) -> Any:
        """Have the broker do ``work``, which may be done more than once, and return its answer."""
        loop = asyncio.get_running_loop()
        until = loop.time() + asked_s
        while True:
            future: asyncio.Future[Any] = loop.create_future()
            self._send(work, future)
            answer = await future
            if answer is not _LOST:
                return answer
            if loop.time() >= until:
                raise Unavailable(f"{where}: no broker")
            await asyncio.sleep(RETRY_S)

    def _send(self, work: Work, future: asyncio.Future[Any]) -> None:
        network = self.network
        lost = network.chance.random() < network.weather.lost

        def arrive() -> None:
            if lost or not self.reaches:
                network.later(RETRY_S, resolve, future, _LOST)
            else:
                work(reply)

        def reply(answer: Any) -> None:
            network.later(network.latency_s(), back, answer)

        def back(answer: Any) -> None:
            if self.reaches:
                resolve(future, answer)
            else:
                network.later(RETRY_S, resolve, future, _LOST)

        network.later(network.latency_s(), arrive)

    def draw_fate(self, fates: deque[Fate]) -> Fate:
        """Return what is to become of the next thing sent."""
        if fates:
            return fates.popleft()
        weather, chance = self.network.weather, self.network.chance
        return chance.choice(FAULTS) if chance.random() < weather.faults else Fate.DONE

    def once(
        self,
        where: str,
        fate: Fate,
        work: Callable[[], Any],
        *,
        deadline_s: float,
        held: bool = False,
        place: Place | None = None,
    ) -> asyncio.Future[Any]:
        """Have the broker do ``work`` once, or twice; the future tells what can be said of it.

        ``held`` keeps back what is delayed until it is released. What goes to the deposed
        leader of ``place`` is lost, and whoever has waited for its answer looks for the new one.
        Who acknowledges what was sent before leads, and tells of it from then on.
        """
        lost = place is not None and self.leaders.is_deposed(place) and fate is not Fate.REFUSED
        fate = Fate.LOST_REQUEST if lost else fate
        future = Sending(self, where, fate, work, deadline_s=deadline_s, held=held).future

        def note_leader(done: asyncio.Future[Any]) -> None:
            if place is not None and (lost or not (done.cancelled() or done.exception())):
                self.leaders.learn(place)

        if place is not None:
            future.add_done_callback(note_leader)
        return future


class Sending:
    """Something that is sent once."""

    def __init__(
        self,
        link: Link,
        where: str,
        fate: Fate,
        work: Callable[[], Any],
        *,
        deadline_s: float,
        held: bool,
    ) -> None:
        network = self._network = link.network
        self.future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._link = link
        self._where = where
        self._fate = fate
        self._work = work
        self._held = held
        self._unknown_s = RESET_S if network.chance.random() < 0.6 else deadline_s
        if fate is Fate.REFUSED or not link.reaches:
            # The connection was refused: nothing was sent.
            refused = Unavailable(f"{where}: refused")
            network.later(RESET_S, resolve, self.future, refused)
        else:
            network.later(network.latency_s(), self._arrive)

    def _arrive(self) -> None:
        if self._fate is Fate.LOST_REQUEST or not self._link.reaches:
            self._give_up()
            return
        if self._fate is Fate.DELAYED:
            self._postpone()
            self._give_up()
            return
        answer = self._work()
        self._link.landing(self._where)
        if self._fate is Fate.LOST_ANSWER:
            self._give_up()
            return
        if self._fate is Fate.DOUBLED:
            self._postpone()
        self._network.later(self._network.latency_s(), self._back, answer)

    def _back(self, answer: Any) -> None:
        if self._link.reaches:
            resolve(self.future, answer)
        else:
            self._give_up()

    def _give_up(self) -> None:
        unknown = OutcomeUnknown(f"{self._where}: no answer")
        self._network.later(self._unknown_s, resolve, self.future, unknown)

    def _postpone(self) -> None:
        network = self._network
        if self._held:
            network.held.append(self._again)
        else:
            longest_s = network.chance.choice((0.05, network.weather.late_s_max))
            network.later(network.chance.uniform(0, longest_s), self._again)

    def _again(self) -> None:
        if not self._network.away:
            self._work()
        elif not self._network.over:
            # It is on its way until the broker is back.
            self._network.later(RETRY_S, self._again)


_LOST = object()


def resolve(future: asyncio.Future[Any], answer: Any) -> None:
    """Report the first result; ignore later ones."""
    if future.done():
        return
    if isinstance(answer, StoreError | Fenced):
        future.set_exception(answer)
    else:
        future.set_result(answer)
