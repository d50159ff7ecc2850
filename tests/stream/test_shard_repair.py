"""What a repair keeps of a shard whose log lost its end: all that the rows have."""

from __future__ import annotations

from pathlib import Path

from rowtide.core.records import record
from rowtide.core.rows.mutation import PUT
from rowtide.core.shard.index import build_key, feed_key
from rowtide.core.shard.source_position import positions_of
from rowtide.core.shard.transaction_id import TransactionId, commit_key
from rowtide.stream.log.log import Entry
from rowtide.stream.slot.opening.shard_repair import Loss, hold_rows
from tests.core.shard_model import table
from tests.stream.test_changelog_flush import Shop, columns, open_shop

COMMITTED = TransactionId("s1", 1_700_000_000_000_000, 7)
OWN, OTHERS = build_key(8, "s1"), (build_key(8, "s2"), feed_key(8, "s1"))
"""How far indexes are: one that the shard builds, and what other shards note of it."""


def fold(shop: Shop, *bodies: record.Body) -> None:
    """Let the log have had records that were applied."""
    state = shop.owner.shard.state
    for body in bodies:
        place = record.Envelope(state.applied + 1, 1, b"ownerid8", state.stamp + 1, record.SINGLE)
        value = record.encode_record(place, record.encode_body(body))
        shop.owner.fold.replay([Entry(state.applied + 1, b"", value)])


async def test_what_is_noted_beside_the_rows_is_in_the_changelog_too(tmp_path: Path) -> None:
    """Else a rebuild took a source's rows again, knew of no commit, and stopped an index
    for good. The mark says that nothing is lacking, and the log has no-ops in the place
    of these records.
    """
    number = table().table_id
    async with open_shop(tmp_path / "a") as shop:
        await shop.write(PUT, columns(0, 2))
        fold(
            shop,
            record.Commit(str(COMMITTED)),
            record.SourcePosition("mysql", b"", b"", b"5"),
            record.IndexFeed("s9", 7, 1, ()),
        )
        applied = shop.owner.shard.state.applied
        shop.rows.write([(key, b"1") for key in (OWN, *OTHERS)])
    async with open_shop(tmp_path / "a") as again:  # Its log is empty.
        hold_rows(again.owner, Loss("s1", 0, applied, in_rows=True))
        await again.flush()
        entries, low_high = again.written.last(), positions_of(number)
        assert again.written.chunks() == again.chunks()
        [(position, value)] = again.rows.scan(*low_high)
        assert entries.get(position) == value
        assert not entries.keys() & set(OTHERS)
        for noted in (commit_key(COMMITTED), feed_key(number, "s9"), OWN):
            assert again.rows.get(noted) is not None
            assert entries.get(noted) == again.rows.get(noted)
