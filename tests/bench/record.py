"""The log's record codec against the general Avro libraries: ``python -m tests.bench.record``.

All sides start from the same row, two key columns and 12 cells, as this store holds it, and end
with it: what a general library needs or gives instead (a dictionary per cell) is part of its work.
They take turns, so that a busy machine slows all alike; each figure is the best turn.
"""

from __future__ import annotations

import importlib.resources
import io
import json
import timeit
from collections.abc import Callable
from typing import Any

import avro.io
import avro.schema
import click
import fastavro

from rowtide.core.protocol import plainbuffer
from rowtide.core.records import record
from rowtide.core.values import variant
from rowtide.core.values.cell import Cell
from tests.bench.circumstances import circumstances, format_circumstances
from tests.bench.traffic import row_of

TURNS = 60
CALLS = 200
ENVELOPE = record.Envelope(123456, 77, b"ownerid8", 1790000000123456, record.SINGLE)
SCHEMA = (
    importlib.resources.files("rowtide.core.records")
    .joinpath("schemas/record-v1.avsc")
    .read_text("utf-8")
)
FAST = fastavro.parse_schema(json.loads(SCHEMA))
APACHE = avro.schema.parse(SCHEMA)
APACHE_WRITER = avro.io.DatumWriter(APACHE)
APACHE_READER = avro.io.DatumReader(APACHE)


def main() -> None:
    """Print a Markdown table."""
    click.echo(format_circumstances(circumstances("record")))
    click.echo("| codec | encode, us | decode, us |\n|---|---:|---:|")
    sides = _sides()
    best = dict.fromkeys([(name, way) for name, ways in sides.items() for way in (0, 1)], 1e9)
    for _ in range(TURNS):
        for name, way in best:
            calls = CALLS if name != "avro" else CALLS // 10
            best[name, way] = min(
                best[name, way], timeit.timeit(sides[name][way], number=calls) / calls
            )
    for name in sides:
        click.echo(f"| {name} | {best[name, 0] * 1e6:.1f} | {best[name, 1] * 1e6:.1f} |")


def _sides() -> dict[str, tuple[Callable[[], object], Callable[[], object]]]:
    row = plainbuffer.decode_row(row_of(1))
    put = record.PutBody(
        [value for _, value in row.key], plainbuffer.stamp_cells(row.cells, 1 << 40)
    )
    body = record.encode_body(put)
    value = record.encode_record(ENVELOPE, body)
    assert _fast_encode(put) == value[10:]
    assert _fast_decode(value) == put
    return {
        "this one, whole record": (
            lambda: record.encode_record(ENVELOPE, record.encode_body(put)),
            lambda: record.decode_record(value),
        ),
        "this one, envelope": (
            lambda: record.encode_record(ENVELOPE, body),
            lambda: record.decode_envelope(value),
        ),
        "fastavro": (lambda: _fast_encode(put), lambda: _fast_decode(value)),
        "avro": (lambda: _apache_encode(put), lambda: _apache_decode(value)),
    }


def _fields(put: record.PutBody) -> dict[str, Any]:
    cells = [
        {
            "name": name.decode(),
            "op": op,
            "value": variant.decode(value),
            "version": version,
            "check": bytes((check,)),
        }
        for name, op, value, version, check in put.cells
    ]
    return {"key": [variant.decode(column) for column in put.key], "cells": cells, "before": None}


def _put(fields: dict[str, Any]) -> record.PutBody:
    cells = [
        Cell(
            cell["name"].encode(),
            cell["op"],
            variant.encode(cell["value"]),
            cell["version"],
            cell["check"][0],
        )
        for cell in fields["cells"]
    ]
    return record.PutBody([variant.encode(column) for column in fields["key"]], cells, None)


def _fast_encode(put: record.PutBody) -> bytes:
    out = io.BytesIO()
    whole = {**ENVELOPE._asdict(), "body": ("rowtide.log.Put", _fields(put))}
    fastavro.schemaless_writer(out, FAST, whole)
    return out.getvalue()


def _fast_decode(value: bytes) -> record.PutBody:
    return _put(fastavro.schemaless_reader(io.BytesIO(value[10:]), FAST, None)["body"])


def _apache_encode(put: record.PutBody) -> bytes:
    out = io.BytesIO()
    whole = {**ENVELOPE._asdict(), "body": _fields(put)}
    APACHE_WRITER.write(whole, avro.io.BinaryEncoder(out))
    return out.getvalue()


def _apache_decode(value: bytes) -> record.PutBody:
    return _put(APACHE_READER.read(avro.io.BinaryDecoder(io.BytesIO(value[10:])))["body"])


if __name__ == "__main__":
    main()
