"""Records of a known form read from the stream as the same bytes as by the codecs."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rowtide.core.protocol import plainbuffer
from rowtide.core.protocol.row_form import FormLearner
from rowtide.core.records import record
from rowtide.core.records.record_form import FORMS
from rowtide.core.records.record_wire import StreamRow, stream_row
from rowtide.core.values import variant
from rowtide.core.values.cell import Cell

pytestmark = pytest.mark.usefixtures("pure")
NAMES = (b"id", b"n", b"blob")
OFFSET, STAMP = 5, 1_795_000_000_000_123
INTEGERS = st.one_of(st.integers(-200, 200), st.integers(-(2**63), 2**63 - 1))
KEYS = st.tuples(st.text(max_size=9), INTEGERS, st.binary(max_size=9))
VALUES = st.one_of(st.text(max_size=70), INTEGERS, st.floats(), st.binary(max_size=70))
VERSIONS = st.one_of(st.just(1_795_000_000_000), st.integers(0, 2**62))
COLUMNS = st.lists(st.tuples(st.text(min_size=1, max_size=70), VALUES), min_size=1, max_size=8)


def key_of(values: Sequence[variant.Scalar]) -> list[bytes]:
    return [variant.encode(value) for value in values]


def puts(columns: Sequence[tuple[str, variant.Scalar]], version: int) -> list[Cell]:
    return [
        plainbuffer.put_cell(name.encode(), variant.encode(value), version)
        for name, value in columns
    ]


def encode(body: record.Body, stamp: int = STAMP) -> bytes:
    envelope = record.Envelope(OFFSET, 3, b"12345678", stamp, record.SINGLE)
    return record.encode_record(envelope, record.encode_body(body))


def read_or_refuse(value: bytes) -> StreamRow | str | None:
    try:
        return stream_row(value, OFFSET, NAMES)
    except record.CorruptRecord as damage:
        return str(damage)


def teach(value: bytes) -> StreamRow | str | None:
    """Read a record often enough for its form to be learnt; return what the codecs tell."""
    FORMS.forget()
    plain = read_or_refuse(value)
    for _ in range(FormLearner.PAUSE_MIN - 1):
        read_or_refuse(value)
    return plain


def has_form() -> bool:
    return any(place.form is not None for place in FORMS.places())


@given(KEYS, COLUMNS, VERSIONS, st.booleans())
def test_a_record_of_a_form_is_decoded_as_before(
    key: tuple[str, int, bytes],
    columns: list[tuple[str, variant.Scalar]],
    version: int,
    update: bool,
) -> None:
    cells = puts(columns, version)
    body = (record.UpdateBody if update else record.PutBody)(key_of(key), cells)
    plain = teach(encode(body))
    assert has_form()
    assert isinstance(plain, StreamRow)
    assert read_or_refuse(encode(body)) == plain
    assert [place.hits for place in FORMS.places()] == [1]


@given(KEYS, COLUMNS, VERSIONS, st.data())
def test_other_data_of_the_same_form_is_decoded_as_by_the_codecs(
    key: tuple[str, int, bytes],
    columns: list[tuple[str, variant.Scalar]],
    version: int,
    data: st.DataObject,
) -> None:
    teach(encode(record.PutBody(key_of(key), puts(columns, version))))
    other_key = data.draw(KEYS)
    others = [(name, data.draw(VALUES)) for name, _ in columns]
    value = encode(record.PutBody(key_of(other_key), puts(others, data.draw(VERSIONS))), STAMP + 1)
    with_form = read_or_refuse(value)
    FORMS.forget()
    assert read_or_refuse(value) == with_form


@given(KEYS, COLUMNS, st.data())
def test_whatever_is_wrong_with_a_record_its_form_changes_nothing(
    key: tuple[str, int, bytes], columns: list[tuple[str, variant.Scalar]], data: st.DataObject
) -> None:
    whole = encode(record.PutBody(key_of(key), puts(columns, STAMP)))
    teach(whole)
    place = data.draw(st.integers(0, len(whole) - 1))
    damaged = whole[:place] + bytes([data.draw(st.integers(0, 255))]) + whole[place + 1 :]
    damaged = damaged[: data.draw(st.sampled_from([len(whole), place]))]
    with_form = read_or_refuse(damaged)
    FORMS.forget()
    assert read_or_refuse(damaged) == with_form


def test_records_that_are_not_all_puts_of_one_version_have_no_form() -> None:
    key = key_of(("a", 1, b""))
    cells = [*puts([("a", 1)], 5), *puts([("b", 1)], 6)]
    deletes = [*puts([("a", 1)], 5), plainbuffer.delete_cell(b"b", 5)]
    flags = puts([("a", True)], 5)
    for body in (
        record.UpdateBody(key, cells),
        record.UpdateBody(key, deletes),
        record.PutBody(key, flags),
        record.PutBody(key, []),
        record.PutBody(key, puts([("a", 1)], 5), before=[]),
    ):
        plain = teach(encode(body))
        assert not has_form()
        assert read_or_refuse(encode(body)) == plain
