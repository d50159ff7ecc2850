"""What befalls the cluster meanwhile: processes are killed, shards split, merged and moved."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from itertools import pairwise
from typing import Any

from rowtide.cli.client import NoAnswer, ProtocolClient, ServerError
from tests.connectors.processes import ConnectorProcesses
from tests.workers.conftest import SLOTS, Workers
from tests.workers.timelines.chat import INBOX, MEMBERS, STORE

__all__ = ["Faults"]

PAUSE_S_MAX = 2.0


class Faults:
    """Kills, and changes of shards; ``done`` counts them by kind."""

    def __init__(
        self, workers: Workers, processes: ConnectorProcesses, chance: random.Random
    ) -> None:
        self.done: Counter[str] = Counter()
        self._workers = workers
        self._processes = processes
        self._chance = chance

    async def kill(self) -> None:
        """End a worker or the fan-out as a power cut would, in turn, and start it again."""
        kills = self.done["kill worker"] + self.done["kill fan-out"]
        if kills % 2:
            self.done["kill worker"] += 1
            victim = self._chance.randrange(2)
            self._workers.running[victim].kill()
            await asyncio.to_thread(self._workers.again, victim)
        else:
            self.done["kill fan-out"] += 1
            self._processes.kill()
            self._processes.start()

    async def reshape(self) -> None:
        """Split, merge or move a shard of one of the three tables."""
        kind = ""
        while not kind:
            await asyncio.sleep(self._chance.uniform(0, PAUSE_S_MAX))
            seed = self._chance.randrange(2**32)
            kind = await asyncio.to_thread(self._change, random.Random(seed))
        self.done[kind] += 1

    def _change(self, chance: random.Random) -> str:
        """Request a change of a random shard; return its kind, empty if none was made."""
        table = chance.choice([STORE, INBOX, INBOX, MEMBERS])
        try:
            with self._workers.another() as client:
                return _change_shards(client, table, chance)
        except (NoAnswer, ServerError):
            return ""  # A worker is dead, or another change is under way.


def _change_shards(client: ProtocolClient, table: str, chance: random.Random) -> str:
    listed = client.call_json("RowtideListShards", {"table": table})["shards"]
    found = [shard for shard in listed if shard["state"] == "open"]
    if not found:
        return ""
    pairs = [(a, b) for a, b in pairwise(found) if a["slot"] == b["slot"]]
    some = chance.choice(found)
    fields: dict[str, Any] = {"table": table}
    kind = chance.choice(["split", "merge", "move"])
    if kind == "merge" and pairs:
        fields["shards"] = [shard["shard"] for shard in chance.choice(pairs)]
        client.call_json("RowtideMergeShards", fields)
        return kind
    if kind == "split" and len(found) < SLOTS:
        client.call_json("RowtideSplitShard", {**fields, "shard": some["shard"]})
        return kind
    slot = (some["slot"] + chance.randrange(1, SLOTS)) % SLOTS
    client.call_json("RowtideMoveShard", {**fields, "shard": some["shard"], "slot": slot})
    return "move"
