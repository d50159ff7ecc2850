"""What the pages say while the server's own parts fail: words, a status, no stack trace."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from rowtide.client import Client
from rowtide.deploy.kafka.orphan import find_broker
from tests.support.consoles import RunningConsole, Visitor, serving_console
from tests.support.waiting import until

pytestmark = pytest.mark.system

PAGES = ("/keys", "/connectors", "/i/demo/tables", "/i/demo/t/orders/rows", "/i/demo/usage")


def faults(visitor: Visitor) -> list[dict[str, Any]]:
    answer = visitor.get("/health.json")
    assert answer.status == 200, answer.text
    found: list[dict[str, Any]] = answer.document["faults"]
    return found


def make_table(console: RunningConsole) -> None:
    with Client(**console.ready._asdict()) as client:
        client.create_table("orders", {"id": str}, stream_hours=24)
        client.put("orders", {"id": "a", "total": 1})


def test_kafka_is_gone_and_comes_back(tmp_path: Path) -> None:
    with serving_console(tmp_path, log="kafka") as console:
        make_table(console)
        admin = console.log_in()
        assert admin.get("/health.json").document["is_healthy"]
        broker = find_broker((tmp_path / "data").resolve() / "kafka" / "server.properties")
        assert broker is not None
        os.kill(broker, signal.SIGSTOP)  # A broker that is killed is started again at once.
        try:
            until(lambda: any(f["kind"] == "broker_silent" for f in faults(admin)))
            first = faults(admin)[0]
            assert first["kind"] == "broker_silent"  # The cause is before the leases it takes.
            until(lambda: faults(admin)[0]["since_s"] is not None)
            page = admin.get("/")
            assert page.status == 200
            assert "No Kafka broker answers" in page.text
            assert "See whether the brokers run" in page.text
            for path in PAGES:
                answer = admin.get(path)
                assert answer.status in (200, 503), path
                assert "Traceback" not in answer.text
            refused = admin.change("/keys", {"rights": "rows"})
            assert refused.status == 503
            assert "Traceback" not in refused.text
        finally:
            os.kill(broker, signal.SIGCONT)
        until(lambda: faults(admin) == [], lambda: faults(admin))
        # Slots open one after another, and each look asks the worker again.
        until(lambda: "Everything works" in admin.get("/").text, lambda: faults(admin))


def test_a_full_disk_is_the_first_thing_to_see(tmp_path: Path) -> None:
    with serving_console(tmp_path) as console:
        make_table(console)
    with serving_console(tmp_path, "--free-bytes-min", str(2**60)) as console:
        admin = console.visitor()
        key = {
            "access_key_id": console.ready.access_key_id,
            "access_key_secret": console.ready.access_key_secret,
        }
        assert admin.post("/login", key).status == 303
        until(lambda: [f["kind"] for f in faults(admin)] == ["disk_full"], lambda: faults(admin))
        page = admin.get("/")
        assert "writes are rejected" in page.text
        assert "Free space on the disk" in page.text
        for path in PAGES:
            assert admin.get(path).status == 200, path
