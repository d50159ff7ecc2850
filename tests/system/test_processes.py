"""``rowtide up`` as a process: it leaves no orphan, shares its directory with nobody, drains."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.system.conftest import MakeServer
from tests.system.history import check_all
from tests.system.load import Load, Outcome, create_table
from tests.system.server import Server, wait_until

pytestmark = [pytest.mark.kafka, pytest.mark.system]

ROWTIDE = str(Path(sys.executable).with_name("rowtide"))
ROWS_OF_REQUEST_MAX = 5


@pytest.fixture
def up(make_server: MakeServer) -> Server:
    """``rowtide up`` as users start it."""
    return make_server(command=(ROWTIDE, "up", "--port", "0"))


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def require_no_broker_is_left(up: Server) -> None:
    """Kill the server, and wait for the end of its broker."""
    broker = up.broker_pid
    assert broker is not None
    up.kill()
    seconds = wait_until(lambda: not is_running(broker), what="the broker gone")
    assert up.broker_pid is None
    print(f"the broker was gone {seconds:.1f} s after its parent")  # noqa: T201


def test_a_second_start_on_the_directory_is_refused_and_a_killed_server_leaves_no_broker(
    up: Server,
) -> None:
    up.start()
    second = subprocess.run(
        [ROWTIDE, "up", "--port", "0", "--data-dir", str(up.data_dir)],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert second.returncode != 0
    assert str(up.data_dir) in second.stderr
    assert str(up.pid) in second.stderr
    assert "Traceback" not in second.stderr
    with up.client() as client:
        create_table(client)  # The second start harmed nothing.
    require_no_broker_is_left(up)


def test_ctrl_c_under_load_drains_and_loses_nothing(up: Server) -> None:
    up.start()
    with up.client() as client:
        create_table(client)
    with Load(up, seed=1) as load:
        wait_until(lambda: load.applied > 300, what="300 rows")
        up.interrupt()
        code = up.wait()
    assert code == 0
    assert up.broker_pid is None
    assert "cut off" not in up.last_words()
    for written in load.written:
        # A request may cross the end of an idle connection on its way; a second one may not.
        unknown = [attempt for attempt in written.attempts if attempt.outcome is Outcome.UNKNOWN]
        assert len(unknown) <= ROWS_OF_REQUEST_MAX
    up.start()
    with up.client() as client:
        check_all(client, load.written)
