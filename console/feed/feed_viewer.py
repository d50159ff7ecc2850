"""One viewer: the events written to it, what still waits, and when it is too slow.

A viewer may have 256 KiB of frames waiting, and none of them for more than 5 s. A viewer beyond
that gets ``slow`` with the position behind its last frame, and its feed ends: it resumes there.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from rowtide.console.feed.feed_wire import POSITION, FeedEncoding, FeedWire
from rowtide.console.feed.record_text import json_bytes

__all__ = ["QUEUE_BYTES_MAX", "QUEUE_S_MAX", "FeedViewer"]

QUEUE_BYTES_MAX = 256 * 1024
QUEUE_S_MAX = 5.0
DRAINED_BYTES = 64 * 1024
"""A viewer that catches up is given more once no more than this waits."""
DRAIN_POLL_S = 0.005


class FeedViewer:
    """Writes events to one viewer. ``token`` is the position behind all of them.

    The limits hold once the viewer is up to date (``catch_up``). Before that it takes its time.
    ``over`` is set when the feed ends here: the viewer left, was too slow, or got the last event.
    """

    def __init__(self, wire: FeedWire, encoding: FeedEncoding, now_s: Callable[[], float]) -> None:
        self.encoding = encoding
        self.token = ""
        self.wrote_s = now_s()
        """When an event was written last."""
        self.over = asyncio.Event()
        self._wire = wire
        self._now_s = now_s
        self._has_caught_up = False
        self._written = 0
        self._waiting: deque[tuple[int, float]] = deque()
        """Of each frame that waits: the bytes written up to its end, and when it was written."""

    @property
    def is_over(self) -> bool:
        """True if no event will be written any more."""
        return self.over.is_set()

    def catch_up(self) -> None:
        """Note that the viewer is up to date: from now on it has to keep up."""
        self._has_caught_up = True
        now_s = self._now_s()
        self._waiting = deque((end, now_s) for end, _ in self._waiting)

    def is_quiet(self, quiet_s: float) -> bool:
        """True if nothing was written for so long."""
        return self._now_s() - self.wrote_s >= quiet_s

    def is_due(self, now_s: float, quiet_s: float) -> bool:
        """True if ``check`` may find something, or nothing was written for so long."""
        return now_s - self.wrote_s >= quiet_s or bool(self._waiting) or self._wire.is_closed

    def push(self, frame: bytes, token: str) -> None:
        """Write a frame that takes the viewer to a position, or end the feed of a slow viewer."""
        if self.check():
            self._write(frame)
            self.token = token

    def send(self, event: str, data: object = None, token: str = "") -> None:
        """Write an event that is this viewer's alone."""
        if self.is_over:
            return
        self.token = token or self.token
        content = b"" if data is None else json_bytes(data)
        self._write(self.encoding.encode(event, token, content))

    def send_position(self, token: str) -> None:
        """Write an event that has only an id."""
        if self.check():
            self.send(POSITION, token=token)

    def end(self, event: str, data: object, token: str = "") -> None:
        """Write the last event."""
        self.send(event, data, token)
        self.over.set()

    def check(self) -> bool:
        """True if the viewer is there and keeps up; otherwise its feed is over."""
        if self.over.is_set():
            return False
        if self._wire.is_closed:
            self.over.set()
            return False
        reason = self._find_excess() if self._has_caught_up else ""
        if reason:
            self.end("slow", {"reason": reason}, self.token)
        return not reason

    def _find_excess(self) -> str:
        pending = self._wire.pending_bytes
        if not pending:
            self._waiting.clear()
            return ""
        if pending > QUEUE_BYTES_MAX:
            return f"{pending} bytes wait to be sent, and the most is {QUEUE_BYTES_MAX}"
        left = self._written - pending
        waiting = self._waiting
        while waiting and waiting[0][0] <= left:
            waiting.popleft()
        waited_s = self._now_s() - waiting[0][1] if waiting else 0.0
        if waited_s > QUEUE_S_MAX:
            return f"an event waits for {waited_s:.1f} s, and the most is {QUEUE_S_MAX:g} s"
        return ""

    def _write(self, frame: bytes) -> None:
        self.wrote_s = self._now_s()
        self._wire.write(frame)
        self._written += len(frame)
        if self._wire.pending_bytes:
            self._waiting.append((self._written, self.wrote_s))

    async def drain(self) -> None:
        """Return once little waits, or the feed is over because nothing was taken for too long.

        A viewer that catches up may be as slow as it likes: nothing waits for it.
        """
        least, since_s = self._wire.pending_bytes, self._now_s()
        while (pending := self._wire.pending_bytes) > DRAINED_BYTES and not self.is_over:
            if self._wire.is_closed:
                self.over.set()
            elif pending < least:
                least, since_s = pending, self._now_s()
            elif self._now_s() - since_s > QUEUE_S_MAX:
                reason = f"the viewer took nothing for {QUEUE_S_MAX:g} s"
                self.end("slow", {"reason": reason}, self.token)
            # A transport reports free room to one protocol alone, and that one is aiohttp's.
            await asyncio.sleep(DRAIN_POLL_S)
