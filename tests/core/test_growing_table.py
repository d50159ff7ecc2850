"""A table that computes an entry when it is first looked up, and never again."""

from __future__ import annotations

import pytest

from rowtide.core.records import avro
from rowtide.core.values.growing_table import GrowingTable


def test_an_entry_is_computed_once() -> None:
    asked: list[int] = []

    def make(number: int) -> str:
        asked.append(number)
        return str(number)

    table = GrowingTable(make)
    assert [table[7], table[7], table[8]] == ["7", "7", "8"]
    assert asked == [7, 8]


def test_a_number_that_cannot_be_computed_leaves_no_entry() -> None:
    table = GrowingTable(lambda number: bytes((number,)))
    with pytest.raises(ValueError, match="must be in range"):
        table[256]
    assert not table


@pytest.mark.parametrize("number", [-(1 << 63), -8193, -8192, -65, -64, 8191, 8192, (1 << 63) - 1])
def test_a_number_is_written_alike_before_and_after_it_is_known(number: int) -> None:
    data = number.to_bytes(8, "little", signed=True)
    written = avro._write_integer(data)
    assert written == avro.write_long(number) == avro._SHORT_NUMBERS.get(data, written)
    assert (data in avro._SHORT_NUMBERS) == (-8192 <= number < 8192), "the table is bounded"
