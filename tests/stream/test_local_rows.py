"""Which stores are thrown away: those that have not seen a range come to their slot."""

from __future__ import annotations

from pathlib import Path

import pytest

from rowtide.core.mark import encode_mark, mark_key
from rowtide.core.schema import ShardRange
from rowtide.core.shard_state import ShardState
from rowtide.stream.shards.row_store import RowStore
from rowtide.stream.slots.local_rows import known_shards, unseen
from tests.core.shard_model import table

HOME = ShardRange("s1", 0)
CAME = ShardRange("s7", 0, floor_us=500, copied=True, came=True)
PART = ShardRange("s8", 0, floor_us=600, came=True)
ENDED = ShardRange("s7", 0, copied=True, came=True, sealed_us=600, sealed_at=9)

SCENARIOS = {
    "an empty store learns all": (None, [HOME, CAME], []),
    "one that has seen it come": ({"s1", "s7"}, [HOME, CAME], []),
    "one that has not": ({"s1"}, [HOME, CAME], ["s7"]),
    "one that knows a shard that was always here": ({"s7"}, [HOME, CAME], []),
    "one that slept until it was split": ({"s1"}, [HOME, ENDED, PART], ["s8"]),
}


@pytest.mark.parametrize("name", SCENARIOS)
def test_what_a_store_has_not_seen_come(tmp_path: Path, name: str) -> None:
    marks, shards, expected = SCENARIOS[name]
    rows = RowStore(tmp_path / "rows")
    if marks is not None:
        rows.set_changelog_position(5, 0.0)
        state = encode_mark(ShardState(table().options, applied=3))
        rows.write([], [(mark_key(shard_id), state) for shard_id in sorted(marks)])
    assert unseen(known_shards(rows), [(table(), shard) for shard in shards]) == expected
    rows.close()
