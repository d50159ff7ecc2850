"""The schema of log records may change only so that old and new readers still agree.

Apache's library is the judge: it resolves a writer's schema against a reader's, and tells
which changes cannot be resolved.
"""

import copy
import importlib.resources
import io
import json
from typing import Any

import avro.io
import avro.schema
import fastavro.schema
import pytest
from avro.compatibility import ReaderWriterCompatibilityChecker, SchemaCompatibilityType

from rowtide.core.protocol.plainbuffer import put_cell
from rowtide.core.records import record
from rowtide.core.values import variant

SCHEMAS = importlib.resources.files("rowtide.core.records").joinpath("schemas")
V1, V2, V3, V4, V5 = (json.loads(SCHEMAS.joinpath(name).read_text()) for name in record.SCHEMAS)
ENVELOPE = record.Envelope(5, 6, b"ownerid8", 7, record.SINGLE)
PUT = record.PutBody([variant.encode("a")], [put_cell(b"n", variant.encode(1), 8)])


def body_of(schema: dict[str, Any], name: str) -> dict[str, Any]:
    """Return one body's schema, to be changed in place."""
    bodies: list[dict[str, Any]] = schema["fields"][-1]["type"]
    return next(body for body in bodies if body["name"] == name)


def add_default_fields() -> dict[str, Any]:
    """Return a later schema: a field more in the envelope, in a body and in a cell."""
    later: dict[str, Any] = copy.deepcopy(V5)
    # Not last: what stands behind an added field must be found again.
    later["fields"].insert(1, {"name": "trace", "type": ["null", "string"], "default": None})
    put = body_of(later, "Put")
    put["fields"].append({"name": "weight", "type": "int", "default": 1})
    cell = put["fields"][1]["type"]["items"]
    cell["fields"].insert(0, {"name": "source", "type": "string", "default": "client"})
    return later


def parse(schema: dict[str, Any]) -> avro.schema.Schema:
    """Return a schema of Apache's library."""
    return avro.schema.parse(json.dumps(schema))


def reads(reader: dict[str, Any], writer: dict[str, Any]) -> bool:
    """True if a reader with one schema can read what was written with the other."""
    found = ReaderWriterCompatibilityChecker().get_compatibility(parse(reader), parse(writer))
    return bool(found.compatibility is SchemaCompatibilityType.compatible)


def rabin(text: bytes) -> bytes:
    """Return CRC-64-AVRO as the specification defines it, little-endian."""
    empty = 0xC15D213AA4D7A795
    crc = empty
    for byte in text:
        step = (crc ^ byte) & 0xFF
        for _ in range(8):
            step = (step >> 1) ^ (empty & -(step & 1))
        crc = (crc >> 8) ^ step
    return crc.to_bytes(8, "little")


def test_every_schema_ever_used_is_kept() -> None:
    kept = sorted(file.name for file in SCHEMAS.iterdir() if file.name.startswith("record-"))
    assert kept == sorted(record.SCHEMAS)


@pytest.mark.parametrize(
    ("schema", "fingerprint", "digits"),
    [
        (V1, record.FINGERPRINT_V1, "00ebff1841f294a7"),
        (V2, record.FINGERPRINT_V2, "f794eea38f11e6ce"),
        (V3, record.FINGERPRINT_V3, "ba4f0f07d8403259"),
        (V4, record.FINGERPRINT_V4, "afab1687423e7f96"),
        (V5, record.FINGERPRINT, "022a8e459e9b91da"),
    ],
)
def test_a_fingerprint_never_changes(
    schema: dict[str, Any], fingerprint: bytes, digits: str
) -> None:
    canonical = fastavro.schema.to_parsing_canonical_form(schema)
    assert parse(schema).canonical_form == canonical
    assert fingerprint.hex() == digits
    assert rabin(canonical.encode()) == fingerprint
    assert fastavro.schema.fingerprint(canonical, "CRC-64-AVRO") == digits
    assert parse(schema).fingerprint("CRC-64-AVRO") == fingerprint


def test_each_schema_reads_those_before() -> None:
    schemas = V1, V2, V3, V4, V5
    for number, later in enumerate(schemas):
        assert all(reads(later, earlier) for earlier in schemas[:number])


def test_a_reader_of_the_first_schema_reads_mutations_of_the_newest() -> None:
    learned = record.IndexWrite(7, True, PUT.key, None)
    body = record.encode_body(record.PutBody(PUT.key, PUT.cells, None, [learned]))
    value = record.encode_record(ENVELOPE, body)[10:]
    old = avro.io.DatumReader(parse(V5), parse(V1)).read(avro.io.BinaryDecoder(io.BytesIO(value)))
    new = avro.io.DatumReader(parse(V5)).read(avro.io.BinaryDecoder(io.BytesIO(value)))
    del new["body"]["indexes"]
    assert old == new


def test_a_reader_of_today_reads_what_a_later_writer_adds() -> None:
    later = parse(add_default_fields())
    assert reads(V5, add_default_fields())
    fields = avro.io.DatumReader(parse(V5), parse(V5)).read(
        avro.io.BinaryDecoder(io.BytesIO(write_put()))
    )
    fields["trace"] = "t-1"
    fields["body"]["weight"] = 2
    fields["body"]["cells"][0]["source"] = "binlog"
    out = io.BytesIO()
    avro.io.DatumWriter(later).write(fields, avro.io.BinaryEncoder(out))
    out.seek(0)
    read = avro.io.DatumReader(later, parse(V5)).read(avro.io.BinaryDecoder(out))
    del fields["trace"], fields["body"]["weight"], fields["body"]["cells"][0]["source"]
    assert read == fields


def write_put() -> bytes:
    """Return a record as it is written today, without its head."""
    return record.encode_record(ENVELOPE, record.encode_body(PUT))[10:]


def test_a_later_reader_reads_what_is_written_today() -> None:
    assert reads(add_default_fields(), V5)
    read = avro.io.DatumReader(parse(V5), parse(add_default_fields())).read(
        avro.io.BinaryDecoder(io.BytesIO(write_put()))
    )
    assert (read["at"], read["trace"], read["group"]) == (5, None, 3)
    assert read["body"]["weight"] == 1
    assert read["body"]["cells"] == [
        {
            "source": "client",
            "name": "n",
            "op": 0,
            "value": 1,
            "version": 8,
            "check": bytes((PUT.cells[0].checksum,)),
        }
    ]


@pytest.mark.parametrize("change", ["type", "no default", "fixed size", "body gone"])
def test_a_change_that_breaks_readers_is_detected(change: str) -> None:
    later = copy.deepcopy(V5)
    if change == "type":
        later["fields"][0]["type"] = "string"
    elif change == "no default":
        later["fields"].append({"name": "trace", "type": "string"})
    elif change == "fixed size":
        later["fields"][2]["type"]["size"] = 16
    else:
        later["fields"][-1]["type"].remove(body_of(later, "Seal"))
    assert not reads(later, V5)


def test_records_of_an_unknown_schema_are_not_guessed_at() -> None:
    other = b"\xc3\x01" + rabin(
        fastavro.schema.to_parsing_canonical_form(add_default_fields()).encode()
    )
    with pytest.raises(record.CorruptRecord, match="no schema known here"):
        record.decode_record(other + write_put())
