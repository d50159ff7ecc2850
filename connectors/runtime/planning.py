"""What it would change to declare a file's connectors: like a plan, before it is carried out."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from rowtide.connectors.runtime.declaration import Declaration
from rowtide.connectors.runtime.declarations import DeclaredConnector

__all__ = ["ConnectorPlan", "SettingChange", "planned"]

_SECRET = re.compile("password|secret|token|credential|key$", re.IGNORECASE)
_SENT_ALREADY = ("table", "sink", "columns", "filter", "transform")
"""Settings that rows were sent by: what was sent before stays as it was."""
_NOT_SHOWN = "(not shown)"


class SettingChange(NamedTuple):
    """One setting: its place, what is kept now and what the file says; None where it is absent."""

    place: str
    old: str | None
    new: str | None


class ConnectorPlan(NamedTuple):
    """Connectors to make, to change and to delete, and those that stay as they are.

    ``others`` are declared elsewhere: they are left alone.
    """

    made: list[Declaration]
    changed: list[tuple[Declaration, list[SettingChange]]]
    deleted: list[str]
    same: list[str]
    others: list[str]

    @property
    def to_declare(self) -> list[Declaration]:
        """Return what has to be written."""
        return [*self.made, *(declaration for declaration, _ in self.changed)]

    @property
    def to_send_again(self) -> list[str]:
        """Return the connectors whose targets may lack what a change asks for, until rewound."""
        return [
            declaration.name
            for declaration, changes in self.changed
            if any(change.place.split(".")[0] in _SENT_ALREADY for change in changes)
        ]


def planned(
    wanted: Sequence[Declaration], declared: Mapping[str, DeclaredConnector], *, prune: bool
) -> ConnectorPlan:
    """Compare a file with what is declared; with ``prune`` what the file lacks is deleted."""
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
        yield SettingChange(place, _shown(old, place), _shown(new, place))


def _shown(value: object, place: str) -> str | None:
    if value is None:
        return None
    shown = _without_secrets(value, place)
    return _NOT_SHOWN if shown == _NOT_SHOWN else json.dumps(shown, ensure_ascii=False)


def _without_secrets(value: object, place: str) -> object:
    """Return a setting, with nothing of a secret that it is or has inside."""
    if isinstance(value, Mapping):
        return {name: _without_secrets(inner, f"{place}.{name}") for name, inner in value.items()}
    if isinstance(value, list):
        return [_without_secrets(inner, place) for inner in value]
    return _NOT_SHOWN if _SECRET.search(place) and "${" not in str(value) else value
