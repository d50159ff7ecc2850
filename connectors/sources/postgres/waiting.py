"""The transaction that a copy waits for: the oldest one that the server still runs.

The creation of a slot, and the first chunk of a copy, wait until every earlier
transaction has ended. The statement is not shown, because it may have secrets.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import TypeVar

from rowtide.connectors.sources.postgres.report import TableReport
from rowtide.connectors.sources.postgres.server import PostgresServer

__all__ = ["Waiting"]

logger = logging.getLogger(__name__)

ASK_S = 1.0
"""Pause between two queries. A shorter wait is not reported."""

T = TypeVar("T")


class Waiting:
    """Reports the transaction in ``report``, and once in the log."""

    def __init__(self, server: PostgresServer, report: TableReport) -> None:
        self._server = server
        self._report = report
        self._since_s: float | None = None
        self._logged = ""

    async def during(self, blocking: Callable[[], T]) -> T:
        """Run a blocking call that waits at the server in another session. Return its result."""
        async with asyncio.TaskGroup() as tasks:
            watching = tasks.create_task(self._watch(), name="postgres waiting")
            try:
                return await asyncio.to_thread(blocking)
            finally:
                watching.cancel()
                self.over()

    async def _watch(self) -> None:
        while True:
            await self.note()
            await asyncio.sleep(ASK_S)

    async def note(self) -> None:
        """Find what the copy waits for, if the wait has lasted a while."""
        now_s = time.monotonic()
        if self._since_s is None:
            self._since_s = now_s
        elif now_s - self._since_s >= ASK_S:
            self._since_s = now_s
            who, how_long = await asyncio.to_thread(_oldest, self._server)
            self._report.waits = who and f"The copy waits for {who}, {how_long}."
            if who and who != self._logged:
                self._logged = who
                logger.warning("the copy of tables waits for %s, %s", who, how_long)

    def over(self) -> None:
        """Record that the copy no longer waits."""
        self._since_s, self._report.waits = None, ""


def _oldest(server: PostgresServer) -> tuple[str, str]:
    """Return the oldest transaction and its age as texts, empty if there is none."""
    found = server.rows(_OLDEST)
    if not found:
        return "", ""
    [(pid, gid, role, database, age_s, query_start)] = found
    if gid is not None:
        who = f"the prepared transaction {gid!r} of the database {database}"
        return who, f"open for {age_s} s: COMMIT PREPARED or ROLLBACK PREPARED ends it"
    who = f"the transaction of process {pid} (role {role}, database {database})"
    if age_s is None:
        return who, "whose age the server shows to members of pg_read_all_stats"
    return who, (
        f"open for {age_s} s, its last statement of {query_start}: "
        f"SELECT pg_terminate_backend({pid}) ends it"
    )


# Locks are shown to every role; times of other roles' sessions are not.
_OLDEST = """
SELECT l.pid, p.gid, coalesce(a.usename, p.owner), coalesce(a.datname, p.database),
       extract(epoch FROM clock_timestamp() - coalesce(a.xact_start, p.prepared))::int8,
       to_char(a.query_start, 'YYYY-MM-DD HH24:MI:SS"Z"')
  FROM pg_locks l
  LEFT JOIN pg_stat_activity a ON a.pid = l.pid
  LEFT JOIN pg_prepared_xacts p ON p.transaction = l.transactionid
 WHERE l.locktype = 'transactionid' AND l.granted AND l.mode = 'ExclusiveLock'
   AND l.pid IS DISTINCT FROM pg_backend_pid()
 ORDER BY age(l.transactionid) DESC LIMIT 1
"""
