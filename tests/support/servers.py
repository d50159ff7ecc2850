"""Servers that tests start as processes, and where those servers keep their logs.

A server keeps its logs in its own directory: it starts without Java in under a second. With
``ROWTIDE_TEST_LOG=kafka`` the same tests run on embedded Kafka, as ``make test-all`` does. Tests of
what only Kafka has (workers, the broker, readers inside the platform) name Kafka themselves.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from rowtide.deploy.up import NotReady, Ready, Up
from tests.support.copies import launch

__all__ = ["LOG", "LOG_OPTIONS", "serving"]

LOG = os.environ.get("ROWTIDE_TEST_LOG") or "local"
"""``local`` or ``kafka``: where servers keep logs whose tests do not say it themselves."""
LOG_OPTIONS = ("--log", LOG)
OUTPUT_SHOWN = 3000
"""Characters of a server's output in the error of a server that did not start."""


@contextmanager
def serving(
    folder: Path, *options: str, log: Literal["chosen", "kafka"] = "chosen"
) -> Iterator[Ready]:
    """Run ``rowtide up`` in a folder and yield how clients reach it. ``log`` names the only log
    that will do. What the server prints is in the folder's file ``output``."""
    kept = LOG_OPTIONS if log == "chosen" else ("--log", log)
    arguments = [*kept, "--port", "0", *options]
    path = folder / "output"
    with (
        path.open("wb") as output,
        Up(folder / "data", options=arguments, output=output, launch=launch) as up,
    ):
        try:
            ready = up.start()
        except NotReady as error:
            said = path.read_text(errors="replace")[-OUTPUT_SHOWN:]
            raise NotReady(f"{error}; it printed:\n{said}") from None
        yield ready
