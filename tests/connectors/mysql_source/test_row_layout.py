"""An image that is unpacked in runs has the values that its columns' readers give one by one."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rowtide.connectors.sources.mysql import table_map as binlog
from rowtide.connectors.sources.mysql.row_image import Reader, reader_of
from rowtide.connectors.sources.mysql.row_layout import Row, RowImages
from rowtide.connectors.sources.mysql.table_map import BinlogColumn


def text(value: bytes) -> str:
    return value.decode("utf-8", "replace")


INTEGERS = st.builds(
    BinlogColumn,
    st.sampled_from([binlog.TINY, binlog.SHORT, binlog.INT24, binlog.LONG, binlog.LONGLONG]),
    unsigned=st.booleans(),
)
PLAIN = st.builds(
    BinlogColumn,
    st.sampled_from([binlog.DOUBLE, binlog.YEAR, binlog.DATE, binlog.DATETIME, binlog.TIME]),
)
TIMES = st.builds(
    BinlogColumn, st.sampled_from([binlog.DATETIME2, binlog.TIME2]), st.integers(0, 6)
)
DECIMALS = st.builds(BinlogColumn, st.just(binlog.NEWDECIMAL), st.integers(20, 65), st.just(10))
BITS = st.builds(BinlogColumn, st.just(binlog.BIT), st.integers(1, 64))
SETS = st.builds(BinlogColumn, st.just(binlog.SET), st.just(1), members=st.just([b"a", b"b"]))
VARYING = st.builds(BinlogColumn, st.just(binlog.VARCHAR), st.sampled_from([10, 300]))
BLOBS = st.builds(BinlogColumn, st.just(binlog.BLOB), st.integers(1, 4))
COLUMNS = st.lists(
    st.one_of(INTEGERS, PLAIN, TIMES, DECIMALS, BITS, SETS, VARYING, BLOBS), min_size=1, max_size=12
)


def one_by_one(readers: list[Reader], body: bytes, at: int) -> tuple[Row, int]:
    end = at + (len(readers) + 7) // 8
    nulls = int.from_bytes(body[at:end], "little")
    row: Row = []
    for index, reader in enumerate(readers):
        if nulls >> index & 1:
            row.append(None)
        else:
            value, end = reader(body, end)
            row.append(value)
    return row, end


def image(draw: st.DrawFn, columns: list[BinlogColumn], readers: list[Reader]) -> bytes:
    """Return an image with random NULLs; values of fixed sizes are random bytes."""
    nulls = draw(st.integers(0, 2 ** len(columns) - 1) | st.just(0))
    parts = [nulls.to_bytes((len(columns) + 7) // 8, "little")]
    for index, (column, reader) in enumerate(zip(columns, readers, strict=True)):
        if nulls >> index & 1:
            continue
        if column.type in (binlog.VARCHAR, binlog.BLOB):
            value = draw(st.binary(max_size=9))
            prefix = column.size if column.type == binlog.BLOB else 1 + (column.size > 255)
            parts.append(len(value).to_bytes(prefix, "little") + value)
        else:
            size = reader(bytes(64), 0)[1]
            parts.append(draw(st.binary(min_size=size, max_size=size)))
    return b"".join(parts)


@st.composite
def bodies(draw: st.DrawFn) -> tuple[list[BinlogColumn], list[Reader], bytes]:
    columns = draw(COLUMNS)
    readers = [reader_of(column, "", text) for column in columns]
    return columns, readers, b"".join(image(draw, columns, readers) for _ in range(3))


@given(bodies())
def test_an_image_has_the_values_that_its_readers_give(
    made: tuple[list[BinlogColumn], list[Reader], bytes],
) -> None:
    columns, readers, body = made
    images = RowImages(columns, readers)
    at = 0
    for _ in range(3):
        expected, end = one_by_one(readers, body, at)
        row, at = images.read(body, at)
        # By their text: a double of random bytes may be no number, and equals nothing then.
        assert (list(map(repr, row)), at) == (list(map(repr, expected)), end)
    assert at == len(body)
