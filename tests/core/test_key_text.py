"""Texts that are values of key columns, and those that are none."""

from __future__ import annotations

import pytest

from rowtide.core.values.key_text import DIGITS_MAX, BadKeyText, parse_key_text
from rowtide.core.values.schema import BINARY, INTEGER, STRING

VALUES: list[tuple[int, str, int | str | bytes]] = [
    (INTEGER, "0", 0),
    (INTEGER, " -12 ", -12),
    (INTEGER, "+7", 7),
    (INTEGER, "007", 7),
    (INTEGER, str(2**63 - 1), 2**63 - 1),
    (INTEGER, str(-(2**63)), -(2**63)),
    (STRING, "", ""),
    (STRING, " as it is ", " as it is "),
    (STRING, '"quoted"', '"quoted"'),
    (BINARY, "", b""),
    (BINARY, "00fF", b"\x00\xff"),
    (BINARY, "00 f f", b"\x00\xff"),
]

WRONG = [
    (INTEGER, "", "no integer of 64 bits"),
    (INTEGER, "ann", "no integer of 64 bits"),
    (INTEGER, "1.0", "no integer of 64 bits"),
    (INTEGER, "1_000", "no integer of 64 bits"),
    (INTEGER, "\N{ARABIC-INDIC DIGIT ONE}", "no integer of 64 bits"),
    (INTEGER, str(2**63), "no integer of 64 bits"),
    (INTEGER, str(-(2**63) - 1), "no integer of 64 bits"),
    (INTEGER, "0" * (DIGITS_MAX + 1), "no integer of 64 bits"),
    (BINARY, "0", "no even number of hexadecimal digits"),
    (BINARY, "zz", "no even number of hexadecimal digits"),
    (STRING, "\ud800", "half of a surrogate pair"),
]


@pytest.mark.parametrize(("column_type", "text", "value"), VALUES)
def test_a_text_is_a_value_of_the_columns_type(
    column_type: int, text: str, value: int | str | bytes
) -> None:
    found = parse_key_text(column_type, text)
    assert (type(found), found) == (type(value), value)


@pytest.mark.parametrize(("column_type", "text", "reason"), WRONG)
def test_a_wrong_text_is_refused_with_its_reason(column_type: int, text: str, reason: str) -> None:
    with pytest.raises(BadKeyText, match=reason):
        parse_key_text(column_type, text)


def test_an_error_shows_the_beginning_of_a_long_text() -> None:
    with pytest.raises(BadKeyText) as refused:
        parse_key_text(INTEGER, "x" * 100_000)
    assert len(str(refused.value)) < 100
