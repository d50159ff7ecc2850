"""A change of the catalog is in force when it is answered, whichever workers serve the
slots then.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import cast
from unittest.mock import patch

import pytest

from rowtide.core.protocol.authentication import Identity
from rowtide.core.protocol.worker_messages import SettleRequest
from rowtide.core.values.errors import LogTrimmed, OutcomeUnknown, Unavailable
from rowtide.stream.cluster import placement as placing
from rowtide.stream.cluster.catalog_owner import CatalogOwner
from rowtide.stream.cluster.hop_client import HopClient
from rowtide.stream.cluster.peers import Peers
from rowtide.stream.cluster.placement import Placement
from tests.contract.memory_log import MemoryLog

DEAD, HEIR = "dead:1", "heir:1"


@dataclass(slots=True)
class Others:
    """Two other workers: the serving one ends when it is called, and the other takes over.

    It dies, or it ``stands_still``: then it never answers.
    """

    stands_still: bool = False
    serves: str = DEAD
    settled: list[str] = field(default_factory=list)

    def serving(self) -> set[str]:
        return {self.serves}

    def list_addresses(self) -> set[str]:
        return {DEAD, HEIR}

    async def ask(self, *_asked: object, **_more: object) -> None:
        """Call the workers without slots, which may be dead."""

    async def call(self, address: str, _identity: Identity, operation: str, _body: bytes) -> bytes:
        assert operation == SettleRequest.operation
        if address == DEAD:
            self.serves = HEIR
            if self.stands_still:
                await asyncio.Event().wait()
            raise Unavailable
        self.settled.append(address)
        return b"{}"


@pytest.mark.parametrize("stands_still", [False, True])
async def test_who_takes_slots_over_meanwhile_has_settled_too(*, stands_still: bool) -> None:
    log, others = MemoryLog(), Others(stands_still=stands_still)
    catalog = CatalogOwner(log, log.twin(), owner=b"ownerid1", clock_us=lambda: 1)
    placement = Placement(catalog, {}, cast(HopClient, others), cast(Peers, others))
    with patch.object(placing, "ASK_S", 0.01):
        await placement.settle({1})
    assert others.settled == [HEIR]


async def test_a_change_that_stands_is_not_told_as_refused_by_who_does_not_settle() -> None:
    """Its maker would delete the logs of a table that exists."""
    log, others = MemoryLog(), Others()
    catalog = CatalogOwner(log, log.twin(), owner=b"ownerid1", clock_us=lambda: 1)
    placement = Placement(catalog, {}, cast(HopClient, others), cast(Peers, others))
    with (
        patch.object(placing, "SETTLE_S_MAX", 0.05),
        patch.object(Others, "call", side_effect=LogTrimmed()),
        pytest.raises(OutcomeUnknown),
    ):
        await placement.settle({1})
