"""Types that settings declare for attributes: what fits them, and what is refused and why."""

from __future__ import annotations

import datetime
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rowtide.connectors.declared_types import (
    LogicalType,
    normal_columns,
    parse_types,
    plain_value,
    refuse_key_columns,
    type_of_kind,
)
from rowtide.connectors.fields import Fields, SettingsRefused
from rowtide.connectors.rows import TableShape
from rowtide.core.values.schema import STRING, KeyColumn
from rowtide.core.values.variant import Scalar

WORDS = {
    **{word: word for word in ("decimal", "date", "time", "timestamp", "datetime64")},
    "days": "date32",
    "short": "date16",
    "datetime": "datetime32",
}

FIT: list[tuple[str, Scalar, str]] = [
    ("DECIMAL(10,2)", "1.5", "1.50"),
    ("decimal(10, 2)", "-99999999.99", "-99999999.99"),
    ("DECIMAL(10,2)", "1.230000", "1.23"),
    ("DECIMAL(10,2)", "-0.00", "0.00"),
    ("DECIMAL(10,2)", "+7.", "7.00"),
    ("DECIMAL(10,2)", "1.5e3", "1500.00"),
    ("DECIMAL(10,2)", 7, "7.00"),
    ("DECIMAL(10,2)", 1.25, "1.25"),
    ("DECIMAL(10,2)", 0.1, "0.10"),
    ("DECIMAL(38,2)", 1e16, "10000000000000000.00"),
    ("DECIMAL(38,0)", "9" * 38, "9" * 38),
    ("DECIMAL(38,38)", "-0." + "9" * 38, "-0." + "9" * 38),
    ("DECIMAL(2,2)", "0", "0.00"),
    ("DECIMAL(3,0)", "007", "7"),
    ("DATE", "2024-02-29", "2024-02-29"),
    ("DATE", "0001-01-01", "0001-01-01"),
    ("DATE", "9999-12-31", "9999-12-31"),
    ("DAYS", "1900-01-01", "1900-01-01"),
    ("SHORT", "1970-01-01", "1970-01-01"),
    ("TIME", "23:59:59.999999", "23:59:59.999999"),
    ("TIME", "00:00:00", "00:00:00.000000"),
    ("TIME", "01:02:03.1200000000", "01:02:03.120000"),
    ("TIMESTAMP", "2024-02-29 23:59:59", "2024-02-29 23:59:59.000000"),
    ("TIMESTAMP", "2024-02-29T23:59:59.000001Z", "2024-02-29 23:59:59.000001"),
    ("TIMESTAMP", "2026-02-03 02:05:06.7+00", "2026-02-03 02:05:06.700000"),
    ("TIMESTAMP", "2024-03-01 00:30:00+01:00", "2024-02-29 23:30:00.000000"),
    ("TIMESTAMP", "2024-03-01 00:30:00-0530", "2024-03-01 06:00:00.000000"),
    ("TIMESTAMP", "0001-01-01 00:00:00", "0001-01-01 00:00:00.000000"),
    ("DATETIME64(3)", "2024-02-29 23:59:59.120", "2024-02-29 23:59:59.120000"),
    ("DATETIME64(0)", "2024-02-29 23:59:59.000", "2024-02-29 23:59:59.000000"),
    ("DATETIME", "1970-01-01 00:00:00", "1970-01-01 00:00:00.000000"),
]

UNFIT: list[tuple[str, Scalar, str]] = [
    ("DECIMAL(10,2)", "1.234", "more than 2 digits after the point"),
    ("DECIMAL(10,2)", 0.1 + 0.2, "more than 2 digits after the point"),
    ("DECIMAL(10,2)", "1e-3", "more than 2 digits after the point"),
    ("DECIMAL(10,2)", "100000000", "more than 8 digits before the point"),
    ("DECIMAL(10,2)", "100000000.001", "digits"),
    ("DECIMAL(10,2)", "1e999", "more than 8 digits before the point"),
    ("DECIMAL(2,2)", 1, "more than 0 digits before the point"),
    ("DECIMAL(38,0)", "9" * 39, "more than 38 digits before the point"),
    *(
        ("DECIMAL(10,2)", value, "it is not a number")
        for value in ("", "x", "NaN", "Infinity", "1_0", " 1", "1\n", "٣", "1,5", ".", "0x1")
    ),
    ("DECIMAL(10,2)", float("nan"), "it is not a number"),
    ("DECIMAL(10,2)", float("inf"), "it is not a number"),
    ("DECIMAL(10,2)", True, "it is not a number"),
    ("DECIMAL(10,2)", b"1", "it is not a number"),
    *(
        ("DATE", value, "it is not a date")
        for value in ("", "infinity", "2024-2-3", "20240203", "2024-02-03 00:00:00", "10000-01-01")
    ),
    ("DATE", "2023-02-29", "day"),
    ("DATE", "0000-00-00", "year"),
    ("DATE", 19000, "only a text"),
    ("DAYS", "1899-12-31", "the years are 1900 to 2299"),
    ("DAYS", "2300-01-01", "the years are 1900 to 2299"),
    ("SHORT", "2106-01-01", "the years are 1970 to 2105"),
    *(
        ("TIME", value, "it is not a time of day")
        for value in ("-00:00:01", "838:59:59", "1:2:3", "01:02", "01:02:03+01", "01:02:03.")
    ),
    ("TIME", "24:00:00", "hour"),
    ("TIME", "23:59:60", "second"),
    ("TIME", "01:02:03.1234567", "more than 6 digits after the point"),
    ("TIME", 1.5, "only a text"),
    *(
        ("TIMESTAMP", value, "it is not a timestamp")
        for value in ("", "infinity", "2024-02-29", "2024-02-29 23:59", "2024-02-29 01:02:03 BC")
    ),
    ("TIMESTAMP", "0000-00-00 00:00:00", "year"),
    ("TIMESTAMP", "0001-01-01 00:00:00+01", "out of range in UTC"),
    ("TIMESTAMP", "9999-12-31 23:59:59-01", "out of range in UTC"),
    ("TIMESTAMP", "2024-01-01 00:00:00+24", "offset"),
    ("TIMESTAMP", "2024-01-01 00:00:00.0000001", "more than 6 digits after the point"),
    ("TIMESTAMP", 1_700_000_000, "only a text"),
    ("DATETIME64(3)", "2024-01-01 00:00:00.1234", "more than 3 digits after the point"),
    ("DATETIME64(3)", "1900-01-01 00:00:00+01", "the years are 1900 to 2299"),
    ("DATETIME", "2024-01-01 00:00:00.5", "more than 0 digits after the point"),
    ("DATETIME", "1969-12-31 23:59:59", "the years are 1970 to 2105"),
]


def parse_type(text: str) -> LogicalType:
    return parse_types(Fields({"v": text}, "sink.columns"), WORDS)["v"]


@pytest.mark.parametrize(("text", "value", "normal"), FIT)
def test_a_value_that_fits_has_one_text(text: str, value: Scalar, normal: str) -> None:
    kind = parse_type(text)
    assert plain_value(kind.convert(value)) == normal
    assert kind.convert(normal) == kind.convert(value)
    assert normal_columns({"v": kind, "w": kind}, {"v": value, "u": value}) == {
        "v": normal,
        "u": value,
    }


@pytest.mark.parametrize(("text", "value", "reason"), UNFIT)
def test_a_value_that_does_not_fit_is_refused(text: str, value: Scalar, reason: str) -> None:
    kind = parse_type(text)
    with pytest.raises(ValueError, match=reason):
        kind.convert(value)
    assert normal_columns({"v": kind}, {"v": value}) == {"v": value}


@given(st.decimals(allow_nan=False, allow_infinity=False), st.integers(1, 38), st.integers(0, 38))
def test_a_decimal_is_exact_or_refused(value: Decimal, precision: int, scale: int) -> None:
    kind = LogicalType("decimal", precision, min(scale, precision))
    try:
        found = kind.convert(str(value))
    except ValueError:
        return
    assert isinstance(found, Decimal)
    assert found == value
    assert plain_value(found) == f"{found:f}"


@given(st.datetimes(timezones=st.just(datetime.UTC)))
def test_a_timestamp_is_exact(value: datetime.datetime) -> None:
    kind = parse_type("TIMESTAMP")
    assert kind.convert(value.isoformat()) == value
    assert kind.convert(str(plain_value(value))) == value


@pytest.mark.parametrize("text", sorted({text for text, _, _ in FIT}))
def test_a_kind_of_a_column_names_its_type(text: str) -> None:
    kind = parse_type(text)
    assert type_of_kind(kind.kind) == kind
    assert kind.kind.replace("_", "").isalnum()


@pytest.mark.parametrize("kind", ["text", "integer", "", "key text", "decimal", "decimal_39_2"])
def test_other_kinds_are_no_declared_types(kind: str) -> None:
    assert type_of_kind(kind) is None


@pytest.mark.parametrize(
    "text",
    [
        *("", "NUMBER", "DECIMAL", "DECIMAL(10)", "DECIMAL(10,2", "DECIMAL(39,2)", "DECIMAL(0,0)"),
        *("DECIMAL(2,3)", "DATE(3)", "DATE NOT NULL", "TIMESTAMP(7)", "DATETIME64(7)", "date16"),
    ],
)
def test_what_is_no_type_is_refused_with_those_that_are(text: str) -> None:
    with pytest.raises(SettingsRefused, match=r"sink\.columns\.v must be one of DECIMAL\(10,2\), "):
        parse_type(text)


def test_a_key_column_has_no_declared_type() -> None:
    table = TableShape("t", (KeyColumn("id", STRING),))
    refuse_key_columns({"other": parse_type("DATE")}, table)
    with pytest.raises(SettingsRefused, match="`columns` has id, of the key of t"):
        refuse_key_columns({"id": parse_type("DATE")}, table)
