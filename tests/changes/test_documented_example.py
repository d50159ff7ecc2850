"""The first example of docs/guides/change-reader.md does what it says, in ten lines."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest

from rowtide.cli.client import ProtocolClient
from rowtide.client.wire_row import Put
from rowtide.deploy.up import Ready
from tests.api.conftest import KEY
from tests.changes.conftest import STREAM

pytestmark = pytest.mark.system

PAGE = Path(__file__).resolve().parents[2] / "docs/guides/change-reader.md"
LINES_MAX = 10


async def test_the_example_prints_changes(
    server: Ready, admin: ProtocolClient, capsys: pytest.CaptureFixture[str]
) -> None:
    example = re.search(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert example is not None
    assert len(example[1].split("\n\n")[1].splitlines()) <= LINES_MAX
    await asyncio.to_thread(admin.create_table, "orders", KEY, stream=STREAM)
    put = [Put("amount", 7)]
    await asyncio.to_thread(admin.put_row, "orders", (("PK1", "a"), ("PK2", 1)), put)
    made: dict[str, Any] = {}
    exec(example[1], made)
    printed = ""
    async with asyncio.timeout(30), asyncio.TaskGroup() as tasks:
        keys = server.instance, server.access_key_id, server.access_key_secret
        running = tasks.create_task(made["report"](server.endpoint, *keys))
        while "\n" not in printed:
            await asyncio.sleep(0.01)  # Its output is only what it prints.
            printed += capsys.readouterr().out
        running.cancel()
    assert printed == "put {'PK1': 'a', 'PK2': 1} {'amount': 7}\n"
    await asyncio.to_thread(admin.delete_table, "orders")
