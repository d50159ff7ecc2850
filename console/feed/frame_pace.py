"""How soon after some frames the next ones follow.

A viewer sees a change at once as long as that is cheap. Under load frames are fewer and larger:
each costs the console a system call for each viewer, and a browser a new picture.
"""

from __future__ import annotations

from dataclasses import dataclass

from rowtide.console.feed.feed_lens import EVERY, SAMPLED, SAMPLED_RECORDS_MAX, FeedMode

__all__ = ["FRAME_S_MAX", "FRAME_S_MIN", "FramePace", "find_pause_s"]

FRAME_S_MIN = {EVERY: 0.015, SAMPLED: 0.02}
"""The least time between two frames of a mode. A first change after a pause goes out at once."""
FRAME_S_MAX = 0.1
RECORD_S = {EVERY: 0.0, SAMPLED: FRAME_S_MAX / SAMPLED_RECORDS_MAX}
"""The pause for each record of a frame. So a sampled viewer gets at most 200 records per second: 50
frames of 4, or 10 of 20. While records are left out, all frames have 20."""
VIEWER_S = {EVERY: 0.001, SAMPLED: 0.0002}
"""The pause for each viewer that got a frame: 50 viewers of all records, or 500 of some, cost the
console little of a processor."""
AHEAD_S = 0.005
"""A read begins so long before its records may be written: about what it takes."""


@dataclass(slots=True)
class FramePace:
    """When the next frames of a mode are due, by the loop's clock, and the pause before them."""

    due_s: float = 0.0
    pause_s: float = 0.0

    def note_frames(self, now_s: float, pause_s: float) -> None:
        """Note that frames were written."""
        self.due_s, self.pause_s = now_s + pause_s, pause_s

    def find_read_s(self, now_s: float) -> float:
        """Return when to read what the next frames have. What was just read goes out before."""
        read_s = self.due_s - AHEAD_S
        return read_s if read_s > now_s else read_s + self.pause_s


def find_pause_s(mode: FeedMode, *, records: int, viewers: int) -> float:
    """Return the time until the next frames of a mode.

    ``records`` are those of the largest frame, ``viewers`` those that got one.
    """
    pause_s = max(FRAME_S_MIN[mode], records * RECORD_S[mode], viewers * VIEWER_S[mode])
    return min(pause_s, FRAME_S_MAX)
