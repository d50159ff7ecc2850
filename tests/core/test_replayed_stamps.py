"""Stamps rise above every one that was taken, also above those that no record has yet."""

from __future__ import annotations

from rowtide.core.records import record
from tests.core.shard_model import NOW_US, Store
from tests.core.test_replayed_removals import shard

HOUR_US = 3_600_000_000


def test_what_is_folded_amid_a_transaction_does_not_lower_the_stamps_after_it() -> None:
    """A transaction gives versions by stamps that are taken. Its shard folded what others had
    appended, a clock went back an hour, and the next write had an older version than those."""
    owner = shard(Store())
    ahead = owner.take_stamp(NOW_US + HOUR_US)
    envelope = record.Envelope(0, 1, b"otherown", NOW_US, record.SINGLE)
    owner.replay(0, record.encode_record(envelope, record.encode_body(record.NoOp())))
    assert owner.take_stamp(NOW_US) > ahead
