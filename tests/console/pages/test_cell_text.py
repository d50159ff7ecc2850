"""A value that is shown and sent back unchanged is the same value of the same type."""

from __future__ import annotations

import math
import struct

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from rowtide.console.pages.cell_text import (
    KINDS,
    BadValueText,
    digest_of,
    key_text,
    parse_key_field,
    parse_value,
    show_value,
)
from rowtide.core.values.variant import Scalar

INT64 = st.integers(-(2**63), 2**63 - 1)
TEXT = st.text(st.characters(exclude_categories=["Cs"]))
VALUES = st.one_of(INT64, st.floats(), st.booleans(), TEXT, st.binary())


def in_a_form(text: str) -> str:
    """Return what a browser sends of a textarea that was filled with a text."""
    text = text.replace("\r\n", "\n").replace("\r", "\n").replace("\x00", "\ufffd")
    return text.removeprefix("\n").replace("\n", "\r\n")


@given(VALUES)
@example("a\r\nb")
@example("\nfirst")
@example("\r")
@example("\x00")
@example("\u202eright")
@example("\ufeff")
@example('"quoted"')
@example(-0.0)
@example(0.1 + 0.2)
@example(-(2**63))
def test_a_value_comes_back_from_its_form(value: Scalar) -> None:
    shown = show_value(value, characters_max=10**6)
    assert not shown.is_cut
    assert shown.kind in KINDS
    again = parse_value(shown.kind, in_a_form(shown.text))
    assert type(again) is type(value)
    if isinstance(value, float):
        assert struct.pack("<d", value) == struct.pack("<d", again) or math.isnan(value)
    else:
        assert again == value
    assert digest_of(again) == digest_of(value) or value != value


@given(st.one_of(INT64, TEXT, st.binary()))
@example("")
@example(" x")
@example('"')
@example("\ud7ff\U0010ffff")
def test_a_key_comes_back_from_its_address(value: int | str | bytes) -> None:
    text = key_text(value)
    # An empty field is a column that is not given; only no bytes at all have no text of their own.
    assert text or value == b""
    assert parse_key_field(type(value), text) == value


def test_no_two_values_have_the_same_digest() -> None:
    values: list[Scalar] = [1, 1.0, True, "1", b"1", "true", 0.0, -0.0, "", b"", 0, False]
    assert len({digest_of(value) for value in values}) == len(values)


def test_a_long_value_is_cut_and_says_its_size() -> None:
    shown = show_value("x" * 5000)
    assert (len(shown.text), shown.size, shown.is_cut) == (200, 5000, True)
    shown = show_value(b"x" * 5000)
    assert (shown.size, shown.is_cut, len(shown.text)) == (5000, True, 200)


BAD = """
int      9223372036854775808
int      1.0
int      \u0661
int      0x10
int
double   one
double   1,5
double   1_000
bool     yes
json     5
json     "open
json     "\\ud800"
base64   %%%
base64   AAA
hex      0g
hex      000
secret   x
"""


@pytest.mark.parametrize("line", BAD.strip().splitlines())
def test_a_text_that_is_no_value_of_its_kind_is_refused(line: str) -> None:
    kind, _, text = line.partition(" ")
    with pytest.raises(BadValueText) as raised:
        parse_value(kind, text.strip())
    assert raised.value.key.startswith("rows.bad_")


@pytest.mark.parametrize("kind", ["int", "double", "bool", "json", "base64", "hex"])
def test_a_megabyte_of_nonsense_is_refused_in_few_words(kind: str) -> None:
    for text in ("[" * 10**6, '"' + "\\" * 10**6, "9" * 10**6 + "x"):
        with pytest.raises(BadValueText) as raised:
            parse_value(kind, text)
        assert len(str(raised.value.values)) < 100
