"""Whatever happens to rows, shards and processes, a receiver ends with the table."""

from __future__ import annotations

import base64
import json
import random
from pathlib import Path

import pytest

from rowtide.core.values.variant import Scalar
from rowtide.deploy.up import Ready
from tests.connectors.histories import Columns, check_history
from tests.connectors.webhook.receiver import SECRET
from tests.connectors.webhook.row_keeper import keeping

pytestmark = pytest.mark.system


WHSEC = f"whsec_{base64.b64encode(SECRET).decode()}"


def show_as_json(columns: Columns) -> Columns:
    """Return a row as it is posted, each value as JSON."""
    return {name: json.dumps(_plain(value)) for name, value in columns.items()}


def _plain(value: Scalar) -> object:
    return base64.b64encode(value).decode() if isinstance(value, bytes) else value


def test_any_history_ends_in_the_table(server: Ready, tmp_path: Path) -> None:
    with keeping(random.Random(tmp_path.name)) as keeper:
        settings = {"kind": "webhook", "url": keeper.url, "secret": WHSEC, "rows": 7}
        check_history(
            server,
            tmp_path,
            settings,
            read=keeper.living,
            columns=show_as_json,
            mixed=True,
            processes_max=3,
            steps=15,
        )
