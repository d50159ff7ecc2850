"""Ctrl-C in child processes of tests."""

from __future__ import annotations

import signal

__all__ = ["heed_ctrl_c"]


def heed_ctrl_c() -> None:
    """Let a child process end at Ctrl-C; for ``preexec_fn`` of ``subprocess.Popen``.

    A shell's background jobs and the processes of pytest-xdist ignore it, and a child inherits
    that.
    """
    signal.signal(signal.SIGINT, signal.SIG_DFL)
