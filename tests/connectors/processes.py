"""Processes of ``rowtide connector run``: started, stopped, killed. None outlives its test."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

import yaml

from rowtide.cli.endpoint_call import PATIENCE_S
from rowtide.client.changes.api import ApiSource
from rowtide.client.changes.leases import TableLeases
from rowtide.client.changes.start import Begin
from rowtide.client.endpoint import Endpoint
from rowtide.connectors.runtime.declaration import parse_document
from rowtide.connectors.runtime.declarations import Declarations, group_of
from rowtide.connectors.runtime.lag import Lag, measure_lag
from rowtide.connectors.runtime.place import ProcessContext
from rowtide.connectors.runtime.removal import begin_again
from rowtide.deploy.up import Child, Ready
from tests.support.copies import start

__all__ = ["ROOT", "ConnectorProcesses", "declare", "lag_of", "rewind", "yaml_of"]

ROOT = Path(__file__).resolve().parents[2]
STOP_S_MAX = 30.0
LOOK_S = 0.1


class ConnectorProcesses:
    """All use one folder, as processes of one machine do. ``closing`` ends them."""

    def __init__(self, server: Ready, folder: Path, closing: ExitStack) -> None:
        self.running: list[Child] = []
        self.folder = folder
        self._server = server
        self._closing = closing
        self._log = folder / "connectors.log"

    def start(self, *options: str) -> None:
        """Start one more."""
        words = ["connector", "run", "--folder", str(self.folder / "connectors"), *options]
        output = self._closing.enter_context(self._log.open("ab"))
        variables = {**os.environ, **environment(self._server)}
        child = start("connectors", words, folder=ROOT, environment=variables, error=output)
        self._closing.callback(child.wait)
        self._closing.callback(child.kill)
        self.running.append(child)

    def stop(self, which: int = 0) -> None:
        """Let one finish; it must."""
        child = self.running.pop(which)
        child.send_signal(signal.SIGTERM)
        status = child.wait(STOP_S_MAX)
        # A signal before it had its handlers ended it like any program.
        assert status in (0, -signal.SIGTERM), f"exit code {status}:\n{self.said()}"

    def kill(self, which: int = 0) -> None:
        """End one as a power cut would."""
        child = self.running.pop(which)
        child.kill()
        child.wait()

    def stop_all(self) -> None:
        """Let all finish."""
        while self.running:
            self.stop()

    def said(self) -> str:
        """Return the end of what they printed."""
        return self._log.read_text(errors="replace")[-4000:] if self._log.exists() else ""


def environment(server: Ready) -> dict[str, str]:
    """Return the variables that lead commands to a server."""
    return {f"ROWTIDE_{name.upper()}": value for name, value in server._asdict().items()}


def declare(server: Ready, text: str) -> None:
    """Declare the connectors of a YAML text."""

    async def declare() -> None:
        async with Endpoint(**server._asdict(), patience_s=PATIENCE_S) as endpoint:
            for name, document in yaml.safe_load(text)["connectors"].items():
                await Declarations(endpoint).declare(parse_document(name, document))

    asyncio.run(declare())


def lag_of(server: Ready, name: str, table: str) -> Lag:
    """Return how far a connector is behind."""

    async def measure() -> Lag:
        async with Endpoint(**server._asdict(), patience_s=PATIENCE_S) as endpoint:
            leases = TableLeases(endpoint, group_of(name))
            return await measure_lag(ApiSource(endpoint, table), leases)

    return asyncio.run(measure())


def rewind(server: Ready, name: str, to: Begin) -> None:
    """Let a connector begin again, whether it runs or not."""

    async def rewound() -> None:
        async with Endpoint(**server._asdict(), patience_s=PATIENCE_S) as endpoint:
            declared = (await Declarations(endpoint).all())[name]
            assert declared.declaration is not None, declared.failure
            await begin_again(ProcessContext(endpoint, os.environ, ""), declared.declaration, to)

    asyncio.run(rewound())


def yaml_of(name: str, document: Mapping[str, object]) -> str:
    """Return the file that declares one connector."""
    return yaml.safe_dump({"connectors": {name: dict(document)}})
