"""Why a worker is not ready, as whoever sends clients to it learns."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from rowtide.core.authentication import KNOWN_S_MAX, Authenticator
from rowtide.stream.http.edge import Edge
from rowtide.stream.kafka.cluster import Cluster
from rowtide.stream.measures.counts import Counts
from rowtide.stream.workers.health import Health


@pytest.mark.parametrize(
    ("age_s", "reasons"),
    [(KNOWN_S_MAX, []), (KNOWN_S_MAX + 1, ["access keys were last read 31 s ago"])],
)
def test_who_lets_nobody_in_is_not_ready(tmp_path: Path, age_s: float, reasons: list[str]) -> None:
    """Brokers may answer all but what they are asked of the catalog."""
    authenticator = Authenticator(lambda _: None, lambda _: True, lambda: age_s)
    edge = SimpleNamespace(authenticator=authenticator, leaving=False, admitting=True)
    connections = SimpleNamespace(answered_s=time.monotonic())
    cluster = SimpleNamespace(brokers=SimpleNamespace(connections=connections))
    health = Health(
        cast(Edge, edge),
        {},
        cast(Cluster, cluster),
        data_dir=tmp_path,
        free_bytes_min=0,
        counts=Counts(),
    )
    assert health.reasons() == reasons
