"""A put, an update with an increment and a column's delete, and a row's delete, byte by byte."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from rowtide.core import native
from rowtide.core.protocol.plainbuffer import (
    HEADER,
    delete_cell,
    encode_row,
    increment_cell,
    put_cell,
)
from rowtide.core.protocol.wire import ots_pb2 as pb
from rowtide.core.rows.mutation import DELETE, PUT, UPDATE, ChangeRequest
from rowtide.core.shard.evaluated import Evaluated
from rowtide.core.shard.plain_batch import PlainWrite, evaluate_together, read_write
from rowtide.core.shard.shard import Shard
from rowtide.core.shard.shard_state import ShardState
from rowtide.core.values import variant
from rowtide.core.values.cell import Cell
from rowtide.core.values.limits import Limits
from rowtide.core.values.schema import STRING, KeyColumn, Table, TableOptions
from tests.core.native.ways import KERNELS, needs_kernels
from tests.core.shard_model import NOW_US, Store

TABLE = Table("i", "t", 1, (KeyColumn("pk", STRING),), TableOptions(), None, 0, 0, 1, 1, ())
KEY = [(b"pk", variant.encode("a"))]
CHUNK_KEY = "720000000104610001"
BEHIND_NAME = 3

STEPS: Sequence[tuple[int, Sequence[Cell], str, str]] = (
    (
        PUT,
        (
            put_cell(b"n", variant.encode(5), None),
            put_cell(b"old", variant.encode("x"), None),
        ),
        "02020202610004026e00020a0280a0abfef962d1066f6c64000802780280a0abfef96225000000",
        "01000000160000401e18240a06000068e5cf8b010000010000000d00000000000103040200"
        "0000706b05060000000301000000610ad4020304010000006e050900000000050000000000"
        "0000070068e5cf8b0100000ad10304030000006f6c640506000000030100000078070068e5"
        "cf8b0100000a25093e",
    ),
    (
        UPDATE,
        (
            increment_cell(b"n", variant.encode(-7)),
            delete_cell(b"old", None),
            put_cell(b"z", variant.encode(True), None),
        ),
        "04020202610006026e0002030282a0abfef962e7066f6c640200001e027a0006010282a0abfef9622a000000",
        "010000001600e8431e18240a06000168e5cf8b010000010000000b00000000000103040200"
        "0000706b05060000000301000000610ad4020304010000006e050900000000feffffffffff"
        "ffff070168e5cf8b0100000ae70304010000007a05020000000201070168e5cf8b0100000a"
        "2a0961",
    ),
    (
        DELETE,
        (),
        "0602020261000000",
        "010100001600d0471e18240a0600ffffffffffffff7f000000000000000000000103040200"
        "0000706b05060000000301000000610ad409ee",
    ),
)


def new_shard() -> Shard:
    return Shard("s1", TABLE, Store(), ShardState(TABLE.options), limits=Limits())


def check_step(found: Evaluated, body: str, stored: str) -> None:
    assert found.body is not None
    assert found.body.hex() == body
    assert [(key.hex(), (value or b"").hex()) for key, value in found.writes] == [
        (CHUNK_KEY, stored)
    ]


def test_a_shard_writes_these_bytes() -> None:
    shard = new_shard()
    for step, (kind, cells, body, stored) in enumerate(STEPS):
        change = ChangeRequest(kind, KEY, cells)
        check_step(shard.evaluate(change, NOW_US + 1000 * step), body, stored)


@needs_kernels
def test_kernels_write_these_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "kernels", KERNELS)
    shard = new_shard()
    for step, (kind, cells, body, stored) in enumerate(STEPS):
        row = HEADER + encode_row(KEY, cells)
        # All three messages have the row as their second field.
        message = pb.PutRowRequest(table_name="t", row=row).SerializeToString()
        read = read_write(message, BEHIND_NAME, kind, TABLE, Limits())
        assert read is not None, "the row is plain"
        write = PlainWrite(read, lambda: pytest.fail("a kernel decides"))
        (found,) = evaluate_together(shard, [write], NOW_US + 1000 * step)
        assert isinstance(found, Evaluated)
        check_step(found, body, stored)
