"""The further processes of one start: none of them ends the one that has started them."""

from __future__ import annotations

import asyncio
import signal
import sys
from asyncio.subprocess import PIPE, Process
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from rowtide.cli import connector_process, console_process, more_workers
from rowtide.cli.connector_process import ConnectorProcess
from rowtide.cli.console_process import ConsoleProcess
from rowtide.cli.credentials import SavedCredentials, write_endpoint, write_private
from rowtide.cli.more_workers import MoreWorkers
from rowtide.cli.serving import _stop_in_turn
from rowtide.cli.settings import Settings
from tests.support.waiting import SOON_S

MADE = SavedCredentials("rtid", "secret", "demo")
ATTEMPTS = 3


def workers(tmp_path: Path, **more: Any) -> MoreWorkers:
    settings = replace(Settings(data_dir=tmp_path, workers=2, port=0), **more)
    return MoreWorkers(settings, MADE, "127.0.0.1:1", None)


async def child(program: str, prepared: str = "pass") -> Process:
    """Return a process that runs, once it is prepared and has printed so."""
    script = f"{prepared}; print('runs', flush=True); {program}"
    made = await asyncio.create_subprocess_exec(
        sys.executable, "-c", script, stdin=PIPE, stdout=PIPE
    )
    assert made.stdout is not None
    await made.stdout.readline()
    return made


class Refusing:
    """A machine that has no process to give."""

    def __init__(self) -> None:
        self.attempts = 0
        self.often = asyncio.Event()

    async def __call__(self, *_asked: Any, **_more: Any) -> Any:
        self.attempts += 1
        if self.attempts >= ATTEMPTS:
            self.often.set()
        raise OSError(12, "Cannot allocate memory")

    async def withstood(self, task: asyncio.Task[None]) -> None:
        """Return once a task was refused again and again, and has not ended; end it."""
        async with asyncio.timeout(SOON_S):
            await self.often.wait()
        assert not task.done()
        task.cancel()


@pytest.fixture
def refusing(monkeypatch: pytest.MonkeyPatch) -> Refusing:
    monkeypatch.setattr(more_workers, "RESTART_S", 0.001)
    monkeypatch.setattr(connector_process, "LOOK_S", 0.001)
    monkeypatch.setattr(connector_process, "AGAIN_S", 0.001)
    return Refusing()


async def test_a_worker_that_cannot_be_started_again_now_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refusing: Refusing
) -> None:
    """It was killed for want of memory, and there was none to fork: all workers, and the broker,
    ended with their parent."""
    more = workers(tmp_path)
    more._children[1] = await child("pass")
    monkeypatch.setattr(asyncio, "create_subprocess_exec", refusing)
    async with asyncio.TaskGroup() as tasks:
        await refusing.withstood(tasks.create_task(more.watch(), name="watch"))


async def test_connectors_that_cannot_be_started_now_end_no_worker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refusing: Refusing
) -> None:
    """They are a task of the process that serves."""
    write_endpoint(tmp_path, "http://127.0.0.1:1")
    beside = ConnectorProcess(Settings(data_dir=tmp_path), "127.0.0.1:1", None, lambda: True)
    monkeypatch.setattr(asyncio, "create_subprocess_exec", refusing)
    async with asyncio.TaskGroup() as tasks:
        await refusing.withstood(tasks.create_task(beside.run(), name="connectors"))


async def test_a_worker_that_opens_its_slots_for_long_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It rebuilds its rows, or reads those that it is given for the first time: more than 60 s. The
    first worker, which served, was ended for it without a drain, and so it went at every start."""
    monkeypatch.setattr(more_workers, "SLOW_S", 0.0)
    monkeypatch.setattr(more_workers, "POLL_S", 0.001)
    more = workers(tmp_path)
    more._folder(1).mkdir(parents=True)
    more._children[1] = living = await child("input()")
    said = asyncio.Event()
    monkeypatch.setattr(more_workers.logger, "warning", lambda *_told: said.set())
    async with asyncio.TaskGroup() as tasks:
        endpoint = tasks.create_task(more._endpoint(1), name="endpoint")
        async with asyncio.timeout(SOON_S):
            await said.wait()
        write_private(more._folder(1) / "ready.json", {"endpoint": "http://127.0.0.1:1"})
        assert await endpoint == "http://127.0.0.1:1"
    living.kill()
    await living.wait()


async def test_a_worker_that_ends_as_it_starts_is_not_waited_for(tmp_path: Path) -> None:
    more = workers(tmp_path)
    more._children[1] = ended = await child("pass")
    await ended.wait()
    with pytest.raises(ChildProcessError, match="worker 1 failed to start; see"):
        await more._endpoint(1)


async def draining() -> Process:
    """Return a worker whose drain takes until something is written to it."""
    drains = "import signal; signal.signal(signal.SIGTERM, lambda *_: exit(int(input())))"
    return await child("signal.pause()", prepared=drains)


async def test_further_workers_have_the_time_of_their_notice_to_drain(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They were killed in the midst of the notice that was set."""
    monkeypatch.setattr(more_workers, "STOP_S_MAX", 0.0)
    more = workers(tmp_path, drain_notice_s=SOON_S)
    more._children[1] = last = await draining()
    assert last.stdin is not None
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(more.stop(), name="stop")
        last.stdin.write(b"0\n")
    assert last.returncode == 0


async def test_a_further_worker_that_does_not_end_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(more_workers, "STOP_S_MAX", 0.01)
    more = workers(tmp_path)
    more._children[1] = last = await draining()
    await more.stop()
    assert await last.wait() == -signal.SIGKILL


async def test_probes_hear_of_a_stop_before_connectors_are_waited_for(tmp_path: Path) -> None:
    """They may take 25 s; new clients came to a worker that was to end meanwhile."""
    stop, left, worker_stop, place = (asyncio.Event() for _ in range(4))
    connectors = cast(Any, SimpleNamespace(stop=place.wait))
    more = workers(tmp_path)
    async with asyncio.TaskGroup() as tasks:
        watching = tasks.create_task(more.watch(), name="watching")
        stopping = _stop_in_turn((connectors,), more, watching, stop, left.set, worker_stop)
        tasks.create_task(stopping, name="stopping")
        stop.set()
        async with asyncio.timeout(SOON_S):
            await left.wait()
        assert not worker_stop.is_set()
        place.set()
        async with asyncio.timeout(SOON_S):
            await worker_stop.wait()


async def test_a_worker_is_signalled_to_stop_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second signal ends a worker undrained: ``rowtide up`` signals them as it begins to stop,
    and waits for them once it has stopped itself."""
    signals: list[int] = []
    more = workers(tmp_path)
    more._children[1] = ended = await child("pass")
    monkeypatch.setattr(
        MoreWorkers,
        "_running",
        lambda _: [cast(Any, SimpleNamespace(send_signal=signals.append, wait=ended.wait))],
    )
    more.signal_stop()
    await more.stop()
    assert signals == [signal.SIGTERM]


async def test_a_console_that_cannot_load_is_tried_again_and_ends_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(console_process, "LOAD", "raise SystemExit(3)")
    monkeypatch.setattr(console_process, "AGAIN_S", 0.01)
    write_endpoint(tmp_path, "http://127.0.0.1:1")

    async def never(*_: object) -> None:
        raise AssertionError("it never served")

    console = ConsoleProcess(Settings(data_dir=tmp_path))
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(console.run(started=never, ended=lambda: None), name="console")
        async with asyncio.timeout(SOON_S):
            while caplog.text.count("the console does not start (status 3)") < ATTEMPTS:
                assert not running.done()
                await asyncio.sleep(0.01)
        await console.stop()


def test_a_console_that_dies_before_the_worker_has_a_port_ends_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(console_process, "LOAD", "raise SystemExit(3)")
    uvloop = pytest.importorskip(
        "uvloop", reason="only uvloop raises if a dead process is written to"
    )
    console = ConsoleProcess(Settings(data_dir=tmp_path))

    async def start() -> None:
        loader = await console._load()
        async with asyncio.timeout(SOON_S), asyncio.TaskGroup() as tasks:
            tasks.create_task(console._start(loader), name="start")
            await loader.wait()
            write_endpoint(tmp_path, "http://127.0.0.1:1")
        await console.stop()

    uvloop.run(start())


async def test_a_console_is_not_loaded_where_it_is_turned_off(tmp_path: Path) -> None:
    settings = Settings(data_dir=tmp_path, console=False)

    async def never(*_: object) -> None:
        raise AssertionError("it never served")

    console = ConsoleProcess(settings)
    async with asyncio.timeout(SOON_S):
        await console.preload()
        await console.run(started=never, ended=lambda: None)
        await console.stop()
