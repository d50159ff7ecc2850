"""Tables and JSON on stdout.

A table is for people. Columns are as wide as their widest cell on a terminal (East Asian characters
count two), and nothing is cut. JSON is for programs: one document per command, or one per line if
the output has no end.
"""

from __future__ import annotations

import errno
import select
import sys
import unicodedata
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any, Literal

import click

from rowtide.cli.value_syntax import json_text

__all__ = [
    "Output",
    "clock_text",
    "emit_fields",
    "emit_json",
    "emit_table",
    "require_reader",
    "time_text",
]

Output = Literal["table", "json"]
GAP = "  "


def emit_json(document: Any) -> None:
    """Print one document, indented."""
    click.echo(json_text(document, indent=2))


def emit_fields(pairs: Iterable[tuple[str, object]]) -> None:
    """Print names and values, one pair per line."""
    rows = [(name, str(value)) for name, value in pairs]
    width = max(len(name) for name, _ in rows)
    for name, value in rows:
        click.echo(f"{name:<{width}}{GAP}{value}".rstrip())


def emit_table(header: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print rows under a header; integers are right-aligned."""
    cells = [[_cell(value) for value in row] for row in rows]
    lines = [list(header), *cells]
    widths = [max(map(_width, column)) for column in zip(*lines, strict=True)]
    right = [
        bool(rows) and all(type(row[i]) is int or row[i] is None for row in rows)
        for i in range(len(header))
    ]
    for line in lines:
        click.echo(GAP.join(map(_pad, line, widths, right)).rstrip())


def require_reader() -> None:
    """Raise BrokenPipeError if the reader of stdout has gone, such as `head`.

    A write would raise it too. But a command that waits for changes would wait without a reader.
    """
    try:
        file = sys.stdout.fileno()
    except OSError:
        return  # No file: a test's buffer.
    poll = select.poll()
    poll.register(file, 0)
    if any(event & select.POLLERR for _, event in poll.poll(0)):
        raise BrokenPipeError(errno.EPIPE, "the reader of the output has gone")


def _cell(value: object) -> str:
    return "" if value is None else str(value)


def _pad(text: str, width: int, right: bool) -> str:
    space = " " * (width - _width(text))
    return space + text if right else text + space


def _width(text: str) -> int:
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(letter) else 1 + (unicodedata.east_asian_width(letter) in "WF")
        for letter in text
    )


def time_text(time_us: int) -> str:
    """Return Unix microseconds as a UTC time of whole seconds."""
    return datetime.fromtimestamp(time_us // 1_000_000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def clock_text(time_us: int) -> str:
    """Return Unix microseconds as a UTC time with all digits."""
    return datetime.fromtimestamp(time_us // 1_000_000, UTC).strftime(
        f"%Y-%m-%dT%H:%M:%S.{time_us % 1_000_000:06}Z"
    )
