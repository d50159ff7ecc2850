"""The settings of a connector as its file gives them, read strictly.

Every reader names the place, what may stand there and what does; a name that nobody asked for is
refused, because a setting with a typing error in it would be silently another.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import TypeVar
from urllib.parse import urlsplit

__all__ = ["Fields", "SettingsRefused"]

_T = TypeVar("_T")
_NO_ENVIRONMENT: Mapping[str, str] = MappingProxyType({})
_FROM_ENVIRONMENT = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")


class SettingsRefused(ValueError):
    """A connector's settings can't be used; the text says which, and why."""


class Fields:
    """The settings at one place of a file, such as ``connectors.orders.sink``.

    Texts may name variables of the environment, ``${NAME}``: secrets stay out of files, and of the
    tables that connectors are kept in. They are put in by ``text`` where the connector runs.
    """

    def __init__(
        self,
        values: object,
        where: str,
        *,
        environment: Mapping[str, str] = _NO_ENVIRONMENT,
    ) -> None:
        if not isinstance(values, Mapping):
            raise SettingsRefused(f"{where} must be a mapping, but is {values!r}.")
        self.where = where
        self._values = values
        self._environment = environment
        self._asked: set[str] = set()

    def text(self, name: str, default: str | None = None) -> str:
        """Return a text; without a default it must be there."""
        value = self._value(name, str, "a text", default)
        return _FROM_ENVIRONMENT.sub(lambda found: self._variable(name, found[1]), value)

    def url(self, name: str) -> str:
        """Return an http or https URL; what is none is not shown, for it may hold a password."""
        text = self.text(name)
        try:
            parts = urlsplit(text)
            fits = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
        except ValueError:  # Of a port that is no number, or half an IPv6 address.
            fits = False
        if not fits or not text.isprintable() or " " in text:
            raise SettingsRefused(f"{self.where}.{name} must be http(s)://HOST[:PORT][/PATH].")
        return text

    def integer(self, name: str, default: int | None = None, *, least: int, most: int) -> int:
        """Return an integer in [least, most]."""
        value = self._value(name, int, "an integer", default)
        if isinstance(value, bool) or not least <= value <= most:
            raise SettingsRefused(
                f"{self.where}.{name} must be an integer in [{least}, {most}], but is {value!r}."
            )
        return value

    def flag(self, name: str, default: bool | None = None) -> bool:
        """Return true or false."""
        return self._value(name, bool, "true or false", default)

    def choice(self, name: str, choices: tuple[str, ...], default: str | None = None) -> str:
        """Return one of ``choices``."""
        value = self._value(name, str, f"one of {', '.join(choices)}", default)
        if value not in choices:
            raise SettingsRefused(
                f"{self.where}.{name} must be one of {', '.join(choices)}, but is {value!r}."
            )
        return value

    def texts(self, name: str) -> tuple[str, ...]:
        """Return a list of texts; empty where it is not there."""
        values = self._value(name, list, "a list of texts", [])
        if not all(isinstance(value, str) for value in values):
            raise SettingsRefused(f"{self.where}.{name} must be a list of texts.")
        return tuple(values)

    def mapping(self, name: str) -> Mapping[str, object]:
        """Return a mapping; empty where it is not there."""
        return self._value(name, dict, "a mapping", {})

    def inner(self, name: str) -> Fields:
        """Return the settings under a name; none where it is not there."""
        return Fields(self.mapping(name), f"{self.where}.{name}", environment=self._environment)

    def names(self) -> list[str]:
        """Return what stands here, where names are the user's own."""
        return [str(name) for name in self._values]

    def has(self, name: str) -> bool:
        """True if a value is given under a name."""
        return self._values.get(name) is not None

    def done(self) -> None:
        """Refuse what nobody asked for."""
        unknown = sorted(str(name) for name in self._values if name not in self._asked)
        if unknown:
            known = ", ".join(sorted(self._asked))
            raise SettingsRefused(
                f"{self.where} has no setting {', '.join(unknown)}; there are {known}."
            )

    def _value(self, name: str, kind: type[_T], wanted: str, default: _T | None) -> _T:
        self._asked.add(name)
        value = self._values.get(name)
        if value is None:
            if default is None:
                raise SettingsRefused(f"{self.where}.{name} is missing; it must be {wanted}.")
            return default
        if not isinstance(value, kind):
            raise SettingsRefused(f"{self.where}.{name} must be {wanted}, but is {value!r}.")
        return value

    def _variable(self, name: str, variable: str) -> str:
        value = self._environment.get(variable)
        if value is None:
            raise SettingsRefused(
                f"{self.where}.{name} names ${{{variable}}}, and there is no such variable."
            )
        return value
