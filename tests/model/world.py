"""The server that the machine drives: one process at a time, its clock, a count of steps."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rowtide.cli.client import ProtocolClient, ServerError
from tests.api.calls import ask
from tests.model.requests import Refused
from tests.system.server import Server

__all__ = ["PARTITION_UNITS", "World"]

START_MS = 1_469_030_400_000
"""2016-07-21 00:00:00 UTC, where the worked examples begin."""

PARTITION_UNITS = 10_000
"""What one partition key may use in a second: more than an example's steps do while it stands."""


@dataclass
class World:
    """``now_ms`` is the server's clock, ``high_ms`` the highest that it ever was.

    ``passed_s`` is how long transactions lived on it: setting the clock alone ends none.
    """

    server: Server
    client: ProtocolClient
    where: tuple[str, ...]
    now_ms: int = START_MS
    high_ms: int = START_MS
    passed_s: int = 0
    tables: int = 0
    steps: int = 0
    examples: int = 0
    ticks: int = 0
    counts: dict[str, int] = field(default_factory=dict)
    answers: dict[str, int] = field(default_factory=dict)

    @classmethod
    def start(cls, folder: Path, cache_dir: Path, *where: str) -> World:
        """Start a server whose logs are where these options say, also after a restart."""
        server = Server(folder / "model", cache_dir, options=(*where, *_options(START_MS)))
        try:
            server.start()
            started = cls(server, server.client(), where)
            started.pause_reclaimer()
            return started
        except BaseException:
            server.stop_all()
            raise

    def ask(self, request: Any) -> Any:
        """Send a request. Raises ``Refused``."""
        try:
            return ask(self.client, request)
        except ServerError as error:
            raise Refused(error.code) from error

    def set_clock(self, now_ms: int, *, passed_s: int = 0) -> None:
        """Move the server's clock, forth or back; of transactions' lives ``passed_s`` pass."""
        times = {"now_us": now_ms * 1000, "passed_us": passed_s * 1_000_000}
        self.client.call_json("RowtideSetClock", times)
        if now_ms != self.now_ms:
            self.ticks = 0
        self.now_ms = now_ms
        self.passed_s += passed_s
        self.high_ms = max(self.high_ms, now_ms)

    def count(self, model: object) -> None:
        """Count an answer: a code, or anything else."""
        name = model if isinstance(model, str) else "answered"
        self.answers[name] = self.answers.get(name, 0) + 1

    def step(self, name: str) -> None:
        """Count a step. Each change takes a microsecond of its own: less than a thousand may come
        before the clock goes on."""
        self.steps += 1
        self.counts[name] = self.counts.get(name, 0) + 1
        self.ticks += 1
        if self.ticks > 20 and self.now_ms == self.high_ms:
            self.set_clock(self.now_ms + 1)

    def restart(self, *, kill: bool) -> None:
        """End the server, drained or killed, and start it on what it left."""
        self.client.close()
        if kill:
            self.server.kill()
        else:
            self.server.stop()
        self.server.options = (*self.where, *_options(self.now_ms))
        self.server.start()
        self.client = self.server.client()
        self.pause_reclaimer()

    def pause_reclaimer(self) -> None:
        """Let only a rule reclaim."""
        self.client.call_json("RowtidePauseReclaimer", {})

    def list_paused(self) -> list[bool]:
        """Return of each slot whether its reclaimer stands still."""
        slots = self.client.call_json("RowtideStatus", {})["slots"]
        return [slot["reclaimer"]["paused"] for slot in slots]

    def stop(self) -> None:
        """Leave nothing running."""
        self.client.close()
        self.server.stop_all()


def _options(now_ms: int) -> tuple[str, ...]:
    fast = ("--table-operations-per-s", "1000000", "--flush-s", "1", "--trim-s", "1")
    bound = ("--partition-units-per-s", str(PARTITION_UNITS))
    return ("--test-clock-us", str(now_ms * 1000), *fast, *bound)
