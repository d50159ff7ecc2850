"""Whatever happens to rows, shards and processes, the embedded index ends as the table."""

from __future__ import annotations

from pathlib import Path

import pytest

from rowtide.deploy.up import Ready
from tests.connectors.histories import check_history

pytestmark = pytest.mark.system


def test_any_history_ends_in_the_table(lone_server: Ready, tmp_path: Path) -> None:
    # One process writes the folder at a time; others that run the connector wait for it.
    check_history(lone_server, tmp_path, {"kind": "tantivy"}, mixed=True, processes_max=1, steps=12)
