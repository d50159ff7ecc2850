"""Temporary errors in a slot: they are logged, and the work is retried later."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from rowtide.core.values.errors import LogTrimmed, OutcomeUnknown, Unavailable
from rowtide.stream.log.changelog import Fenced
from rowtide.stream.shard.row_store import StoreFailed

__all__ = ["StoreBehind", "log_failures"]

logger = logging.getLogger(__name__)


class StoreBehind(Exception):
    """The local rows cannot be brought up to date any more: they must be rebuilt from Kafka."""


@contextmanager
def log_failures(what: str) -> Iterator[None]:
    """Log a temporary error; the caller retries later."""
    try:
        yield
    except (Unavailable, OutcomeUnknown, Fenced, LogTrimmed, StoreFailed) as error:
        logger.warning("%s: %s", what, error)
