"""Compares a target with the rows of a table while both change.

The table is read page by page, and a page is exact at a commit stamp A. Once the target
has everything up to A, a row of it with a stamp of A or lower must be the table's row. A
row with a later stamp has changed since and is compared again. So is a row that the
target lacks, because it may have been deleted since. A row that changes in every round is
reported as unsettled, and one that stays absent as missing.

Rows are compared as the target would hold them (``Comparable.convert_columns``, or
``ConvertsRows.convert_rows`` if only the target knows). First a checksum per range is
compared, then key by key.
"""

from __future__ import annotations

import asyncio
import hashlib
import math
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, Protocol

from rowtide.connectors.sinks.sink import Comparable, ConvertsRows, HeldRow
from rowtide.core.values import variant
from rowtide.core.values.key_ranges import Range
from rowtide.core.values.variant import Scalar

__all__ = [
    "Columns",
    "Compared",
    "Difference",
    "Reference",
    "ReferencePage",
    "Verdict",
    "checksum",
    "compare",
    "row_bytes",
    "row_checksum",
    "unequal",
]

PAGE_ROWS = 1000
ROUNDS = 5
"""How often a range is compared again before its differences count."""

BEFORE_NEXT_ROUND_S = 0.2
PAGES_AT_ONCE = 16
"""Pages that are in memory while the target catches up with them."""

Columns = Mapping[str, Scalar]


class ReferencePage(NamedTuple):
    """A table's rows in ``covers`` as of ``stamp``. ``place`` is the log's end then."""

    rows: Mapping[bytes, Columns]
    covers: Range
    stamp: int
    place: object


class Reference(Protocol):
    """The table that the target is compared with."""

    async def page(self, within: Range, *, limit: int) -> ReferencePage:
        """Return a page that begins where ``within`` does, and ends at its end or before."""
        ...

    async def wait_for_places(self, places: Iterable[object]) -> None:
        """Wait until the target has everything of these pages. Raises ``Unavailable`` if
        it takes too long.
        """
        ...


class Difference(NamedTuple):
    """A row that differs. ``columns`` names its different columns.

    ``missing``: the target lacks it. ``surplus``: the table lacks it. ``unsettled``: it
    changed in each round.
    """

    kind: Literal["missing", "surplus", "different", "unsettled"]
    key_bytes: bytes
    columns: tuple[str, ...] = ()


class Compared(NamedTuple):
    """The last comparison of one range: rows and checksums of table and target."""

    covers: Range
    rows: int
    rows_held: int
    checksum: int
    checksum_held: int


@dataclass(slots=True)
class Verdict:
    """The result of a comparison. ``differences`` and ``ranges`` are in key order."""

    ranges: list[Compared] = field(default_factory=list)
    differences: list[Difference] = field(default_factory=list)

    @property
    def equal(self) -> bool:
        """True if every row was equal."""
        return not self.differences

    @property
    def rows(self) -> int:
        """How many rows the table has."""
        return sum(compared.rows for compared in self.ranges)

    @property
    def rows_held(self) -> int:
        """How many rows the target has."""
        return sum(compared.rows_held for compared in self.ranges)


class _Looked(NamedTuple):
    """A compared page and its differences."""

    compared: Compared
    differences: list[Difference]


async def compare(
    reference: Reference,
    target: Comparable,
    *,
    on_progress: Callable[[Verdict], None] = lambda verdict: None,
    pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> Verdict:
    """Compare all rows. ``on_progress`` is called with the verdict after each page."""
    verdict = Verdict()
    doubtful: list[Range] = []
    async for looked in _pages(reference, target, [(b"", b"")], wait=False):
        if looked.differences:
            doubtful.append(looked.compared.covers)
        else:
            verdict.ranges.append(looked.compared)
        on_progress(verdict)
    for round_number in range(ROUNDS):
        if not doubtful:
            break
        if round_number:
            await pause(BEFORE_NEXT_ROUND_S * 2**round_number)
        last = round_number == ROUNDS - 1
        still: list[Range] = []
        async for looked in _pages(reference, target, doubtful, wait=True):
            # Compare again: a column may have been widened during the comparison.
            if last or not looked.differences or (round_number and _certain(looked.differences)):
                verdict.ranges.append(looked.compared)
                verdict.differences += looked.differences
            else:
                still.append(looked.compared.covers)
            on_progress(verdict)
        doubtful = still
    verdict.ranges.sort()
    verdict.differences.sort(key=lambda difference: difference.key_bytes)
    return verdict


def _certain(differences: Sequence[Difference]) -> bool:
    """True if another comparison of the range cannot change the result."""
    return all(difference.kind in ("surplus", "different") for difference in differences)


async def _pages(
    reference: Reference, target: Comparable, ranges: Iterable[Range], *, wait: bool
) -> AsyncIterator[_Looked]:
    """Compare ranges. With ``wait`` first wait until the target has the table's pages."""
    pages: list[ReferencePage] = []
    for within in ranges:
        left: Range | None = within
        while left is not None:
            page = await reference.page(left, limit=PAGE_ROWS)
            pages.append(page)
            ended = page.covers[1] == within[1]
            left = None if ended else (page.covers[1], within[1])
            if len(pages) == PAGES_AT_ONCE:
                async for looked in _compare_pages(reference, target, pages, wait=wait):
                    yield looked
                pages = []
    async for looked in _compare_pages(reference, target, pages, wait=wait):
        yield looked


async def _compare_pages(
    reference: Reference, target: Comparable, pages: Sequence[ReferencePage], *, wait: bool
) -> AsyncIterator[_Looked]:
    if wait:
        await reference.wait_for_places([page.place for page in pages])
    for page in pages:
        # Keep this order: what is expected depends on the columns that the target has by
        # then.
        held = {row.key_bytes: row for row in await _read_rows(target, page.covers)}
        expected = await _convert_rows(target, page.rows)
        sums = checksum(expected.items()), checksum((k, row.columns) for k, row in held.items())
        compared = Compared(page.covers, len(expected), len(held), *sums)
        equal = sums[0] == sums[1] and len(expected) == len(held)
        yield _Looked(compared, [] if equal else list(_differences(expected, held, page.stamp)))


async def _convert_rows(
    target: Comparable, rows: Mapping[bytes, Columns]
) -> Mapping[bytes, Columns]:
    if isinstance(target, ConvertsRows):
        return await target.convert_rows(rows)
    return {key: target.convert_columns(columns) for key, columns in rows.items()}


async def _read_rows(target: Comparable, covers: Range) -> list[HeldRow]:
    found: list[HeldRow] = []
    begin, end = covers
    while True:
        page = await target.read_rows(begin, end, limit=PAGE_ROWS)
        found += page
        if len(page) < PAGE_ROWS:
            return found
        begin = page[-1].key_bytes + b"\x00"  # The lowest key above it.


def _differences(
    expected: Mapping[bytes, Columns], held: Mapping[bytes, HeldRow], stamp: int
) -> Iterator[Difference]:
    for key in sorted({*expected, *held}):
        wanted, found = expected.get(key), held.get(key)
        if found is None:
            yield Difference("missing", key)
        elif wanted is not None and row_bytes(wanted) == row_bytes(found.columns):
            continue
        elif found.stamp > stamp:
            yield Difference("unsettled", key)
        elif wanted is None:
            yield Difference("surplus", key)
        else:
            yield Difference("different", key, unequal(wanted, found.columns))


def unequal(wanted: Columns, found: Columns) -> tuple[str, ...]:
    """Return the columns whose type or value differs."""
    names = sorted({*wanted, *found})
    return tuple(
        name
        for name in names
        if name not in wanted or name not in found or _encode(wanted[name]) != _encode(found[name])
    )


def checksum(rows: Iterable[tuple[bytes, Columns]]) -> int:
    """Return 64 bits that depend on the rows, not on their order."""
    return sum(row_checksum(key, columns) for key, columns in rows) % 2**64


def row_checksum(key: bytes, columns: Columns) -> int:
    """Return 64 bits of one row."""
    # No encoded key is a prefix of another one, so the two need nothing between them.
    digest = hashlib.blake2b(key + row_bytes(columns), digest_size=8).digest()
    return int.from_bytes(digest, "big")


def row_bytes(columns: Columns) -> bytes:
    """Return bytes that are equal exactly if type and value of each column are."""
    parts: list[bytes] = []
    for name in sorted(columns):
        encoded = name.encode()
        parts += [len(encoded).to_bytes(4, "big"), encoded, _encode(columns[name])]
    return b"".join(parts)


def _encode(value: Scalar) -> bytes:
    """Return a value as bytes. NaN has many bit patterns, and targets keep only one."""
    return variant.encode(math.nan if value != value else value)
