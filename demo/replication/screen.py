"""The output of the replication demo: a line that is redrawn, and a line per table at the end.

If the output is no terminal, each stage is one line at its end.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from typing import Self

import click

from rowtide.connectors.verify.comparison import Verdict
from rowtide.core.values.errors import StoreError

__all__ = ["Bar", "verdict_line"]

WIDTH = 24
REDRAW_S = 0.1


class Bar:
    """How much of something is done, with a text beside it."""

    def __init__(self, name: str, total: int) -> None:
        self._name = name
        self._total = total
        self._done = 0
        self._beside = ""
        self._drawn_s = 0.0
        self._live = sys.stdout.isatty()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        click.echo(("\r\x1b[K" if self._live else "") + self._text())

    def add(self, count: int) -> None:
        """Add to what is done."""
        self.set(self._done + count, self._beside)

    def set(self, done: int, beside: str) -> None:
        """Set how much is done."""
        self._done, self._beside = done, beside
        if self._live and time.monotonic() - self._drawn_s > REDRAW_S:
            self._drawn_s = time.monotonic()
            click.echo("\r\x1b[K" + self._text(), nl=False)

    def _text(self) -> str:
        filled = min(WIDTH, WIDTH * self._done // max(1, self._total))
        bar = "━" * filled + "╌" * (WIDTH - filled)
        return f"  {self._name:<8} {bar} {self._done:>7,} / {self._total:<7,}  {self._beside}"


def verdict_line(table: str, found: Sequence[tuple[str, Verdict | StoreError]]) -> bool:
    """Print the result of ``verify`` for one table; return True if all is equal."""
    texts: list[str] = []
    equal = True
    for name, verdict in found:
        if isinstance(verdict, Verdict) and verdict.equal:
            texts.append(f"{name} equal")
            continue
        equal = False
        what = f"{len(verdict.differences):,} DIFFER" if isinstance(verdict, Verdict) else verdict
        texts.append(click.style(f"{name}: {what}", fg="red"))
    rows = max((v.rows for _, v in found if isinstance(v, Verdict)), default=0)
    click.echo(f"  {table:<9} {rows:>8,} rows   {'   '.join(map(str, texts))}")
    return equal
