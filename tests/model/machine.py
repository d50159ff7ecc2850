"""Drives a server and the model with the same requests, and compares every answer.

Each example has two tables of its own: one cut into two shards, one with an AUTO_INCREMENT key. The
clock stands still between steps, so the model knows the server's versions; before it goes back each
shard writes once, so that "never backwards" means one time for all rows. The rules are in four
modules: rows, bulk, transactions, tables; here are the clock and the server's end.
"""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule

from rowtide.client.wire_row import Put
from tests.model import drafts
from tests.model.bulk_rules import BulkRules
from tests.model.drafts import ChangeDraft, WriteDraft
from tests.model.messages import decode_done, write_message
from tests.model.pair import Pair
from tests.model.requests import Key, Options, Stream, Write
from tests.model.steps import add_number
from tests.model.table_model import TableModel
from tests.model.table_rules import TableRules
from tests.model.transaction_rules import TransactionRules

__all__ = ["StoreMachine"]

SPAN_MS_MAX = 6 * drafts.DAY_MS
"""Less than the longest expiration of a stream."""
SPLIT = "m"
ANCHORS: tuple[Key, ...] = (("aa", 0), ("zz", 0))
"""Rows of the first table, one per shard, that no transaction holds."""


class StoreMachine(BulkRules, TransactionRules, TableRules):
    """All rules."""

    def __init__(self) -> None:
        super().__init__()
        self.restarts = 0

    @initialize(
        options=drafts.options,
        stream=drafts.streams,
        restarts=st.sampled_from([0] * 7 + [2]),
        table_changes=st.sampled_from([(0, 0), (0, 4), (0, 4), (1, 4)]),
        rows=st.lists(drafts.first_changes, min_size=4, max_size=4),
    )
    def create(
        self,
        options: Options,
        stream: Stream,
        restarts: int,
        table_changes: tuple[int, int],
        rows: list[list[ChangeDraft]],
    ) -> None:
        """Make the example's tables, with a few rows."""
        world = self.world
        world.examples += 1
        # At a whole second: ages are in seconds, and an example must come out the same again.
        world.set_clock((world.high_ms // 1000 + 1) * 1000)
        self.began_ms, self.restarts = world.now_ms, restarts
        self.deletions, self.stream_changes = table_changes
        for split, auto in ((SPLIT, False), (None, True)):
            model = TableModel(options, split=split, auto=auto, stream=stream)
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

    @rule(
        jump_ms=drafts.jumps_ms,
        back=st.booleans(),
        passed_s=st.sampled_from([0] * 8 + [1, 59, 59, 60]),
    )
    def jump(self, jump_ms: int, back: bool, passed_s: int) -> None:
        """Move the clock, and see where streams begin; time that passes ends transactions."""
        self._step("jump")
        world = self.world
        to_ms = world.now_ms + (-jump_ms if back else jump_ms)
        if not self.began_ms <= to_ms <= self.began_ms + SPAN_MS_MAX:
            to_ms = world.now_ms
        if to_ms < world.now_ms:
            self._anchor()
        self._note_expired()
        world.set_clock(to_ms, passed_s=passed_s)
        self._note_expired()
        for pair in self.pairs:
            pair.model.pass_time(world.passed_s)
            if pair.followed is not None:
                pair.followed.seek(0, 0)
        self.whole = True

    def _note_expired(self) -> None:
        for pair in self.pairs:
            if pair.followed is not None:
                pair.followed.note_expired()

    def _anchor(self) -> None:
        """Write in each shard, so that each knows the highest time there was."""
        rows = [(self.pairs[0], anchor, False) for anchor in ANCHORS]
        for pair, anchor, assigned in [*rows, (self.pairs[1], ("anchor", 0), True)]:
            write = Write("PUT", anchor, (Put("c1", 1),), returns=(), assigned=assigned)
            answer = self._ask(write_message(pair.name, write, None), decode_done)
            write = add_number(write, answer)
            self._same("anchor", answer, self._write(pair, write, None))

    @precondition(lambda self: self.restarts > 0)
    @rule(kill=st.booleans())
    def restart(self, kill: bool) -> None:
        """End the server and start it again; open transactions are over."""
        self._step("kill" if kill else "restart")
        self.restarts -= 1
        self.world.restart(kill=kill)
        for pair in self.pairs:
            pair.model.held.clear()
            pair.verify_description()
        self.whole = True


def first_row(table: int, partition: str, number: int, changes: list[ChangeDraft]) -> WriteDraft:
    """Return the write of a row that is there at first."""
    return WriteDraft(table, "PUT", partition, number, changes, "IGNORE", None, "nothing", False)
