"""An instance of a running server, for one test."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from rowtide.cli.client import ProtocolClient

if TYPE_CHECKING:
    from rowtide.client import Client as RowtideClient

__all__ = ["InstanceAccess"]


@dataclass(frozen=True, slots=True)
class InstanceAccess:
    """The address of an instance, and a key pair for it."""

    endpoint: str
    name: str
    access_key_id: str
    access_key_secret: str = field(repr=False)
    _clients: list[Any] = field(default_factory=list, repr=False)

    def admin(self) -> ProtocolClient:
        """Return a connection of rowtide's own client, which also reads streams."""
        return ProtocolClient(
            self.endpoint,
            instance=self.name,
            access_key_id=self.access_key_id,
            access_key_secret=self.access_key_secret,
        )

    def connect(self, **options: Any) -> RowtideClient:
        """Return a ``rowtide.client.Client``, made with ``options``. Close it."""
        from rowtide.client import Client as RowtideClient

        return RowtideClient(
            self.endpoint,
            instance=self.name,
            access_key_id=self.access_key_id,
            access_key_secret=self.access_key_secret,
            **options,
        )

    def client(self, **options: Any) -> Any:
        """Return a ``tablestore.OTSClient``, made with ``options``.

        Raises ``ImportError`` if the official SDK is not installed.
        """
        with warnings.catch_warnings():
            # At import the SDK warns that its compiled codec is for another Python.
            warnings.simplefilter("ignore", ImportWarning)
            try:
                from tablestore import OTSClient
            except ImportError as error:
                raise ImportError("The official SDK is missing: pip install tablestore") from error
        client = OTSClient(
            self.endpoint, self.access_key_id, self.access_key_secret, self.name, **options
        )
        self._clients.append(client)
        return client

    def close(self) -> None:
        """Close the connections of all clients, because the SDK does not close its own."""
        for client in self._clients:
            client.connection.pool.clear()
