"""The event loop of a server, and the signals that stop it, on every system.

uvloop is there on Linux and macOS; elsewhere asyncio's own loop does the same, and takes more of
the processor.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from types import FrameType

__all__ = ["new_event_loop", "receive_stop_signals"]


def new_event_loop() -> asyncio.AbstractEventLoop:
    """Return uvloop's event loop, or asyncio's where uvloop is not installed."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


def receive_stop_signals(received: Callable[[signal.Signals], None]) -> None:
    """Have the running loop call ``received`` at each SIGINT and SIGTERM."""
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        try:
            loop.add_signal_handler(number, received, number)
        except NotImplementedError:  # Windows: the handler runs between two instructions.
            signal.signal(number, _handed_to(loop, received))


def _handed_to(
    loop: asyncio.AbstractEventLoop, received: Callable[[signal.Signals], None]
) -> Callable[[int, FrameType | None], None]:
    def hand_over(number: int, _: FrameType | None) -> None:
        loop.call_soon_threadsafe(received, signal.Signals(number))

    return hand_over
