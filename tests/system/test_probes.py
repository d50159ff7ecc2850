"""What probes see of a server: while it starts, serves, loses its broker, and drains."""

from __future__ import annotations

import json
import os
import signal
import sys
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest

from demo.servers.server import free_port
from tests.system.server import Server, wait_until

pytestmark = pytest.mark.system

Probe = Callable[[str], tuple[int, str]]

NOTICE_S = 8
"""Longer than a busy machine lets the server or this test wait for a processor."""


@pytest.fixture
def port() -> int:
    """Return the server's port, known before it has started."""
    return free_port()


@pytest.fixture
def server(make_server: Callable[..., Server], port: int) -> Server:
    """Return ``rowtide up`` that drains with notice and keeps logs as JSON."""
    rowtide = str(Path(sys.executable).with_name("rowtide"))
    settings = ("--drain-notice-s", str(NOTICE_S), "--log-format", "json", "--slots", "2")
    return make_server(command=(rowtide, "up", "--port", str(port), *settings))


@pytest.fixture
def probe(port: int) -> Probe:
    """Return a page's status and body; 0 where nobody listens."""

    def probe_page(page: str) -> tuple[int, str]:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}{page}", timeout=10) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()
        except (urllib.error.URLError, ConnectionError):
            return 0, ""

    return probe_page


def test_probes_see_a_server_start_lose_its_broker_and_drain(server: Server, probe: Probe) -> None:
    seen: list[tuple[int, str]] = []

    def ready() -> bool:
        seen.append(probe("/readyz"))
        return seen[-1][0] == 200

    server.launch()
    wait_until(ready, what="ready")
    starting = [json.loads(body)["reasons"] for status, body in seen if status == 503]
    assert all("starting" in reasons for reasons in starting)
    assert starting, "the port was closed until the server was ready"
    assert json.loads(seen[-1][1]) == {"ready": True}

    # Stopped, so that it is not started again before anybody looks.
    broker = server.broker_pid
    assert broker is not None
    os.kill(broker, signal.SIGSTOP)
    try:
        wait_until(lambda: not ready(), what="no lease")
        assert "no lease" in seen[-1][1] or "no broker has answered" in seen[-1][1]
        assert probe("/healthz")[0] == 200
    finally:
        os.kill(broker, signal.SIGCONT)
    wait_until(ready, what="ready again")

    server.kill_broker()

    def has_restarted() -> bool:
        return "rowtide_broker_restarts_total 1.0\n" in probe("/metrics")[1]

    wait_until(has_restarted, what="a broker restart counted")
    wait_until(ready, what="ready with the new broker")

    os.kill(server.pid, signal.SIGTERM)
    # A broker that was just stopped may be late for a lease once more: that is reported beside it.
    wait_until(
        lambda: not ready() and "draining" in seen[-1][1], what="draining", timeout_s=NOTICE_S
    )
    assert json.loads(seen[-1][1])["ready"] is False
    with server.client() as client:
        assert client.list_table() == []  # Whoever has not noticed yet is still served.
    assert server.wait() == 0
    lines = [line for line in server.log.read_text().splitlines() if line.startswith("{")]
    events = [json.loads(line) for line in lines]
    assert any(event["message"].startswith("slot 0 is open") for event in events)
    assert all(event.keys() >= {"time", "level", "logger", "message"} for event in events)
