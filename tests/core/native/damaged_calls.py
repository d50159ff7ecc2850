"""Calls of each kernel with arguments that no caller would give, damaged ones most often.

The functions of ``agreement.py`` reach a kernel through the Python function that calls it, which
keeps much of what is odd away. Here nothing stands before the kernel. It must return None or a
result, the same each time, or refuse the arguments. AddressSanitizer sees what it reads.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rowtide.core.protocol import plainbuffer
from rowtide.core.protocol.plainbuffer import HEADER
from rowtide.core.records import record
from rowtide.core.rows import chunk
from rowtide.core.rows.mutation import Outcome
from rowtide.core.shard.evaluated import Evaluated
from rowtide.core.values.cell import Cell
from tests.core.native.inputs import COLUMNS as COLUMN_NAMES
from tests.core.native.inputs import NAMES, VERSION_MS, Inputs
from tests.core.native.log_agreement import batch_entries
from tests.core.native.test_arguments import (
    BATCH,
    CALLS,
    COLUMNS,
    EVALUATED,
    ODD,
    PLAIN,
    STATES,
)
from tests.core.native.ways import KERNELS, python
from tests.core.native.write_agreement import BEHIND_NAME, KINDS, request_of

__all__ = ["DRAWS", "call_damaged"]

Arguments = Sequence[object]

NUMBERS = (0, 1, 2, 3, 255, 256, 2**16, 2**31 - 1, 2**32, 2**63 - 1, -1, -(2**63), 2**63, 2**64)
NEAR = 40
"""How far a number is moved: as far as the parts of a short row."""


def _wire(inputs: Inputs) -> bytes:
    """Return the bytes of cells, in the form of a request or of a stored row."""
    cells = inputs.cells() if inputs.chance.randrange(2) else inputs.row_cells()
    return python(lambda: plainbuffer.cells_piece(cells))


def _piece(inputs: Inputs) -> bytes:
    """Return a key from its tag on, in one case of four made of cells that are no key's."""
    if inputs.chance.randrange(4) == 0:
        return b"\x01" + _wire(inputs)
    return plainbuffer.key_piece(inputs.key())[0]


def _chunk(inputs: Inputs, piece: bytes) -> bytes:
    """Return a row's first chunk, in one case of four with cells that are not as rows keep them."""
    odd = inputs.chance.randrange(4) == 0
    cells = [] if odd else inputs.row_cells()
    whole = chunk.Chunk(5, cells, key_piece=piece, key_state=inputs.chance.randrange(256))
    made = python(lambda: chunk.encode(whole))
    return made[:-2] + b"\x02" + _wire(inputs) + made[-2:] if odd else made


def _store(inputs: Inputs) -> Arguments:
    chance, piece = inputs.chance, _piece(inputs)
    first = _chunk(inputs, piece) if chance.randrange(3) else None
    cells = [inputs.cell(name, odd=chance.randrange(9) == 0) for name in (b"a", b"c", b"dd")]
    wire = python(lambda: plainbuffer.cells_piece(cells))
    return (
        *(chance.randrange(2) == 0, piece, 7, wire, len(cells)),
        *(VERSION_MS, VERSION_MS * 1000, first, chance.choice((1, 2, 5)), 40_000),
    )


def _stores(inputs: Inputs) -> Arguments:
    assert PLAIN is not None
    piece, chance = _piece(inputs), inputs.chance
    rows, firsts = [], []
    for row in PLAIN * chance.randrange(4):
        assert row is not None
        given = piece if chance.randrange(2) else row[4]
        rows.append((chance.choice((1, 1, 2, 3)), chance.randrange(3), *row[2:4], given, *row[5:]))
        firsts.append(_chunk(inputs, given) if chance.randrange(3) else None)
    lowest = chance.choice((-1, VERSION_MS))
    rules = VERSION_MS * 1000, lowest, chance.choice((1, 2)), 40_000, 10, Evaluated, Outcome
    return rows, firsts, *rules


def _records(inputs: Inputs) -> Arguments:
    changes = [
        EVALUATED._replace(
            body=b"x" * inputs.chance.randrange(9), stamp=inputs.chance.choice(NUMBERS)
        )
        for _ in range(inputs.chance.randrange(4))
    ]
    return b"head", 5, 3, b"12345678", changes


def _batch(inputs: Inputs) -> Arguments:
    entries = batch_entries(inputs, headers=inputs.chance.randrange(9) == 0)
    return entries, 16, VERSION_MS, 5, 1, 7, 1_000_000


def _keep(inputs: Inputs) -> Arguments:
    chance = inputs.chance
    names = tuple(name.encode() for name in sorted(COLUMN_NAMES) if chance.randrange(2))
    first = _chunk(inputs, _piece(inputs)) if chance.randrange(4) else None
    return CALLS["keep_columns"][0], first, names * chance.choice((1, 1, 1, 9)), VERSION_MS


def _write(inputs: Inputs) -> Arguments:
    kind = inputs.chance.choice(KINDS)
    message = request_of(inputs, kind).SerializeToString()
    return message, BEHIND_NAME, kind, 7, COLUMNS, True, 100, 9000, 1000, 9


def _message(inputs: Inputs) -> bytes:
    batch = type(BATCH)()
    for _ in range(inputs.chance.randrange(3)):
        batch.tables.add(table_name="t").rows.add(type=1, row_change=inputs.row())
    return batch.SerializeToString()


def _fields(inputs: Inputs) -> list[bytes]:
    found = KERNELS.row_fields(_message(inputs))
    return [field for fields in found or () for field in fields]


def _cells(inputs: Inputs) -> list[Cell]:
    return inputs.cells() if inputs.chance.randrange(2) else inputs.row_cells()


def _pages(inputs: Inputs) -> Arguments:
    rows = [(b"r", _chunk(inputs, _piece(inputs))) for _ in range(inputs.chance.randrange(4))]
    return rows, 0, 0, 5, 100_000, 9


def _body(inputs: Inputs) -> Arguments:
    """Return a record, where its body begins, and whether it may have changes of indexes."""
    value = inputs.log_record()
    found = KERNELS.read_envelope(value)
    assert found is not None, value
    return value, found[1], record.has_indexes(value)


def _effects(inputs: Inputs) -> Arguments:
    """Return records with the offsets of their bodies, and columns with their places in the key."""
    chance = inputs.chance
    records: list[tuple[bytes, int]] = []
    for _ in range(chance.randrange(4)):
        value = inputs.record_with_originals()
        records.append((value, record.read_envelope(value)[1]))
    names = [name.encode() for name in chance.sample(COLUMN_NAMES, chance.randrange(4))]
    columns = ((NAMES[0], 0), *((name, -1) for name in names))
    return records, record.HEAD, columns * chance.choice((1, 1, 1, 1, 9))


def _as_usual(name: str) -> Callable[[Inputs], Arguments]:
    return lambda _: CALLS[name]


DRAWS: dict[str, Callable[[Inputs], Arguments]] = {
    "key_row": lambda inputs: (HEADER + plainbuffer.encode_row(inputs.key(), ()),),
    "read_key_columns": lambda inputs: ((piece := _piece(inputs)), 1, len(piece)),
    "read_cells": lambda inputs: ((wire := _wire(inputs)), 0, len(wire), 7, 9, Cell),
    "parse_cells": lambda inputs: (_wire(inputs), Cell),
    "cells_piece": lambda inputs: (_cells(inputs),),
    "read_plain": lambda inputs: (inputs.row(), 9000, 1000),
    "row_keys": lambda inputs: (7, _piece(inputs)),
    "stored_write": _store,
    "stored_chunk": lambda inputs: (_cells(inputs), 8, False, b"end", _piece(inputs), 7, 0),
    "logged_cells": lambda inputs: (_cells(inputs),),
    "read_envelope": lambda inputs: (inputs.log_record(),),
    "read_change": lambda inputs: (*_body(inputs), Cell),
    "stream_row": lambda inputs: (*_body(inputs), VERSION_MS, NAMES),
    "row_fields": lambda inputs: (_message(inputs),),
    "read_rows": lambda inputs: (_fields(inputs), 7, COLUMNS, True, 100, 9000, 1000, 9),
    "read_write": _write,
    "stored_writes": _stores,
    "keep_columns": _keep,
    "write_records": _records,
    "record_batch": _batch,
    "row_values": _effects,
    "whole_rows": _pages,
    "read_get": lambda inputs: (*CALLS["read_get"][:2], 7, COLUMNS, 100),
    "whole_answer": lambda inputs: (_chunk(inputs, _piece(inputs)), 0, 5, 10),
    "write_answer": lambda inputs: (*CALLS["write_answer"][:-1], STATES),
} | {
    name: _as_usual(name)
    for name in ("write_record", "content_md5", "hmac_states", "hmac_text", "read_signed")
}
"""What draws the arguments of each kernel, before they are damaged."""


def call_damaged(name: str, inputs: Inputs) -> bool:
    """Call a kernel with some arguments damaged; return whether it answered."""
    chance = inputs.chance
    arguments = list(DRAWS[name](inputs))
    for _ in range(chance.choice((0, 1, 1, 2))):
        at = chance.randrange(len(arguments))
        arguments[at] = _damage(inputs, arguments[at])
    found = _call(name, arguments)
    assert found == _call(name, arguments), "bytes that nobody wrote were read"
    return isinstance(found, bytes | tuple | list)


def _call(name: str, arguments: Arguments) -> object:
    try:
        return getattr(KERNELS, name)(*arguments)
    except (TypeError, OverflowError) as error:
        return str(error)


def _damage(inputs: Inputs, given: object) -> object:
    """Return an argument near this one, and seldom one of another kind."""
    chance = inputs.chance
    if chance.randrange(20) == 0:
        inputs.damages += 1
        return chance.choice(ODD)
    if isinstance(given, bytes):
        return inputs.damage(given)
    inputs.damages += 1
    if isinstance(given, list | tuple) and given:
        items = list(given)
        at = chance.randrange(len(items))
        items[at : at + 1] = [_damage(inputs, items[at])] * chance.choice((0, 1, 1, 1, 2))
        return items if isinstance(given, list) else tuple(items)
    if isinstance(given, int):
        return chance.choice((given + chance.randrange(-NEAR, NEAR), chance.choice(NUMBERS)))
    return chance.choice(ODD)
