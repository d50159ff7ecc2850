"""What is found where a table and a target differ, and what is not where only time lies between."""

from __future__ import annotations

import dataclasses
import math
import struct
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rowtide.connectors.sinks.sink import HeldRow
from rowtide.connectors.verify.comparison import (
    PAGE_ROWS,
    Difference,
    ReferencePage,
    Verdict,
    compare,
)
from rowtide.core.values.key_ranges import Range
from rowtide.core.values.variant import Scalar

Columns = Mapping[str, Scalar]


@dataclass(slots=True)
class Table:
    """A table whose stamp rises with each change. A page is as of now."""

    rows: dict[bytes, Columns] = field(default_factory=dict)
    stamp: int = 0
    log: list[tuple[int, bytes, Columns | None]] = field(default_factory=list)
    before_page: Callable[[], None] = lambda: None
    target: Target | None = None

    def change(self, key: bytes, columns: Columns | None) -> None:
        """Put a row, or delete it."""
        self.stamp += 1
        self.log.append((self.stamp, key, columns))
        if columns is None:
            self.rows.pop(key, None)
        else:
            self.rows[key] = columns

    async def page(self, within: Range, *, limit: int) -> ReferencePage:
        """Return a page, see ``Reference.page``."""
        self.before_page()
        begin, end = within
        keys = sorted(k for k in self.rows if k >= begin and (not end or k < end))
        last = keys[limit] if len(keys) > limit else end
        rows = {key: self.rows[key] for key in keys[:limit]}
        return ReferencePage(rows, (begin, last), self.stamp, self.stamp)

    async def wait_for_places(self, places: Iterable[object]) -> None:
        """Let the target come so far, and no further."""
        assert self.target is not None
        for place in places:
            assert isinstance(place, int)
            self.target.follow(self, place)


@dataclass(slots=True)
class Target:
    """What was copied of a table, as of ``applied``."""

    rows: dict[bytes, HeldRow] = field(default_factory=dict)
    applied: int = 0

    def follow(self, table: Table, until: int) -> None:
        """Apply the log up to a stamp."""
        for stamp, key, columns in table.log:
            if self.applied < stamp <= until:
                if columns is None:
                    self.rows.pop(key, None)
                else:
                    self.rows[key] = HeldRow(key, stamp, columns)
        self.applied = max(self.applied, until)

    def convert_columns(self, columns: Columns) -> Columns:
        """Keep what is there: this target converts nothing."""
        return columns

    async def read_rows(self, begin: bytes, end: bytes, *, limit: int) -> list[HeldRow]:
        """Return rows, see ``Comparable.read_rows``."""
        keys = sorted(k for k in self.rows if k >= begin and (not end or k < end))
        return [self.rows[key] for key in keys[:limit]]


def pair(count: int) -> tuple[Table, Target]:
    """Return a table of some rows, and a target that has them all."""
    table, target = Table(), Target()
    for number in range(count):
        table.change(b"%06d" % number, {"n": number, "even": number % 2 == 0})
    target.follow(table, table.stamp)
    table.target = target
    return table, target


async def compare_at_once(table: Table, target: Target) -> Verdict:
    """Compare without waiting between the rounds."""

    async def at_once(_pause_s: float) -> None:
        pass

    return await compare(table, target, pause=at_once)


async def test_equal_tables_are_equal_over_many_pages() -> None:
    table, target = pair(3 * PAGE_ROWS + 5)
    verdict = await compare_at_once(table, target)
    assert verdict.equal
    assert (verdict.rows, verdict.rows_held) == (3005, 3005)
    assert [c.rows for c in verdict.ranges] == [1000, 1000, 1000, 5]
    assert all(c.checksum == c.checksum_held for c in verdict.ranges)


def lose_row(target: Target) -> None:
    del target.rows[b"000003"]


def keep_extra_row(target: Target) -> None:
    target.rows[b"0000031"] = HeldRow(b"0000031", 2, {"n": 1})


def change_row(target: Target) -> None:
    row = target.rows[b"000003"]
    target.rows[b"000003"] = row._replace(columns={"n": 4, "odd": True})


def retype_row(target: Target) -> None:
    row = target.rows[b"000003"]
    target.rows[b"000003"] = row._replace(columns={"n": 3.0, "even": False})


@pytest.mark.parametrize(
    ("plant", "found"),
    [
        (lose_row, Difference("missing", b"000003")),
        (keep_extra_row, Difference("surplus", b"0000031")),
        (change_row, Difference("different", b"000003", ("even", "n", "odd"))),
        (retype_row, Difference("different", b"000003", ("n",))),
    ],
)
async def test_a_planted_difference_is_found(
    plant: Callable[[Target], None], found: Difference
) -> None:
    table, target = pair(2000)
    plant(target)
    verdict = await compare_at_once(table, target)
    assert verdict.differences == [found]
    assert len([c for c in verdict.ranges if c.checksum != c.checksum_held]) == 1


async def test_what_is_no_number_is_equal_whatever_its_bits() -> None:
    # As Go and the processor itself have it; a target that keeps "NaN" has another one's.
    [of_go], [of_the_processor] = (
        struct.unpack("<d", bits.to_bytes(8, "little"))
        for bits in (0x7FF8000000000001, 0xFFF8000000000000)
    )
    table, target = pair(10)
    table.change(b"000004", {"n": of_go})
    table.change(b"000005", {"n": of_the_processor})
    target.follow(table, table.stamp)
    for key in (b"000004", b"000005"):
        target.rows[key] = target.rows[key]._replace(columns={"n": math.nan})
    assert (await compare_at_once(table, target)).equal
    target.rows[b"000005"] = target.rows[b"000005"]._replace(columns={"n": math.inf})
    verdict = await compare_at_once(table, target)
    assert verdict.differences == [Difference("different", b"000005", ("n",))]


async def test_a_target_that_is_behind_is_waited_for() -> None:
    table, target = pair(10)
    table.change(b"000004", {"n": -4})
    table.change(b"000005", None)
    assert (await compare_at_once(table, target)).equal


class Widening(Target):
    """Numbers are texts here once any value is one; what is expected is as the last look was."""

    known = False

    @property
    def _text(self) -> bool:
        return any(isinstance(v, str) for row in self.rows.values() for v in row.columns.values())

    def convert_columns(self, columns: Columns) -> Columns:
        """Return numbers as texts, where they are known to be."""
        return {name: str(value) if self.known else value for name, value in columns.items()}

    async def read_rows(self, begin: bytes, end: bytes, *, limit: int) -> list[HeldRow]:
        """Return rows, and learn how they are held."""
        self.known = self._text
        rows = await Target.read_rows(self, begin, end, limit=limit)
        return [row._replace(columns=self.convert_columns(row.columns)) for row in rows]


async def test_a_column_that_gets_another_type_meanwhile_makes_no_difference() -> None:
    table, of_numbers = pair(10)
    target = table.target = Widening(of_numbers.rows, of_numbers.applied)
    table.change(b"000004", {"n": "four", "even": True})
    assert (await compare_at_once(table, target)).equal


async def test_a_row_that_changes_whenever_it_is_looked_at_is_told_as_unsettled() -> None:
    table, target = pair(10)

    def again() -> None:
        # The target is ahead of the page that is about to be read.
        table.change(b"000004", {"n": table.stamp})

    class Ahead(Table):
        async def page(self, within: Range, *, limit: int) -> ReferencePage:
            page = await Table.page(self, within, limit=limit)
            again()
            target.follow(self, self.stamp)
            return page

    table = Ahead(**{f.name: getattr(table, f.name) for f in dataclasses.fields(table)})
    verdict = await compare_at_once(table, target)
    assert verdict.differences == [Difference("unsettled", b"000004")]


changes = st.tuples(
    st.integers(0, 9).map(lambda n: b"%d" % n),
    st.none() | st.fixed_dictionaries({"n": st.integers(0, 2)}),
)


@given(before=st.lists(changes), between=st.lists(changes, max_size=5), ahead=st.booleans())
async def test_what_lies_between_two_looks_is_no_difference(
    before: list[tuple[bytes, Columns | None]],
    between: list[tuple[bytes, Columns | None]],
    ahead: bool,
) -> None:
    """Changes come during the first pages, and the target may have them before the table
    shows them.
    """
    table, target = Table(), Target()
    table.target = target
    for change in before:
        table.change(*change)
    left = list(between)

    def meanwhile() -> None:
        if left:
            table.change(*left.pop())

    async def at_once(_pause_s: float) -> None:
        if ahead:
            target.follow(table, table.stamp)

    table.before_page = meanwhile
    assert (await compare(table, target, pause=at_once)).equal
