"""Whatever happens to rows, shards and processes, a topic amounts to the table."""

from __future__ import annotations

from pathlib import Path

import pytest

from rowtide.deploy.up import Ready
from tests.connectors.histories import check_history

pytestmark = [pytest.mark.system, pytest.mark.kafka]


@pytest.mark.parametrize("form", ["json", pytest.param("json-schemas", marks=pytest.mark.slow)])
def test_any_history_ends_in_the_table(
    server: Ready, broker: str, topic: str, tmp_path: Path, form: str
) -> None:
    settings = {"kind": "kafka", "brokers": broker, "topic": topic, "format": form}
    check_history(server, tmp_path, settings, mixed=True, processes_max=3, steps=12)
