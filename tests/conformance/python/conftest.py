"""The official Python SDK, and tables that go after their module."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import count
from typing import Any

import pytest

from rowtide.deploy.up import Ready
from tests.support.signing import REGION, SIGNATURE

MakeTable = Callable[..., str]
KEY = [("pk1", "STRING"), ("pk2", "INTEGER")]
REGIONS = {"v2": None, "v4": REGION}
"""The region that makes the SDK sign with a version."""
_numbers = count()


@pytest.fixture(scope="session")
def ts() -> Any:
    """Return the SDK, imported without its warning that its compiled part does not fit."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return importlib.import_module("tablestore")


@pytest.fixture(scope="session", params=[SIGNATURE])
def sdk(ts: Any, server: Ready, request: pytest.FixtureRequest) -> Iterator[Any]:
    """Return a client that signs with the chosen version; test_signatures.py takes both."""
    client = ts.OTSClient(
        server.endpoint,
        server.access_key_id,
        server.access_key_secret,
        server.instance,
        region=REGIONS[request.param],
    )
    yield client
    client.connection.pool.clear()


@pytest.fixture(scope="module")
def make_table(ts: Any, sdk: Any) -> Iterator[MakeTable]:
    """Make a table under a fresh name."""
    with ExitStack() as made:

        def make(key: Any = KEY, *, split_points: Any = None, **options: Any) -> str:
            name = f"python_{next(_numbers)}"
            sdk._create_table_ex(
                ts.TableMeta(name, list(key)),
                ts.TableOptions(**options),
                ts.ReservedThroughput(ts.CapacityUnit(0, 0)),
                split_points=split_points,
            )
            made.callback(sdk.delete_table, name)
            return name

        yield make


@pytest.fixture(scope="module")
def table(make_table: MakeTable) -> str:
    """Return a table of the module, keyed pk1 STRING, pk2 INTEGER."""
    return make_table(max_version=5, max_time_deviation=2**33)


@pytest.fixture
def row() -> list[tuple[str, Any]]:
    """Return a key that no other test uses."""
    return [("pk1", "row"), ("pk2", next(_numbers))]
