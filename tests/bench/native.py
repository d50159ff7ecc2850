"""Microseconds a row of the hot steps, in Python and native: ``python -m tests.bench.native``.

Both ways run in turns, one round of each after the other, so that a busy neighbour slows both. A
figure is the best of its rounds. The rows are those of the other benchmarks, two key columns and 12
cells; "varying" are rows whose texts have other lengths each, which no form fits.
"""

from __future__ import annotations

import time
import timeit
from collections.abc import Callable, Iterator
from itertools import cycle
from random import Random

import click

from rowtide.core import native
from rowtide.core.protocol import plainbuffer
from rowtide.core.protocol.authentication import Authenticator, Credential
from rowtide.core.protocol.wire import ots_pb2 as pb
from rowtide.core.records import record
from rowtide.core.records.record_wire import stream_row
from rowtide.core.rows import chunk
from rowtide.core.rows.mutation import PUT, UPDATE
from rowtide.core.rows.read import Selection, StoredRow
from rowtide.core.shard.shard import Shard
from rowtide.core.shard.shard_state import ShardState
from rowtide.core.values import variant
from rowtide.core.values.limits import Limits
from rowtide.core.values.schema import Table, TableOptions
from rowtide.core.values.version import Window
from rowtide.deploy.up import Ready
from rowtide.stream.api.range_page import PageMaker, PageSource, Scan
from rowtide.stream.api.row_requests import change_of, read_key, row_change
from rowtide.stream.http.answer import AnswerWriter
from rowtide.stream.http.learned_heads import LearnedHeads
from rowtide.stream.http.limits import HttpLimits
from rowtide.stream.http.request import BodyBudget, Request, RequestReader
from tests.bench.circumstances import circumstances, format_circumstances
from tests.bench.traffic import KEY, Requests, key_of, row_of

ROUNDS = 9
CALLS = 3000
ROWS = 512
VERSION_MS = 1_500_000_000_000
LIMITS = Limits()
TABLE = Table("i", "t", 1, KEY, TableOptions(), None, 0, 0, 1, 1, ())


class Rows:
    """A store that has no row, and forgets what is written."""

    def get(self, _key: bytes) -> None:
        """Return no chunk."""

    def get_many(self, keys: list[bytes]) -> list[bytes | None]:
        """Return no chunks."""
        return [None] * len(keys)

    def scan(self, start: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Return no chunks."""
        return iter(())

    def scan_backward(self, high: bytes, low: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Return no chunks."""
        return iter(())

    def floor(self, key: bytes, low: bytes) -> None:
        """Return no chunk."""


def main() -> None:
    """Print a Markdown table."""
    click.echo(format_circumstances(circumstances("native")))
    assert native.load_compiled() is not None, "there are no kernels to measure"
    click.echo("| step, us a row | Python | native | ratio |\n|---|---:|---:|---:|")
    for name, call in _calls().items():
        best = {True: 1.0, False: 1.0}
        for _ in range(ROUNDS):
            for pure in best:
                native.choose(pure=pure)
                best[pure] = min(best[pure], timeit.timeit(call, number=CALLS) / CALLS)
        python, kernels = best[True] * 1e6, best[False] * 1e6
        click.echo(f"| {name} | {python:.2f} | {kernels:.2f} | {kernels / python:.2f} |")


def _varying() -> list[bytes]:
    """Return rows whose texts have 8 to 32 bytes each."""
    chance = Random(1)
    rows = []
    for number in range(ROWS):
        cells = [
            plainbuffer.put_cell(b"text%d" % i, variant.encode("x" * chance.randrange(8, 32)), None)
            for i in range(10)
        ]
        cells += [plainbuffer.put_cell(b"total", variant.encode(number), None)]
        cells += [plainbuffer.put_cell(b"count", variant.encode(number), None)]
        key = plainbuffer.decode_row(key_of(number)).key
        rows.append(plainbuffer.HEADER + plainbuffer.encode_row(key, cells))
    return rows


def _evaluation(rows: list[bytes], kind: int) -> Callable[[], object]:
    """Return what decides rows in turn: from their bytes to the log's record."""
    shard = Shard("s1", TABLE, Rows(), ShardState(TABLE.options), limits=LIMITS)
    shard.adopt_claim(1, b"ownerid8")
    request = pb.PutRowRequest(table_name="t")
    request.condition.row_existence = pb.IGNORE
    following = cycle(rows)

    def decide() -> bytes:
        row = row_change(next(following), kind, LIMITS)
        change = change_of(row, kind, TABLE, request, LIMITS)
        evaluated = shard.evaluate(change, VERSION_MS * 1000)
        shard.settle_writes(evaluated.writes)
        return shard.encode_record(evaluated, 5)

    return decide


def _page(row: StoredRow) -> Callable[[], object]:
    """Return what makes a page of 100 rows that answer as they are stored."""
    scan = Scan(Selection(Window()), None, b"", b"r")
    rows = [row] * 100

    def make() -> object:
        sources = iter([PageSource(rows, Rows(), TABLE.options)])
        return PageMaker(scan, LIMITS, VERSION_MS).begin(sources)

    return make


def _edge() -> dict[str, Callable[[], object]]:
    """Return a connection's steps: a request of a known sender is read and judged, and answered."""
    ready = Ready("http://127.0.0.1:1", "i", "id", "secret")
    put = Requests(ready, "t").put(1)
    authenticator = Authenticator({"id": Credential("id", "secret")}.get, {"i"}.__contains__)
    heads = LearnedHeads(HttpLimits(), authenticator)
    reader = RequestReader(_judge(authenticator), HttpLimits(), BodyBudget(1 << 30), heads)
    writer, key = AnswerWriter(time.time), ("id", b"secret")
    body = bytes(8)

    def read() -> bytes:
        reader.feed(put)
        request = reader.complete.popleft()
        if request.known is not None:
            return request.body()
        return authenticator.check_body(request.headers, request.body(), body_bytes_max=1 << 20)

    def answer() -> object:
        return writer.answer(200, body, request_id=bytes(36), path=b"/PutRow", key=key)

    return {"a signed PutRow, authenticated": read, "an answer, signed": answer}


def _judge(authenticator: Authenticator) -> Callable[[Request], None]:
    def judge(request: Request) -> None:
        known = request.known
        if known is not None and known.sender.is_granted(authenticator, request.path):
            request.identity = known.sender.identity
        else:
            headers, now_s = request.headers, time.time()
            request.identity = authenticator.check_head(request.path, headers, now_s=now_s)

    return judge


def _calls() -> dict[str, Callable[[], object]]:
    alike, varying = [row_of(number) for number in range(ROWS)], _varying()
    row = plainbuffer.decode_row(varying[0])
    kept = [plainbuffer.stamp_cell(cell, VERSION_MS) for cell in row.cells]
    kept.sort(key=lambda cell: cell.name)
    piece = plainbuffer.cells_piece(kept)
    values = [value for _, value in row.key]
    key_piece, state = plainbuffer.key_piece(row.key)
    whole = chunk.Chunk(5, kept, key_piece=key_piece, key_state=state)
    envelope = record.Envelope(at=1, claim=2, owner=bytes(8), stamp=3, group=record.SINGLE)
    entry = record.encode_record(envelope, record.encode_body(record.PutBody(values, kept)))
    names = tuple(name for name, _ in row.key)
    wanted, following = key_of(7), cycle(varying)
    return {
        "a put, from its bytes to the record": _evaluation(alike, PUT),
        "a put, varying": _evaluation(varying, PUT),
        "an update of a new row, varying": _evaluation(varying, UPDATE),
        "the key of GetRow": lambda: read_key(wanted, TABLE, LIMITS),
        "a row decoded, varying": lambda: plainbuffer.decode_row(next(following)),
        "a row as stored": lambda: chunk.encode(whole),
        "stored cells parsed": lambda: plainbuffer.parse_cells(piece),
        "a record encoded": lambda: record.encode_body(record.PutBody(values, kept)),
        "a record decoded": lambda: record.decode_record(entry),
        "a record as the stream has it": lambda: stream_row(entry, 1, names),
        "100 rows of GetRange": _page(StoredRow(b"r", chunk.encode(whole))),
        **_edge(),
    }


if __name__ == "__main__":
    main()
