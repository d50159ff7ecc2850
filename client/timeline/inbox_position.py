"""What a device remembers of an inbox: the last id that it has of each timeline."""

from __future__ import annotations

import json
from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from rowtide.core.values.errors import invalid
from rowtide.core.values.limits import INT64_MAX

__all__ = ["OWN", "InboxPosition"]

OWN = ""
"""The user's own inbox among those that a reader merges."""

_NOTHING: Mapping[str, int] = MappingProxyType({})


class InboxPosition(NamedTuple):
    """The last id of the user's own inbox, and of each shared inbox by conversation."""

    own: int
    shared: Mapping[str, int] = _NOTHING

    @classmethod
    def of(cls, given: int | str | InboxPosition) -> InboxPosition:
        """Return the position that a device gives. Raises OTSParameterInvalid."""
        if isinstance(given, InboxPosition):
            return given
        if isinstance(given, str):
            return cls._parse(given)
        return cls(_check_id(given))

    @classmethod
    def _parse(cls, text: str) -> InboxPosition:
        try:
            found = json.loads(text)
        except ValueError as error:
            raise invalid(f"No position of an inbox: {text[:100]!r}.") from error
        if not isinstance(found, dict):
            return cls(_check_id(found))
        ids = {name: _check_id(id) for name, id in found.items()}
        return cls(ids.pop(OWN, 0), ids)

    def of_inbox(self, shared: str) -> int:
        """Return the last id of one inbox; 0 at its beginning."""
        return self.shared.get(shared, 0) if shared else self.own

    def move(self, shared: str, id: int) -> InboxPosition:
        """Return the position after a row of one inbox."""
        if not shared:
            return self._replace(own=id)
        return self._replace(shared={**self.shared, shared: id})

    def __str__(self) -> str:
        """Return the text that a device stores: a number unless there are shared inboxes."""
        if not self.shared:
            return str(self.own)
        return json.dumps({OWN: self.own, **self.shared}, ensure_ascii=False)


def _check_id(id: object) -> int:
    if isinstance(id, bool) or not isinstance(id, int) or not 0 <= id < INT64_MAX - 1:
        raise invalid(f"An id in a position of an inbox is 0 to {INT64_MAX - 2}, not {id!r}.")
    return id
