"""Each kernel against Python: it returns what Python returns, or None.

A function here draws what one kernel is given, fails where the two ways differ, and returns whether
the kernel did answer: a kernel that always says None agrees with everything.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from rowtide.core.native import PlainRow
from rowtide.core.protocol import plainbuffer
from rowtide.core.protocol.plainbuffer import HEADER, KeyColumns, RowChange
from rowtide.core.protocol.row_form import FORMS
from rowtide.core.protocol.wire import ots_pb2 as pb
from rowtide.core.records import record
from rowtide.core.records.avro import write_cells
from rowtide.core.records.record_wire import stream_row
from rowtide.core.rows import chunk, fold
from rowtide.core.rows.chunk import table_prefix
from rowtide.core.rows.fold import RowAddress
from rowtide.core.rows.mutation import PUT, UPDATE, ChangeRequest, Outcome
from rowtide.core.rows.read import Selection
from rowtide.core.shard.plain_batch import PlainBatch, read_rows
from rowtide.core.shard.plain_write import decode_plain
from rowtide.core.shard.shard import Shard
from rowtide.core.shard.shard_state import ShardState
from rowtide.core.values.cell import Cell
from rowtide.core.values.limits import Limits
from rowtide.core.values.schema import (
    INTEGER,
    STRING,
    KeyColumn,
    StreamSettings,
    Table,
    TableOptions,
)
from rowtide.core.values.version import Window
from rowtide.stream.api.batch_parts import row_fields
from rowtide.stream.api.index_requests import check_write
from rowtide.stream.api.range_page import PageMaker, PageSource, Scan
from rowtide.stream.api.range_scan import Forward
from rowtide.stream.api.row_requests import change_of, kind_of, row_change
from tests.core.chunk_dictionary import TABLE_ID, ChunkDictionary, address, put
from tests.core.native.inputs import NAMES, OFFSET, STAMP, VERSION_MS, Inputs
from tests.core.native.ways import KERNELS, outcome, python
from tests.core.shard_model import NOW_US, Store

__all__ = ["AGREEMENTS"]

PADDING = bytes(20)
LIMITS = Limits()
EXPECTATIONS = (pb.IGNORE, pb.IGNORE, pb.IGNORE, pb.EXPECT_EXIST, pb.EXPECT_NOT_EXIST)
KINDS = (pb.PUT, pb.PUT, pb.PUT, pb.UPDATE, pb.UPDATE, pb.DELETE)
KEY = (KeyColumn("id", STRING), KeyColumn("n", INTEGER))


def key_rows(inputs: Inputs) -> bool:
    """Compare a key alone."""
    sent = HEADER + plainbuffer.encode_row(inputs.key(), ())
    buffer = inputs.maybe_damage(sent + bytes(inputs.chance.choice((0, 0, 3))))
    found = KERNELS.key_row(buffer)
    if found is None:
        return False
    row = python(lambda: plainbuffer.decode_row(buffer))
    assert isinstance(row.key, KeyColumns)
    assert found == (list(row.key), row.key.piece, row.key.state)
    assert (list(row.cells), row.deleted, row.sequence) == ([], False, None)
    return True


def compare_key_columns(inputs: Inputs) -> bool:
    """Compare the key of a row that has cells, too."""
    buffer = inputs.maybe_damage(inputs.row())
    found = KERNELS.read_key_columns(buffer + PADDING, len(HEADER) + 1, len(buffer))
    if found is None:
        return False
    columns, piece, state, end = found
    read, read_end, read_state = python(
        lambda: plainbuffer._read_key(buffer + PADDING, len(HEADER) + 1)
    )
    assert (columns, piece, state, end) == ([*read], read.piece, read_state, read_end)
    return True


def rows(inputs: Inputs) -> bool:
    """Compare whole rows, refusals included, and what the kernel says of their cells."""
    buffer = inputs.maybe_damage(inputs.row())

    def whole() -> object:
        row = plainbuffer.decode_row(buffer, cells_max=inputs_max)
        key = row.key
        return row, (key.piece, key.state) if isinstance(key, KeyColumns) else None

    inputs_max = inputs.chance.choice((3, 16384))
    FORMS.forget()
    expected = python(lambda: outcome(whole))
    FORMS.forget()
    assert outcome(whole) == expected
    if not isinstance(expected, tuple) or not expected[0].cells:
        return False
    row: RowChange = expected[0]
    piece, state = plainbuffer.key_piece(row.key) if row.key else (b"", 0)
    at = len(HEADER) + len(piece) + 1
    found = KERNELS.read_cells(buffer + PADDING, at, len(buffer), state, inputs_max, Cell)
    if found is None:
        return False
    assert found[0] == list(row.cells)
    assert {type(cell) for cell in found[0]} == {Cell}
    return True


def compare_stored_pieces(inputs: Inputs) -> bool:
    """Compare cells read from what is stored."""
    cells = inputs.row_cells() if inputs.chance.randrange(3) else inputs.cells()
    piece = inputs.maybe_damage(python(lambda: plainbuffer.cells_piece(cells)))
    found = KERNELS.parse_cells(piece, Cell)
    if found is None:
        return False
    assert found == python(lambda: plainbuffer.parse_cells(piece))
    return True


def pieces(inputs: Inputs) -> bool:
    """Compare the bytes of cells, as they are kept."""
    cells = inputs.row_cells() if inputs.chance.randrange(3) else inputs.cells()
    found = KERNELS.cells_piece(cells)
    assert found is None or found == python(lambda: plainbuffer.cells_piece(cells))
    return found is not None


def chunks(inputs: Inputs) -> bool:
    """Compare whole chunks, of rows and of pieces of rows."""
    chance = inputs.chance
    piece, state = plainbuffer.key_piece(inputs.key()) if chance.randrange(3) else (b"", 0)
    whole = chunk.Chunk(
        chance.choice((5, NOW_US)),
        inputs.row_cells() if chance.randrange(3) else [],
        end=chance.choice((b"", b"border")),
        deleted=chance.randrange(5) == 0,
        key_piece=piece,
        key_state=state,
        begin=chance.choice((b"", b"begin")),
    )
    made = chunk.encode(whole)
    assert made == python(lambda: chunk.encode(whole))
    return True


def compare_logged_cells(inputs: Inputs) -> bool:
    """Compare the bytes of cells, as the log has them."""
    cells = inputs.row_cells() if inputs.chance.randrange(3) else inputs.cells()
    found = KERNELS.logged_cells(cells)
    assert found is None or found == python(lambda: write_cells(cells))
    return found is not None


def changes(inputs: Inputs) -> bool:
    """Compare the bodies of records."""
    value = inputs.maybe_damage(inputs.log_record())

    def read() -> object:
        return record.decode_record(value)

    expected = python(lambda: outcome(read))
    assert outcome(read) == expected
    if not isinstance(expected, tuple) or not isinstance(
        expected[1], record.PutBody | record.UpdateBody | record.DeleteBody
    ):
        return False
    _, at = record.read_envelope(value)
    return KERNELS.read_change(value, at, record.has_indexes(value), Cell) is not None


def envelopes(inputs: Inputs) -> bool:
    """Compare the envelopes of records."""
    value = inputs.maybe_damage(inputs.log_record())

    def read() -> object:
        return record.read_envelope(value)

    expected = python(lambda: outcome(read))
    assert outcome(read) == expected
    return isinstance(expected, tuple) and KERNELS.read_envelope(value) is not None


def pages(inputs: Inputs) -> bool:
    """Compare pages of rows: some are deleted or wide, some have versions that nobody may see."""
    chance = inputs.chance
    store = ChunkDictionary()
    for number in range(chance.randrange(12)):
        _store_row(inputs, store, address(f"{number:03}"))
    ttl_s = chance.choice((-1, 86400))
    options = TableOptions(time_to_live_s=ttl_s, max_versions=chance.choice((1, 2)))
    selection = Selection(Window(max_versions=chance.choice((1, 5))))
    limits = Limits(
        range_rows_max=chance.choice((1, 5, 5000)), range_bytes_max=chance.choice((9, 900, 9**9))
    )
    low, middle, high = table_prefix(TABLE_ID), address("005").row_key, table_prefix(TABLE_ID + 1)
    scan = Scan(selection, chance.choice((None, None, 1, 3)), b"", low)

    def page() -> object:
        halves = [Forward(store, low, middle), Forward(store, middle, high)]
        sources = [PageSource(half.rows_from(half.low), store, options, half) for half in halves]
        return PageMaker(scan, limits, VERSION_MS).begin(iter(sources))

    expected = python(page)
    assert page() == expected
    found = KERNELS.whole_rows([*store.scan(low, high)], 0, 0, 1, 9**9, 9**9)
    return bool(found and found[0])


def _store_row(inputs: Inputs, store: ChunkDictionary, at: RowAddress) -> None:
    chance = inputs.chance
    kind = chance.randrange(12)
    if kind == 0:
        store.write(python(lambda: fold.delete_row(store, at, 5)))
        return
    cells = [] if kind == 1 else inputs.row_cells()
    if kind == 2:
        size = 20_000
        cells = [put(name, VERSION_MS, name * size) for name in "abcdef"]
    elif kind > 6:
        cells = [cell._replace(version_ms=VERSION_MS) for cell in cells[:1]]
    store.write(python(lambda: fold.put_row(store, at, cells, 5, 9)))


def stream_rows(inputs: Inputs) -> bool:
    """Compare records as a stream has them."""
    value = inputs.maybe_damage(inputs.log_record())

    def read() -> object:
        try:
            return stream_row(value, OFFSET, NAMES)
        except ValueError:  # Not as many columns as the key has.
            return "other columns"

    expected = python(lambda: outcome(read))
    assert outcome(read) == expected
    if not isinstance(expected, tuple):
        return False
    _, at = record.read_envelope(value)
    return KERNELS.stream_row(value, at, record.has_indexes(value), 1, NAMES) is not None


def writes(inputs: Inputs) -> bool:
    """Compare what a few writes of the same rows become: refusal, answer, record, chunks."""
    chance = inputs.chance
    options = TableOptions(max_versions=chance.choice((1, 1, 2, 5)))
    table = Table("i", "t", 1, KEY, options, None, 0, 0, 1, 1, ())
    shards = [_shard(table), _shard(table)]
    plain = 0
    for step in range(chance.randrange(1, 6)):
        request = pb.PutRowRequest(table_name="t")
        request.condition.row_existence = chance.choice(EXPECTATIONS)
        kind, buffer = chance.choice((PUT, UPDATE)), inputs.maybe_damage(inputs.row())
        now_us = NOW_US + chance.choice((step, step * 1_000_000, -(10**9)))
        ways = [_make_write(shard, kind, buffer, request, now_us) for shard in shards]
        expected = python(partial(outcome, ways[0]))
        assert outcome(ways[1]) == expected
        plain += not isinstance(expected, str) and decode_plain(buffer, LIMITS) is not None
    return plain > 0


def _shard(table: Table) -> Shard:
    state = ShardState(table.options, stream=table.stream)
    return Shard("s1", table, Store(), state, limits=LIMITS)


def _make_write(
    shard: Shard, kind: int, buffer: bytes, request: pb.PutRowRequest, now_us: int
) -> Callable[[], object]:
    def write() -> object:
        row = row_change(buffer, kind, LIMITS)
        evaluated = shard.evaluate(change_of(row, kind, shard.table, request, LIMITS), now_us)
        answer = evaluated.outcome, evaluated.stamp, evaluated.log_key, evaluated.body
        return answer, evaluated.writes

    return write


def fields(inputs: Inputs) -> bool:
    """Compare the fields of messages."""
    message = inputs.maybe_damage(_batch(inputs).SerializeToString())

    def read() -> object:
        return row_fields(message)

    expected = python(read)
    assert read() == expected
    return KERNELS.row_fields(message) is not None


def _batch(inputs: Inputs) -> pb.BatchWriteRowRequest:
    chance, batch = inputs.chance, pb.BatchWriteRowRequest()
    for name in chance.sample(("t", "u"), chance.choice((1, 1, 2, 0))):
        part = batch.tables.add(table_name=name)
        for _ in range(chance.randrange(5)):
            item = part.rows.add(type=chance.choice(KINDS), row_change=inputs.row())
            if chance.randrange(3):
                item.condition.row_existence = chance.choice(EXPECTATIONS)
            if chance.randrange(20) == 0:
                item.return_content.return_type = pb.RT_PK
    if chance.randrange(20) == 0:
        batch.transaction_id = "x" * chance.choice((1, 200))
    return batch


def batches(inputs: Inputs) -> bool:
    """Compare what batches of the same rows become, and hold each row to what Python reads."""
    chance = inputs.chance
    updates = chance.randrange(4) > 0
    options = TableOptions(max_versions=chance.choice((1, 1, 2, 5)), allow_update=updates)
    columns = chance.choice(((), (), ("a", "c", "z")))
    stream = StreamSettings("t_1", 1, 24, columns)
    table = Table("i", "t", 1, KEY, options, stream, 0, 0, 1, 1, ())
    shards = [_shard(table), _shard(table)]
    written = 0
    for step in range(chance.randrange(1, 4)):
        found = row_fields(_batch(inputs).SerializeToString()) or [[]]
        came = [inputs.maybe_damage(one) for its in found for one in its]
        kept = [(row, one) for row, one in _plain_rows(came, table) if row is not None]
        if not kept:
            continue
        now_us = NOW_US + chance.choice((step, -(10**9)))
        changes = [python(partial(_change, one, table)) for _, one in kept]
        ways = [_make_evaluation(shard, kept, changes, now_us) for shard in shards]
        assert ways[1]() == python(ways[0])
        written += 1
    return written > 0


def _plain_rows(came: list[bytes], table: Table) -> list[tuple[PlainRow | None, bytes]]:
    rows = read_rows(came, table, LIMITS)
    assert rows is not None, "there are kernels"
    return [*zip(rows, came, strict=True)]


def _change(came: bytes, table: Table) -> ChangeRequest:
    """Return a row's change by Python, which must find it in order, too."""
    message = pb.TableInBatchWriteRowRequest.FromString(came)
    assert message.SerializeToString() == came
    kind = kind_of(message.rows[0])
    row = row_change(message.rows[0].row_change, kind, LIMITS)
    change = change_of(row, kind, table, message.rows[0], LIMITS)
    check_write(table, kind)
    return change


def _make_evaluation(
    shard: Shard, kept: list[tuple[PlainRow, bytes]], changes: list[ChangeRequest], now_us: int
) -> Callable[[], object]:
    def evaluate() -> object:
        batch = PlainBatch([row for row, _ in kept], changes.__getitem__)
        group = batch.evaluate(shard, now_us)
        answer = [one if isinstance(one, Outcome) else str(one) for one in batch.outcomes]
        return answer, [(one.stamp, one.log_key, one.body, one.writes) for one in group]

    return evaluate


def records(inputs: Inputs) -> bool:
    """Compare whole records, by their envelopes."""
    chance = inputs.chance
    numbers = (0, 1, 63, 64, 8192, 2**31, STAMP, 2**62, -1)
    envelope = record.Envelope(
        chance.choice(numbers),
        chance.choice(numbers),
        chance.choice((b"12345678", b"12345678", b"12345678", b"short")),
        chance.choice(numbers),
        chance.randrange(4),
    )
    body = chance.choice((b"", b"body", b"x" * 5000))

    def write() -> object:
        try:
            return record.encode_record(envelope, body)
        except ValueError as error:
            return str(error)

    expected = python(write)
    assert write() == expected
    return isinstance(expected, bytes)


AGREEMENTS: dict[str, Callable[[Inputs], bool]] = {
    "key_row": key_rows,
    "read_key_columns": compare_key_columns,
    "read_cells": rows,
    "parse_cells": compare_stored_pieces,
    "cells_piece": pieces,
    "stored_chunk": chunks,
    "logged_cells": compare_logged_cells,
    "read_envelope": envelopes,
    "read_change": changes,
    "stream_row": stream_rows,
    "read_plain, row_keys, stored_write": writes,
    "whole_rows": pages,
    "row_fields": fields,
    "read_rows, stored_writes": batches,
    "write_record": records,
}
