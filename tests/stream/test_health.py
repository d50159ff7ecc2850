"""Why a worker is not ready, as a load balancer reads it."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from rowtide.core.protocol.authentication import KNOWN_S_MAX, Authenticator
from rowtide.core.values.errors import Unavailable
from rowtide.stream.http.edge import Edge
from rowtide.stream.log.cluster import TopicCluster
from rowtide.stream.measures.counts import Counts
from rowtide.stream.shard.row_store import StoreFailed
from rowtide.stream.slot.failures import StoreBehind
from rowtide.stream.slot.opening.openings import Openings
from rowtide.stream.slot.slot import Slot
from rowtide.stream.worker.health import Health


def reasons_of(
    tmp_path: Path, *, age_s: float = 0.0, slot: object = None, lost: str = ""
) -> list[str]:
    """Return what a worker says that has read its keys ``age_s`` ago, has a slot, or has lost."""
    authenticator = Authenticator(lambda _: None, lambda _: True, lambda: age_s)
    edge = SimpleNamespace(authenticator=authenticator, leaving=False, admitting=True)
    cluster = SimpleNamespace(answered_s=time.monotonic())
    health = Health(
        cast(Edge, edge),
        {} if slot is None else {3: cast(Slot, slot)},
        cast(TopicCluster, cluster),
        data_dir=tmp_path,
        free_bytes_min=0,
        counts=Counts(),
        catalog_lost=lambda: lost,
    )
    return health.reasons()


@pytest.mark.parametrize(
    ("age_s", "reasons"),
    [(KNOWN_S_MAX, []), (KNOWN_S_MAX + 1, ["access keys were last read 31 s ago"])],
)
def test_who_lets_nobody_in_is_not_ready(tmp_path: Path, age_s: float, reasons: list[str]) -> None:
    """Brokers may answer all but what they are asked of the catalog."""
    assert reasons_of(tmp_path, age_s=age_s) == reasons


FAILURES: dict[str, tuple[Exception | None, str]] = {
    "none yet": (None, ""),
    "its disk": (StoreFailed("/data/rows/3: IO error"), ": its rows cannot be opened or written"),
    "its rows": (StoreBehind("/data/rows/3: too old"), ": its rows are rebuilt from Kafka"),
    "a broker": (Unavailable("kafka-1:9092 is away"), ": a request to Kafka failed"),
}


@pytest.mark.parametrize("name", FAILURES)
async def test_why_a_slot_does_not_open_is_told_without_names(tmp_path: Path, name: str) -> None:
    failure, why = FAILURES[name]
    openings, elsewhere = Openings(), False
    if failure is not None:
        openings.note_end(failure, opened=False)
    slot = SimpleNamespace(
        is_served_elsewhere=lambda: elsewhere, opened=asyncio.Event(), openings=openings
    )
    assert reasons_of(tmp_path, slot=slot) == [f"slot 3 is not open{why}"]
    elsewhere = True
    assert reasons_of(tmp_path, slot=slot) == []


def test_who_knows_more_of_the_catalog_than_its_log_has_is_not_ready(tmp_path: Path) -> None:
    lost = "sim.catalog[0] lost what it had acknowledged: it ends at 3, but entry 3 was read"
    assert reasons_of(tmp_path, lost=lost) == [lost]
