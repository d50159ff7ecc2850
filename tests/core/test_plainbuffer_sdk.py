"""PlainBuffer against the official Python SDK: it reads what is written here, and the reverse.

The SDK's import warns that its optional C++ part does not fit this Python; only its pure
Python encoder and decoder are used.
"""

import importlib
import warnings
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rowtide.core.protocol import plainbuffer
from rowtide.core.protocol.plainbuffer import HEADER, decode_row, encode_row
from rowtide.core.values import variant
from rowtide.core.values.cell import Cell

SdkValue = int | float | bool | str | bytearray
SdkColumn = tuple[str, SdkValue] | tuple[str, SdkValue, int]

# The SDK counts a name in characters where the wire wants bytes, so other names break in it.
names = st.text(st.characters(codec="ascii"), min_size=1, max_size=12)
integers = st.integers(-(2**63), 2**63 - 1)
versions = st.integers(0, (2**63 - 1) // 1000)
# The SDK takes bytes for a STRING; its BLOB is a bytearray.
blobs = st.binary().map(bytearray)
sdk_values = st.one_of(integers, st.floats(allow_nan=False), st.booleans(), st.text(), blobs)
sdk_keys = st.lists(st.tuples(names, st.one_of(integers, st.text(), blobs)), min_size=1, max_size=4)


def sdk(module: str) -> ModuleType:
    """Import a module of the SDK."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return importlib.import_module(f"tablestore.plainbuffer.{module}")


@pytest.fixture(scope="module")
def builder() -> ModuleType:
    """The SDK's encoder."""
    return sdk("plain_buffer_builder")


def ours(value: SdkValue) -> bytes:
    """Return the variant of a value as the SDK takes it."""
    return variant.encode(bytes(value) if isinstance(value, bytearray) else value)


def our_key(key: list[tuple[str, SdkValue]]) -> list[tuple[bytes, bytes]]:
    """Return a key as this codec has it."""
    return [(name.encode(), ours(value)) for name, value in key]


def our_put(column: SdkColumn) -> Cell:
    """Return a put as this codec has it."""
    version_ms = column[2] if len(column) == 3 else None
    return plainbuffer.put_cell(column[0].encode(), ours(column[1]), version_ms)


puts = st.lists(st.tuples(names, sdk_values) | st.tuples(names, sdk_values, versions), max_size=8)


@given(key=sdk_keys, columns=puts)
def test_a_put_of_the_sdk_has_our_bytes(
    builder: ModuleType, key: list[tuple[str, SdkValue]], columns: list[SdkColumn]
) -> None:
    sent = bytes(builder.PlainBufferBuilder.serialize_for_put_row(key, columns))
    cells = [our_put(column) for column in columns]
    assert HEADER + encode_row(our_key(key), cells) == sent
    assert decode_row(sent) == plainbuffer.RowChange(our_key(key), cells, False, None)


@given(
    key=sdk_keys,
    put=st.lists(st.tuples(names, sdk_values)),
    # The SDK reserves too little for more versions: its own buffer overflows.
    delete=st.lists(st.tuples(names, st.none(), versions), max_size=1),
    delete_all=st.lists(names),
    increment=st.lists(st.tuples(names, integers)),
)
def test_an_update_of_the_sdk_has_our_bytes(
    builder: ModuleType,
    key: list[tuple[str, SdkValue]],
    put: list[SdkColumn],
    delete: list[tuple[str, None, int]],
    delete_all: list[str],
    increment: list[tuple[str, int]],
) -> None:
    update = {"PUT": put, "DELETE": delete, "DELETE_ALL": delete_all, "INCREMENT": increment}
    parts = {operation: columns for operation, columns in update.items() if columns}
    sent = bytes(builder.PlainBufferBuilder.serialize_for_update_row(key, parts))
    cells = [our_put(column) for column in put]
    cells += [plainbuffer.delete_cell(name.encode(), at) for name, _, at in delete]
    cells += [plainbuffer.delete_cell(name.encode(), None) for name in delete_all]
    cells += [plainbuffer.increment_cell(name.encode(), ours(by)) for name, by in increment]
    assert (HEADER + encode_row(our_key(key), cells)).ljust(len(sent), b"\0") == sent
    assert decode_row(sent) == plainbuffer.RowChange(our_key(key), cells, False, None)


@given(key=sdk_keys)
def test_a_delete_of_the_sdk_has_our_bytes(
    builder: ModuleType, key: list[tuple[str, SdkValue]]
) -> None:
    sent = bytes(builder.PlainBufferBuilder.serialize_for_delete_row(key))
    assert HEADER + encode_row(our_key(key), [], deleted=True) == sent
    assert decode_row(sent).deleted


@given(key=sdk_keys, columns=st.lists(st.tuples(names, sdk_values, versions), max_size=8))
def test_the_sdk_reads_our_rows(
    key: list[tuple[str, SdkValue]], columns: list[tuple[str, SdkValue, int]]
) -> None:
    row = encode_row(our_key(key), [our_put(column) for column in columns])
    stream = sdk("plain_buffer_stream").PlainBufferInputStream(HEADER + row + row)
    reader = sdk("plain_buffer_coded_stream").PlainBufferCodedInputStream(stream)
    for answer in reader.read_rows():
        assert answer.primary_key == key
        assert answer.attribute_columns == columns
