"""The text of an envelope, which is put together from parts, is the envelope's."""

from __future__ import annotations

import json
import math
from base64 import b64encode

from hypothesis import given
from hypothesis import strategies as st

from rowtide.connectors.rows import SinkRow, TableShape
from rowtide.connectors.sinks.kafka.columns import Columns
from rowtide.connectors.sinks.kafka.envelope import Names, RowColumns, envelope
from rowtide.connectors.sinks.kafka.json_form import JsonForm
from rowtide.core.records.change import DELETE, PUT_ROW, ROW, UPDATE
from rowtide.core.values.schema import INTEGER, STRING, KeyColumn
from rowtide.core.values.variant import Scalar

KEY = (KeyColumn('na"me', STRING), KeyColumn("n", INTEGER))
TABLE = TableShape("t", KEY)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
VALUES: st.SearchStrategy[Scalar] = st.one_of(
    st.integers(-(2**63), 2**63 - 1), st.floats(), st.booleans(), TEXTS, st.binary(max_size=8)
)
COLUMNS = st.dictionaries(TEXTS, VALUES, max_size=4)
ROWS = st.builds(
    SinkRow,
    key=st.tuples(
        st.tuples(st.just('na"me'), TEXTS),
        st.tuples(st.just("n"), st.integers(-(2**63), 2**63 - 1)),
    ),
    key_bytes=st.just(b""),
    stamp=st.integers(0, 2**62),
    columns=st.none() | COLUMNS,
    kind=st.sampled_from([ROW, PUT_ROW, UPDATE, DELETE]),
    before=st.none() | COLUMNS,
    sequence=st.integers(-1, 2**62),
)


def plain(value: Scalar) -> object:
    """Return a value as the JSON form writes it."""
    if isinstance(value, bytes):
        return b64encode(value).decode()
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value


def shape_row(columns: RowColumns | None) -> dict[str, object] | None:
    return None if columns is None else {name: plain(value) for name, value in columns.items()}


def dump_json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


@given(row=ROWS, names=st.builds(Names, TEXTS, TEXTS, TEXTS), shard=TEXTS)
def test_an_envelope_is_written_as_it_is_described(row: SinkRow, names: Names, shard: str) -> None:
    form = JsonForm(Columns(TABLE), names, schemas=False)
    described = envelope(row, names, shard, 1_790_000_000_123, shape_row)
    assert form.value(row, shard, 1_790_000_000_123).decode() == dump_json(described)
    assert form.key(row).decode() == dump_json(shape_row(dict(row.key)))


async def test_with_schemas_the_payload_has_every_column() -> None:
    form = JsonForm(Columns(TABLE), Names("rowtide", "", "t"), schemas=True)
    row = SinkRow((('na"me', "x"), ("n", 1)), b"", 5_000, {"a": 7}, PUT_ROW, sequence=3)
    await form.prepare([row, SinkRow(row.key, b"", 6_000, {"b": math.inf, "a": 1.5}, PUT_ROW)])

    def all_columns(columns: RowColumns | None) -> dict[str, object] | None:
        known = {'na"me': "x", "n": 1, "a": 7.0, "b": None}
        return None if columns is None else known

    written = form.value(row, "s", 9).decode()
    payload = dump_json(envelope(row, Names("rowtide", "", "t"), "s", 9, all_columns))
    assert written.endswith(f',"payload":{payload}}}')
    assert json.loads(written)["schema"]["name"] == "rowtide.t.Envelope"
