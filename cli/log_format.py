"""What ``rowtide up`` writes to stderr, and from whom.

Our own events always; the libraries' (faust, mode, aiokafka) hardly ever: what matters of theirs
is told again by ours. Aiokafka calls a group coordinator that still starts an error, so it is
silent until one asks for more.
"""

from __future__ import annotations

import copy
import logging
import sys

__all__ = ["set_up_logging"]

LIBRARIES = ("aiokafka", "faust", "mode")
PLAIN = "%(asctime)s %(mark)s%(message)s"
VERBOSE = "%(asctime)s.%(msecs)03d %(mark)s%(name)s: %(message)s"


class _Line(logging.Formatter):
    """``12:30:59 message``, with the level where it is a warning or worse.

    A traceback follows where ``verbose``, and under an ERROR: that is a fault of ours, and nobody
    can find it without one.
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


def set_up_logging(verbosity: int) -> None:
    """Log to stderr: 0 events, 1 (-v) details and tracebacks, 2 (-vv) the libraries as well."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Line(verbose=verbosity > 0))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    logging.getLogger("rowtide").setLevel(logging.DEBUG if verbosity else logging.INFO)
    library_levels = (logging.CRITICAL, logging.WARNING, logging.INFO)
    for name in LIBRARIES:
        logging.getLogger(name).setLevel(library_levels[min(verbosity, 2)])
