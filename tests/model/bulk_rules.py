"""Rules on rows in bulk, imported and exported, and on the defined columns that imports heed."""

from __future__ import annotations

from functools import partial
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import rule

from rowtide.client.wire_row import encode_row
from rowtide.core.protocol import row_matrix
from rowtide.core.protocol.wire import ots_pb2 as pb
from rowtide.core.values import variant
from tests.api.calls import key
from tests.model import drafts
from tests.model.drafts import Bound, ReadDraft, WriteDraft
from tests.model.messages import all_found, filter_message
from tests.model.pair import DEFINED, Pair
from tests.model.requests import Found, Read, Refused, Write
from tests.model.steps import ABSENT, NO_TABLE, Steps, order

__all__ = ["BulkRules"]

KINDS = {"PUT": pb.PUT, "UPDATE": pb.UPDATE, "DELETE": pb.DELETE}
KEY_NAMES = ("PK1", "PK2")


class BulkRules(Steps):
    """BulkImport, BulkExport, AddDefinedColumn, DeleteDefinedColumn."""

    @rule(items=st.lists(drafts.writes, min_size=1, max_size=5))
    def bulk_import(self, items: list[WriteDraft]) -> None:
        """Write rows of one table."""
        self._step("import")
        absent = items[0].table == 2
        pair = self.pairs[items[0].table % 2]
        writes = [pair.bulk_write(draft) for draft in items]
        request = pb.BulkImportRequest(table_name=ABSENT if absent else pair.name)
        for write in writes:
            deleted = write.kind == "DELETE"
            row = encode_row(key(*write.key), write.changes, deleted=deleted)
            request.rows.add(type=KINDS[write.kind], row_change=row)
        answer = self._ask(request, _read_import)
        model: list[Any] = [NO_TABLE] * len(writes)
        if not absent:
            model = [self._expect(partial(self._import_row, pair, write)) for write in writes]
        self._same((pair.name, writes), answer, model)

    def _import_row(self, pair: Pair, write: Write) -> tuple[int, ...]:
        size = pair.model.write_bulk(write, self.world.now_ms, self.world.high_ms)
        return (0, 0, 0, size)

    @rule(
        table=st.sampled_from([0, 0, 1]),
        low=drafts.bounds,
        high=drafts.bounds,
        draft=drafts.reads,
        matrix=st.booleans(),
    )
    def bulk_export(
        self, table: int, low: Bound, high: Bound, draft: ReadDraft, matrix: bool
    ) -> None:
        """Read the rows of a range, plain or as a matrix."""
        self._step("export")
        pair = self.pairs[table]
        first, last = pair.make_bound(low, low=True), pair.make_bound(high, low=False)
        read = Read(newest=1, columns=draft.columns, filter=draft.filter)
        request = pb.BulkExportRequest(
            table_name=pair.name,
            columns_to_get=read.columns,
            inclusive_start_primary_key=encode_row(key(*first)),
            exclusive_end_primary_key=encode_row(key(*last)),
            data_block_type_hint=pb.DBT_SIMPLE_ROW_MATRIX if matrix else pb.DBT_PLAIN_BUFFER,
        )
        if read.filter is not None:
            request.filter = filter_message(read.filter).SerializeToString()
        answer = self._ask(request, _read_export)

        def decide() -> Any:
            if order(first) >= order(last) or (matrix and not read.columns):
                raise Refused("OTSParameterInvalid")
            rows = pair.model.rows
            keys = [k for k in pair.sort_keys(rows) if order(first) <= order(k) < order(last)]
            found, size = pair.model.export(keys, read, self.world.now_ms)
            shown = _as_matrix(found, read.columns) if matrix else found
            return shown, None, (0, 0, size, 0)

        self._same((pair.name, first, last, read, matrix), answer, self._expect(decide))

    @rule(
        table=st.sampled_from([0, 0, 1]),
        names=st.lists(st.sampled_from((*drafts.COLUMNS, "PK2")), max_size=2),
        kind=st.sampled_from(list(DEFINED)),
        adds=st.booleans(),
    )
    def define(self, table: int, names: list[str], kind: type, adds: bool) -> None:
        """Define columns, or make defined ones ordinary."""
        self._step("define")
        pair = self.pairs[table]
        if adds:
            columns = [pb.DefinedColumnSchema(name=name, type=DEFINED[kind]) for name in names]
            add = pb.AddDefinedColumnRequest(table_name=pair.name, columns=columns)
            answer = self._ask(add, lambda _: "ok")
            model = self._expect(lambda: pair.model.define([(name, kind) for name in names]))
        else:
            drop = pb.DeleteDefinedColumnRequest(table_name=pair.name, columns=names)
            answer = self._ask(drop, lambda _: "ok")
            model = self._expect(lambda: pair.model.undefine(names))
        self._same((pair.name, names, kind, adds), answer, model or "ok")
        pair.verify_description()


def _read_usage(answer: Any) -> tuple[int, int, int, int]:
    """Return units, which are none in bulk, and bytes: read and written."""
    used, size = answer.consumed.capacity_unit, answer.consumed.capacity_data_size
    return used.read, used.write, size.read_size, size.write_size


def _read_import(answer: Any) -> list[Any]:
    return [_read_usage(row) if row.is_ok else row.error.code for row in answer.rows]


def _read_export(answer: Any) -> Any:
    following = answer.next_start_primary_key or None
    if answer.data_block_type == pb.DBT_PLAIN_BUFFER:
        return all_found(answer.rows), following, _read_usage(answer)
    matrix = row_matrix.decode(answer.rows)
    names = [[n.decode() for n in matrix.key_names], [n.decode() for n in matrix.names]]
    values = [[None if v == row_matrix.NULL else variant.decode(v) for v in r] for r in matrix.rows]
    return (names, values), following, _read_usage(answer)


def _as_matrix(found: list[Found], columns: tuple[str, ...]) -> Any:
    """Return rows as a matrix has them: names of the key, of attributes, and values."""
    keys = [name for name in KEY_NAMES if name in columns]
    names = sorted(set(columns) - set(KEY_NAMES))
    rows = []
    for row in found:
        values = {
            **dict(zip(KEY_NAMES, row.key, strict=True)),
            **{c.name: c.value for c in row.cells},
        }
        rows.append([values.get(name) for name in (*keys, *names)])
    return [keys, names], rows
