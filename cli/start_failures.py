"""Why ``rowtide up`` ended, as one sentence, and what to do about it.

Of a tree of failures the first is reported; the others are its consequences.
"""

from __future__ import annotations

import errno
import logging
import socket
from json import JSONDecodeError
from pathlib import Path

from rowtide.cli.credentials import DamagedFile
from rowtide.cli.exits import CommandRefused, Failure, NotNow
from rowtide.cli.settings import Settings
from rowtide.core.records.record import CorruptRecord
from rowtide.core.values.errors import OutcomeUnknown, StoreError, Unavailable
from rowtide.deploy.kafka.errors import EmbeddedKafkaError, JarsUnavailable, JavaUnusable
from rowtide.stream.cluster.worker_directory import DirectoryBusy, OtherCluster

__all__ = ["explain_failure", "first_of"]

logger = logging.getLogger(__name__)


def first_of(error: BaseException) -> BaseException:
    """Return the first failure of a tree of groups."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def explain_failure(error: BaseException, settings: Settings) -> Failure:
    """Return the failure to show for the error that ended a start or a run."""
    cause = first_of(error)
    logger.debug("the reason in full", exc_info=cause)
    of_log = _of_local_log if settings.log == "local" else _of_kafka
    return of_log(cause, settings) or _of_either(cause, settings)


def _of_local_log(cause: BaseException, settings: Settings) -> Failure | None:
    """Return the failure if the local log is the cause."""
    # If one of them was raised, the module is imported already.
    from rowtide.stream.log.local.store import OtherFormat, StoreBusy

    if isinstance(cause, StoreBusy):
        return CommandRefused(
            str(cause), "Stop that one, or choose another directory with --data-dir."
        )
    if isinstance(cause, OtherFormat):
        return CommandRefused(
            str(cause), "Start the version that wrote it, or choose another --data-dir."
        )
    if isinstance(cause, Unavailable | OutcomeUnknown):
        return NotNow(
            f"The log in {settings.data_dir} failed: {cause}",
            "Nothing acknowledged is lost. Check the disk, and start again.",
        )
    if isinstance(cause, OtherCluster):
        return CommandRefused(
            f"The rows in {settings.data_dir} belong to another log than the one there",
            "Restore both from one copy. To continue without these rows, remove the folder 'rows' "
            "and identity.json, or choose another --data-dir.",
        )
    return None


def _of_kafka(cause: BaseException, settings: Settings) -> Failure | None:
    """Return the failure if Kafka, or the connection to it, is the cause."""
    from rowtide.cli.kafka_start import ClusterUnreachable
    from rowtide.stream.log.kafka.errors import NotDurable  # Imports a slow library.

    if isinstance(cause, ClusterUnreachable):
        return NotNow(
            f"Kafka does not answer: {cause}",
            "Check the address, and [kafka_security] in the --config file.",
        )
    if isinstance(cause, NotDurable):
        return _explain_durability(cause, settings)
    if isinstance(cause, Unavailable | OutcomeUnknown):
        return NotNow(
            f"Kafka or another worker failed: {cause}",
            "Nothing acknowledged is lost. Check the brokers, and start again.",
        )
    if isinstance(cause, OtherCluster):
        return CommandRefused(
            str(cause),
            "Check --kafka and --topic-prefix. If Kafka has lost its logs, restore them. To "
            "continue without these rows, choose another --data-dir.",
        )
    return None


def _of_either(cause: BaseException, settings: Settings) -> Failure:
    """Return the failure if the logs are not the cause."""
    if isinstance(cause, StoreError):
        return CommandRefused(str(cause))
    if isinstance(cause, CorruptRecord):
        return CommandRefused(
            f"A log has a record that this version cannot read: {cause}",
            "Start the version that wrote it, or choose another --data-dir.",
        )
    if isinstance(cause, DamagedFile):
        return CommandRefused(
            str(cause), "Restore it. If you remove it, the next start creates another key."
        )
    if isinstance(cause, DirectoryBusy | EmbeddedKafkaError | JSONDecodeError | OSError):
        return _of_this_machine(cause, settings)
    return _unforeseen(cause)


def _explain_durability(cause: StoreError, settings: Settings) -> Failure:
    return CommandRefused(
        str(cause),
        f"The topics do not meet durability '{settings.durability}': change their settings or "
        f"--durability, or choose another --topic-prefix.",
    )


def _of_this_machine(cause: Exception, settings: Settings) -> Failure:
    """Return the failure if the disk, the port, Java or the jars are the cause."""
    if isinstance(cause, JarsUnavailable):
        return CommandRefused(str(cause), f"They are kept in {_cache(settings)}.")
    if isinstance(cause, JavaUnusable):
        return CommandRefused(str(cause), "Without --java, rowtide uses its own Java.")
    if isinstance(cause, JSONDecodeError):
        return CommandRefused(f"A file in {settings.data_dir} is damaged: {cause}", "Restore it.")
    if not isinstance(cause, OSError):
        return CommandRefused(str(cause))
    if cause.errno == errno.EADDRINUSE:
        return CommandRefused(
            f"Port {settings.port} of {settings.host} is in use by another program",
            "Stop that program, or choose another port with --port (0 chooses a free one).",
        )
    unknown = isinstance(cause, socket.gaierror)  # Its numbers differ from errno's.
    refused = cause.errno in (errno.EADDRNOTAVAIL, errno.EACCES) and cause.filename is None
    if unknown or refused:
        return CommandRefused(
            f"Cannot listen on {settings.host} port {settings.port}: {cause.strerror}",
            "Choose another address or port with --host and --port.",
        )
    what = cause.filename or settings.data_dir
    if cause.errno in (errno.ENOTDIR, errno.EEXIST):
        return CommandRefused(f"{what} is not a directory", "Choose another one with --data-dir.")
    if cause.errno in (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOENT):
        return CommandRefused(
            f"Cannot write to {what}: {cause.strerror}",
            "Choose another directory with --data-dir, or change its owner or mode.",
        )
    if cause.errno == errno.ENOSPC:
        return CommandRefused(
            f"No space is left for {what}", "Free some, or choose another --data-dir."
        )
    return CommandRefused(f"{what}: {cause.strerror or cause}")


def _cache(settings: Settings) -> Path | str:
    return settings.cache_dir or "the user's cache directory"


def _unforeseen(cause: BaseException) -> Failure:
    return CommandRefused(
        f"rowtide stopped because of an internal error: {type(cause).__name__}: {cause}",
        "Nothing acknowledged is lost. Please report it with the output of -v.",
    )
