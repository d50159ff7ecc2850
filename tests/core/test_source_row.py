"""A source's rows become the same records and chunks whether they are made in one step or not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rowtide.core.protocol import plainbuffer
from rowtide.core.protocol.row_form import FormLearner, RowForm
from rowtide.core.rows import row_patch
from rowtide.core.rows.mutation import (
    DELETE,
    EXPECT_PRESENT,
    IGNORE,
    PUT,
    RETURN_KEY,
    UPDATE,
    ChangeRequest,
    Outcome,
)
from rowtide.core.shard import source_row
from rowtide.core.shard.evaluated import Evaluated
from rowtide.core.shard.shard import Shard
from rowtide.core.shard.shard_state import ShardState
from rowtide.core.shard.source_batch import SourceBatch
from rowtide.core.values import variant
from rowtide.core.values.cell import Cell
from rowtide.core.values.limits import Limits
from rowtide.core.values.schema import (
    INTEGER,
    STRING,
    KeyColumn,
    ShardRange,
    StreamSettings,
    Table,
    TableOptions,
)
from tests.core.shard_model import NOW_US, Store

TABLE = Table(
    "i",
    "t",
    1,
    (KeyColumn("pk", STRING), KeyColumn("n", INTEGER)),
    TableOptions(),
    None,
    0,
    0,
    1,
    1,
    (ShardRange("s1", 0),),
)
ORIGINALS = StreamSettings("stream", 1, 24, ("b",))
STREAMS = st.sampled_from([None, replace(ORIGINALS, columns=()), ORIGINALS])

FORMS: dict[object, RowForm] = {}

FINITE = st.floats(allow_nan=False, allow_infinity=False)
"""A request with any other double is refused before it becomes a row."""
SCALARS: st.SearchStrategy[variant.Scalar] = st.one_of(
    st.integers(-(2**63), 2**63 - 1),
    st.sampled_from([0, 63, -64, -65, 8191, 8192]),
    FINITE,
    st.sampled_from(["", "x", "é", "long " * 30]),
    st.binary(max_size=3),
)
NAMES = st.lists(st.sampled_from(["a", "b", "cd", "é", "z"]), unique=True, min_size=1)


@st.composite
def columns(draw: st.DrawFn) -> list[Cell]:
    return [
        plainbuffer.put_cell(name.encode(), variant.encode(draw(SCALARS)), None)
        for name in draw(NAMES)
    ]


@st.composite
def changes(draw: st.DrawFn) -> list[ChangeRequest]:
    """Return changes of a few rows, of a few forms, some of which come again and again."""
    forms = draw(st.lists(columns(), min_size=1, max_size=3))
    names, numbers = st.sampled_from(["", "k", "k\0"]), st.integers(0, 1)
    return [
        ChangeRequest(
            draw(st.sampled_from([PUT, UPDATE, UPDATE, DELETE])),
            [(b"pk", variant.encode(draw(names))), (b"n", variant.encode(draw(numbers)))],
            draw(st.sampled_from(forms)),
            expectation=draw(st.sampled_from([IGNORE] * 9 + [EXPECT_PRESENT])),
            return_type=draw(st.sampled_from([0] * 9 + [RETURN_KEY])),
            time_ms=draw(st.sampled_from([0, 1000, 1000, 1001, 5000])),
        )
        for _ in range(draw(st.integers(1, 20)))
    ]


def pack_change(change: ChangeRequest) -> ChangeRequest:
    """Return the change with its cells as rows of a form are read."""
    if change.kind == DELETE:
        return replace(change, cells=[])
    made = RowForm.of(change.cells)
    assert made is not None
    # Patches are known by the form itself, which rows have in common.
    form = FORMS.setdefault((made.names, made.kinds, made.sizes), made)
    cells = form.read(plainbuffer.cells_piece(change.cells) + bytes(20), 0)
    assert cells is not None
    return replace(change, cells=cells)


def shard_of(max_versions: int, stream: StreamSettings | None) -> Shard:
    table = replace(TABLE, options=TableOptions(max_versions=max_versions))
    shard = Shard("s1", table, Store(), ShardState(table.options), limits=Limits())
    shard.state.stream = stream
    return shard


def write(shard: Shard, found: Sequence[ChangeRequest]) -> tuple[list[Evaluated], list[object]]:
    """Return the records of two requests, and the answers to their rows."""
    evaluated: list[Evaluated] = []
    answers: list[object] = []
    middle = len(found) // 2
    for begin, end in ((0, middle), (middle, len(found))):
        positions = [number.to_bytes(2, "big") for number in range(begin + 1, end + 1)]
        batch = SourceBatch("m", found[begin:end], positions)
        evaluated += batch.evaluate(shard, NOW_US + begin)
        answers += [o if isinstance(o, Outcome) else (o.code, o.message) for o in batch.outcomes]
    return evaluated, answers


@given(changes(), st.integers(1, 2), STREAMS)
def test_rows_become_the_same_in_one_step(
    found: list[ChangeRequest], max_versions: int, stream: StreamSettings | None
) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(FormLearner, "PAUSE_MIN", 1)
        row_patch.PATCHES.forget()
        of_a_form = [pack_change(change) for change in found]
        in_one_step = write(shard_of(max_versions, stream), of_a_form)
        patched.setattr(source_row, "is_plain", lambda _: False)
        row_patch.PATCHES.forget()
        assert in_one_step == write(shard_of(max_versions, stream), of_a_form)
        assert in_one_step == write(
            shard_of(max_versions, stream),
            [
                replace(change, cells=[] if change.kind == DELETE else sorted(change.cells))
                for change in found
            ],
        )
