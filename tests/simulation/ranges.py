"""Clients that read ranges page by page, of any worker, while shards come and go.

A page shows each of its rows as it was at some moment between question and answer, and leaves out
those alone that were absent at one.
"""

from __future__ import annotations

import asyncio
import random

from rowtide.core.protocol import plainbuffer
from rowtide.core.protocol.wire import ots_pb2 as pb
from rowtide.core.values import variant
from tests.simulation.clients import Clients
from tests.simulation.requests import Workers, ask, rows_of, wire_key
from tests.simulation.row_model import list_visible
from tests.simulation.tables import PLACES, TABLES

__all__ = ["Ranges"]

LIMITS = (1, 2, 100)
PAGES_MAX = 12


class Ranges:
    """All of them. ``tasks`` has the clients, which may call any of ``workers``."""

    def __init__(
        self,
        clients: Clients,
        tasks: asyncio.TaskGroup,
        chance: random.Random,
        workers: Workers,
    ) -> None:
        self._clients = clients
        self._tasks = tasks
        self._chance = chance
        self._workers = workers

    def begin(self) -> None:
        """Let a client read all rows of some table, forward or backward."""
        table = self._chance.choice(list(TABLES))
        backward = self._chance.random() < 0.5
        self._tasks.create_task(self._scan(table, backward=backward), name="range")

    async def _scan(self, table: str, *, backward: bool) -> None:
        ends = (variant.V_INF_MIN,) * 2, (variant.V_INF_MAX,) * 2
        first, last = reversed(ends) if backward else ends
        start, end = wire_key(*first), wire_key(*last)
        limit = self._chance.choice(LIMITS)
        left = sorted((p for p in PLACES if p.table == table), reverse=backward)
        for _ in range(PAGES_MAX):
            workers = self._workers()
            if not workers or not left:
                return
            request = pb.GetRangeRequest(
                table_name=table,
                direction=pb.BACKWARD if backward else pb.FORWARD,
                max_versions=1,
                limit=limit,
                inclusive_start_primary_key=start,
                exclusive_end_primary_key=end,
            )
            low = {place: self._clients.acknowledged[place] for place in left}
            reply = await ask(self._clients, self._chance.choice(workers), "GetRange", request)
            self._clients.trace.add("range", f"{table} {type(reply).__name__}")
            if not isinstance(reply, bytes):
                return
            answer = pb.GetRangeResponse.FromString(reply)
            rows = rows_of(answer.rows)
            start = answer.next_start_primary_key
            [following] = plainbuffer.decode_rows(start) if start else [None]
            stop = None if following is None else str(variant.decode(following.key[0][1]))
            while left and left[0].name != stop:
                place = left.pop(0)
                row = rows.pop(place.name, None)
                known = self._clients.model(table).since(place.name, low[place])
                shown = [seen for columns in known for seen in list_visible(columns)]
                assert row in shown, f"a range shows of {place} what never was: {row}"
                self._clients.check_whole(place, row)
            assert not rows, f"a range of {table} has rows beyond it, or twice: {sorted(rows)}"
            if following is None:
                return
