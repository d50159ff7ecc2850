"""The event loop of a server, and the signals that stop it, on every system.

Linux and macOS use uvloop. Other systems use asyncio's own loop, which takes more CPU.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from types import FrameType

__all__ = ["new_event_loop", "receive_stop_signals"]


def new_event_loop() -> asyncio.AbstractEventLoop:
    """Return uvloop's event loop, or asyncio's if uvloop is not installed."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


def receive_stop_signals(receive: Callable[[signal.Signals], None]) -> None:
    """Call ``receive`` in the running loop at each SIGINT and SIGTERM."""
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        try:
            loop.add_signal_handler(number, receive, number)
        except NotImplementedError:  # Windows: the handler runs between two instructions.
            signal.signal(number, _handler_in_loop(loop, receive))


def _handler_in_loop(
    loop: asyncio.AbstractEventLoop, receive: Callable[[signal.Signals], None]
) -> Callable[[int, FrameType | None], None]:
    def hand_over(number: int, _: FrameType | None) -> None:
        loop.call_soon_threadsafe(receive, signal.Signals(number))

    return hand_over
