"""The declared connectors of an instance: rows of the table ``rowtide_connectors``.

Each process that runs connectors reads all rows every second. A row has the document,
whether the connector is paused, and a number that rises with each request to its
processes. If two clients change a row at once, both succeed and the later change counts.
"""

from __future__ import annotations

import json
from typing import NamedTuple

from rowtide.client.endpoint import Endpoint
from rowtide.connectors.fields import SettingsRefused
from rowtide.connectors.runtime.connector_table import CONNECTOR_TABLE
from rowtide.connectors.runtime.declaration import Declaration, parse_document
from rowtide.connectors.runtime.kept_rows import Columns, KeptRows

__all__ = ["Declarations", "DeclaredConnector", "group_of"]

_PART = "declaration"


def group_of(name: str) -> str:
    """Return the name of the consumer that a connector reads as."""
    return f"connector.{name}"


class DeclaredConnector(NamedTuple):
    """A connector and its wanted state. ``failure`` says why its document can't be read
    here.

    ``asked`` rises when an operator asks to retry or skip parked rows.
    """

    name: str
    declaration: Declaration | None
    text: str
    paused: bool
    asked: int
    failure: str = ""


class Declarations:
    """The table of declarations."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._rows = KeptRows(endpoint, CONNECTOR_TABLE, (("connector", str), ("part", str)))

    async def all(self) -> dict[str, DeclaredConnector]:
        """Return every connector by name."""
        found = [
            _read_row(str(key[0]), columns)
            for key, columns in await self._rows.scan()
            if key[1] == _PART
        ]
        return {declared.name: declared for declared in found}

    async def declare(self, declaration: Declaration) -> None:
        """Create a connector, or change only its document."""
        key = (declaration.name, _PART)
        made: Columns = {"document": declaration.text, "paused": False, "asked": 0}
        if not await self._rows.update(key, {"document": declaration.text}):
            await self._rows.put(key, made)

    async def pause(self, name: str, *, paused: bool) -> bool:
        """Pause or resume a connector. True if the connector exists."""
        return await self._rows.update((name, _PART), {"paused": paused})

    async def ask(self, name: str) -> None:
        """Ask the processes of a connector to retry or skip its parked rows."""
        declared = (await self.all()).get(name)
        if declared is not None:
            await self._rows.update((name, _PART), {"asked": declared.asked + 1})

    async def remove(self, name: str) -> None:
        """Delete a connector's declaration."""
        await self._rows.delete((name, _PART))


def _read_row(name: str, columns: Columns) -> DeclaredConnector:
    text = str(columns.get("document", ""))
    paused, asked = bool(columns.get("paused")), int(columns.get("asked", 0))
    try:
        declaration = parse_document(name, json.loads(text))
    except (SettingsRefused, ValueError) as error:
        # A newer version wrote it, or a person did.
        return DeclaredConnector(name, None, text, paused, asked, str(error))
    return DeclaredConnector(name, declaration, declaration.text, paused, asked)
