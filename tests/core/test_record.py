"""Log records: their bytes against fastavro and Apache's library, both directions."""

import contextlib
import dataclasses
import importlib.resources
import io
import json
import tracemalloc
from functools import partial
from pathlib import Path
from typing import Any

import avro.io
import avro.schema
import fastavro
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rowtide.core.protocol.plainbuffer import delete_cell, put_cell
from rowtide.core.records import record
from rowtide.core.records.record import (
    SINGLE,
    Body,
    Commit,
    CopyBody,
    CopyEntry,
    CorruptRecord,
    DeleteBody,
    Envelope,
    IndexBuild,
    IndexFeed,
    IndexWrite,
    Kept,
    NoOp,
    Options,
    PutBody,
    Reclaim,
    Seal,
    Snapshot,
    SnapshotRow,
    SourcePosition,
    StreamOptions,
    UpdateBody,
    decode_envelope,
    decode_record,
    encode_body,
    encode_record,
)
from rowtide.core.rows.mutation import Outcome
from rowtide.core.shard.evaluated import Evaluated
from rowtide.core.shard.shard import Shard
from rowtide.core.shard.shard_state import ShardState
from rowtide.core.values import variant
from rowtide.core.values.cell import Cell
from rowtide.core.values.limits import Limits
from tests.core.shard_model import Store, table

ROOT = Path(__file__).resolve().parents[2]
E = variant.encode
SCHEMA_TEXT = (
    importlib.resources.files("rowtide.core.records")
    .joinpath(f"schemas/{record.SCHEMAS[-1]}")
    .read_text()
)
FAST_SCHEMA = fastavro.parse_schema(json.loads(SCHEMA_TEXT))
APACHE_SCHEMA = avro.schema.parse(SCHEMA_TEXT)
HEAD = b"\xc3\x01" + record.FINGERPRINT

ENVELOPE = Envelope(at=123456, claim=77, owner=b"ownerid8", stamp=1790000000123456, group=SINGLE)
AT = 1790000000123
CELLS = [
    put_cell(b"b", E(True), AT),
    put_cell(b"d", E(3.5), AT),
    put_cell(b"i", E(-2), AT - 1000),
    put_cell("你".encode(), E("好"), AT),
    put_cell(b"x", E(b"\xca\xfe"), AT),
]
GOLDEN_BODIES: dict[str, Body] = {
    "NoOp": NoOp(),
    "Put": PutBody([E("user1"), E(-7), E(b"\x00\xff")], CELLS),
    "Put of a bare key, with the row before": PutBody([E("user1")], [], CELLS[:1]),
    "Update": UpdateBody([E("user1")], [CELLS[2], delete_cell(b"s", AT), delete_cell(b"t", None)]),
    "Delete, with the row before": DeleteBody([E("user1")], CELLS[3:]),
    "Options": Options(86400, 3, StreamOptions("t_1", 1790000000000000, 24, ["a", "b"])),
    "Options without stream": Options(-1, 1, None),
    "Reclaim": Reclaim(b"\x04a\x00\x01", b"\xff", AT, 2),
    "Seal": Seal('{"kind": "split"}'),
    "Snapshot": Snapshot([SnapshotRow([E("a")], CELLS[:1]), SnapshotRow([E("b")], [])]),
    "Commit": Commit("s3-000659ef8ab1d2400123456789abcdef"),
    "Put with indexes": PutBody(
        [E("user1")],
        CELLS[:1],
        None,
        [
            IndexWrite(7, True, [E("user1"), E(5)], None),
            IndexWrite(7, True, [E("user1"), E(6)], CELLS[:1]),
            IndexWrite(8, False, [E(6), E("user1")], []),
        ],
    ),
    "Delete with an index": DeleteBody([E("a")], None, [IndexWrite(7, True, [E("a"), E(1)], None)]),
    "IndexBuild": IndexBuild(8, b"\x04b", [IndexWrite(8, False, [E(6), E("a")], [])]),
    "IndexBuild, done": IndexBuild(8, None, ()),
    "Copy": CopyBody("s4", 90, False, [CopyEntry(b"r1", b"chunk"), CopyEntry(b"t1", b"")]),
    "Copy, complete": CopyBody("s4", 91, True, []),
    "SourcePosition": SourcePosition("mysql", b"\x04b", b"\x04f", b"\x00binlog 7"),
    "SourcePosition of all keys": SourcePosition("mysql", b"", b"", b"\xff"),
    "IndexFeed": IndexFeed("s4", 90, AT * 1000, [IndexWrite(8, False, [E(6), E("a")], None)]),
}
KEPT_BODIES: dict[str, Body] = {
    "KeptPut of an absent row": PutBody(
        [E("user1")], CELLS[:1], [], (), Kept(False, [b"b", b"i"], [])
    ),
    "KeptUpdate that shows an older version": UpdateBody(
        [E("user1")],
        [delete_cell(b"i", AT - 1000)],
        [CELLS[2]],
        (),
        Kept(True, [b"s"], [put_cell(b"i", E(-3), AT - 2000)]),
    ),
    "KeptUpdate with an index, of an expired cell": UpdateBody(
        [E("user1")],
        CELLS[2:3],
        [],
        [IndexWrite(7, True, [E("user1"), E(5)], None)],
        Kept(True, [b"i"], [delete_cell(b"i", None)]),
    ),
    "KeptDelete": DeleteBody([E("user1")], CELLS[3:], (), Kept(True, [], [])),
}


def golden(version: int) -> dict[str, bytes]:
    lines = (ROOT / f"tests/core/golden/record-v{version}.txt").read_text().splitlines()
    parts = [line.split(": ") for line in lines]
    return {label: bytes.fromhex(digits) for label, digits in parts}


GOLDEN = golden(4)
KEPT_GOLDEN = golden(5)
EVERY_GOLDEN = GOLDEN | KEPT_GOLDEN
EVERY_BODY = GOLDEN_BODIES | KEPT_BODIES


longs = st.one_of(
    st.integers(-(2**63), 2**63 - 1),
    st.integers(-70, 70),
    # Either side of where a number takes one byte more.
    st.builds(
        lambda bits, off, sign: sign * ((1 << bits) + off),
        st.integers(1, 61),
        st.integers(-1, 1),
        st.sampled_from([1, -1]),
    ),
)
ints = st.integers(-(2**31), 2**31 - 1)
texts = st.text() | st.sampled_from(["x" * size for size in (63, 64, 127, 128, 8191, 8192)])
blobs = st.binary() | st.just(b"\xff" * 70)
names = (st.text(max_size=20) | st.just("名" * 85)).map(str.encode)
versions = st.sampled_from([AT, AT + 1]) | st.integers(0, (2**63 - 1) // 1000)
scalars = st.one_of(longs, st.floats(allow_nan=False), st.booleans(), texts, blobs)
cells = st.builds(put_cell, names, scalars.map(E), versions) | st.builds(
    delete_cell, names, st.none() | versions
)
cell_lists = st.lists(cells, max_size=5) | st.just(CELLS * 20)
keys = st.lists(st.one_of(longs, texts, blobs).map(E), max_size=4)
befores = st.none() | cell_lists
index_writes = st.lists(st.builds(IndexWrite, longs, st.booleans(), keys, befores), max_size=3).map(
    lambda found: found or ()
)
kept = st.builds(Kept, st.booleans(), st.lists(names, max_size=3), cell_lists)
streams = st.builds(StreamOptions, texts, longs, ints, st.lists(texts, max_size=3))
bodies: st.SearchStrategy[Body] = st.one_of(
    st.just(NoOp()),
    st.builds(PutBody, keys, cell_lists, befores, index_writes),
    st.builds(UpdateBody, keys, cell_lists, befores, index_writes),
    st.builds(DeleteBody, keys, befores, index_writes),
    st.builds(PutBody, keys, cell_lists, cell_lists, index_writes, kept),
    st.builds(UpdateBody, keys, cell_lists, cell_lists, index_writes, kept),
    st.builds(DeleteBody, keys, cell_lists, index_writes, kept),
    st.builds(IndexBuild, longs, st.none() | blobs, index_writes),
    st.builds(IndexFeed, texts, longs, longs, index_writes),
    st.builds(Options, ints, ints, st.none() | streams),
    st.builds(Reclaim, blobs, blobs, longs, ints),
    st.builds(Seal, texts),
    st.builds(Commit, texts),
    st.builds(SourcePosition, texts, blobs, blobs, blobs),
    st.builds(Snapshot, st.lists(st.builds(SnapshotRow, keys, cell_lists), max_size=3)),
)
envelopes = st.builds(
    Envelope, longs, longs, st.binary(min_size=8, max_size=8), longs, st.integers(0, 3)
)


def avro_cell(cell: Cell) -> dict[str, Any]:
    """Return a cell as the general libraries take it."""
    return {
        "name": cell.name.decode(),
        "op": cell.op,
        "value": variant.decode(cell.variant) if cell.variant else None,
        "version": cell.version_ms,
        "check": bytes((cell.checksum,)),
    }


def avro_field(value: object) -> object:
    """Return a body's field as the general libraries take it."""
    if isinstance(value, Cell):
        return avro_cell(value)
    if isinstance(value, IndexWrite):
        cells = None if value.cells is None else [avro_cell(cell) for cell in value.cells]
        key = [variant.decode(column) for column in value.key]
        return {**value._asdict(), "key": key, "cells": cells}
    if isinstance(value, list | tuple):
        return [avro_field(item) for item in value]
    if isinstance(value, StreamOptions | SnapshotRow):
        return avro_fields(value)
    return value


def avro_fields(value: Body | StreamOptions | SnapshotRow) -> dict[str, Any]:
    """Return a body's fields by name as the general libraries take them."""
    fields: dict[str, Any] = {
        field.name: avro_field(getattr(value, field.name)) for field in dataclasses.fields(value)
    }
    if "key" in fields:
        fields["key"] = [variant.decode(column) for column in fields["key"]]
    if (known := fields.pop("kept", None)) is not None:
        existed, absent, after = known
        fields |= {"existed": existed, "absent": [n.decode() for n in absent], "after": after}
    return fields


def avro_record(envelope: Envelope, body: Body, *, named: bool) -> dict[str, Any]:
    """Return a record as fastavro takes it; Apache's library wants no name beside a body."""
    fields = avro_fields(body)
    prefix = "Kept" if "existed" in fields else ""
    name = f"rowtide.log.{prefix}{type(body).__name__.removesuffix('Body')}"
    return {**envelope._asdict(), "body": (name, fields) if named else fields}


def whole(envelope: Envelope, body: Body) -> bytes:
    """Return a record's bytes."""
    return encode_record(envelope, encode_body(body))


@given(envelopes, bodies)
def test_a_record_comes_back(envelope: Envelope, body: Body) -> None:
    value = whole(envelope, body)
    assert decode_record(value) == (envelope, body)
    assert decode_envelope(value) == envelope


@given(envelopes, bodies)
def test_fastavro_writes_the_same_bytes(envelope: Envelope, body: Body) -> None:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, FAST_SCHEMA, avro_record(envelope, body, named=True))
    assert out.getvalue() == whole(envelope, body)[10:]


@given(envelopes, bodies)
def test_fastavro_reads_what_is_written_here(envelope: Envelope, body: Body) -> None:
    value = io.BytesIO(whole(envelope, body)[10:])
    read = fastavro.schemaless_reader(
        value, FAST_SCHEMA, None, return_record_name=True, return_record_name_override=True
    )
    expected = avro_record(envelope, body, named=True)
    assert json.dumps(read, default=repr, sort_keys=True) == json.dumps(
        expected, default=repr, sort_keys=True
    )
    assert value.read() == b""


@given(envelopes, bodies)
def test_apache_reads_what_is_written_here(envelope: Envelope, body: Body) -> None:
    value = io.BytesIO(whole(envelope, body)[10:])
    read = avro.io.DatumReader(APACHE_SCHEMA).read(avro.io.BinaryDecoder(value))
    assert read == avro_record(envelope, body, named=False)
    assert value.read() == b""


# Apache's writer takes the last branch of a union that fits: an integer becomes a double where
# both may stand, and of the bodies that look alike Update is written.
apache_cells = st.lists(
    st.builds(put_cell, names, st.one_of(st.booleans(), texts, blobs).map(E), versions)
    | st.builds(delete_cell, names, st.none() | versions),
    max_size=5,
)


@given(envelopes, st.builds(UpdateBody, keys, apache_cells, st.none() | apache_cells))
def test_an_update_by_apache_is_read_here(envelope: Envelope, body: UpdateBody) -> None:
    out = io.BytesIO()
    writer = avro.io.DatumWriter(APACHE_SCHEMA)
    writer.write(avro_record(envelope, body, named=False), avro.io.BinaryEncoder(out))
    assert decode_record(HEAD + out.getvalue()) == (envelope, body)


@given(st.binary(min_size=8, max_size=8).map(lambda bits: b"\x01" + bits))
def test_a_double_keeps_its_bits(double: bytes) -> None:
    put = PutBody([], [put_cell(b"d", double, AT)])
    assert decode_record(whole(ENVELOPE, put)) == (ENVELOPE, put)


@pytest.mark.parametrize("label", sorted(EVERY_BODY))
def test_a_record_has_these_bytes_for_ever(label: str) -> None:
    assert whole(ENVELOPE, EVERY_BODY[label]) == EVERY_GOLDEN[label]
    assert decode_record(EVERY_GOLDEN[label]) == (ENVELOPE, EVERY_BODY[label])


def test_only_a_record_with_original_columns_names_the_newest_schema() -> None:
    assert {value[:10] for value in GOLDEN.values()} == {b"\xc3\x01" + record.FINGERPRINT_V4}
    assert {value[:10] for value in KEPT_GOLDEN.values()} == {HEAD}


@pytest.mark.parametrize("others", [(), ("KeptDelete", "NoOp")])
def test_the_records_of_one_batch_have_these_bytes_too(others: tuple[str, ...]) -> None:
    of = table()
    shard = Shard("s1", of, Store(), ShardState(of.options), limits=Limits())
    shard.adopt_claim(ENVELOPE.claim, ENVELOPE.owner)
    for label, value in EVERY_GOLDEN.items():
        batch = [
            Evaluated(Outcome(b"", 0, 0), ENVELOPE.stamp, b"", encode_body(EVERY_BODY[one]))
            for one in (*others, label)
        ]
        made = shard.encode_records(batch, ENVELOPE.at - len(others))
        assert made[-1][1] == value, label


@pytest.mark.parametrize("label", sorted(GOLDEN))
def test_the_newest_schema_has_every_body(label: str) -> None:
    value = HEAD + GOLDEN[label][10:]
    assert decode_record(value) == (ENVELOPE, GOLDEN_BODIES[label])


@pytest.mark.parametrize("label", sorted(KEPT_GOLDEN))
def test_no_earlier_schema_has_original_columns(label: str) -> None:
    for fingerprint in (record.FINGERPRINT_V4, record.FINGERPRINT_V3, record.FINGERPRINT_V1):
        with pytest.raises(CorruptRecord, match="is unknown"):
            decode_record(b"\xc3\x01" + fingerprint + KEPT_GOLDEN[label][10:])


def test_the_page_shows_these_bytes() -> None:
    page = (ROOT / "docs/internals/formats/record.md").read_text(encoding="utf-8")
    lines = [line.strip("| ") for line in page.split("## Examples")[1].splitlines()]
    shown = dict(line.rstrip("`").split(" | `") for line in lines if line.endswith("`"))
    assert shown == {label: value.hex() for label, value in EVERY_GOLDEN.items()}


@pytest.mark.parametrize(
    ("label", "old"), [pair for version in (1, 2, 3) for pair in sorted(golden(version).items())]
)
def test_a_record_of_an_earlier_schema_is_read(label: str, old: bytes) -> None:
    assert decode_record(old) == (ENVELOPE, GOLDEN_BODIES[label])


@given(st.sampled_from(sorted(golden(1))), st.binary(min_size=1, max_size=4))
def test_a_record_of_the_first_schema_has_nothing_of_later_ones(label: str, more: bytes) -> None:
    with pytest.raises(CorruptRecord):
        decode_record(golden(1)[label] + more)


def test_a_body_serves_any_envelope() -> None:
    body = encode_body(GOLDEN_BODIES["Put"])
    moved = ENVELOPE._replace(at=9, claim=10)
    assert encode_record(ENVELOPE, body).endswith(body)
    assert decode_record(encode_record(moved, body)) == (moved, GOLDEN_BODIES["Put"])


def test_arrays_in_blocks_with_sizes_are_read() -> None:
    # Avro lets a writer cut an array and say each block's size: counts are then negative.
    cell = encode_body(PutBody([], CELLS[:1]))[3:-3]
    body = b"\x02\x00" + (b"\x01" + bytes((len(cell) << 1,)) + cell) * 2 + b"\x00\x00\x00"
    assert decode_record(encode_record(ENVELOPE, body))[1] == PutBody([], CELLS[:1] * 2)


ENVELOPE_BYTES = encode_record(ENVELOPE, b"")
KEPT_BYTES = HEAD + ENVELOPE_BYTES[10:]
CELL = b"\x02n"  # The beginning of a cell: its name.


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (b"", "it begins with , no schema known here"),
        (b"\xc3\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00", "it begins with c3010000"),
        (HEAD, "it breaks off"),
        (HEAD + b"\xff" * 10 + b"\x01", "a number of more than 64 bits"),
        (HEAD + b"\xff" * 9 + b"\x02", "a number of more than 64 bits"),
        (HEAD + b"\x00\x00ownerid8\x00\x08\x00", "group 4"),
        (ENVELOPE_BYTES, "it breaks off"),
        (ENVELOPE_BYTES + b"\x1a", "body 26 is unknown"),
        (KEPT_BYTES + b"\x20", "body 32 is unknown"),
        (KEPT_BYTES + b"\x1e\x00\x02\x00\x00\x00\x00", "a boolean of 2"),
        (KEPT_BYTES + b"\x1e\x00\x01\x00\x02\x02\xff\x00\x00\x00", "can't decode byte"),
        (KEPT_BYTES + b"\x1e\x00\x01\x00\x02\x01a\x00\x00\x00", "a negative length"),
        (KEPT_BYTES + b"\x1e\x00\x01\x00\x00\x00\x00\x00", "its body ends at byte"),
        (ENVELOPE_BYTES + b"\x18\x02a\x00\x00", "it breaks off"),
        (ENVELOPE_BYTES + b"\x12\x00\x04", "branch 4 before a place"),
        (ENVELOPE_BYTES + b"\x06\x00\x00\x02\x0e\x02", "a boolean of 2"),
        (ENVELOPE_BYTES + b"\x00\x00", "its body ends at byte"),
        (ENVELOPE_BYTES + b"\x02\x02\x06\x00", "branch 6 in a key"),
        (ENVELOPE_BYTES + b"\x02\x02\x02\x02\xff\x00\x00\x00", "can't decode byte"),
        (ENVELOPE_BYTES + b"\x02\x02\x02\x01a\x00\x00\x00", "a negative length"),
        (ENVELOPE_BYTES + b"\x02\x00\x02" + CELL + b"\x04\x00\x00\x00\x00\x00", "operation"),
        (ENVELOPE_BYTES + b"\x02\x00\x02" + CELL + b"\x00\x0c\x00\x00\x00\x00", "branch 12"),
        (ENVELOPE_BYTES + b"\x02\x00\x02" + CELL + b"\x00\x06\x02\x00\x00", "a boolean of 2"),
        (ENVELOPE_BYTES + b"\x02\x00\x02" + CELL + b"\x00\x00\x04\x00\x00", "before a version"),
        (ENVELOPE_BYTES + b"\x02\x00\x02\x01n\x00\x00\x00\x00\x00", "a negative length"),
        (ENVELOPE_BYTES + b"\x02\x00\x02\x02\xff\x00\x00\x00\x00\x00\x00", "can't decode byte"),
        (ENVELOPE_BYTES + b"\x02\x00\x00\x04", "branch 4 before cells"),
        (ENVELOPE_BYTES + b"\x08\x00\x00\x04", "branch 4 before a stream"),
        (ENVELOPE_BYTES + b"\x0c\x02\xff", "can't decode byte"),
    ],
)
def test_a_malformed_record_is_corrupt(value: bytes, why: str) -> None:
    with pytest.raises(CorruptRecord, match=r"^record of ") as corrupt:
        decode_record(value)
    assert why in str(corrupt.value)


@pytest.mark.parametrize("label", sorted(EVERY_GOLDEN))
def test_a_record_cut_anywhere_is_corrupt(label: str) -> None:
    for size in range(len(EVERY_GOLDEN[label])):
        with pytest.raises(CorruptRecord):
            decode_record(EVERY_GOLDEN[label][:size])


@pytest.mark.parametrize("label", sorted(EVERY_GOLDEN))
def test_a_claimed_size_costs_nothing(label: str) -> None:
    tracemalloc.start()
    try:
        for place in range(10, len(EVERY_GOLDEN[label])):
            value = (
                EVERY_GOLDEN[label][:place]
                + b"\xfe\xff\xff\xff\xff\x0f"
                + EVERY_GOLDEN[label][place:]
            )
            with contextlib.suppress(CorruptRecord):
                decode_record(value)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


@given(
    st.sampled_from(sorted(EVERY_GOLDEN)),
    st.lists(st.tuples(st.integers(10, 200), st.integers(0, 9), st.binary(max_size=9)), max_size=4),
)
def test_damage_is_read_or_is_corrupt(label: str, damage: list[tuple[int, int, bytes]]) -> None:
    value = bytearray(EVERY_GOLDEN[label])
    for start, size, instead in damage:
        value[start : start + size] = instead
    for decoder in (decode_record, decode_envelope):
        with contextlib.suppress(CorruptRecord):
            partial(decoder, bytes(value))()


def test_what_the_log_cannot_hold_is_an_error() -> None:
    with pytest.raises(ValueError, match="VT_DOUBLE in the key"):
        encode_body(PutBody([E(1.5)], []))
    with pytest.raises(ValueError, match="VT_INF_MIN in a cell"):
        encode_body(PutBody([], [put_cell(b"n", variant.V_INF_MIN, AT)]))
    with pytest.raises(ValueError, match="an owner of 2 bytes"):
        encode_record(ENVELOPE._replace(owner=b"me"), b"\x00")
