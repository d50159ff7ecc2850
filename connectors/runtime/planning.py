"""A plan of what a file's declarations would change."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from rowtide.connectors.runtime.declaration import Declaration
from rowtide.connectors.runtime.declarations import DeclaredConnector

__all__ = ["ConnectorPlan", "SettingChange", "plan_changes"]

_SECRET = re.compile("password|secret|token|credential|key$", re.IGNORECASE)
_SENT_ALREADY = ("table", "sink", "columns", "filter", "transform")
"""Settings that decide what is sent. A change does not affect rows that were sent before."""
_NOT_SHOWN = "(not shown)"


class SettingChange(NamedTuple):
    """One setting: its place, the stored value and the file's value. None means absent."""

    place: str
    old: str | None
    new: str | None


class ConnectorPlan(NamedTuple):
    """Connectors to create, to change and to delete, and those that stay the same.

    ``others`` are declared elsewhere and are left alone.
    """

    made: list[Declaration]
    changed: list[tuple[Declaration, list[SettingChange]]]
    deleted: list[str]
    same: list[str]
    others: list[str]

    @property
    def to_declare(self) -> list[Declaration]:
        """The declarations to write."""
        return [*self.made, *(declaration for declaration, _ in self.changed)]

    @property
    def to_send_again(self) -> list[str]:
        """Connectors whose targets may need a rewind to get the change."""
        return [
            declaration.name
            for declaration, changes in self.changed
            if any(change.place.split(".")[0] in _SENT_ALREADY for change in changes)
        ]


def plan_changes(
    wanted: Sequence[Declaration], declared: Mapping[str, DeclaredConnector], *, prune: bool
) -> ConnectorPlan:
    """Compare a file with the stored declarations. With ``prune`` delete what the file lacks."""
    plan = ConnectorPlan([], [], [], [], [])
    for declaration in wanted:
        known = declared.get(declaration.name)
        if known is None:
            plan.made.append(declaration)
        elif known.text == declaration.text:
            plan.same.append(declaration.name)
        else:
            old = json.loads(known.text) if known.text else {}
            plan.changed.append((declaration, list(_changes(old, declaration.document, ""))))
    missing = sorted(declared.keys() - {declaration.name for declaration in wanted})
    (plan.deleted if prune else plan.others).extend(missing)
    return plan


def _changes(old: object, new: object, place: str) -> Iterator[SettingChange]:
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        for name in sorted(old.keys() | new.keys()):
            inner = f"{place}.{name}" if place else str(name)
            yield from _changes(old.get(name), new.get(name), inner)
    elif old != new:
        yield SettingChange(place, _format_setting(old, place), _format_setting(new, place))


def _format_setting(value: object, place: str) -> str | None:
    if value is None:
        return None
    shown = _without_secrets(value, place)
    return _NOT_SHOWN if shown == _NOT_SHOWN else json.dumps(shown, ensure_ascii=False)


def _without_secrets(value: object, place: str) -> object:
    """Return a setting without any secret in it."""
    if isinstance(value, Mapping):
        return {name: _without_secrets(inner, f"{place}.{name}") for name, inner in value.items()}
    if isinstance(value, list):
        return [_without_secrets(inner, place) for inner in value]
    return _NOT_SHOWN if _SECRET.search(place) and "${" not in str(value) else value
