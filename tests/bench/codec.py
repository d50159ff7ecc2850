"""Microseconds per row of the codecs on the hot path: ``python -m tests.bench.codec``.

The row is that of the other benchmarks: two key columns and 12 cells. Each figure is the best of
several rounds: what the machine can do when nothing else runs.
"""

from __future__ import annotations

import timeit
from collections.abc import Callable

import click

from rowtide.core.protocol import plainbuffer, signature
from rowtide.core.protocol.wire import ots_pb2 as pb
from rowtide.core.records import record
from rowtide.core.values import key, variant
from rowtide.core.values.crc8 import crc8
from tests.bench.circumstances import circumstances, format_circumstances
from tests.bench.traffic import row_of

ROUNDS = 7
ROUND_S = 0.05
VERSION_MS = 1_500_000_000_000


def main() -> None:
    """Print a Markdown table."""
    click.echo(format_circumstances(circumstances("codec")))
    click.echo("| codec | us per row |\n|---|---:|")
    for name, call in _calls().items():
        click.echo(f"| {name} | {_best_us(call):.2f} |")


def _best_us(call: Callable[[], object]) -> float:
    timer = timeit.Timer(call)
    count = max(1, int(ROUND_S / max(1e-7, timer.timeit(10) / 10)))
    return min(timer.repeat(ROUNDS, count)) / count * 1e6


def _calls() -> dict[str, Callable[[], object]]:
    sent = row_of(1)
    row = plainbuffer.decode_row(sent)
    kept = plainbuffer.stamp_cells(row.cells, VERSION_MS)
    piece = plainbuffer.cells_piece(kept)
    values = [value for _, value in row.key]
    body = record.encode_body(record.PutBody(values, kept))
    envelope = record.Envelope(at=1, claim=2, owner=bytes(8), stamp=3, group=record.SINGLE)
    entry = record.encode_record(envelope, body)
    request = pb.PutRowRequest(table_name="t", row=sent).SerializeToString()
    text = bytes(300)
    return {
        "PlainBuffer, decode a put": lambda: plainbuffer.decode_row(sent),
        "PlainBuffer, give 12 cells a version": lambda: plainbuffer.stamp_cells(
            row.cells, VERSION_MS
        ),
        "PlainBuffer, encode an answer": lambda: plainbuffer.encode_row(row.key, kept),
        "PlainBuffer, cells as kept": lambda: plainbuffer.cells_piece(kept),
        "PlainBuffer, parse cells as kept": lambda: plainbuffer.parse_cells(piece),
        "12 values to Python": lambda: [variant.decode(cell.variant) for cell in kept],
        "key, encode": lambda: key.encode(values),
        "log record, encode": lambda: record.encode_record(
            envelope, record.encode_body(record.PutBody(values, kept))
        ),
        "log record, decode": lambda: record.decode_record(entry),
        "protobuf, parse PutRow": lambda: pb.PutRowRequest.FromString(request),
        "signature v2 over 300 bytes": lambda: signature.request_signature_v2(b"secret", text),
        f"MD5 of a body of {len(request)} bytes": lambda: signature.content_md5(request),
        f"CRC-8 over {len(sent)} bytes": lambda: crc8(sent),
    }


if __name__ == "__main__":
    main()
