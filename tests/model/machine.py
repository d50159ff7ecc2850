"""Drives a server and the model with the same requests, and compares every answer.

Each example has two tables of its own: one cut into two shards, one with an AUTO_INCREMENT key. The
clock stands still between steps, so the model knows the server's versions; before it goes back each
shard writes once, so that "never backwards" means one time for all rows.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar, NamedTuple

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from rowtide.cli.wire_row import Put, Special, encoded
from rowtide.core.wire import ots_pb2 as pb
from tests.api.calls import batch_get, batch_write, get, get_range, key, units
from tests.model import drafts
from tests.model.drafts import Bound, ChangeDraft, ReadDraft, WriteDraft
from tests.model.messages import all_found, done, next_key, read_fields, write_message
from tests.model.pair import Pair, options_message, same
from tests.model.requests import Done, Key, Options, Read, Refused, Write
from tests.model.table_model import Rows, TableModel, Transaction
from tests.model.world import World

__all__ = ["StoreMachine"]

SPAN_MS_MAX = 6 * drafts.DAY_MS
"""Less than the expiration of the streams."""
SPLIT = "m"
ABSENT = "absent_table"
NO_TABLE = "OTSObjectNotExist"
ANCHORS: tuple[Key, ...] = (("aa", 0), ("zz", 0))
"""Rows of the first table, one per shard, that no transaction holds."""
REMEMBERED_MS = 600_000
within = st.sampled_from([None, None, 0, 0, 1, 2])


class Open(NamedTuple):
    """A transaction as its client knows it; ``held`` is None where it is over.

    ``remembered_ms`` is until when, at least, a committed one may be committed again.
    """

    id: str
    pair: Pair
    held: Transaction | None
    remembered_ms: int = 0


class StoreMachine(RuleBasedStateMachine):
    """The rules. ``world`` is set by whoever runs them."""

    world: ClassVar[World]

    def __init__(self) -> None:
        super().__init__()
        self.pairs: list[Pair] = []
        self.open: list[Open] = []
        self.restarts = 0
        self.whole = True
        """No step has failed."""

    @initialize(
        options=drafts.options,
        originals=st.sampled_from([(), (), ("c1",), ("c3", "c1")]),
        restarts=st.sampled_from([0] * 15 + [2]),
        rows=st.lists(drafts.first_changes, min_size=4, max_size=4),
    )
    def create(
        self,
        options: Options,
        originals: tuple[str, ...],
        restarts: int,
        rows: list[list[ChangeDraft]],
    ) -> None:
        """Make the example's tables, with a few rows."""
        world = self.world
        world.examples += 1
        # At a whole second: ages are in seconds, and an example must come out the same again.
        world.set_clock((world.high_ms // 1000 + 1) * 1000)
        self.began_ms, self.restarts = world.now_ms, restarts
        for split, auto in ((SPLIT, False), (None, True)):
            model = TableModel(options, split=split, auto=auto, originals=originals)
            self.pairs.append(Pair(world, model))
        for table in (0, 1):
            for index, changes in enumerate(rows):
                partition = drafts.PARTITIONS[index % 2]
                number = 2 if table else index // 2
                self._write_one(first_row(table, partition, number, changes), None)

    def teardown(self) -> None:
        """Compare what is left, where nothing differed before."""
        try:
            if self.whole and self.pairs:
                for number in range(len(self.open)):
                    self._end(number, "Abort")
                for pair in self.pairs:
                    pair.verify()
        finally:
            for pair in self.pairs:
                self.world.client.delete_table(pair.name)

    # What all rules share.

    def _step(self, name: str) -> None:
        self.world.step(name)
        self.whole = False

    def _told(self, request: Any, read: Callable[[Any], Any]) -> Any:
        """Return what the server answers, or the code it refuses with."""
        try:
            return read(self.world.ask(request))
        except Refused as refused:
            return refused.code

    def _expected(self, decide: Callable[[], Any]) -> Any:
        try:
            return decide()
        except Refused as refused:
            return refused.code

    def _same(self, what: object, server: object, model: object) -> None:
        self.world.count(model)
        same(f"{what}, clock {self.world.now_ms}", server, model)
        self.whole = True

    def _transaction(self, number: int | None) -> Open | None:
        if number is None or not self.open:
            return None
        return self.open[number % len(self.open)]

    def _rows(self, pair: Pair, opened: Open | None, *partitions: Any) -> Rows:
        """Return what a read sees. Raises what refuses it."""
        if opened is None:
            return pair.model.rows
        held = self._held(pair, opened)
        if {*partitions} != {held.partition}:
            raise Refused("OTSDataOutOfRange")
        return held.rows

    # Writes.

    @rule(some=st.lists(drafts.writes, min_size=2, max_size=5), inside=within)
    def write(self, some: list[WriteDraft], inside: int | None) -> None:
        """Write rows one by one."""
        for draft in some:
            self._write_one(draft, inside)

    def _write_one(self, draft: WriteDraft, inside: int | None) -> None:
        self._step("write")
        pair = self.pairs[draft.table % 2]
        write = pair.write(draft)
        opened = self._transaction(inside)
        table = ABSENT if draft.table == 2 else pair.name
        if draft.returns == "wrong" and write.returns is None:
            write = write._replace(returns=("c9",))
        request = write_message(table, write, opened.id if opened else None)
        told = self._told(request, done)
        write = _numbered(write, told)

        def decide() -> Done:
            if draft.table == 2:
                raise Refused(NO_TABLE)
            if write.returns == ("c9",):
                raise Refused("OTSParameterInvalid")
            return self._write(pair, write, opened)

        self._same((write, opened), told, self._expected(decide))

    def _write(self, pair: Pair, write: Write, opened: Open | None) -> Done:
        now_ms, high_ms = self.world.now_ms, self.world.high_ms
        if opened is None:
            return pair.model.write(write, now_ms, high_ms)
        held = self._held(pair, opened)
        return pair.model.write_within(held, write, now_ms, high_ms)

    def _held(self, pair: Pair, opened: Open) -> Transaction:
        if opened.pair is not pair:
            raise Refused("OTSDataOutOfRange")
        if opened.held is None:
            raise Refused("OTSSessionNotExist")
        return opened.held

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
        told = self._told(request, _row_results)
        if isinstance(told, str):
            told = [[told] * len(writes) for _, writes in groups]
        model = []
        for (table, writes), results in zip(groups, told, strict=True):
            writes = [_numbered(w, r) for w, r in zip(writes, results, strict=True)]
            model.append(self._batch(table, writes, opened, atomic=atomic))
        self._same((groups, atomic, opened), told, model)

    def _batch(
        self, table: int, writes: list[Write], opened: Open | None, *, atomic: bool
    ) -> list[Any]:
        if table == 2:
            return [NO_TABLE] * len(writes)
        pair = self.pairs[table]
        if not atomic:
            return [self._expected(partial(self._write, pair, w, opened)) for w in writes]
        held = None
        try:
            partitions = {write.key[0] for write in writes}
            if len(partitions) > 1:
                raise Refused("OTSDataOutOfRange")
            held = self._held(pair, opened) if opened is not None else None
            model, world = pair.model, self.world
            return model.write_atomically(held, writes, world.now_ms, world.high_ms)
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
        pair, opened = self.pairs[table], self._transaction(inside)
        row_key = pair.key_at(partition, number)
        read = pair.reading(draft, row_key)
        fields = read_fields(read)
        fields["transaction_id"] = opened.id if opened else None
        told = self._told(get(pair.name, key(*row_key), **fields), _row_and_units)

        def decide() -> Any:
            rows = self._rows(pair, opened, partition)
            return self._one(pair, rows, row_key, read)

        self._same((row_key, read, opened), told, self._expected(decide))

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
        told = self._told(batch_get(parts, **read_fields(read)), _batch_rows)
        model: list[Any] = []
        for table, each in zip(tables, keys, strict=True):
            pair = self.pairs[table]
            model.append([self._one(pair, pair.model.rows, row_key, read) for row_key in each])
        self._same((keys, read), told, [*model, [NO_TABLE]])

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
        pair, opened = self.pairs[table], self._transaction(inside)
        if opened is not None and opened.held is not None:
            low = low._replace(partition=opened.held.partition)
            high = high._replace(partition=opened.held.partition)
        first, last = pair.bound(low, low=True), pair.bound(high, low=False)
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
        told = self._told(request, _page)

        def decide() -> Any:
            if _order(first) >= _order(last):
                raise Refused("OTSParameterInvalid")
            rows = self._rows(pair, opened, first[0], last[0])
            keys = [k for k in pair.ordered(rows) if _order(first) <= _order(k) < _order(last)]
            if backward:
                keys = [k for k in pair.ordered(rows) if _order(first) < _order(k) <= _order(last)]
                keys.reverse()
            found, following, used = pair.model.range(rows, keys, read, limit, self.world.now_ms)
            return found, following, (used, 0)

        asked = (start, end, limit, read, opened)
        self._same(asked, told, self._expected(decide))

    # Transactions.

    @precondition(lambda self: sum(opened.held is not None for opened in self.open) < 2)
    @rule(table=st.sampled_from([0, 0, 1]), partition=st.sampled_from(drafts.PARTITIONS))
    def begin(self, table: int, partition: str) -> None:
        """Open a transaction."""
        self._step("begin")
        pair = self.pairs[table]
        request = pb.StartLocalTransactionRequest(table_name=pair.name, key=encoded(key(partition)))
        told = self._told(request, lambda answer: [answer.transaction_id])
        model = self._expected(lambda: [pair.model.begin(partition)])
        if isinstance(told, list) and isinstance(model, list):
            self.open = [*self.open[-3:], Open(told[0], pair, model[0])]
            told = model = "begun"
        self._same((pair.name, partition), told, model)

    @precondition(lambda self: bool(self.open))
    @rule(number=st.integers(0, 3), how=st.sampled_from(["Commit", "Commit", "Abort"]))
    def end(self, number: int, how: str) -> None:
        """Commit or abort a transaction, or one that is over."""
        self._step(how)
        self._end(number, how)

    def _end(self, number: int, how: str) -> None:
        opened = self.open[number % len(self.open)]
        now_ms, high_ms = self.world.now_ms, self.world.high_ms
        if how == "Commit" and 0 < opened.remembered_ms < high_ms:
            return  # It may be remembered, or not.
        kind = pb.CommitTransactionRequest if how == "Commit" else pb.AbortTransactionRequest
        told = self._told(kind(transaction_id=opened.id), lambda _: "ok")

        def decide() -> str:
            held = opened.held
            if how == "Commit" and opened.remembered_ms:
                return "ok"
            if held is None:
                raise Refused("OTSSessionNotExist")
            if how == "Commit":
                opened.pair.model.commit(held, now_ms)
            else:
                del opened.pair.model.held[held.partition]
            return "ok"

        self._same((how, opened), told, self._expected(decide))
        remembered_ms = opened.remembered_ms
        if how == "Commit" and opened.held is not None:
            remembered_ms = now_ms + REMEMBERED_MS
        ended = opened._replace(held=None, remembered_ms=remembered_ms)
        self.open[number % len(self.open)] = ended

    # The table, the clock, the server.

    @precondition(lambda self: not any(opened.held for opened in self.open))
    @rule(table=st.sampled_from([0, 0, 1]), options=drafts.options)
    def update_table(self, table: int, options: Options) -> None:
        """Change a table's options, up or down."""
        self._step("update_table")
        pair = self.pairs[table]
        request = pb.UpdateTableRequest(
            table_name=pair.name, table_options=options_message(options)
        )
        self.world.ask(request)
        pair.model.options = options
        self._same(options, None, None)

    @rule(jump_ms=drafts.jumps_ms, back=st.booleans())
    def jump(self, jump_ms: int, back: bool) -> None:
        """Move the clock."""
        self._step("jump")
        world = self.world
        to_ms = world.now_ms + (-jump_ms if back else jump_ms)
        if self.began_ms <= to_ms <= self.began_ms + SPAN_MS_MAX:
            if back:
                self._anchor()
            world.set_clock(to_ms)
        self.whole = True

    def _anchor(self) -> None:
        """Write in each shard, so that each knows the highest time there was."""
        rows = [(self.pairs[0], anchor, False) for anchor in ANCHORS]
        for pair, anchor, assigned in [*rows, (self.pairs[1], ("anchor", 0), True)]:
            write = Write("PUT", anchor, (Put("c1", 1),), returns=(), assigned=assigned)
            told = self._told(write_message(pair.name, write, None), done)
            write = _numbered(write, told)
            self._same("anchor", told, self._write(pair, write, None))

    @precondition(lambda self: any(pair.unread for pair in self.pairs))
    @rule()
    def follow(self) -> None:
        """Read the streams."""
        self._step("follow")
        for pair in self.pairs:
            pair.follow()
        self.whole = True

    @precondition(lambda self: any(pair.hidden for pair in self.pairs))
    @rule()
    def reclaim(self) -> None:
        """Remove what nobody sees."""
        self._step("reclaim")
        for pair in self.pairs:
            self.world.client.call_json("RowtideReclaim", {"table": pair.name})
            pair.model.reclaim(self.world.now_ms)
        self.whole = True

    @precondition(lambda self: self.restarts > 0)
    @rule(kill=st.booleans())
    def restart(self, kill: bool) -> None:
        """End the server and start it again; open transactions are over."""
        self._step("kill" if kill else "restart")
        self.restarts -= 1
        self.world.restart(kill=kill)
        self.open = [opened._replace(held=None) for opened in self.open]
        for pair in self.pairs:
            pair.model.held.clear()
        self.whole = True


def first_row(table: int, partition: str, number: int, changes: list[ChangeDraft]) -> WriteDraft:
    """Return the write of a row that is there at first."""
    return WriteDraft(table, "PUT", partition, number, changes, "IGNORE", None, "nothing", False)


def _numbered(write: Write, told: Any) -> Write:
    """Return a write with the number that the server gave its key."""
    if write.assigned and isinstance(told, Done) and told.row is not None:
        return write._replace(key=told.row.key)
    return write


def _row_results(answer: Any) -> list[list[Any]]:
    return [
        [done(row) if row.is_ok else row.error.code for row in table.rows]
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


def _order(row_key: tuple[Any, ...]) -> list[tuple[int, Any]]:
    """Return what keys and ends of ranges are sorted by."""
    rank = {Special.INF_MIN: 0, Special.INF_MAX: 2}
    return [(rank.get(v, 1), 0) if isinstance(v, Special) else (1, v) for v in row_key]
