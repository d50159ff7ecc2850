"""A source that is to begin again while a process runs it."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any, cast

import pytest

from rowtide.client.changes.leases import MemoryLeases, ReaderLease
from rowtide.client.endpoint import Endpoint
from rowtide.connectors.runtime import removal
from rowtide.connectors.runtime.declaration import parse_document
from rowtide.connectors.runtime.place import ProcessContext

FIRST = ReaderLease("#source", 1, "somebody", position=base64.b64encode(b"at 1").decode())


class Renewed(MemoryLeases):
    """The lease of a source that renews it between what others read and what they write."""

    def __init__(self, renewals: int) -> None:
        super().__init__("c")
        self._rows = {FIRST.shard_id: FIRST}
        self._left = renewals

    async def all(self) -> dict[str, ReaderLease]:
        found = await super().all()
        if self._left:
            self._left -= 1
            [lease] = found.values()
            position = base64.b64encode(b"at %d" % (lease.counter + 1)).decode()
            await self.change(lease, lease._replace(position=position))
        return found


class Repeating:
    """A source that can copy its rows again."""

    def begin_again(self, checkpoint: bytes, tables: Sequence[str] = ()) -> bytes:
        return " ".join(["again", *tables]).encode() + b", " + checkpoint


@pytest.mark.parametrize("tables", [(), ("shop.a", "b")])
@pytest.mark.parametrize("renewals", [0, 1, 3])
async def test_it_begins_again_though_its_lease_is_renewed_meanwhile(
    monkeypatch: pytest.MonkeyPatch, renewals: int, tables: tuple[str, ...]
) -> None:
    """Once the new checkpoint met a renewal and was lost without an error."""
    leases = Renewed(renewals)

    def make_leases(*_: Any, **__: Any) -> Renewed:
        return leases

    monkeypatch.setattr(removal, "TableLeases", make_leases)
    monkeypatch.setattr(removal, "make_source", lambda *_: Repeating())
    declared = parse_document("c", {"source": {"kind": "mysql", "host": "h", "user": "u"}})
    place = ProcessContext(cast(Endpoint, None), {}, "")
    if tables:
        await removal.recopy(place, declared, tables)
    else:
        await removal.begin_again(place, declared, "rows")
    [lease] = (await leases.all()).values()
    wanted = " ".join(["again", *tables])
    assert base64.b64decode(lease.position) == f"{wanted}, at {renewals + 1}".encode()
    assert lease.owner == ""
