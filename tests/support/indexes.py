"""Waiting for global indexes, which follow their tables a moment later."""

from __future__ import annotations

from typing import Any

from rowtide.cli.client import ProtocolClient
from tests.support.waiting import until

__all__ = ["wait_until_followed"]


def wait_until_followed(client: ProtocolClient, table: str, *names: str) -> None:
    """Return once indexes of a table are built and behind nothing: those named, or all."""

    def list_named() -> list[dict[str, Any]]:
        found = client.call_json("RowtideListIndexes", {"table": table})["indexes"]
        return [index for index in found if not names or index["name"] in names]

    def has_followed() -> bool:
        found = list_named()
        return bool(found) and all(
            index["behind"] == 0 and index["phase"] == "following" for index in found
        )

    until(has_followed, list_named, poll_s=0.02)
