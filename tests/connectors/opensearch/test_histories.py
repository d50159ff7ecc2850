"""Whatever happens to rows, shards and processes, the documents end as the table."""

from __future__ import annotations

from pathlib import Path

import pytest

from demo.servers.search_server import SearchServer
from rowtide.deploy.up import Ready
from tests.connectors.histories import check_history
from tests.connectors.opensearch.conftest import LONG

pytestmark = pytest.mark.system


@LONG
def test_any_history_ends_in_the_table(
    server: Ready, search_server: SearchServer, tmp_path: Path
) -> None:
    settings = {"kind": "opensearch", "url": search_server.url, "index": tmp_path.name.lower()}
    check_history(server, tmp_path, settings, mixed=True, processes_max=3, steps=15)
