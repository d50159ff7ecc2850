"""Rules on rows: written one by one and in batches, read one by one, in batches and in ranges."""

from __future__ import annotations

from functools import partial
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import rule

from rowtide.core.protocol.wire import ots_pb2 as pb
from tests.api.calls import batch_get, batch_write, get, get_range, key, units
from tests.model import drafts
from tests.model.drafts import Bound, ReadDraft, WriteDraft
from tests.model.messages import all_found, decode_done, next_key, read_fields, write_message
from tests.model.pair import Pair
from tests.model.requests import Done, Key, Read, Refused, Write
from tests.model.row_model import Rows
from tests.model.steps import ABSENT, BESIDE, NO_SESSION, NO_TABLE, Open, Steps, add_number, order

__all__ = ["RowRules"]

within = st.sampled_from([None, None, None, 0, 0, 0, 0, 1, BESIDE])


class RowRules(Steps):
    """``inside`` is the number of a transaction, open or not."""

    # Writes.

    @rule(some=st.lists(drafts.writes, min_size=2, max_size=5), inside=within)
    def write(self, some: list[WriteDraft], inside: int | None) -> None:
        """Write rows one by one."""
        for draft in some:
            self._write_one(draft, inside)

    def _write_one(self, draft: WriteDraft, inside: int | None) -> None:
        self._step("write")
        draft = self._fit(draft, inside)
        pair = self.pairs[draft.table % 2]
        write = pair.write(draft)
        opened = self._transaction(inside)
        table = ABSENT if draft.table == 2 else pair.name
        if draft.returns == "wrong" and write.returns is None:
            write = write._replace(returns=("c9",))
        request = write_message(table, write, opened.id if opened else None)
        answer = self._ask(request, decode_done)
        write = add_number(write, answer)

        def decide() -> Done:
            if draft.table == 2:
                raise Refused(NO_TABLE)
            if write.returns == ("c9",):
                raise Refused("OTSParameterInvalid")
            pair.model.check_generated(write)
            return self._write(pair, write, opened)

        self._same((write, opened), answer, self._expect(decide))

    @rule(
        items=st.lists(drafts.writes, min_size=1, max_size=5),
        inside=within,
        atomic=st.booleans(),
        together=st.booleans(),
    )
    def batch(
        self, items: list[WriteDraft], inside: int | None, atomic: bool, together: bool
    ) -> None:
        """Write several rows; ``together`` puts them under one partition key."""
        self._step("batch")
        opened = self._transaction(inside)
        items = [self._fit(draft, inside) for draft in items]
        if together:
            items = [draft._replace(partition=items[0].partition) for draft in items]
        groups: list[tuple[int, list[Write]]] = []
        for table in sorted({draft.table for draft in items}):
            pair = self.pairs[table % 2]
            groups.append((table, [pair.write(d) for d in items if d.table == table]))
        names = [ABSENT if table == 2 else self.pairs[table].name for table, _ in groups]
        parts = [
            (name, [write_message(name, write, None) for write in writes])
            for name, (_, writes) in zip(names, groups, strict=True)
        ]
        request = batch_write(parts, is_atomic=atomic, transaction_id=opened.id if opened else None)
        answer = self._ask(request, _row_results)
        whole = self._expect(partial(self._check_whole, groups))
        if whole is not None:
            self._same((groups, atomic, opened), answer, whole)
            return
        if opened is not None and opened.pair not in self.pairs:
            self._same((groups, atomic, opened), answer, NO_SESSION)
            return
        if isinstance(answer, str):
            answer = [[answer] * len(writes) for _, writes in groups]
        model = []
        for (table, writes), results in zip(groups, answer, strict=True):
            writes = [add_number(w, r) for w, r in zip(writes, results, strict=True)]
            model.append(self._batch(table, writes, opened, atomic=atomic))
        self._same((groups, atomic, opened), answer, model)

    def _check_whole(self, groups: list[tuple[int, list[Write]]]) -> None:
        """Raise what refuses a whole batch."""
        for table, writes in groups:
            for write in writes if table != 2 else ():
                self.pairs[table].model.check_generated(write)

    def _batch(
        self, table: int, writes: list[Write], opened: Open | None, *, atomic: bool
    ) -> list[Any]:
        if atomic and opened is not None:
            return ["OTSParameterInvalid"] * len(writes)
        if table == 2:
            return [NO_TABLE] * len(writes)
        pair = self.pairs[table]
        repeated = [_has_condition(w) and [v.key for v in writes].count(w.key) > 1 for w in writes]
        if not atomic:
            return [
                "OTSParameterInvalid"
                if bad
                else self._expect(partial(self._write, pair, w, opened))
                for w, bad in zip(writes, repeated, strict=True)
            ]
        try:
            if any(repeated):
                raise Refused("OTSParameterInvalid")
            return pair.model.write_atomically(writes, self.world.now_ms, self.world.high_ms)
        except Refused as refused:
            return [refused.code] * len(writes)

    # Reads.

    @rule(
        table=st.sampled_from([0, 0, 1]),
        partition=st.sampled_from(drafts.PARTITIONS),
        number=st.integers(0, 2),
        draft=drafts.reads,
        inside=within,
    )
    def get(
        self, table: int, partition: str, number: int, draft: ReadDraft, inside: int | None
    ) -> None:
        """Read one row."""
        self._step("get")
        opened = self._transaction(inside)
        if opened is not None and opened.live and inside != BESIDE:
            table, partition = self.pairs.index(opened.pair), opened.held.partition
        pair = self.pairs[table]
        row_key = pair.key_at(partition, number)
        read = pair.reading(draft, row_key)
        fields = read_fields(read)
        fields["transaction_id"] = opened.id if opened else None
        answer = self._ask(get(pair.name, key(*row_key), **fields), _row_and_units)

        def decide() -> Any:
            rows = self._rows(pair, opened, partition)
            return self._one(pair, rows, row_key, read)

        self._same((row_key, read, opened), answer, self._expect(decide))

    def _one(self, pair: Pair, rows: Rows, row_key: Key, read: Read) -> Any:
        """Return one row as the model reads it, in a list, and the units."""
        keys = [row_key] if row_key in rows else []
        found, _, used = pair.model.range(rows, keys, read, None, self.world.now_ms)
        return found, (used, 0)

    @rule(
        wanted=st.lists(
            st.tuples(
                st.sampled_from([0, 0, 1]),
                st.sampled_from(drafts.PARTITIONS),
                st.integers(0, 2),
            ),
            min_size=3,
            max_size=6,
        ),
        draft=drafts.reads,
    )
    def batch_get(self, wanted: list[tuple[int, str, int]], draft: ReadDraft) -> None:
        """Read several rows of both tables, and of one that is not there."""
        self._step("batch_get")
        tables = sorted({table for table, _, _ in wanted})
        keys = [[self.pairs[t].key_at(p, n) for at, p, n in wanted if at == t] for t in tables]
        read = self.pairs[tables[0]].reading(draft, keys[0][0])
        names = [*(self.pairs[t].name for t in tables), ABSENT]
        asked = [[key(*row_key) for row_key in each] for each in keys]
        parts = list(zip(names, [*asked, [key("a", 0)]], strict=True))
        answer = self._ask(batch_get(parts, **read_fields(read)), _batch_rows)
        model: list[Any] = []
        for table, each in zip(tables, keys, strict=True):
            pair = self.pairs[table]
            model.append([self._one(pair, pair.model.rows, row_key, read) for row_key in each])
        self._same((keys, read), answer, [*model, [NO_TABLE]])

    @rule(
        table=st.sampled_from([0, 0, 1]),
        low=drafts.bounds,
        high=drafts.bounds,
        backward=st.booleans(),
        limit=st.none() | st.integers(1, 4),
        draft=drafts.reads,
        inside=within,
    )
    def range(
        self,
        table: int,
        low: Bound,
        high: Bound,
        backward: bool,
        limit: int | None,
        draft: ReadDraft,
        inside: int | None,
    ) -> None:
        """Read a page of rows in key order."""
        self._step("range")
        opened = self._transaction(inside)
        if opened is not None and opened.live and inside != BESIDE:
            table = self.pairs.index(opened.pair)
            low = low._replace(partition=opened.held.partition)
            high = high._replace(partition=opened.held.partition)
        pair = self.pairs[table]
        first, last = pair.make_bound(low, low=True), pair.make_bound(high, low=False)
        start, end = (last, first) if backward else (first, last)
        read = pair.reading(draft, pair.key_at("a", 0))
        request = get_range(
            pair.name,
            key(*start),
            key(*end),
            direction=pb.BACKWARD if backward else pb.FORWARD,
            limit=limit,
            transaction_id=opened.id if opened else None,
            **read_fields(read),
        )
        answer = self._ask(request, _page)

        def decide() -> Any:
            if order(first) >= order(last):
                raise Refused("OTSParameterInvalid")
            rows = self._rows(pair, opened, first[0], last[0])
            keys = [k for k in pair.sort_keys(rows) if order(first) <= order(k) < order(last)]
            if backward:
                keys = [k for k in pair.sort_keys(rows) if order(first) < order(k) <= order(last)]
                keys.reverse()
            found, following, used = pair.model.range(rows, keys, read, limit, self.world.now_ms)
            return found, following, (used, 0)

        asked = (start, end, limit, read, opened)
        self._same(asked, answer, self._expect(decide))


def _has_condition(write: Write) -> bool:
    return write.expect != "IGNORE" or write.condition is not None


def _row_results(answer: Any) -> list[list[Any]]:
    return [
        [decode_done(row) if row.is_ok else row.error.code for row in table.rows]
        for table in answer.tables
    ]


def _row_and_units(answer: Any) -> Any:
    return all_found(answer.row), units(answer)


def _batch_rows(answer: Any) -> list[list[Any]]:
    return [
        [_row_and_units(row) if row.is_ok else row.error.code for row in table.rows]
        for table in answer.tables
    ]


def _page(answer: Any) -> Any:
    return all_found(answer.rows), next_key(answer.next_start_primary_key), units(answer)
