"""Why an embedded broker could not be started, and what the user can do about it.

    EmbeddedKafkaError
    ├── JarsUnavailable     a jar could not be downloaded, or has a wrong digest
    ├── JavaUnusable        no Java, or one older than Kafka needs
    ├── DirectoryInUse      another rowtide owns the data directory
    ├── PortTaken           another program uses the requested port
    └── BrokerFailed        the broker, or its directory, failed

Every message is for the user: it names the thing and says what to do.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

__all__ = [
    "BrokerFailed",
    "DirectoryInUse",
    "EmbeddedKafkaError",
    "JarsUnavailable",
    "JavaUnusable",
    "PortTaken",
    "convert_os_errors",
]


class EmbeddedKafkaError(Exception):
    """The embedded broker is not running. The data directory is as it was."""


class JarsUnavailable(EmbeddedKafkaError):
    """A jar could not be downloaded, or does not have its locked digest."""


class JavaUnusable(EmbeddedKafkaError):
    """The named Java does not run, or is too old."""


class DirectoryInUse(EmbeddedKafkaError):
    """Another running rowtide owns the data directory."""


class PortTaken(EmbeddedKafkaError):
    """The requested port is in use by another program."""


class BrokerFailed(EmbeddedKafkaError):
    """The broker ended or did not answer, or its directory cannot be written (a full disk)."""


@contextmanager
def convert_os_errors(kind: type[EmbeddedKafkaError], doing: str) -> Iterator[None]:
    """Turn an OSError into ``kind``."""
    try:
        yield
    except OSError as error:
        raise kind(f"{doing}: {error}") from error
