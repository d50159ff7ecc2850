"""The server that the official SDKs' programs run against, as the tests of the protocol have it."""

from tests.api.conftest import client, server

__all__ = ["client", "server"]
