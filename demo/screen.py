"""The output of the demo: one line that is redrawn during each stage, and the proof as a table.

Several threads count; one thread draws the line. If the output is no terminal, each stage is one
line at its end.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import click

from demo.proof import Total

__all__ = ["Progress", "proof_table", "stage"]

REDRAW_S = 0.1
BAR_WIDTH = 24


class Progress:
    """Rows acknowledged since the start, and stream records seen."""

    def __init__(self, seen: Callable[[], int]) -> None:
        self._lock = threading.Lock()
        self._seen = seen
        self.written = 0

    def count_written(self, rows: int) -> None:
        """Count rows that the server has acknowledged."""
        with self._lock:
            self.written += rows

    @property
    def lag(self) -> int:
        """Acknowledged writes that the stream has not delivered yet."""
        # A record may be seen before its write's answer: that is no lag.
        return max(0, self.written - self._seen())


@contextmanager
def stage(name: str, progress: Progress, total: int) -> Iterator[None]:
    """Show a stage of ``total`` rows until the block ends."""
    drawing = _Line(name, progress, total)
    ended = threading.Event()

    def draw() -> None:
        while not ended.wait(REDRAW_S):
            click.echo("\r" + drawing.text() + "\x1b[K", nl=False)

    thread = threading.Thread(target=draw, name="screen", daemon=True)
    if sys.stdout.isatty():
        thread.start()
    try:
        yield
    finally:
        ended.set()
        if thread.is_alive():
            thread.join()
            click.echo("\r", nl=False)
        click.echo(drawing.text() + ("\x1b[K" if sys.stdout.isatty() else ""))


class _Line:
    """The line of one stage."""

    def __init__(self, name: str, progress: Progress, total: int) -> None:
        self._name, self._progress, self._total = name, progress, total
        self._written_before = progress.written
        self._began = time.monotonic()

    def text(self) -> str:
        done = self._progress.written - self._written_before
        filled = BAR_WIDTH * done // max(1, self._total)
        rate = done / max(0.001, time.monotonic() - self._began)
        return (
            f"  {self._name:<9} {'━' * filled}{'╌' * (BAR_WIDTH - filled)} "
            f"{done:>7,} / {self._total:<7,}  {rate:>7,.0f} rows/s  "
            f"stream lag {self._progress.lag:>6,}"
        )


def proof_table(found: Mapping[str, tuple[Total, Total, Total]]) -> bool:
    """Print the three totals of every table side by side; return True if all are equal."""
    heads = ("source", "read by GetRange", "rebuilt from stream")
    click.secho(
        f"  {'table':<9} {'rows':>8}" + "".join(f"  {head:<19}" for head in heads), bold=True
    )
    for name, totals in found.items():
        equal = len(set(totals)) == 1
        cells = "".join(f"  {total!s:<19}" for total in totals)
        click.echo(f"  {name:<9} {totals[0].rows:>8,}{cells}  ", nl=False)
        counts = "" if equal else " rows: " + ", ".join(f"{total.rows:,}" for total in totals)
        click.secho("equal" if equal else "DIFFERENT" + counts, fg="green" if equal else "red")
    return all(len(set(totals)) == 1 for totals in found.values())
