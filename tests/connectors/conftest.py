"""A server whose tables connectors read and write."""

from __future__ import annotations

from tests.api.conftest import client, make_table, server

__all__ = ["client", "make_table", "server"]
