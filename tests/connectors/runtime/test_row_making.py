"""After a row that is ahead of the stream no earlier state follows, whatever fails."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from rowtide.client.changes.api import ApiSource, CurrentRow
from rowtide.client.changes.worker import Batch
from rowtide.client.endpoint import Endpoint
from rowtide.connectors.runtime.row_making import RowMaker
from rowtide.core.records.change import PUT_ROW, UPDATE, Change, ChangeParts, ChangeTable, Kind
from rowtide.core.values import variant
from rowtide.core.values.errors import Unavailable

TABLE = ChangeTable("t", (b"pk",))


class Rows(ApiSource):
    """A table whose rows have no columns, as of ``stamp``. It can fail once."""

    stamp = 0
    fails = False

    async def current(self, keys: Iterable[bytes]) -> dict[bytes, CurrentRow]:
        if self.fails:
            self.fails = False
            raise Unavailable
        return {key: CurrentRow((), self.stamp) for key in keys}


def make_change(kind: Kind, stamp: int) -> Change:
    return Change.of(kind, TABLE, "s1", stamp, ChangeParts([variant.encode("a")], [], None))


async def stamps(maker: RowMaker, *changes: Change, sink_fails: bool = False) -> list[int]:
    """Return the stamps that a sink gets."""
    async with maker.telling(Batch("t", "s1", changes)) as made:
        if sink_fails:
            raise Unavailable
        return [row.stamp for row in made.rows]


@pytest.mark.parametrize("at", ["table", "sink"])
async def test_a_batch_that_fails_tells_nothing_old_when_it_comes_again(at: str) -> None:
    where = "http://127.0.0.1:1"
    endpoint = Endpoint(where, instance="i", access_key_id="k", access_key_secret="s")
    rows = Rows(endpoint, "t")
    maker = RowMaker(rows, every_change=True)
    rows.stamp = 50
    assert await stamps(maker, make_change(UPDATE, 10)) == [50]
    rows.stamp, rows.fails = 60, at == "table"
    batch = (make_change(PUT_ROW, 40), make_change(UPDATE, 60))
    with pytest.raises(Unavailable):
        await stamps(maker, *batch, sink_fails=at == "sink")
    assert await stamps(maker, *batch) == [60]
    assert await stamps(maker, make_change(PUT_ROW, 70)) == [70]
