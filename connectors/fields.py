"""Strict reading of a connector's settings as its file gives them.

Each error names the setting, what is allowed there and what was found. A name that no
reader used is refused, because a misspelt setting would otherwise silently keep its
default.
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
    """A connector's settings can't be used. The text names the setting and the reason."""


class Fields:
    """The settings at one place of a file, such as ``connectors.orders.sink``.

    Texts may name environment variables, ``${NAME}``. So secrets need not be in files or
    in the tables that store connectors. ``text`` resolves them in the process that runs
    the connector.
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
        """Return a text. Without a default the setting is required."""
        value = self._value(name, str, "a text", default)
        return _FROM_ENVIRONMENT.sub(lambda found: self._variable(name, found[1]), value)

    def url(self, name: str) -> str:
        """Return an http or https URL. An error does not show the value: it may hold a password."""
        text = self.text(name)
        try:
            parts = urlsplit(text)
            fits = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
        except ValueError:  # The port is no number, or an IPv6 address is incomplete.
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
        """Return a list of texts, empty if the setting is absent."""
        values = self._value(name, list, "a list of texts", [])
        if not all(isinstance(value, str) for value in values):
            raise SettingsRefused(f"{self.where}.{name} must be a list of texts.")
        return tuple(values)

    def mapping(self, name: str) -> Mapping[str, object]:
        """Return a mapping, empty if the setting is absent."""
        return self._value(name, dict, "a mapping", {})

    def inner(self, name: str) -> Fields:
        """Return the settings under a name, empty if the name is absent."""
        return Fields(self.mapping(name), f"{self.where}.{name}", environment=self._environment)

    def names(self) -> list[str]:
        """Return the names here, for a mapping whose names the user chooses."""
        return [str(name) for name in self._values]

    def has(self, name: str) -> bool:
        """True if the setting has a value."""
        return self._values.get(name) is not None

    def refuse_unknown(self) -> None:
        """Refuse settings that no reader used. Raises SettingsRefused."""
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
                f"{self.where}.{name} names ${{{variable}}}, but no such variable is set."
            )
        return value
