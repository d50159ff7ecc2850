"""The numbers of a dashboard as viewers get them: documents, and what changed between two of them.

Numbers are state. A viewer that was away needs the present ones, and nothing of what was between.
So an event has the panels that changed since the event that a viewer has, however long ago that
was. A viewer that is slow misses events, and no number.
"""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Mapping, Sequence
from typing import Any

from rowtide.core.release import VERSION
from rowtide.dashboards.runtime.numbers import DashboardNumbers

__all__ = ["ShownNumbers"]

PANEL_FORM = ("title", "chart", "unit", "columns")
FRAMES_KEPT_MAX = 16


class ShownNumbers:
    """The newest document of a dashboard, with a number for each time that it changed.

    An id of an event is ``EPOCH-NUMBER``. The epoch is that of this object: a viewer with an id of
    another one, or without an id, gets all panels.
    """

    def __init__(self) -> None:
        self.document: dict[str, Any] = {}
        """As ``numbers_document`` returns it, with ``status``, ``lag`` and ``troubles``."""
        self.numbers: DashboardNumbers | None = None
        self.version = 0
        self._epoch = secrets.token_hex(4)
        self._panels: dict[str, int] = {}
        """The version at which each panel changed last."""
        self._frames: dict[int, bytes] = {}

    def show(self, document: dict[str, Any], numbers: DashboardNumbers | None) -> bool:
        """Replace the document; return True if anything changed."""
        if document == self.document:
            self.numbers = numbers
            return False
        former: Mapping[str, Any] = self.document.get("panels", {})
        self.document, self.numbers = document, numbers
        self.version += 1
        self._frames.clear()
        self._panels = {
            name: self._panels[name] if former.get(name) == panel else self.version
            for name, panel in document["panels"].items()
        }
        return True

    @property
    def event_id(self) -> str:
        """The id of an event with the present numbers."""
        return f"{self._epoch}-{self.version}"

    def version_of(self, event_id: str) -> int:
        """Return the version that a viewer with this id has; 0 if it needs everything."""
        epoch, _, version = event_id.partition("-")
        is_known = epoch == self._epoch and version.isascii() and version.isdecimal()
        return min(int(version[:18]), self.version) if is_known else 0

    def content_after(self, version: int) -> bytes:
        """Return the JSON of the present numbers, with the panels that changed since a version."""
        content = self._frames.get(version)
        if content is None:
            panels: Mapping[str, Any] = self.document["panels"]
            changed = {name: panels[name] for name, at in self._panels.items() if at > version}
            event = {**self.document, "layout": layout_of(self.document), "panels": changed}
            content = json.dumps(event, ensure_ascii=False, allow_nan=False).encode()
            while len(self._frames) >= FRAMES_KEPT_MAX:
                del self._frames[next(iter(self._frames))]
            self._frames[version] = content
        return content


def layout_of(document: Mapping[str, Any]) -> str:
    """Return a name for everything of a page that its module does not change.

    A page with another name loads itself again: after a change of titles, and after an upgrade.
    """
    panels: Mapping[str, Any] = document["panels"]
    forms: Sequence[Any] = [
        [name, *(panel[part] for part in PANEL_FORM)] for name, panel in panels.items()
    ]
    text = json.dumps([VERSION, document["is_former"], forms])
    return hashlib.sha256(text.encode()).hexdigest()[:16]
