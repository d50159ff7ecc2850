"""Faults planted in the local log, where its disk fails and its process is killed."""

from __future__ import annotations

from concurrent.futures import Future
from functools import partial

from rowtide.core.values.errors import Unavailable
from rowtide.stream.log.local.layout import Bounds
from rowtide.stream.log.local.partition import LocalPartition
from rowtide.stream.log.local.store import WriteFailed
from rowtide.stream.log.local.writer import GroupWriter, Job
from tests.simulation.edge_mutations import make_mutation_behind
from tests.simulation.program import ALONE_FROM

__all__ = ["LOCAL_LOG"]

_finish = GroupWriter._finish


def _finish_anyhow(self: GroupWriter, group: list[Job], written: Future[None]) -> None:
    done: Future[None] = Future()
    done.set_result(None)
    _finish(self, group, done)


def _fail_as_refused(self: GroupWriter, group: list[Job], failure: BaseException) -> None:
    assert isinstance(failure, WriteFailed)
    self._writing = False
    self._failure = self._failure or str(failure)
    for job in group:
        if not job.done.done():
            job.done.set_exception(Unavailable(f"{job.where}: {failure}"))  # Not OutcomeUnknown.
    self._refuse_waiting()
    self._failed.set()


def _reload_nothing(self: LocalPartition, bounds: Bounds) -> None:
    self.wake()  # The bounds stay as they were planned.
    self.bounds = self.planned


with_a_local_log = partial(make_mutation_behind, ALONE_FROM)

LOCAL_LOG = [
    with_a_local_log("take a failed write for done", GroupWriter, "_finish", _finish_anyhow),
    with_a_local_log("take a failed write for refused", GroupWriter, "_fail", _fail_as_refused, 60),
    with_a_local_log("believe the plan after a failure", LocalPartition, "reload", _reload_nothing),
]
"""Each in runs of seeds from ``ALONE_FROM`` on."""
