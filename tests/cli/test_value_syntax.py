"""How values are written on the command line: what each form means, and that printing is undone."""

import math
from typing import NoReturn

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rowtide.cli.value_syntax import (
    Assignment,
    SyntaxRefused,
    assignment_text,
    json_text,
    key_value,
    parse_argument,
    plain_text,
    to_json,
)
from rowtide.core.values.schema import BINARY, INTEGER, STRING, KeyColumn
from rowtide.core.values.variant import Scalar


def no_file(name: str) -> NoReturn:
    raise AssertionError(f"{name} is read")


FORMS: list[tuple[str, str, Scalar]] = [
    ("a=x", "a", "x"),
    ("a=", "a", ""),
    ("a=5", "a", "5"),
    ("a=x=y:=z", "a", "x=y:=z"),
    ("a:b=c", "a:b", "c"),
    ("a:=5", "a", 5),
    ("a:=-9223372036854775808", "a", -(2**63)),
    ("a:=5.0", "a", 5.0),
    ("a:=1e3", "a", 1000.0),
    ("a:=true", "a", True),
    ('a:="5"', "a", "5"),
    ('a:={"base64": "AAE="}', "a", b"\0\1"),
    ('a:={"double": "-inf"}', "a", -math.inf),
    ("a+=5", "a", 5),
    ("a+=-5", "a", -5),
    ("列=值", "列", "值"),
]


@pytest.mark.parametrize(("text", "name", "value"), FORMS)
def test_a_form_means_one_value(text: str, name: str, value: Scalar) -> None:
    [found] = parse_argument(text, no_file)
    assert (found.name, found.value, type(found.value)) == (name, value, type(value))


def test_a_file_is_read_as_bytes() -> None:
    [found] = parse_argument("photo@=cat.png", lambda name: f"<{name}>".encode())
    assert found == Assignment("photo", "@=", b"<cat.png>")


def test_an_object_assigns_several_columns() -> None:
    found = parse_argument('{"a": 1, "b=c": "x", "d": {"base64": ""}}', no_file)
    assert [(a.name, a.value) for a in found] == [("a", 1), ("b=c", "x"), ("d", b"")]


REFUSED = [
    ("plain", "assigns nothing"),
    ("=x", "assigns nothing"),
    ("a:=x", "is not JSON .*for a string write a=x"),
    ("a:=", "is not JSON"),
    ("a:=null", "null is no column's value"),
    ("a:=[1]", "is no column's value"),
    ("a:=9223372036854775808", "does not fit 64 bits"),
    ("a:=1e999", "too large for a double"),
    ("a:=NaN", 'NaN is written {"double": "nan"}'),
    ('a:={"base64": "A"}', "is not base64"),
    ('a:={"base64": 5}', "is no column's value"),
    ('a:="\\ud800"', "half of a surrogate pair"),
    ("a+=1.5", "'1.5' is not an integer"),
    ("a=\udcff", "is not UTF-8"),
    ('{"a": 1', "is not JSON"),
]


@pytest.mark.parametrize(("text", "why"), REFUSED)
def test_what_is_no_assignment_is_refused_with_its_reason(text: str, why: str) -> None:
    with pytest.raises(SyntaxRefused, match=why):
        parse_argument(text, no_file)


KEYS: list[tuple[int, str, Scalar]] = [
    (STRING, "k=5", "5"),
    (STRING, 'k:="5"', "5"),
    (INTEGER, "k=5", 5),
    (INTEGER, "k:=5", 5),
    (BINARY, "k=ab", b"ab"),
    (BINARY, 'k:={"base64": "AAE="}', b"\0\1"),
]


@pytest.mark.parametrize(("kind", "text", "value"), KEYS)
def test_a_bare_text_takes_the_type_of_its_key_column(kind: int, text: str, value: Scalar) -> None:
    [assignment] = parse_argument(text, no_file)
    assert key_value(KeyColumn("k", kind), assignment) == value


@pytest.mark.parametrize(
    ("kind", "text", "why"),
    [
        (INTEGER, "k=x", "'x' is not an integer"),
        (INTEGER, "k:=1.0", "of type integer, not double"),
        (INTEGER, "k:=true", "of type integer, not boolean"),
        (STRING, "k:=5", "of type string, not integer"),
        (STRING, "k+=5", "cannot be incremented"),
    ],
)
def test_a_key_column_takes_its_own_type_alone(kind: int, text: str, why: str) -> None:
    [assignment] = parse_argument(text, no_file)
    with pytest.raises(SyntaxRefused, match=why):
        key_value(KeyColumn("k", kind), assignment)


texts = st.text(st.characters(exclude_categories=["Cs"]))
values = st.one_of(texts, st.integers(-(2**63), 2**63 - 1), st.booleans(), st.binary(), st.floats())


@given(name=texts.filter(bool), value=values)
def test_what_is_printed_can_be_given_back(name: str, value: Scalar) -> None:
    printed = assignment_text(name, value)
    [read] = parse_argument(printed, no_file)
    assert (read.name, type(read.value)) == (name, type(value))
    # Equal by their text: nan is not equal to itself, and 0.0 equals -0.0.
    assert repr(read.value) == repr(value)
    assert printed.isprintable()


@given(columns=st.dictionaries(texts.filter(bool), values, min_size=1))
def test_a_row_in_json_can_be_given_back(columns: dict[str, Scalar]) -> None:
    text = json_text({name: to_json(value) for name, value in columns.items()})
    read = parse_argument(text, no_file)
    assert {a.name: repr(a.value) for a in read} == {n: repr(v) for n, v in columns.items()}


@given(value=values)
def test_a_cell_of_a_table_is_safe_for_a_terminal(value: Scalar) -> None:
    assert plain_text(value).isprintable()
