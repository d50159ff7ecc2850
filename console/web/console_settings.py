"""What can be set about a console. ``cli/console.py`` makes it of flags and the data directory."""

from __future__ import annotations

from dataclasses import dataclass, replace
from urllib.parse import urlsplit

from rowtide.console.workers.calls import KeyPair

__all__ = ["ConsoleSettings", "parse_hidden_columns"]


@dataclass(frozen=True, slots=True)
class ConsoleSettings:
    """One console process.

    ``endpoint`` is the worker that it calls, ``http://HOST:PORT``. ``own_key`` reads what all
    viewers share (figures and streams) in ``instance``; no person acts with it. ``public_url`` is
    the address under which browsers reach the console through a proxy, empty without one. Values
    of ``hidden_columns``, pairs of table and column, never leave the process.
    """

    endpoint: str
    instance: str
    own_key: KeyPair
    host: str = "127.0.0.1"
    port: int = 0
    public_url: str = ""
    hidden_columns: frozenset[tuple[str, str]] = frozenset()

    def __post_init__(self) -> None:
        if not 0 <= self.port <= 65535:
            raise ValueError(f"port must be 0 to 65535, not {self.port}")
        if self.public_url:
            parts = urlsplit(self.public_url)
            if parts.scheme not in ("http", "https") or not parts.hostname or parts.path.strip("/"):
                raise ValueError(
                    f"console_url must be https://HOST[:PORT] without a path, not "
                    f"{self.public_url!r}"
                )

    @property
    def public_port(self) -> int:
        """Port at which browsers reach the console."""
        public = urlsplit(self.public_url)
        if not self.public_url:
            return self.port
        return public.port or (443 if public.scheme == "https" else 80)

    def at_port(self, port: int) -> ConsoleSettings:
        """Return the settings with the port that the console got."""
        return replace(self, port=port)


def parse_hidden_columns(text: str) -> frozenset[tuple[str, str]]:
    """Return the pairs of ``TABLE.COLUMN[,TABLE.COLUMN ...]``. Raises ``ValueError``."""
    pairs: set[tuple[str, str]] = set()
    for part in filter(None, (part.strip() for part in text.split(","))):
        table, _, column = part.partition(".")
        if not table or not column:
            raise ValueError(f"console_hide must be TABLE.COLUMN[,TABLE.COLUMN ...], not {part!r}")
        pairs.add((table, column))
    return frozenset(pairs)
