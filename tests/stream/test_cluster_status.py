"""The status of all workers, as its reader sees it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

from rowtide.stream.cluster.peers import Peers
from rowtide.stream.worker.worker_status import ClusterStatus, WorkerStatus


async def test_all_tell_of_the_moment_of_the_question_however_long_one_is_silent() -> None:
    """A slot that was handed over meanwhile would appear at two workers, or at none."""
    slots = {1}

    async def ask(_operation: str, _body: bytes) -> dict[str, bytes]:
        answers = {"other:1": b'{"slots": []}'}
        slots.discard(1)  # It goes to the other one, after that one has answered.
        return answers

    here = SimpleNamespace(report=lambda: {"slots": sorted(slots)})
    peers = SimpleNamespace(ask=ask)
    status = ClusterStatus(cast(WorkerStatus, here), cast(Peers, peers))
    assert await status.report() == {"workers": [{"slots": [1]}, {"slots": []}]}
