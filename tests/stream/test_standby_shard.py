"""A copy of a shard's rows: the fold of the log at its mark, whole transactions, an honest age."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rowtide.core.records import record
from rowtide.core.rows.mutation import DELETE, PUT, UPDATE
from rowtide.core.shard.group import AtomicBatch
from rowtide.core.shard.mark import mark_key
from rowtide.core.shard.shard_state import options_body
from rowtide.core.values.cell import Cell
from rowtide.core.values.errors import Unavailable
from rowtide.core.values.limits import Limits
from rowtide.core.values.schema import LOCAL, Index, ShardRange, Table
from rowtide.stream.log.kafka.brokers import Brokers
from rowtide.stream.log.kafka.tails import LogTails
from rowtide.stream.log.log import Entry
from rowtide.stream.shard.row_store import RowStore
from rowtide.stream.shard.waiting import Reply
from rowtide.stream.slot.standby.standby_shard import StandbyShard, Unflushed
from tests.core.chunk_dictionary import put
from tests.core.shard_model import change, shown_rows, table
from tests.stream.test_changelog_flush import Shop, canonical, columns, open_shop
from tests.support.searches import examples


class Copy:
    """A copy with a log that the test writes; ``reports`` has what it reported."""

    def __init__(self, rows: RowStore, of: Table | None = None) -> None:
        self.rows = rows
        self.reports: list[StandbyShard] = []
        self.shard = StandbyShard(
            of or table(),
            ShardRange("s1", 0),
            rows,
            LogTails(cast(Brokers, None), clock_s=lambda: 0.0),
            lambda shard, _records: self.reports.append(shard),
            limits=Limits(),
        )
        self.shard.begin("log of s1")

    async def read(self, shop: Shop, *, at_once: int = 1000, asked_s: float = 1.0) -> None:
        """Read the log to its end, so many entries at once."""
        _, end = await shop.log.bounds()
        while (at := self.shard.shard.next_offset) < end:
            entries = (await shop.log.read(at, bytes_max=1 << 30))[:at_once]
            self.shard.take(entries, end, asked_s)
        self.shard.take([], end, asked_s)


@contextmanager
def open_copy(path: Path, of: Table | None = None) -> Iterator[Copy]:
    rows = RowStore(path)
    try:
        yield Copy(rows, of)
    finally:
        rows.close()


async def atomically(shop: Shop, *texts: str) -> None:
    reply = Reply(asyncio.get_running_loop())
    shop.owner.submit_group(AtomicBatch([change(text) for text in texts]), reply)
    await reply.future


steps = st.lists(
    st.one_of(
        st.tuples(st.just(PUT), st.integers(0, 2), st.sampled_from([1, 3, 400])),
        st.tuples(st.just(UPDATE), st.integers(0, 2), st.sampled_from([1, 2, 300])),
        st.tuples(st.just(DELETE), st.integers(0, 2), st.just(0)),
        st.sampled_from(["group", "void", "read", "changelog", "again"]),
    ),
    max_size=30,
)


@settings(max_examples=examples(30, 60), suppress_health_check=[*HealthCheck])
@given(steps, st.integers(1, 4))
async def test_rows_are_the_fold_of_the_log_whatever_is_read_when(
    tmp_path_factory: pytest.TempPathFactory, done: list[object], at_once: int
) -> None:
    folder = tmp_path_factory.mktemp("copy")
    async with open_shop(folder / "a") as shop:
        rows = RowStore(folder / "b")
        try:
            copy = Copy(rows)
            applied = 0  # Entries of the changelog that the copy has.
            for number, step in enumerate(done):
                if step == "group":
                    await atomically(shop, f"P x={number}", f"U y={number}")
                elif step == "void":
                    envelope = record.Envelope(10**6, 1, b"otherown", 1, record.SINGLE)
                    void = record.encode_record(envelope, record.encode_body(record.NoOp()))
                    await shop.log.twin().append([(b"", void)], deadline_s=1.0)
                elif step == "read":
                    await copy.read(shop, at_once=at_once)
                    assert canonical(rows) == canonical(shop.rows)
                elif step == "changelog":
                    await shop.flush()
                    await copy.read(shop, at_once=at_once)
                    rows.apply_changelog(shop.written.entries[applied:])
                    applied = len(shop.written.entries)
                    copy.shard.note_flush()
                    assert canonical(rows) == canonical(shop.rows)
                elif step == "again":
                    copy = Copy(rows)
                else:
                    kind, row, count = cast(tuple[int, int, int], step)
                    await shop.write(kind, columns(0, count), "abc"[row])
            await shop.write(PUT, columns(0, 1), "z")  # It learns so of a void entry at the end.
            await copy.read(shop, at_once=at_once)
            assert canonical(rows) == canonical(shop.rows)
            assert rows.get(mark_key("s1")) == shop.rows.get(mark_key("s1"))
        finally:
            rows.close()


async def test_a_transaction_is_there_whole_or_not_at_all(tmp_path: Path) -> None:
    async with open_shop(tmp_path / "a") as shop:
        with open_copy(tmp_path / "b") as copy:
            await atomically(shop, "P a=1", "P b=1")
            await atomically(shop, "U a=2", "U b=2", "P c=2")
            seen: list[str] = []
            for entry in await shop.log.read(0, bytes_max=1 << 30):
                copy.shard.take([entry], 5, 1.0)
                seen.append(shown_rows(copy.rows))
            assert seen == ["-", "a=1 b=1", "a=1 b=1", "a=1 b=1", "a=2 b=2 c=2"]


async def test_a_shard_that_has_ended_is_not_shown_as_new_before_its_seal_was_read(
    tmp_path: Path,
) -> None:
    """The catalog has the seal; a deposed broker may report an earlier end of the log."""
    async with open_shop(tmp_path / "a") as shop:
        with open_copy(tmp_path / "b") as copy:
            await atomically(shop, "P a=1", "P b=1")
            await copy.read(shop, asked_s=1.0)
            assert copy.shard.fresh_s == 1.0
            ended = replace(copy.shard.place, sealed_us=1, sealed_at=5)
            copy.shard.retable(copy.shard.shard.table, ended)
            await copy.read(shop, asked_s=2.0)
            assert (copy.shard.fresh_s, copy.shard.lag) == (1.0, 4)
            assert not copy.shard.has_read_since(1.5)


async def test_a_view_is_as_young_as_the_question_whose_end_it_reached(tmp_path: Path) -> None:
    async with open_shop(tmp_path / "a") as shop:
        with open_copy(tmp_path / "b") as copy:
            for value in range(3):
                await shop.write(PUT, columns(0, value + 1))
            first, *rest = await shop.log.read(0, bytes_max=1 << 30)
            copy.shard.take([first], 3, 10.0)
            assert (copy.shard.fresh_s, copy.shard.lag) == (None, 2)
            with pytest.raises(Unavailable):
                copy.shard.require_readable()
            copy.shard.take(rest, 3, 11.0)
            copy.shard.require_readable()
            assert (copy.shard.fresh_s, copy.shard.lag) == (11.0, 0)
            copy.shard.take([], 4, 12.0)  # There is one more, which did not come yet.
            assert (copy.shard.fresh_s, copy.shard.lag) == (11.0, 1)
            assert copy.shard.has_read_since(11.0)
            assert not copy.shard.has_read_since(11.5)


async def test_a_sealed_log_is_followed_no_more_and_its_view_ages(tmp_path: Path) -> None:
    async with open_shop(tmp_path / "a") as shop:
        with open_copy(tmp_path / "b") as copy:
            await shop.owner.submit_hidden(record.Seal("{}"))
            await copy.read(shop, asked_s=5.0)
            assert copy.shard.has_ended
            copy.shard.take([], 1, 6.0)
            assert copy.shard.fresh_s == 5.0


async def test_what_was_trimmed_comes_from_the_changelog(tmp_path: Path) -> None:
    async with open_shop(tmp_path / "a") as shop:
        with open_copy(tmp_path / "b") as copy:
            await shop.write(PUT, columns(0, 3), "a")
            await copy.read(shop)
            for row in "bcd":
                await shop.write(PUT, columns(0, 3), row)
            await shop.flush()
            await shop.log.trim(4)
            await shop.write(PUT, columns(0, 3), "e")
            copy.shard.note_trim()
            assert copy.shard.lacks
            assert copy.shard.fresh_s is None
            copy.rows.apply_changelog(shop.written.entries)
            copy.shard.mend(lambda _: True)
            assert copy.shard.fresh_s is None
            await copy.read(shop)
            assert copy.shard.fresh_s == 1.0
            assert canonical(copy.rows) == canonical(shop.rows)


INDEX = Index("x", 9, LOCAL, ("v", "pk", "name"), (), 1, whole=False)


async def test_an_index_that_is_not_heard_of_yet_is_waited_for(tmp_path: Path) -> None:
    plain = replace(table(), defined_columns=(("v", 1),))
    indexed = replace(plain, indexes=(INDEX,))
    async with open_shop(tmp_path / "a") as shop:
        with open_copy(tmp_path / "b", plain) as copy:
            shop.owner.shard.retable(indexed)
            await atomically(shop, "P a=1", "P b=2")
            entries = await shop.log.read(0, bytes_max=1 << 30)
            copy.shard.take(entries, 2, 1.0)
            assert copy.shard.lacks
            assert copy.rows.get(mark_key("s1")) is None
            copy.shard.retable(indexed, copy.shard.place)
            copy.shard.mend(lambda number: number == 9)
            await copy.read(shop)
            assert canonical(copy.rows) == canonical(shop.rows)
            assert len(canonical(copy.rows)) == 4


async def test_an_index_dropped_since_is_passed_over(tmp_path: Path) -> None:
    plain = replace(table(), defined_columns=(("v", 1),))
    async with open_shop(tmp_path / "a") as shop:
        with open_copy(tmp_path / "b", plain) as copy:
            shop.owner.shard.retable(replace(plain, indexes=(INDEX,)))
            await atomically(shop, "P a=1", "P b=2")
            copy.shard.take(await shop.log.read(0, bytes_max=1 << 30), 2, 1.0)
            assert copy.shard.lacks
            copy.shard.mend(lambda _number: False)
            await copy.read(shop)
            assert not copy.shard.lacks
            assert shown_rows(copy.rows) == "a=1 b=2"


async def test_a_record_that_cannot_be_read_stops_the_copy_alone(tmp_path: Path) -> None:
    with open_copy(tmp_path / "b") as copy:
        copy.shard.take([Entry(0, b"", b"no record of ours")], 1, 1.0)
        assert copy.shard.broken
        assert copy.shard.has_ended
        with pytest.raises(Unavailable):
            copy.shard.require_readable()


async def test_options_take_effect_where_they_stand_in_the_log(tmp_path: Path) -> None:
    async with open_shop(tmp_path / "a") as shop:
        with open_copy(tmp_path / "b") as copy:
            options = replace(table().options, max_versions=3, time_to_live_s=100_000)
            await shop.owner.submit_hidden(options_body(replace(table(), options=options)))
            await copy.read(shop)
            assert copy.shard.shard.state.options == options


async def test_a_slot_that_opens_on_the_rows_need_not_read_what_the_copy_noted(
    tmp_path: Path,
) -> None:
    async with open_shop(tmp_path / "a") as shop:
        with open_copy(tmp_path / "b") as copy:
            await shop.write(PUT, columns(0, 500), "a")
            await copy.read(shop)
            await shop.flush()
            copy.rows.apply_changelog(shop.written.entries)
            copy.shard.note_flush()
            assert copy.shard.list_unflushed() == Unflushed(0, 0, {}.keys())
            some: list[Cell] = [put("c0007", 1_700_000_000_001, "y")]
            await shop.write(UPDATE, some, "a")
            await shop.write(PUT, columns(0, 1), "b")
            await copy.read(shop)
            known = copy.shard.list_unflushed()
            assert known.is_complete(flushed=0, applied=2)
            assert not known.is_complete(flushed=-1, applied=2)
            assert set(known.keys) == shop.owner.ledger.keys


async def test_a_part_of_a_move_is_not_shown_as_all_there_is(tmp_path: Path) -> None:
    """A deposed leader of the child's log reports an end within the copy."""
    async with open_shop(tmp_path / "a") as shop:
        await atomically(shop, "P a=1", "P b=1")
        rows = [record.CopyEntry(*pair) for pair in shop.rows.scan(b"r", b"s")]
        with open_copy(tmp_path / "b") as copy:
            copy.shard.place = replace(copy.shard.place, copied=True, came=True, floor_us=9)
            parts: list[record.Body] = [
                options_body(table()),
                record.CopyBody("s0", 5, False, rows[:1]),
                record.CopyBody("s0", 6, False, rows[1:]),
                record.CopyBody("s0", 7, True, []),
            ]
            bodies = [record.encode_body(part) for part in parts]
            records = [record.Envelope(at, 1, b"otherown", 1, record.SINGLE) for at in range(4)]
            entries = [
                Entry(at, b"", record.encode_record(envelope, body))
                for at, (envelope, body) in enumerate(zip(records, bodies, strict=True))
            ]
            copy.shard.take(entries[:2], 2, 10.0)
            assert copy.shard.fresh_s is None
            copy.shard.take(entries[2:], 4, 11.0)
            assert copy.shard.fresh_s == 11.0
