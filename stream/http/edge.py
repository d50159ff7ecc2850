"""The HTTP edge: where clients connect, and where the server stops cleanly.

The edge knows the connections, their common bounds and the table of operations.
`rowtide.stream.http.connection` has the behaviour of one connection. The edge starts
tasks only in the group that it gets. One sweep over the connections checks all time
limits, so that a request sets no timer.
"""

from __future__ import annotations

import asyncio
import socket
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress

from rowtide.core.protocol.authentication import Authenticator
from rowtide.stream.http.answer import AnswerWriter, RequestIds
from rowtide.stream.http.connection import Connection
from rowtide.stream.http.limits import HttpLimits
from rowtide.stream.http.pages import ConsoleAddress, Page
from rowtide.stream.http.request import BodyBudget
from rowtide.stream.http.request_log import RequestLog
from rowtide.stream.http.tally import BoundedHandler, Handler, Tally
from rowtide.stream.measures.table_tally import TableTally
from rowtide.stream.measures.ticks import until_tick_s

__all__ = ["Edge", "Handler"]

BACKLOG = 1024
SWEEP_S_MAX = 1.0
"""Time-outs may be late by this much, or by a quarter of the shortest time-out if less."""

TURNED_AWAY_MAX = 64
"""Connections beyond the limit that get an error at once; further ones are cut without one."""


class Edge:
    """Serves the operations in ``handlers`` to authenticated clients; None: only after ``open``.

    ``clock`` gives seconds since the Unix epoch. A handler's awaitable other than a
    Future runs as a task in ``tasks`` and never fails it. ``pages`` need no signature and
    are served even before operations are (``admitting``). A request that takes ``slow_s``
    seconds or longer is logged as slow. ``is_table`` returns True if an instance has a
    table of a name: then its requests are counted.
    """

    def __init__(
        self,
        authenticator: Authenticator,
        handlers: Mapping[str, Handler] | None,
        tasks: asyncio.TaskGroup,
        *,
        clock: Callable[[], float],
        request_ids: Callable[[], bytes] | None = None,
        limits: HttpLimits | None = None,
        slow_s: float = 0.0,
        is_table: Callable[[str, str], bool] | None = None,
    ) -> None:
        self.authenticator = authenticator
        self.tally = Tally(handlers or {})
        self.table_tally = TableTally(is_table or (lambda _instance, _table: False))
        self.pages: dict[bytes, Page] = {}
        self.introduction: Page | None = None
        self.console: ConsoleAddress | None = None
        """The web console beside this worker, while it runs."""
        self.admitting = handlers is not None
        self.tasks = tasks
        self.clock = clock
        self.request_ids = request_ids or RequestIds()
        self.limits = limits or HttpLimits()
        self.budget = BodyBudget(self.limits.bodies_bytes_max)
        self.writer = AnswerWriter(clock)
        self.leaving = False
        """True from the beginning of a drain. ``draining`` follows once no new client is
        accepted; each connection then ends with its next answer. ``ending`` follows once
        idle connections are closed.
        """
        self.draining = False
        self.ending = False
        self._loop = asyncio.get_running_loop()
        self.now: Callable[[], float] = self._loop.time
        self.request_log = RequestLog(slow_s, self.now)
        self._servers: list[asyncio.Server] = []
        self._connections: set[Connection] = set()
        self._in_flight = 0
        self._unsent: deque[Connection] = deque()
        self._unconnected = asyncio.Event()
        self._unconnected.set()
        self._quiet = asyncio.Event()
        self._sweeper: asyncio.Handle | None = None

    def open(
        self,
        handlers: Mapping[str, Handler],
        bounded: Mapping[str, BoundedHandler] | None = None,
    ) -> None:
        """Start to answer operations; those of ``bounded`` also accept a bound of staleness."""
        self.tally = Tally(handlers, bounded)
        self.admitting = True

    async def serve(self, host: str, port: int) -> asyncio.Server:
        """Accept clients on ``host`` and ``port`` (0: any free port, see the server's sockets)."""
        server = await self._loop.create_server(
            lambda: Connection(self), host, port, backlog=BACKLOG
        )
        return self._begin(server)

    async def serve_on(self, listener: socket.socket) -> asyncio.Server:
        """Accept clients on a socket that is already bound; the edge owns it from now on."""
        server = await self._loop.create_server(
            lambda: Connection(self), sock=listener, backlog=BACKLOG
        )
        return self._begin(server)

    def _begin(self, server: asyncio.Server) -> asyncio.Server:
        self._servers.append(server)
        if self._sweeper is None:
            self._sweeper = self._loop.call_soon(self._sweep)
        return server

    async def drain(self, deadline_s: float, *, notice_s: float = 0.0, grace_s: float = 0.0) -> int:
        """Stop accepting, let running requests finish, and return the number that were cut off.

        Every client is served for ``notice_s`` first, while the readiness probe sends new
        clients elsewhere. Then each connection closes with its next answer, idle ones
        after ``grace_s``: a write on a closing connection has an unknown outcome.
        """
        self.leaving = True
        if notice_s:
            await asyncio.sleep(notice_s)
        self.draining = True
        for server in self._servers:
            server.close()
        with suppress(TimeoutError):
            async with asyncio.timeout(grace_s):
                await self._unconnected.wait()
        await asyncio.sleep(0)
        await asyncio.sleep(0)  # As before a time-out: bytes that have arrived are read first.
        self.ending = True
        for connection in list(self._connections):
            connection.wind_down()
        try:
            async with asyncio.timeout(deadline_s):
                await self._unconnected.wait()
                while self._in_flight:
                    self._quiet.clear()
                    await self._quiet.wait()
        except TimeoutError:
            for connection in list(self._connections):
                connection.abort()
            await self._unconnected.wait()
        if self._sweeper is not None:
            self._sweeper.cancel()
            self._sweeper = None
        return self._in_flight

    @property
    def connections(self) -> int:
        """The number of open connections."""
        return len(self._connections)

    # ---- What connections call ----

    def admit(self, connection: Connection) -> bool:
        """Count a new connection; return True if it is within the limit."""
        self._connections.add(connection)
        self._unconnected.clear()
        surplus = len(self._connections) - self.limits.connections_max
        if surplus > TURNED_AWAY_MAX:
            connection.abort()
        return surplus <= 0 and not self.draining

    def forget(self, connection: Connection) -> None:
        """Remove a closed connection."""
        self._connections.discard(connection)
        if not self._connections:
            self._unconnected.set()

    def begin_request(self) -> None:
        """Count a request whose handler has started."""
        self._in_flight += 1

    def end_request(self) -> None:
        """Count a request as finished, even if its client has disconnected."""
        self._in_flight -= 1
        if self._in_flight == 0:
            self._quiet.set()

    def send_soon(self, connection: Connection) -> None:
        """Send a connection's answers together with all others of this turn of the event loop.

        A single connection sends at once, because another turn would only take time.
        """
        if len(self._connections) == 1:
            connection.send()
            return
        if not self._unsent:
            self._loop.call_soon(self._send)
        self._unsent.append(connection)

    def _send(self) -> None:
        unsent = self._unsent
        try:
            while unsent:
                unsent.popleft().send()
        finally:
            if unsent:  # A failed connection must not keep the others' answers.
                self._loop.call_soon(self._send)

    def _sweep(self) -> None:
        """Check the connections' time limits once all bytes that have arrived are read.

        A late loop may run its timers before it reads. A request that has already arrived
        would then be cut off: the server would close a connection that its client is
        using. The loop reads between two turns, whatever its order within one.
        """
        self._loop.call_soon(self._loop.call_soon, self._expire)

    def _expire(self) -> None:
        if self._sweeper is None:
            return  # Drained meanwhile.
        now_s = self.now()
        for connection in list(self._connections):
            connection.expire(now_s)
        limits = self.limits
        shortest_s = min(limits.receive_timeout_s, limits.idle_timeout_s, limits.linger_s)
        wait_s = until_tick_s(self._loop.time(), min(SWEEP_S_MAX, shortest_s / 4))
        self._sweeper = self._loop.call_later(wait_s, self._sweep)
