"""A console process beside its worker: when it runs, and what happens if either of them ends."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from rowtide.cli.console_link import make_link
from rowtide.deploy.ports import free_ports, is_free
from rowtide.deploy.up import RUN
from tests.support.consoles import ConsoleAnswer, RunningConsole, serving_console
from tests.support.servers import serving
from tests.support.waiting import until

pytestmark = pytest.mark.system

END_S_MAX = 60.0


class NoRedirect(urllib.request.HTTPRedirectHandler):
    """Shows a redirect in place of following it."""

    def redirect_request(self, *_: object) -> None:
        return None


def open_endpoint(url: str, host: str) -> tuple[int, str | None]:
    """Return the status and the Location that a browser gets at a worker's endpoint."""
    request = urllib.request.Request(url, headers={"Accept": "text/html", "Host": host})
    try:
        with urllib.request.build_opener(NoRedirect).open(request, timeout=10) as answer:
            return answer.status, answer.headers["Location"]
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.headers["Location"]


def answers(console: RunningConsole) -> bool:
    try:
        return console.visitor().get("/login").status == 200
    except OSError:
        return False


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_the_endpoint_leads_a_browser_to_the_console(tmp_path: Path) -> None:
    with serving_console(tmp_path) as console:
        # The first start of a new server prints a link, as it prints the secret. Until then the
        # worker may not know that the console is ready.
        until(lambda: f"{console.url}/link#" in console.output, lambda: console.output)
        endpoint = console.ready.endpoint
        found = open_endpoint(endpoint, "my-laptop.lan:8087")
        assert found == (302, f"http://my-laptop.lan:{console.port}/")
        assert open_endpoint(endpoint, "[::1]:8087") == (302, f"http://[::1]:{console.port}/")
        # What is no host gets the introduction: nothing of it is in a header of ours.
        assert open_endpoint(endpoint, "a/b") == (200, None)


def test_a_console_that_is_killed_comes_back_at_its_port(tmp_path: Path) -> None:
    with serving_console(tmp_path) as console:
        killed = console.pid
        os.kill(killed, signal.SIGKILL)
        until(lambda: "the console ended with status -9" in console.output, lambda: console.output)
        until(lambda: answers(console), lambda: console.output)
        assert console.pid != killed
        # A session is in memory alone.
        assert console.visitor().get("/").status == 303


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux runs consoles as copies")
def test_a_console_comes_back_from_what_is_loaded_and_without_it(tmp_path: Path) -> None:
    with serving_console(tmp_path) as console:
        loader, killed = parent_of(console.pid), console.pid
        os.kill(killed, signal.SIGKILL)
        until(lambda: answers(console) and console.pid != killed, lambda: console.output)
        assert parent_of(console.pid) == loader
        # Without the loader, its console ends too: the next one needs the port.
        orphan = console.pid
        os.kill(loader, signal.SIGKILL)
        until(lambda: not is_alive(orphan), lambda: console.output)
        until(lambda: answers(console) and console.pid != orphan, lambda: console.output)
        assert parent_of(console.pid) != loader


def parent_of(pid: int) -> int:
    """Return a process's parent (Linux)."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def test_a_console_ends_with_its_worker(tmp_path: Path) -> None:
    with serving_console(tmp_path) as console:
        pid = console.pid
    assert not is_alive(pid)
    assert not (tmp_path / "data" / "console.json").exists()


def test_a_console_ends_when_its_worker_is_killed(tmp_path: Path) -> None:
    with serving_console(tmp_path) as console:
        pid = console.pid
        worker = int(json.loads((tmp_path / "data" / "endpoint.json").read_text())["pid"])
        os.kill(worker, signal.SIGKILL)
        until(lambda: not is_alive(pid), lambda: console.output)


def test_a_worker_goes_on_where_the_consoles_port_is_taken(tmp_path: Path) -> None:
    host = "127.0.0.1"
    port = next(port for port in free_ports(host) if is_free(host, port + 1000))
    with socket.create_server((host, port + 1000)):
        output = tmp_path / "output"
        with serving(tmp_path, "--console", "true", "--port", str(port)) as ready:
            until(lambda: "the console does not start" in output.read_text(), output.read_text)
            text = output.read_text()
            assert f"port {port + 1000} of {host} is in use by another program" in text
            assert open_endpoint(ready.endpoint, f"{host}:{port}") == (200, None)


@pytest.fixture
def waiting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RunningConsole]:
    """A server on a local log whose console waits for its first visitor."""
    monkeypatch.delenv("ROWTIDE_CONSOLE")
    with serving(tmp_path, "--log", "local") as ready:
        place = tmp_path / "data" / "console.json"
        output = tmp_path / "output"
        until(place.exists, output.read_text)
        until(
            lambda: "`rowtide console open` prints a link" in output.read_text(), output.read_text
        )
        yield RunningConsole(int(json.loads(place.read_text())["port"]), ready, tmp_path)


def worker_of(console: RunningConsole) -> int:
    """Return the process id of the worker."""
    return int(json.loads((console.folder / "data" / "endpoint.json").read_text())["pid"])


@pytest.mark.skipif(os.name != "posix", reason="needs a socket that a process leaves to another")
def test_with_a_local_log_the_first_visitor_starts_the_console(waiting: RunningConsole) -> None:
    worker = worker_of(waiting)
    assert waiting.pid == worker, "no process of its own yet"
    assert open_endpoint(waiting.ready.endpoint, "127.0.0.1:1") == (
        302,
        f"http://127.0.0.1:{waiting.port}/",
    )
    assert waiting.pid == worker, "a browser that was only led there has not connected"
    visitor = waiting.log_in()
    assert visitor.get("/").status == 200
    assert waiting.pid != worker
    assert "/link#" not in waiting.output


@pytest.mark.skipif(os.name != "posix", reason="needs a socket that a process leaves to another")
def test_a_killed_console_that_waited_starts_again_for_the_next_visitor(
    waiting: RunningConsole,
) -> None:
    assert answers(waiting)
    killed = waiting.pid
    os.kill(killed, signal.SIGKILL)
    until(lambda: not is_alive(killed), lambda: waiting.output)
    # Its socket is the worker's too, so no visitor is refused meanwhile.
    assert answers(waiting)
    until(lambda: waiting.pid not in (killed, worker_of(waiting)), lambda: waiting.output)


@pytest.mark.skipif(os.name != "posix", reason="needs a socket that a process leaves to another")
def test_a_link_starts_the_console_that_waits(waiting: RunningConsole) -> None:
    link = make_link(
        waiting.url,
        waiting.ready.instance,
        waiting.ready.access_key_id,
        waiting.ready.access_key_secret,
    )
    assert link.startswith(f"{waiting.url}/link#")


def test_a_setting_turns_it_off(tmp_path: Path) -> None:
    with serving(tmp_path, "--console", "false") as ready:
        assert open_endpoint(ready.endpoint, "localhost") == (200, None)
        refused = run_command("console", "open", "--data-dir", str(tmp_path / "data"))
        assert refused.returncode == 3
        assert "No console answers at" in refused.stderr


def run_command(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-P", "-c", RUN, *words], capture_output=True, text=True, timeout=60
    )


def test_the_command_prints_a_link_that_works(tmp_path: Path) -> None:
    with serving_console(tmp_path) as console:
        done = run_command("console", "open", "--data-dir", str(tmp_path / "data"))
        assert done.returncode == 0, done.stderr
        link = done.stdout.strip()
        assert link.startswith(f"{console.url}/link#")
        visitor = console.visitor()
        assert visitor.post("/link", {"code": link.partition("#")[2]}).status == 303
        assert visitor.get("/").status == 200
        assert link.partition("#")[2] not in console.output


def test_a_console_runs_alone_and_says_so(tmp_path: Path) -> None:
    with serving(tmp_path, "--console", "false") as ready:
        ready_file = tmp_path / "console-ready.json"
        words = ["--endpoint", ready.endpoint, "--data-dir", str(tmp_path / "data")]
        words += ["--port", "0", "--ready-file", str(ready_file)]
        with (tmp_path / "console-output").open("wb") as output:
            child = subprocess.Popen(
                [sys.executable, "-P", "-c", RUN, "console", *words], stdout=output, stderr=output
            )
        try:
            until(ready_file.exists, lambda: (tmp_path / "console-output").read_text())
            found = json.loads(ready_file.read_text())
            console = RunningConsole(int(found["port"]), ready, tmp_path)
            assert console.log_in().get("/health.json").document["is_healthy"]
            assert found["pid"] == child.pid
        finally:
            child.send_signal(signal.SIGTERM)
            assert child.wait(END_S_MAX) == 0


def test_behind_a_proxy_visitors_have_their_own_addresses(tmp_path: Path) -> None:
    with serving_console(tmp_path, "--console-url", "https://console.example.org") as console:
        proxy = console.visitor()
        proxy.host = "console.example.org"

        def log_in(address: str) -> ConsoleAnswer:
            headers = {"Origin": "https://console.example.org", "X-Forwarded-For": address}
            wrong = {"access_key_id": f"absent-{next(numbers)}", "access_key_secret": "x"}
            return proxy.post("/login", wrong, headers)

        numbers = count()
        # A visitor may invent entries, but the last one is the proxy's.
        statuses = [log_in(f"10.0.0.{number}, 192.0.2.1").status for number in range(11)]
        assert statuses == [403] * 10 + [429]
        assert log_in("192.0.2.2").status == 403
        assert "address=192.0.2.2" in console.output
        # The worker learns that the console serves a moment after its first visitors.
        endpoint, expected = console.ready.endpoint, (302, "https://console.example.org")
        until(lambda: open_endpoint(endpoint, "127.0.0.1") == expected)
        right = proxy.post(
            "/login", console.create_key(), {"Origin": "https://console.example.org"}
        )
        assert (right.status, right.location) == (303, "/")
        cookie = right.headers["Set-Cookie"]
        assert cookie.startswith("rowtide_console_443=")
        assert "; Secure" in cookie


def test_health_says_that_the_worker_is_gone_and_since_when(tmp_path: Path) -> None:
    with serving(tmp_path, "--console", "false") as ready:
        ready_file = tmp_path / "console-ready.json"
        words = ["--endpoint", ready.endpoint, "--data-dir", str(tmp_path / "data")]
        words += ["--port", "0", "--ready-file", str(ready_file)]
        child = subprocess.Popen([sys.executable, "-P", "-c", RUN, "console", *words])
        try:
            until(ready_file.exists)
            port = int(json.loads(ready_file.read_text())["port"])
            visitor = RunningConsole(port, ready, tmp_path).log_in()
            worker = int(json.loads((tmp_path / "data" / "endpoint.json").read_text())["pid"])
            os.kill(worker, signal.SIGKILL)

            def faults() -> list[dict[str, object]]:
                found: list[dict[str, object]] = visitor.get("/health.json").document["faults"]
                return found

            until(lambda: [fault["kind"] for fault in faults()] == ["no_answer"], faults)
            until(lambda: faults()[0]["since_s"] is not None, faults)
            page = visitor.get("/")
            assert page.status == 200
            assert "does not answer the console" in page.text
            assert "Is its process running" in page.text
            # Every other page says it too, with a status and without a stack trace.
            for path in ("/keys", "/connectors"):
                answer = visitor.get(path)
                assert answer.status == 503
                assert "Nothing was changed. Try again in a moment." in answer.text
                assert "Traceback" not in answer.text
        finally:
            child.kill()
            child.wait()
