"""What ``rowtide up`` logs to stderr, and how: lines for people, or JSON for programs.

Our own events are always logged. Events of the libraries (faust, mode, aiokafka) are mostly hidden:
our log repeats those that matter. Aiokafka reports a starting group coordinator as an error, so it
is silent without -v.
"""

from __future__ import annotations

import copy
import json
import logging
import sys
from datetime import UTC, datetime

__all__ = ["LOG_FORMATS", "set_up_logging"]

LOG_FORMATS = ("text", "json")
LIBRARIES = ("aiokafka", "faust", "mode")
PLAIN = "%(asctime)s %(mark)s%(message)s"
VERBOSE = "%(asctime)s.%(msecs)03d %(mark)s%(name)s: %(message)s"


class _Line(logging.Formatter):
    """``12:30:59 message``, with the level of warnings and errors.

    A traceback follows with ``verbose``, and after an ERROR: that is a bug of ours, and needs one.
    """

    def __init__(self, *, verbose: bool) -> None:
        super().__init__(VERBOSE if verbose else PLAIN, "%H:%M:%S")
        self._verbose = verbose

    def format(self, record: logging.LogRecord) -> str:
        line = copy.copy(record)
        line.mark = f"{line.levelname} " if line.levelno >= logging.WARNING else ""
        if not self._verbose and line.levelno < logging.ERROR:
            line.exc_info = line.exc_text = line.stack_info = None
        return super().format(line)


class _Object(logging.Formatter):
    """One JSON object per line: time (UTC), level, logger, message, and the record's ``fields``.

    Fields of a request are request_id, operation, instance, table, code and seconds.
    """

    def __init__(self, *, verbose: bool) -> None:
        super().__init__()
        self._verbose = verbose

    def format(self, record: logging.LogRecord) -> str:
        at = datetime.fromtimestamp(record.created, UTC)
        line = {
            "time": at.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **getattr(record, "fields", {}),
        }
        if record.exc_info and (self._verbose or record.levelno >= logging.ERROR):
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False, default=str)


def set_up_logging(verbosity: int, log_format: str = "text") -> None:
    """Log to stderr: 0 events, 1 (-v) details and tracebacks, 2 (-vv) the libraries as well."""
    handler = logging.StreamHandler(sys.stderr)
    kind = _Object if log_format == "json" else _Line
    handler.setFormatter(kind(verbose=verbosity > 0))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    logging.getLogger("rowtide").setLevel(logging.DEBUG if verbosity else logging.INFO)
    library_levels = (logging.CRITICAL, logging.WARNING, logging.INFO)
    for name in LIBRARIES:
        logging.getLogger(name).setLevel(library_levels[min(verbosity, 2)])
