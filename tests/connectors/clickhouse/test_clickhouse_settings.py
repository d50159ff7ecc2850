"""The settings of a ClickHouse sink, and its errors before there is a server."""

from __future__ import annotations

import pytest

from rowtide.connectors.fields import Fields, SettingsRefused
from rowtide.connectors.registry import ConnectorContext, make_sink
from rowtide.core.values.errors import Unavailable
from tests.connectors.analytics.facts import SHAPE

PLACE = ConnectorContext("x", "/nowhere")


def test_names_that_would_need_escapes_are_refused() -> None:
    for setting in ("database", "view"):
        given = {"kind": "clickhouse", "url": "http://127.0.0.1:1", setting: "it's"}
        with pytest.raises(SettingsRefused, match=setting):
            make_sink(Fields(given, "connectors.x.sink"), PLACE)


async def test_a_server_that_is_not_there_is_unavailable() -> None:
    given = {"kind": "clickhouse", "url": "http://127.0.0.1:1"}
    sink = make_sink(Fields(given, "connectors.x.sink"), PLACE)
    with pytest.raises(Unavailable, match=r"127\.0\.0\.1"):
        await sink.open(SHAPE)
    await sink.close()
