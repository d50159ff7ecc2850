"""Runs ``rowtide`` in a process whose clock is wrong: ``python wrong_clock.py HOURS COMMAND...``.

All that Python code reads as the time of day is shifted. Monotonic clocks are right, as on a
machine whose clock was set wrong before its start.
"""

from __future__ import annotations

import datetime as time_of_day
import sys
import time
from typing import Self


def shift_clock(hours: float) -> None:
    """Shift the time of day of this process, for modules that are imported from now on."""
    seconds = hours * 3600
    real_time, real_time_ns = time.time, time.time_ns

    class ShiftedDatetime(time_of_day.datetime):
        @classmethod
        def now(cls, tz: time_of_day.tzinfo | None = None) -> Self:
            """Return the wrong time."""
            return cls.fromtimestamp(real_time() + seconds, tz)

    time.time = lambda: real_time() + seconds
    time.time_ns = lambda: real_time_ns() + int(seconds * 1_000_000_000)
    time_of_day.datetime = ShiftedDatetime  # type: ignore[misc]


if __name__ == "__main__":
    shift_clock(float(sys.argv.pop(1)))
    from rowtide.cli.main import main

    main()
