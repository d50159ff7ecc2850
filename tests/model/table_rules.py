"""Rules on tables: their options, their streams, what is reclaimed in them, their end."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from rowtide.core.protocol.wire import ots_pb2 as pb
from tests.model import drafts
from tests.model.pair import Pair, options_message
from tests.model.requests import Options, Stream
from tests.model.steps import Steps
from tests.model.table_model import TableModel

__all__ = ["TableRules"]


class TableRules(Steps):
    """Transactions may be open; one ends with its table.

    ``deletions`` and ``stream_changes`` are how many may come: whole streams are to be long, too.
    """

    def __init__(self) -> None:
        super().__init__()
        self.deletions = self.stream_changes = 0

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
        pair.verify_description()
        self.whole = True

    @precondition(lambda self: self.stream_changes > 0)
    @rule(table=st.sampled_from([0, 0, 1]), stream=st.none() | drafts.streams | drafts.streams)
    def change_stream(self, table: int, stream: Stream | None) -> None:
        """Disable a stream, enable one, or change its hours and original columns."""
        self._step("change_stream")
        self.stream_changes -= 1
        self.pairs[table].change_stream(stream)
        self.whole = True

    @precondition(lambda self: self.deletions > 0)
    @rule(table=st.sampled_from([0, 1]), options=drafts.options, stream=drafts.streams)
    def delete_table(self, table: int, options: Options, stream: Stream) -> None:
        """Delete a table with all it holds, and make another of the same name."""
        self._step("delete_table")
        self.deletions -= 1
        old = self.pairs[table]
        old.verify()
        old.delete()
        old.model.held.clear()
        # A new shard knows of no time before: there is to be none ahead of the clock.
        self.world.set_clock(self.world.high_ms)
        model = TableModel(options, split=old.model.split, auto=old.model.auto, stream=stream)
        self.pairs[table] = Pair(self.world, model, name=old.name)
        self.whole = True

    @precondition(lambda self: any(pair.unread for pair in self.pairs))
    @rule(limit=st.sampled_from([None, None, 1, 3]))
    def follow(self, limit: int | None) -> None:
        """Read what is new in the streams."""
        self._step("follow")
        for pair in self.pairs:
            if pair.followed is not None:
                pair.followed.follow(limit)
        self.whole = True

    @rule(table=st.sampled_from([0, 0, 1]), shard=st.integers(0, 1), number=st.integers(0, 50))
    def seek(self, table: int, shard: int, number: int) -> None:
        """Read a stream from a time on."""
        self._step("seek")
        followed = self.pairs[table].followed
        if followed is not None:
            followed.seek(shard, number)
        self.whole = True

    @precondition(lambda self: any(pair.hidden for pair in self.pairs))
    @rule(resumes=st.booleans())
    def reclaim(self, resumes: bool) -> None:
        """Remove what nobody sees; let the background reclaimer go on while nothing is left."""
        self._step("resume" if resumes else "reclaim")
        for pair in self.pairs:
            self.world.client.call_json("RowtideReclaim", {"table": pair.name})
            pair.model.reclaim(self.world.now_ms)
        if resumes:
            self.world.client.call_json("RowtideResumeReclaimer", {})
            self._same("resumed", self.world.list_paused(), [False] * 2)
            self.world.pause_reclaimer()
        self._same("paused", self.world.list_paused(), [True] * 2)
