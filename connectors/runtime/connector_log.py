"""Log lines of connectors, kept for a week in the table ``rowtide_connector_log``.

A line of one of our loggers belongs to the connector whose task wrote it. Lines are
gathered and written to the table a second later. If there are too many, the first are
kept, with the number of those left out.
"""

from __future__ import annotations

import contextvars
import logging
import time
from collections import deque
from typing import NamedTuple

from rowtide.client.endpoint import Endpoint
from rowtide.connectors.runtime.kept_rows import KeptRows

__all__ = ["LOG_TABLE", "ConnectorLog", "Line", "LineBuffer", "of_connector"]

LOG_TABLE = "rowtide_connector_log"

WEEK_S = 7 * 86_400
LINES_MAX = 20
"""Lines of one connector that are kept per second."""

TEXT_MAX = 4000

of_connector: contextvars.ContextVar[str] = contextvars.ContextVar("connector", default="")
"""The connector whose task is running."""


class Line(NamedTuple):
    """One line of one process."""

    at_us: int
    process: str
    level: str
    text: str


class LineBuffer(logging.Handler):
    """Gathers lines by connector until they are written."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self._lines: dict[str, deque[Line]] = {}
        self._left_out: dict[str, int] = {}
        self._last_us = 0

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a line if a connector's task wrote it."""
        connector = of_connector.get()
        if not connector:
            return
        lines = self._lines.setdefault(connector, deque())
        if len(lines) >= LINES_MAX:
            self._left_out[connector] = self._left_out.get(connector, 0) + 1
            return
        # The time is part of the line's key, so no two lines of a process have the same.
        self._last_us = max(self._last_us + 1, time.time_ns() // 1000)
        lines.append(Line(self._last_us, "", record.levelname, self.format(record)[:TEXT_MAX]))

    def take_lines(self) -> dict[str, list[Line]]:
        """Return the lines gathered since the last call."""
        found = {name: list(lines) for name, lines in self._lines.items()}
        for name, count in self._left_out.items():
            last = found[name][-1]
            # This key lies after the kept lines, where the lines left out would be.
            text = f"{count} more lines were left out"
            found[name].append(Line(last.at_us + 1, "", "WARNING", text))
            self._last_us = max(self._last_us, last.at_us + 1)
        self._lines, self._left_out = {}, {}
        return found


class ConnectorLog:
    """The table of log lines."""

    def __init__(self, endpoint: Endpoint) -> None:
        key = (("connector", str), ("at_us", int), ("process", str))
        self._rows = KeptRows(endpoint, LOG_TABLE, key, ttl_s=WEEK_S)

    async def write(self, connector: str, line: Line, process: str) -> None:
        """Write a line."""
        key = (connector, line.at_us, process)
        await self._rows.put(key, {"level": line.level, "text": line.text})

    async def read(self, connector: str, *, since_us: int = 0) -> list[Line]:
        """Return the lines after a time, oldest first."""
        found = await self._rows.scan(connector, after=since_us)
        return [
            Line(int(key[1]), str(key[2]), str(columns["level"]), str(columns["text"]))
            for key, columns in found
        ]

    async def remove(self, connector: str) -> None:
        """Remove every line."""
        for key, _ in await self._rows.scan(connector):
            await self._rows.delete(key)
