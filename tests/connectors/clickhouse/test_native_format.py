"""The Native format: bytes as ClickHouse's documentation has them, and back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rowtide.connectors.sinks.clickhouse.native_format import (
    NativeColumn,
    decode_columns,
    encode_block,
)
from rowtide.core.values.variant import Scalar

GOLDEN = (
    "02 02"  # Two columns, two rows.
    "01 61 05 496e743634 0100000000000000 ffffffffffffffff"
    "01 62 10 4e756c6c61626c6528537472696e6729 00 01 02 6869 00"
)


def test_a_block_is_written_as_the_format_says() -> None:
    block = [
        NativeColumn("a", "Int64", [1, -1]),
        NativeColumn("b", "Nullable(String)", ["hi", None]),
    ]
    written = encode_block(block)
    assert written == bytes.fromhex(GOLDEN)
    assert decode_columns(written + written) == {"a": [1, -1, 1, -1], "b": [b"hi", None] * 2}


VALUES: dict[str, st.SearchStrategy[Scalar]] = {
    "Int64": st.integers(-(2**63), 2**63 - 1),
    "UInt64": st.integers(0, 2**64 - 1),
    "Float64": st.floats(allow_nan=False),
    "UInt8": st.integers(0, 255),
    "String": st.binary(max_size=200),
    "Decimal(9, 2)": st.integers(-(2**31), 2**31 - 1),
    "Decimal(18, 4)": st.integers(-(2**63), 2**63 - 1),
    "Decimal(38, 10)": st.integers(-(2**127), 2**127 - 1),
    "Date": st.integers(0, 2**16 - 1),
    "Date32": st.integers(-(2**31), 2**31 - 1),
    "DateTime": st.integers(0, 2**32 - 1),
    "DateTime('UTC')": st.integers(0, 2**32 - 1),
    "DateTime64(3, 'UTC')": st.integers(-(2**63), 2**63 - 1),
}
COLUMNS = st.sampled_from([*VALUES]).flatmap(
    lambda kind: st.tuples(
        st.just(kind),
        st.booleans(),
        st.lists(st.none() | VALUES[kind], min_size=3, max_size=3),
    )
)


@given(st.lists(COLUMNS, min_size=1, max_size=4))
def test_what_is_written_is_read(columns: list[tuple[str, bool, list[Scalar | None]]]) -> None:
    block = [
        NativeColumn(str(at), f"Nullable({kind})" if nullable else kind, values)
        for at, (kind, nullable, values) in enumerate(columns)
        if nullable or None not in values
    ]
    if block:
        assert decode_columns(encode_block(block)) == {
            column.name: [*column.values] for column in block
        }


def test_an_answer_that_breaks_off_is_an_error() -> None:
    written = encode_block([NativeColumn("a", "String", ["text" * 100])])
    for length in range(1, len(written)):
        with pytest.raises((ValueError, IndexError)):
            decode_columns(written[:length])
