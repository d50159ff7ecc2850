"""JSON bodies: the error says what is wrong with one, and nothing happens."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest

from rowtide.core.cluster.catalog import Catalog
from rowtide.core.protocol.authentication import Identity
from rowtide.core.values.errors import Rejected
from rowtide.core.values.limits import Limits
from rowtide.stream.api.admin_request import json_fields
from rowtide.stream.api.directory import Directory
from rowtide.stream.api.index import IndexOperations
from rowtide.stream.api.table_throttle import TableThrottle
from rowtide.stream.cluster.catalog_owner import CatalogOwner
from rowtide.stream.cluster.placement import Placement
from rowtide.stream.shard.logs import ShardLogs

ANN = Identity("key-of-ann", "shop", b"")
BAD = {
    "no JSON": b"table=t",
    "cut off": b'{"table": ',
    "no text": b"\xff\xfe",
    "no object": b'["t"]',
    "another field": b'{"tables": "t"}',
    "too deep": b"[" * 200_000,
    "half of a pair": b'{"table": "\\ud800"}',
    "half of a pair within": b'{"table": [{"a\\udfff": 1}]}',
    "half of a pair as a field": b'{"\\ud800": "t"}',
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
