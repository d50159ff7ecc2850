"""Brokers that were deposed and do not know it, as one process still asks them.

A broker that is cut off from the others goes on answering reads of the logs that it led, from what
stood when it was deposed. Nothing is written there any more: an append gets no answer, and then
whoever asked looks for the leader anew, and never sees an older end than it knows.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict

from tests.simulation.broker import Broker, Changelog, Partition, Place

__all__ = ["Leaders"]


class Leaders:
    """Whom one process takes for the leader of each log and changelog."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._logs: dict[Place, Partition] = {}
        self._changelogs: dict[Place, Changelog] = {}
        self._times: dict[Place, list[float]] = defaultdict(list)
        """When each log's leader was deposed, and found out, in turn."""

    def log(self, place: Place) -> Partition:
        """Return a log as the process sees it."""
        return self._logs.get(place) or self._broker.log(place)

    def changelog(self, place: Place) -> Changelog:
        """Return a changelog as the process reads it."""
        return self._changelogs.get(place) or self._broker.changelog(place)

    def is_deposed(self, place: Place) -> bool:
        """True if the process asks a deposed leader."""
        return place in self._logs or place in self._changelogs

    def depose_log(self, place: Place) -> None:
        """Let a log's leader be deposed: the process sees it as it is now."""
        if not self.is_deposed(place):
            log = self._broker.log(place)
            self._logs[place] = Partition(log.name, log.start, list(log.entries))
            self._times[place].append(asyncio.get_running_loop().time())

    def depose_changelog(self, place: Place) -> None:
        """Let a changelog's leader be deposed: the process reads it as it is now."""
        if not self.is_deposed(place):
            changelog, old = self._broker.changelog(place), Changelog()
            old.entries, old.end = list(changelog.entries), changelog.end
            self._changelogs[place] = old

    def learn(self, place: Place) -> None:
        """Let the process find the leader."""
        if self._logs.pop(place, None) is not None:
            self._times[place].append(asyncio.get_running_loop().time())
        self._changelogs.pop(place, None)

    def is_misled(self, place: Place, at_s: float) -> bool:
        """True if a deposed leader may have answered what was asked about a log then."""
        times = self._times.get(place, [])
        found = sum(time <= at_s for time in times)
        return found % 2 == 1
