"""Whatever happens to rows, shards and processes, a sink ends as the table."""

from __future__ import annotations

from pathlib import Path

import pytest

from rowtide.deploy.up import Ready
from tests.connectors.histories import Columns, check_history
from tests.connectors.sqlite_sink import KIND, read_file_rows

pytestmark = pytest.mark.system


def as_kept(columns: Columns) -> Columns:
    return {n: v.hex() if isinstance(v, bytes) else v for n, v in columns.items()}


def test_any_history_ends_in_the_table(server: Ready, tmp_path: Path) -> None:
    path = str(tmp_path / "rows.db")
    check_history(
        server,
        tmp_path,
        {"kind": KIND, "path": path},
        read=lambda: read_file_rows(path),
        columns=as_kept,
        mixed=True,
        processes_max=3,
    )
