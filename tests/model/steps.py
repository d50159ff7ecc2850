"""What all rules of the machine share: its tables, its transactions, a step and its comparison."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

from hypothesis.stateful import RuleBasedStateMachine

from rowtide.client.wire_row import Special
from tests.model.difference import same
from tests.model.drafts import WriteDraft
from tests.model.pair import Pair
from tests.model.requests import Done, Refused, Write
from tests.model.row_model import Rows
from tests.model.table_model import Transaction
from tests.model.world import World

__all__ = ["ABSENT", "BESIDE", "NO_SESSION", "NO_TABLE", "Open", "Steps", "add_number", "order"]

ABSENT = "absent_table"
BESIDE = 2
"""Of the numbers that steps name transactions by: nothing is done to hit its rows."""
NO_TABLE = "OTSObjectNotExist"
NO_SESSION = "OTSSessionNotExist"


class Open(NamedTuple):
    """A transaction as its client knows it, over or not.

    ``known_until_s`` is until when, at least, its commit may be repeated.
    """

    id: str
    pair: Pair
    held: Transaction
    known_until_s: int
    committed: bool = False

    @property
    def live(self) -> bool:
        """True if its table's model holds it."""
        return self.pair.model.held.get(self.held.partition) is self.held


class Steps(RuleBasedStateMachine):
    """A machine without rules. ``world`` is set by whoever runs it."""

    world: ClassVar[World]

    def __init__(self) -> None:
        super().__init__()
        self.pairs: list[Pair] = []
        self.open: list[Open] = []
        self.whole = True
        """No step has failed."""

    def _step(self, name: str) -> None:
        self.world.step(name)
        self.whole = False

    def _ask(self, request: Any, read: Callable[[Any], Any]) -> Any:
        """Return what the server answers, or the code it refuses with."""
        try:
            return read(self.world.ask(request))
        except Refused as refused:
            return refused.code

    def _expect(self, decide: Callable[[], Any]) -> Any:
        try:
            return decide()
        except Refused as refused:
            return refused.code

    def _same(self, what: object, server: object, model: object) -> None:
        self.world.count(model)
        same(f"{what}, clock {self.world.now_ms}", server, model)
        self.whole = True

    def _transaction(self, number: int | None) -> Open | None:
        """Return the transaction that a step names, those first that are open."""
        if number is None or not self.open:
            return None
        return sorted(self.open, key=lambda opened: not opened.live)[number % len(self.open)]

    def _fit(self, draft: WriteDraft, inside: int | None) -> WriteDraft:
        """Return a write moved to where its open transaction is, but for ``BESIDE``."""
        opened = self._transaction(inside)
        if opened is None or not opened.live or inside == BESIDE:
            return draft
        table = self.pairs.index(opened.pair)
        return draft._replace(table=table, partition=opened.held.partition)

    def _find_transaction(self, pair: Pair, opened: Open) -> Transaction:
        """Return an open transaction on a table. Raises what refuses its use."""
        if opened.pair not in self.pairs:
            raise Refused(NO_SESSION)
        if opened.pair is not pair:
            raise Refused("OTSDataOutOfRange")
        if not opened.live:
            raise Refused(NO_SESSION)
        return opened.held

    def _rows(self, pair: Pair, opened: Open | None, *partitions: Any) -> Rows:
        """Return what a read sees. Raises what refuses it."""
        if opened is None:
            return pair.model.rows
        held = self._find_transaction(pair, opened)
        if {*partitions} != {held.partition}:
            raise Refused("OTSDataOutOfRange")
        return held.rows

    def _write(self, pair: Pair, write: Write, opened: Open | None) -> Done:
        now_ms, high_ms = self.world.now_ms, self.world.high_ms
        if opened is None:
            return pair.model.write(write, now_ms, high_ms)
        held = self._find_transaction(pair, opened)
        return pair.model.write_within(held, write, now_ms, high_ms)


def add_number(write: Write, answer: Any) -> Write:
    """Return a write with the number that the server gave its key."""
    if write.assigned and isinstance(answer, Done) and answer.row is not None and answer.row.key:
        return write._replace(key=answer.row.key)
    return write


def order(row_key: tuple[Any, ...]) -> list[tuple[int, Any]]:
    """Return what keys and ends of ranges are sorted by."""
    rank = {Special.INF_MIN: 0, Special.INF_MAX: 2}
    return [(rank.get(v, 1), 0) if isinstance(v, Special) else (1, v) for v in row_key]
