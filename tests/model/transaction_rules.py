"""Rules on local transactions: begun, committed, aborted, and repeated where they are over."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from rowtide.client.wire_row import encode_row
from rowtide.core.protocol.wire import ots_pb2 as pb
from tests.api.calls import key
from tests.model import drafts
from tests.model.drafts import WriteDraft
from tests.model.requests import Refused
from tests.model.row_rules import RowRules
from tests.model.steps import NO_SESSION, Open

__all__ = ["TransactionRules"]

LIFE_S = 60
KNOWN_S = 660
"""For how long a commit is remembered, from the transaction's begin, whatever clocks are set to."""


class TransactionRules(RowRules):
    """A few transactions are remembered, also when they are over; the latest is the first."""

    @precondition(lambda self: sum(opened.live for opened in self.open) < 2)
    @rule(
        table=st.sampled_from([0, 0, 1]),
        partition=st.sampled_from(drafts.PARTITIONS),
        some=st.lists(drafts.writes, max_size=3),
    )
    def begin(self, table: int, partition: str, some: list[WriteDraft]) -> None:
        """Open a transaction, and write in it."""
        self._step("begin")
        pair = self.pairs[table]
        request = pb.StartLocalTransactionRequest(
            table_name=pair.name, key=encode_row(key(partition))
        )
        answer = self._ask(request, lambda answer: [answer.transaction_id])
        until_s = self.world.passed_s + LIFE_S
        model = self._expect(lambda: [pair.model.begin(partition, until_s)])
        if isinstance(answer, list) and isinstance(model, list):
            begun = Open(answer[0], pair, model[0], self.world.passed_s + KNOWN_S)
            self.open = [begun, *self.open[:3]]
            answer = model = "begun"
        self._same((pair.name, partition), answer, model)
        for draft in some if model == "begun" else ():
            self._write_one(draft, 0)

    @precondition(lambda self: bool(self.open))
    @rule(number=st.integers(0, 3), how=st.sampled_from(["Commit", "Commit", "Abort"]))
    def end(self, number: int, how: str) -> None:
        """Commit or abort a transaction, or one that is over."""
        number %= len(self.open)
        opened = self.open[number]
        if how == "Commit" and opened.committed and opened.known_until_s < self.world.passed_s:
            return  # It may be remembered, or not.
        self._step(how)
        self._end(number, how)

    def _end(self, number: int, how: str) -> None:
        opened = self.open[number]
        kind = pb.CommitTransactionRequest if how == "Commit" else pb.AbortTransactionRequest
        answer = self._ask(kind(transaction_id=opened.id), lambda _: "ok")
        model = self._expect(lambda: self._end_model(number, how))
        self._same((how, opened), answer, model)

    def _end_model(self, number: int, how: str) -> str:
        """End a transaction of the model."""
        opened, world = self.open[number], self.world
        if opened.pair not in self.pairs:
            raise Refused(NO_SESSION)
        if how == "Commit" and opened.committed:
            return "ok"
        if not opened.live:
            raise Refused(NO_SESSION)
        if how == "Abort":
            del opened.pair.model.held[opened.held.partition]
            return "ok"
        opened.pair.model.commit(opened.held, world.now_ms, world.high_ms)
        self.open[number] = opened._replace(committed=True)
        return "ok"
