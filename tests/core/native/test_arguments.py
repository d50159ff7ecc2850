"""Kernels refuse arguments that are no kernel's, and survive them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from rowtide.core.protocol import plainbuffer
from rowtide.core.protocol.signature import content_md5, request_signature_v2
from rowtide.core.protocol.wire import ots_pb2 as pb
from rowtide.core.records import record
from rowtide.core.rows import chunk
from rowtide.core.rows.mutation import Outcome
from rowtide.core.shard.evaluated import Evaluated
from rowtide.core.values import variant
from rowtide.core.values.cell import Cell
from tests.core.native.inputs import NAMES
from tests.core.native.ways import KERNELS, needs_kernels

pytestmark = needs_kernels

CELLS = [plainbuffer.put_cell(b"c", variant.encode("v"), None)]
STORED = [plainbuffer.put_cell(b"c", variant.encode("v"), 7)]
KEY = [(b"id", variant.encode("k")), (b"n", variant.encode(1))]
PIECE, STATE = plainbuffer.key_piece(KEY)
ROW = plainbuffer.HEADER + plainbuffer.encode_row(KEY, CELLS)
WIRE = plainbuffer.cells_piece(CELLS)
BODY = record.encode_body(record.PutBody([value for _, value in KEY], STORED))
KEPT_BODY = record.encode_body(
    record.PutBody([value for _, value in KEY], STORED, [], (), record.Kept(True, [b"c"], []))
)
CHUNK = chunk.Chunk(5, STORED, key_piece=PIECE, key_state=STATE)
BATCH = pb.BatchWriteRowRequest()
BATCH.tables.add(table_name="t").rows.add(type=pb.PUT, row_change=ROW)
FIELD = b"\x12" + bytes((len(ROW) + 4,)) + b"\x08\x01\x12" + bytes((len(ROW),)) + ROW
PUT = pb.PutRowRequest(table_name="t", row=ROW).SerializeToString()
GET = pb.GetRowRequest(
    table_name="t", primary_key=plainbuffer.HEADER + plainbuffer.encode_row(KEY, ()), max_versions=1
).SerializeToString()
COLUMNS = ((b"id", variant.STRING), (b"n", variant.INTEGER))
PLAIN = KERNELS.read_rows([FIELD], 1, COLUMNS, True, 100, 1000, 1000, 9) if KERNELS else []
RULES = (8, -1, 1, 1000, 2, Evaluated, Outcome)
"""What rows are evaluated with, beside their first chunks."""
EVALUATED = Evaluated(Outcome(b"", 0, 1), 9, b"key", BODY)
SECRET = b"secret"
SENT_S = 1_767_323_045
STATES = KERNELS.hmac_states(SECRET, False) if KERNELS else None
DATE = b"2026-01-02T03:04:05Z"
SIGNATURE = request_signature_v2(SECRET, b"/X\nPOST\n\nx-ots-date:" + DATE + b"\n")
HEAD_PARTS = (b"POST ", b" HTTP/1.1\r\nd: ", b"\r\nm: ", b"\r\ns: ", b"\r\nl: ", b"\r\n\r\n")
VALUES = (b"/X", DATE, content_md5(b"body"), SIGNATURE, b"4", b"body")


def steps(*parts: tuple[int, bytes]) -> bytes:
    """Return the steps of a form."""
    return b"".join(bytes((n, len(literal), 0)) + literal for n, literal in parts)


SIGNED = (
    b"".join(part for pair in zip(HEAD_PARTS, VALUES, strict=True) for part in pair),
    steps(*zip((1, 3, 4, 5, 6, 0), HEAD_PARTS, strict=True)),
    steps((0, b""), (1, b"\nPOST\n\nx-ots-date:"), (255, b"\n")),
)

CALLS: dict[str, Sequence[object]] = {
    "key_row": (plainbuffer.HEADER + plainbuffer.encode_row(KEY, ()),),
    "read_key_columns": (PIECE, 1, len(PIECE)),
    "read_cells": (WIRE, 0, len(WIRE), STATE, 9, Cell),
    "parse_cells": (plainbuffer.cells_piece(STORED), Cell),
    "cells_piece": (STORED,),
    "read_plain": (ROW, 1000, 1000),
    "row_keys": (1, PIECE),
    "stored_write": (True, PIECE, STATE, WIRE, 1, 7, 8, None, 1, 1000),
    "stored_chunk": (STORED, 8, False, b"", PIECE, STATE, 0),
    "logged_cells": (STORED,),
    "read_envelope": (record.encode_record(record.Envelope(5, 3, b"12345678", 9, 3), BODY),),
    "read_change": (BODY, 0, True, Cell),
    "stream_row": (BODY, 0, True, 5, NAMES),
    "row_values": ([(b"head" + KEPT_BODY, 4)], b"head", ((b"id", 0), (b"c", -1))),
    "row_fields": (BATCH.SerializeToString(),),
    "read_rows": ([FIELD], 1, COLUMNS, True, 100, 1000, 1000, 9),
    "read_write": (PUT, 3, 1, 1, COLUMNS, True, 100, 1000, 1000, 9),
    "stored_writes": (PLAIN, [None], *RULES),
    "keep_columns": (BODY, chunk.encode(CHUNK), (b"c", b"d"), 0),
    "write_record": (b"head", 5, 3, b"12345678", 9, 3, BODY),
    "write_records": (b"head", 5, 3, b"12345678", [EVALUATED]),
    "record_batch": ([(b"key", b"value"), (b"key", None, [])], 0, 5, -1, -1, -1, 1000),
    "content_md5": (b"body",),
    "hmac_states": (b"key", True),
    "hmac_text": (bytes(40), b"text"),
    "read_signed": (*SIGNED, STATES, SENT_S, 1000, 1000),
    "write_answer": (b"HTTP/1.1 200", b"body", b"date", b"id", b"/X", b"signer:", STATES),
    "read_get": (GET, 3, 1, COLUMNS, 100),
    "whole_answer": (chunk.encode(CHUNK), 0, 1, 10),
    "whole_rows": ([(b"r", chunk.encode(CHUNK))], 0, 0, 1, 1000, 9),
}
ODD: Sequence[object] = (
    None,
    "text",
    -1,
    2**70,
    1.5,
    b"",
    b"\x01",
    [],
    [None],
    [(1, 2, 3, 4, 5)],
    (),
    int,
    type,
)


def kernel(name: str) -> Callable[..., object]:
    found: Callable[..., object] = getattr(KERNELS, name)
    return found


@pytest.mark.parametrize("name", CALLS)
def test_a_kernel_answers_what_is_usual(name: str) -> None:
    assert kernel(name)(*CALLS[name]) is not None


@pytest.mark.parametrize("odd", ODD, ids=repr)
@pytest.mark.parametrize("name", CALLS)
def test_an_argument_of_another_kind_is_refused_or_unusual(name: str, odd: object) -> None:
    for place in range(len(CALLS[name])):
        arguments = [*CALLS[name][:place], odd, *CALLS[name][place + 1 :]]
        try:
            kernel(name)(*arguments)
        except (TypeError, OverflowError):
            continue


@pytest.mark.parametrize("name", CALLS)
def test_another_number_of_arguments_is_refused(name: str) -> None:
    for arguments in ((), (*CALLS[name], 1)):
        with pytest.raises(TypeError):
            kernel(name)(*arguments)


@pytest.mark.parametrize("name", CALLS)
def test_bytes_that_end_early_are_read_no_further(name: str) -> None:
    for place, whole in enumerate(CALLS[name]):
        if not isinstance(whole, bytes):
            continue
        for size in range(len(whole)):
            arguments = [*CALLS[name][:place], whole[:size], *CALLS[name][place + 1 :]]
            kernel(name)(*arguments)


def test_a_field_that_ends_early_is_no_row() -> None:
    for size in range(len(FIELD)):
        assert KERNELS.read_rows([FIELD[:size]], 1, COLUMNS, True, 100, 1000, 1000, 9) == [None]


@pytest.mark.parametrize("odd", ODD, ids=repr)
def test_a_row_that_no_kernel_read_is_unusual(odd: object) -> None:
    assert PLAIN is not None
    (row,) = PLAIN
    assert row is not None
    for place in range(len(row)):
        given: list[Any] = [(*row[:place], odd, *row[place + 1 :])]
        made = KERNELS.stored_writes(given, [None], *RULES)
        assert made is not None
        assert len(made) == 1
    damaged: list[Any] = [odd]
    assert KERNELS.stored_writes(damaged, [None], *RULES) == [None]


@pytest.mark.parametrize("odd", ODD, ids=repr)
def test_a_change_that_was_not_evaluated_is_unusual(odd: object) -> None:
    for place in range(len(EVALUATED)):
        change = (*EVALUATED[:place], odd, *EVALUATED[place + 1 :])
        made = KERNELS.write_records(b"head", 5, 3, b"12345678", [EVALUATED, change])
        assert made is None or len(made) == 2
    assert KERNELS.write_records(b"head", 5, 3, b"12345678", [EVALUATED, odd]) is None


def test_a_batch_above_the_limit_is_unusual() -> None:
    arguments = CALLS["record_batch"][:-1]
    batch = kernel("record_batch")(*arguments, 1000)
    assert isinstance(batch, bytes)
    size = len(batch)
    assert kernel("record_batch")(*arguments, size) is not None
    assert kernel("record_batch")(*arguments, size - 1) is None


class Pair(tuple[int, ...]):
    """A tuple of another length than a cell's."""

    def __new__(cls) -> Pair:
        return tuple.__new__(cls, (1, 2))


def test_cells_are_of_the_class_that_is_given() -> None:
    found = KERNELS.parse_cells(plainbuffer.cells_piece(STORED), Cell)
    assert found == STORED
    assert type(found[0]) is Cell
    assert KERNELS.cells_piece([Pair()]) is None


@pytest.mark.parametrize("name", CALLS)
def test_a_kernel_keeps_nothing(name: str) -> None:
    call, usual = kernel(name), CALLS[name]
    unusual = [b"\x01" * 40 if isinstance(given, bytes) else given for given in usual]

    def blocks(calls: int) -> int:
        before = sys.getallocatedblocks()
        for _ in range(calls):
            call(*usual)
            call(*unusual)
        return sys.getallocatedblocks() - before

    blocks(10)
    assert blocks(1000) < 100
