"""Bodies that are JSON: what is wrong with one is told, and nothing happens."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest

from rowtide.core.authentication import Identity
from rowtide.core.catalog import Catalog
from rowtide.core.errors import Rejected
from rowtide.core.limits import Limits
from rowtide.stream.catalog.owner import CatalogOwner
from rowtide.stream.operations.admin_request import json_fields
from rowtide.stream.operations.directory import Directory
from rowtide.stream.operations.index import IndexOperations
from rowtide.stream.operations.table_throttle import TableThrottle
from rowtide.stream.peers.placement import Placement
from rowtide.stream.shards.logs import ShardLogs

ANN = Identity("key-of-ann", "shop", b"")
BAD = {
    "no JSON": b"table=t",
    "cut off": b'{"table": ',
    "no text": b"\xff\xfe",
    "no object": b'["t"]',
    "another field": b'{"tables": "t"}',
    "too deep": b"[" * 200_000,
}


@pytest.mark.parametrize("body", BAD.values(), ids=BAD)
def test_a_body_is_an_object_of_known_fields(body: bytes) -> None:
    with pytest.raises(Rejected) as refused:
        json_fields(body, {"table"})
    assert refused.value.code == "OTSParameterInvalid"


def test_no_body_is_an_object_without_fields() -> None:
    assert json_fields(b"", {"table"}) == {}


@pytest.mark.parametrize("body", BAD.values(), ids=BAD)
async def test_indexes_are_listed_for_a_body_in_order(body: bytes) -> None:
    catalog = Catalog()

    async def finish(_identity: Identity, _body: bytes) -> bytes:
        return b"{}"

    operations = IndexOperations(
        Directory(catalog, {}, Limits(), lambda: 1),
        cast(CatalogOwner, SimpleNamespace(catalog=catalog)),
        cast(ShardLogs, None),
        cast(TableThrottle, None),
        cast(Placement, None),
        finish,
    )
    with pytest.raises(Rejected) as refused:
        await operations.list_indexes(ANN, body)
    assert refused.value.code == "OTSParameterInvalid"
