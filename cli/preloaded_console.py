"""Loads a console's modules once, then runs one console after another as copies of this process.

Loading takes most of a console's start. So a console that was killed is back within a fraction of
a second, which its viewers wait for. The copies share the memory of the modules. Only Linux copies
processes safely; elsewhere this process becomes the console, and its parent starts another one.

Standard input has a line for each console: its command line as JSON. Standard output gets a line
when a console has ended: its status, negative for a signal. SIGTERM, or the end of standard input,
stops the console and then this process.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import select
import signal
import sys

from rowtide.cli.more_workers import PARENT

__all__ = ["main"]

MODULES = "rowtide.cli.console", "rowtide.console.process.serve", "uvloop"
CONSOLE_NICE = 5
"""A page must not slow down a write: where both want the processor, the worker has most of it."""
SIGNALS_READ = 64


def main() -> None:
    """Run consoles until standard input ends."""
    if hasattr(os, "nice"):
        os.nice(CONSOLE_NICE)
    for name in MODULES:
        try:
            importlib.import_module(name)
        except ModuleNotFoundError:
            if name.startswith("rowtide."):
                raise
    if sys.platform == "linux":
        # A collection would write to every object, and so end what the copies share.
        gc.collect()
        gc.freeze()
        words = _Consoles().run()
    else:
        line = sys.stdin.readline()
        words = json.loads(line) if line else None
    if words is not None:
        _run_console(words)


class _Consoles:
    """The console that runs, and what the parent wants of it."""

    def __init__(self) -> None:
        self._signals, self._wakeup = os.pipe()
        self._console = 0
        """Its process id, 0 while there is none."""
        self._is_stopping = False

    def run(self) -> list[str] | None:
        """Return a command line in each copy, and None in this process at its end."""
        os.set_blocking(self._wakeup, False)
        signal.set_wakeup_fd(self._wakeup)
        for number in (signal.SIGCHLD, signal.SIGTERM):
            signal.signal(number, lambda *_: None)
        while not self._is_stopping or self._console:
            awaited = [self._signals] if self._is_stopping else [self._signals, sys.stdin.fileno()]
            ready, _, _ = select.select(awaited, [], [])
            if self._signals in ready:
                self._take_signals(os.read(self._signals, SIGNALS_READ))
            if sys.stdin.fileno() in ready:
                line = sys.stdin.buffer.readline()
                if not line:
                    self._stop()
                elif not self._copy():
                    return [str(word) for word in json.loads(line)]
        return None

    def _take_signals(self, numbers: bytes) -> None:
        if signal.SIGTERM in numbers:
            self._stop()
        if self._console:
            ended, status = os.waitpid(self._console, os.WNOHANG)
            if ended:
                self._console = 0
                print(os.waitstatus_to_exitcode(status), flush=True)  # noqa: T201

    def _stop(self) -> None:
        self._is_stopping = True
        if self._console:
            os.kill(self._console, signal.SIGTERM)

    def _copy(self) -> bool:
        """Copy this process. True in this process, False in the copy, which becomes a console."""
        parent = os.getpid()
        self._console = os.fork()
        if self._console:
            return True
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGCHLD, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
        os.close(self._signals)
        os.close(self._wakeup)
        # The console ends if this process does.
        os.environ[PARENT] = str(parent)
        return False


def _run_console(words: list[str]) -> None:
    with open(os.devnull, "rb") as nothing:
        os.dup2(nothing.fileno(), sys.stdin.fileno())
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    sys.argv[1:] = words
    from rowtide.cli.main import main as run_command

    run_command()
