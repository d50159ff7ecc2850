"""Why an embedded broker could not be brought up, and what the user can do about it.

    EmbeddedKafkaError
    ├── JarsUnavailable     the jars could not be fetched, or one does not fit its digest
    ├── JavaUnusable        no Java, or one older than Kafka needs
    ├── DirectoryInUse      another rowtide owns the data directory
    ├── PortTaken           the port the user asked for belongs to another program
    └── BrokerFailed        the broker, or its directory, did not do what a start needs

Every message is written for the person at the terminal: it names the thing and the way out.
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
    "translated",
]


class EmbeddedKafkaError(Exception):
    """The embedded broker is not running. The data directory is as it was."""


class JarsUnavailable(EmbeddedKafkaError):
    """A jar could not be fetched, or its bytes are not those that were locked."""


class JavaUnusable(EmbeddedKafkaError):
    """The Java that was named does not run, or is too old."""


class DirectoryInUse(EmbeddedKafkaError):
    """Another running rowtide owns the data directory."""


class PortTaken(EmbeddedKafkaError):
    """The port that the user asked for is in use by another program."""


class BrokerFailed(EmbeddedKafkaError):
    """The broker ended or did not answer, or its directory cannot be written (a full disk)."""


@contextmanager
def translated(kind: type[EmbeddedKafkaError], doing: str) -> Iterator[None]:
    """Turn what the operating system refuses into ``kind``."""
    try:
        yield
    except OSError as error:
        raise kind(f"{doing}: {error}") from error
