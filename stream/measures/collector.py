"""The cycle collector's share of a worker's time."""

from __future__ import annotations

import gc

__all__ = ["pause_collector", "tune_collector"]


def pause_collector() -> None:
    """Let nothing be collected while a worker starts: what it imports is there to stay.

    Measured: a tenth of the CPU of the imports.
    """
    gc.disable()


def tune_collector() -> None:
    """Let the cycle collector run seldom: requests make many objects and hardly a cycle.

    Measured: a fifth of the CPU of a batch write went into collections that found nothing.
    """
    gc.enable()
    gc.collect()
    gc.freeze()
    gc.set_threshold(200_000, 20, 100)
