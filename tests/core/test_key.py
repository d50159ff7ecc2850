"""Encoded primary keys: their order is the keys' order."""

import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rowtide.core.values import key, variant
from rowtide.core.values.errors import Rejected

ROOT = Path(__file__).resolve().parents[2]
E = variant.encode
GOLDEN = {
    "INTEGER 7": [E(7)],
    "INTEGER -1": [E(-1)],
    "smallest INTEGER": [E(-(2**63))],
    "STRING user1": [E("user1")],
    "empty STRING": [E("")],
    "STRING with a zero": [E("a\0b")],
    "BLOB 00 01 ff": [E(b"\x00\x01\xff")],
    "STRING a, INTEGER 7, BLOB ff": [E("a"), E(7), E(b"\xff")],
    "STRING a, INF_MIN": [E("a"), variant.V_INF_MIN],
    "STRING a, INF_MAX": [E("a"), variant.V_INF_MAX],
}

Column = tuple[int, int | bytes]
"""A column as something Python orders: INF_MIN, a value, INF_MAX."""

LEAST: Column = (0, 0)
GREATEST: Column = (2, 0)
# Short texts of few bytes, zeros among them, meet each other's prefixes often.
VALUES = {
    "INTEGER": st.one_of(st.integers(-(2**63), 2**63 - 1), st.integers(-2, 2)),
    "STRING": st.one_of(st.text(), st.text(alphabet="\0\1a\x7f你", max_size=4)).map(str.encode),
    "BLOB": st.one_of(st.binary(), st.sampled_from([b"", b"\0", b"\0\xff", b"\0\1", b"\xff"])),
}


def as_variant(kind: str, column: Column) -> bytes:
    """Return a column's variant."""
    rank, value = column
    if rank != 1:
        return variant.V_INF_MAX if rank else variant.V_INF_MIN
    if kind == "STRING":
        assert isinstance(value, bytes)
        return struct.pack("<BI", variant.STRING, len(value)) + value
    return E(value)


@st.composite
def two_keys(draw: st.DrawFn, *, whole: bool) -> tuple[list[str], list[Column], list[Column]]:
    """Draw a schema and two keys of it; ``whole`` keys have every column and no INF."""
    schema = draw(st.lists(st.sampled_from(sorted(VALUES)), min_size=1, max_size=4))

    def one_key() -> list[Column]:
        ends = [] if whole else [st.just(LEAST), st.just(GREATEST)]
        return [draw(st.one_of(st.tuples(st.just(1), VALUES[kind]), *ends)) for kind in schema]

    first = one_key()
    # Half of the pairs share their first columns, so that later ones decide.
    second = first[: draw(st.integers(0, len(schema) - 1))] if draw(st.booleans()) else []
    return schema, first, second + one_key()[len(second) :]


def encode(schema: list[str], columns: list[Column]) -> bytes:
    """Return an encoded key."""
    return key.encode(map(as_variant, schema, columns))


def rows(text: str) -> dict[str, str]:
    """Return the examples of a page, by label: `| label | hex |`."""
    examples = text.split("## Examples")[1]
    lines = [line.strip("| ") for line in examples.splitlines() if line.endswith("` |")]
    return dict(line.rstrip("`").split(" | `") for line in lines)


@given(two_keys(whole=False))
def test_encodings_stand_in_the_order_of_their_keys(
    keys: tuple[list[str], list[Column], list[Column]],
) -> None:
    schema, first, second = keys
    assert (encode(schema, first) < encode(schema, second)) == (first < second)
    assert (encode(schema, first) == encode(schema, second)) == (first == second)


@given(two_keys(whole=True))
def test_no_encoding_is_a_prefix_of_another(
    keys: tuple[list[str], list[Column], list[Column]],
) -> None:
    schema, first, second = keys
    assert first == second or not encode(schema, first).startswith(encode(schema, second))


@given(two_keys(whole=False))
def test_a_key_comes_back(keys: tuple[list[str], list[Column], list[Column]]) -> None:
    schema, columns, _ = keys
    variants = list(map(as_variant, schema, columns))
    assert key.decode(key.encode(variants)) == variants


@given(two_keys(whole=True), st.integers(1, 4))
def test_the_first_columns_of_a_key_are_its_first_bytes(
    keys: tuple[list[str], list[Column], list[Column]], columns: int
) -> None:
    schema, whole, _ = keys
    start = encode(schema[:columns], whole[:columns])
    rest = encode(schema[columns:], whole[columns:])
    assert encode(schema, whole) == start + rest


@pytest.mark.parametrize("marker", [variant.V_AUTO_INCREMENT, E(1.5), E(True), b"\x06"])
def test_what_is_no_key_is_refused(marker: bytes) -> None:
    with pytest.raises(Rejected, match="is an invalid type for the primary key"):
        key.encode([E("a"), marker])


@pytest.mark.parametrize("damaged", ["03 00", "04 61", "04 61 00", "07", "03 8000000000000007 04"])
def test_damaged_bytes_are_an_error(damaged: str) -> None:
    with pytest.raises(ValueError, match="encoded key"):
        key.decode(bytes.fromhex(damaged))


def test_the_page_shows_these_bytes() -> None:
    page = (ROOT / "docs/internals/formats/key.md").read_text(encoding="utf-8")
    assert rows(page) == {label: key.encode(columns).hex() for label, columns in GOLDEN.items()}
