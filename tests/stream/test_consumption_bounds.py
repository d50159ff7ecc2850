"""A time that no clock can show is rejected; it is no fault of the server."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from rowtide.core.protocol.authentication import Identity
from rowtide.core.values.errors import Rejected
from rowtide.stream.measures.consumption import Consumption
from rowtide.stream.measures.consumption_file import ConsumptionFile
from rowtide.stream.worker.cluster_operations import ClusterOperations


@pytest.mark.parametrize("bound", ["from", "to"])
async def test_a_time_that_no_file_can_hold_is_refused(bound: str, tmp_path: Path) -> None:
    consumption = Consumption(lambda: 1.0)
    consumption.keep(ConsumptionFile(tmp_path / "file"), tuple)
    keys = {"k": SimpleNamespace(admin=True)}
    catalog = SimpleNamespace(keys=keys, instances={"demo": None})
    directory: Any = SimpleNamespace(catalog=catalog, consumption=consumption)

    async def nobody(*_asked: object) -> dict[str, bytes]:
        return {}

    nothing = cast(Any, None)
    operations = ClusterOperations(
        directory, nothing, cast(Any, SimpleNamespace(ask=nobody)), nothing, nothing, nothing
    )
    body = json.dumps({bound: 2**64}).encode()
    with pytest.raises(Rejected, match="must lie within"):
        await operations.consumption(Identity("k", "demo", b""), body)
