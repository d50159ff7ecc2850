"""How busy and how large tables are, of all workers; the worker that is called asks the others.

A caller names the second up to which it has each worker's figures, and gets what is newer. So a
poll once a second moves one entry for each table that is in use. No operation here reads a row.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rowtide.core.cluster.catalog import Catalog
from rowtide.core.protocol.authentication import Identity
from rowtide.core.protocol.worker_messages import LoadsRequest, ObjectAnswer, TableFiguresRequest
from rowtide.core.values.errors import invalid
from rowtide.stream.api.admin_request import json_answer, json_fields
from rowtide.stream.cluster.hop_frames import NOBODY
from rowtide.stream.cluster.peers import Peers, silent
from rowtide.stream.http.handlers import answers
from rowtide.stream.measures.table_tally import TableTally

__all__ = ["TableFigureOperations"]

ENTRIES_MAX = 20_000
"""Entries in one worker's answer, about 500 KB of JSON. A caller that lacks more asks again."""

ANSWER_S = 1.0
"""For so long a worker is awaited: the caller asks again a second later."""


class TableFigureOperations:
    """Handlers by operation. ``loads`` answers ``LoadsRequest`` for this worker."""

    def __init__(
        self,
        tally: TableTally,
        catalog: Catalog,
        peers: Peers,
        loads: Callable[[Identity, bytes], bytes],
    ) -> None:
        self._tally = tally
        self._catalog = catalog
        self._peers = peers
        self._loads = loads

    @answers("RowtideTableFigures")
    async def table_figures(self, _identity: Identity, body: bytes) -> bytes:
        """Return each worker's figures that are newer than ``since``, an object of Unix seconds.

        The names in ``since`` are addresses of workers. A worker without one answers its last hour.
        """
        since = json_fields(body, {"since"}).get("since", {})
        if not isinstance(since, dict) or any(type(s) is not int for s in since.values()):
            raise invalid("The since must be an object: a whole Unix second by worker address.")
        request = TableFiguresRequest(since)
        found = await self._peers.ask(request.operation, request.encode(), answer_s=ANSWER_S)
        pages = [self._page(since.get(self._peers.address, 0))]
        pages += [ObjectAnswer.decode(b).content for b in found.values() if isinstance(b, bytes)]
        return json_answer({"workers": pages, "silent": silent(found)})

    @answers(TableFiguresRequest.operation)
    def table_figures_here(self, _identity: Identity, body: bytes) -> bytes:
        """Answer another worker."""
        since = TableFiguresRequest.decode(body).since
        return ObjectAnswer(self._page(since.get(self._peers.address, 0))).encode()

    @answers("RowtideListLoads")
    async def shard_loads(self, _identity: Identity, body: bytes) -> bytes:
        """Return the table, the worker, the log's end and the bytes on disk of every open shard.

        Rows that were written last are not on the disk yet: up to 16 MiB for each slot.
        """
        json_fields(body, set())
        request = LoadsRequest()
        found = await self._peers.ask(request.operation, request.encode())
        answers_by_worker = {self._peers.address: self._loads(NOBODY, request.encode()), **found}
        shards = {
            shard: {
                "instance": known[0].instance,
                "table": known[0].name,
                "worker": address,
                "end": end,
                "bytes": size,
            }
            for address, answer in answers_by_worker.items()
            if isinstance(answer, bytes)
            for shard, (end, size) in ObjectAnswer.decode(answer).content.items()
            if (known := self._catalog.shards.get(shard)) is not None
        }
        return json_answer({"shards": shards, "silent": silent(found)})

    def _page(self, after: int) -> dict[str, Any]:
        figures, until = self._tally.figures()
        page = figures.page(after, until, entries_max=ENTRIES_MAX)
        return {"address": self._peers.address, "now_s": until, **page}
