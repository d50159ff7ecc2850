"""Loads modules of rowtide once, then runs each requested command in a copy of this process.

``tests/support/copies.py`` starts it and says which modules. Standard input is a socket. A message
is a request as JSON, with four file descriptors: standard input, output and error of the copy, and
a socket for its process id and, once it has ended, its status. When standard input ends, so do all
copies: they never outlive the tests.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import runpy
import select
import signal
import socket
import sys
from typing import Any

REQUEST_BYTES_MAX = 1 << 20
"""Arguments and environment of a copy."""
FILES = 4


class Copier:
    """Makes copies, and tells how they ended."""

    def __init__(self, requests: socket.socket) -> None:
        self._requests = requests
        self._running: dict[int, tuple[int, socket.socket]] = {}
        """By file descriptor of the process: its id, and who wants its status."""
        self._poll = select.poll()
        self._poll.register(requests, select.POLLIN)

    def run(self) -> dict[str, Any] | None:
        """Return a request in each copy, and None in this process at the end."""
        while True:
            for descriptor, _ in self._poll.poll():
                if descriptor != self._requests.fileno():
                    self._report(descriptor)
                    continue
                text, files, _, _ = socket.recv_fds(self._requests, REQUEST_BYTES_MAX, FILES)
                if not text:
                    self._end_all()
                    return None
                request: dict[str, Any] = json.loads(text)
                if self._copy(request, files):
                    return request

    def _copy(self, request: dict[str, Any], files: list[int]) -> bool:
        """Copy this process. True in the copy, False in this process."""
        pid = os.fork()
        if pid:
            answers = socket.socket(fileno=files.pop())
            for file in files:
                os.close(file)
            descriptor = os.pidfd_open(pid)
            self._running[descriptor] = (pid, answers)
            self._poll.register(descriptor, select.POLLIN)
            answers.send(str(pid).encode())
            return False
        self._requests.close()
        for descriptor, (_, other) in self._running.items():
            os.close(descriptor)
            other.close()
        for number, file in enumerate(files[:3]):
            os.dup2(file, number)
        for file in files:
            os.close(file)
        os.setsid()
        os.chdir(request["folder"])
        os.environ.clear()
        os.environ.update(request["environment"])
        return True

    def _report(self, descriptor: int) -> None:
        pid, answers = self._running.pop(descriptor)
        self._poll.unregister(descriptor)
        os.close(descriptor)
        _, status = os.waitpid(pid, 0)
        with contextlib.suppress(OSError):  # A test need not wait for it.
            answers.send(str(os.waitstatus_to_exitcode(status)).encode())
        answers.close()

    def _end_all(self) -> None:
        for descriptor, (pid, _) in [*self._running.items()]:
            os.kill(pid, signal.SIGKILL)
            self._report(descriptor)


def main(modules: list[str]) -> None:
    """Run until standard input ends."""
    for name in modules:
        importlib.import_module(name)
    # A copy has only the thread that made it: what another thread holds stays locked for ever.
    assert len(os.listdir("/proc/self/task")) == 1, f"{modules} start threads"
    # A collection would write to every object, and so end what the copies share.
    gc.collect()
    gc.freeze()
    request = Copier(socket.socket(fileno=os.dup(0))).run()
    if request is None:
        return
    sys.argv = request["arguments"]
    if sys.argv[0]:
        runpy.run_path(sys.argv[0], run_name="__main__")
    else:
        from rowtide.cli.main import main as run_command

        run_command()


if __name__ == "__main__":
    main(sys.argv[1:])
