"""``rowtide up`` as a process: what it leaves behind, how it ends, what it says when it can't."""

from __future__ import annotations

import json
import os
import re
import select
import signal
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from demo.servers.server import free_port
from rowtide.cli.credentials import read_endpoint
from rowtide.deploy.up import Up
from tests.support.interrupts import heed_ctrl_c
from tests.support.servers import serving
from tests.support.waiting import until

pytestmark = pytest.mark.system

ROWTIDE = str(Path(sys.executable).with_name("rowtide"))
START_S_MAX, END_S_MAX = 180.0, 60.0


@pytest.fixture(scope="module")
def data_dir(cache_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Data directory of a running ``rowtide up`` with its embedded Kafka."""
    folder = tmp_path_factory.mktemp("up")
    with serving(folder, "--cache-dir", str(cache_dir), log="kafka"):
        yield folder / "data"


def run_failing(*arguments: str | Path, command: str = "up") -> tuple[int, str]:
    """Run ``rowtide up`` to its end; return exit code and stderr."""
    done = subprocess.run(
        [ROWTIDE, command, *arguments],
        capture_output=True,
        text=True,
        timeout=END_S_MAX,
    )
    assert "Traceback" not in done.stderr
    return done.returncode, done.stderr


@contextmanager
def start_up(data_dir: Path, cache_dir: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Yield a server and what it printed until it was ready; it is ended in any case."""
    command: list[str | Path] = [ROWTIDE, "up", "--data-dir", data_dir, "--port", "0"]
    child = subprocess.Popen(
        [*command, "--cache-dir", cache_dir],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        yield child, read_until(child, "Ctrl-C stops it.")
    finally:
        if child.poll() is None:
            child.kill()
        child.communicate()


def read_until(child: subprocess.Popen[str], words: str) -> str:
    """Return what the child prints, up to the line with ``words``."""
    assert child.stdout is not None
    text, deadline = "", time.monotonic() + START_S_MAX
    while words not in text:
        # Past the stream's own buffer: what lies in there, select does not see.
        ready, _, _ = select.select([child.stdout], [], [], deadline - time.monotonic())
        piece = os.read(child.stdout.fileno(), 65536) if ready else b""
        assert piece, f"ended or late, after: {text}"
        text += piece.decode()
    return text


def test_a_second_start_is_refused_and_touches_nothing(
    data_dir: Path, cache_dir: Path, tmp_path: Path
) -> None:
    ready = data_dir.with_name(data_dir.name + ".ready.json")
    before = ready.read_bytes()
    code, text = run_failing("--data-dir", data_dir, "--port", "0", "--ready-file", ready)
    assert code == 1
    assert re.search(r"is in use by process \d+: stop it, or choose another directory", text)
    assert ready.read_bytes() == before
    assert read_endpoint(data_dir) == json.loads(before)["endpoint"]


def test_files_with_secrets_are_their_owners_alone(data_dir: Path) -> None:
    ready = data_dir.with_name(data_dir.name + ".ready.json")
    for path in (ready, data_dir / "credentials.json"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert json.loads(path.read_text())["access_key_secret"]


def test_the_secret_is_printed_where_it_was_made_and_never_again_into_a_log(
    cache_dir: Path, tmp_path: Path
) -> None:
    data_dir = tmp_path / "data"
    with start_up(data_dir, cache_dir) as (child, text):
        secret = json.loads((data_dir / "credentials.json").read_text())["access_key_secret"]
        assert f"access key secret  {secret}" in text
        assert f'", "{secret}", "demo")' in text
        child.terminate()
        _, log = child.communicate(timeout=END_S_MAX)
        assert log.splitlines()[-1] == "Stopped."
        assert child.returncode == 0
    assert read_endpoint(data_dir) is None
    with start_up(data_dir, cache_dir) as (child, text):
        assert secret not in text
        assert f"access key secret  in {data_dir}/credentials.json" in text
        os.kill(child.pid, signal.SIGINT)
        child.communicate(timeout=END_S_MAX)
        assert child.returncode == 0


def test_a_second_ctrl_c_ends_at_once(cache_dir: Path, tmp_path: Path) -> None:
    with start_up(tmp_path / "data", cache_dir) as (child, _):
        os.kill(child.pid, signal.SIGINT)
        os.kill(child.pid, signal.SIGTERM)
        child.wait(timeout=END_S_MAX)
        # Signals that are pending together come in the order of their numbers.
        assert child.returncode in (130, 143)


def test_ctrl_c_during_the_start_ends_it(cache_dir: Path, tmp_path: Path) -> None:
    child = subprocess.Popen(
        [ROWTIDE, "up", "--data-dir", tmp_path, "--port", "0", "--cache-dir", cache_dir],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        assert child.stderr is not None
        while "starting Kafka" not in child.stderr.readline():
            assert child.poll() is None
        os.kill(child.pid, signal.SIGINT)
        out, err = child.communicate(timeout=END_S_MAX)
    finally:
        if child.poll() is None:
            child.kill()
            child.communicate()
    assert (child.returncode, out) == (0, "")
    assert err.splitlines()[-1] == "Stopped."


def test_a_port_in_use_is_said_before_anything_is_written(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        code, text = run_failing("--data-dir", tmp_path / "data", "--port", port)
    assert (code, text.splitlines()) == (
        1,
        [
            f"Error: Port {port} of 127.0.0.1 is in use by another program",
            "  Stop that program, or choose another port with --port (0 chooses a free one).",
        ],
    )
    assert not (tmp_path / "data").exists()


def test_a_worker_without_a_kafka_is_refused(tmp_path: Path) -> None:
    code, text = run_failing("--data-dir", tmp_path / "data", command="worker")
    assert code == 2
    assert text.splitlines()[-1] == (
        "Error: No Kafka is named: give --kafka HOST:PORT, or use `rowtide up`, which includes one."
    )
    assert not (tmp_path / "data").exists()


def test_a_worker_starts_no_others() -> None:
    code, text = run_failing("--workers", "2", "--kafka", "127.0.0.1:1", command="worker")
    assert (code, text.splitlines()[-1]) == (2, "Error: No such option: --workers")


def test_a_data_directory_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "data").touch()
    code, text = run_failing("--data-dir", tmp_path / "data", "--port", "0")
    assert (code, text.splitlines()[0]) == (1, f"Error: {tmp_path}/data is not a directory")


def test_a_java_that_is_none_is_refused(tmp_path: Path, cache_dir: Path) -> None:
    code, text = run_failing(
        *("--data-dir", tmp_path, "--port", "0", "--cache-dir", cache_dir, "--java", "/dev/null")
    )
    assert code == 1
    assert "Error: /dev/null cannot be run as Java" in text


def test_without_a_network_the_first_start_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        nowhere = f"http://127.0.0.1:{closed.getsockname()[1]}"
    monkeypatch.setenv("HTTPS_PROXY", nowhere)
    code, text = run_failing(
        *("--data-dir", tmp_path / "data", "--port", "0", "--cache-dir", tmp_path / "cache")
    )
    assert code == 1
    assert "The first start needs the network; later ones do not." in text


def test_topics_of_another_durability_are_refused(data_dir: Path, tmp_path: Path) -> None:
    log = data_dir.with_name("output").read_text()
    kafka = re.findall(r"Kafka answers at (\S+)", log)[-1]
    code, text = run_failing(
        *("--data-dir", tmp_path, "--port", "0", "--kafka", kafka, "--durability", "replicated")
    )
    assert code == 1
    why = "is not replicated: min.insync.replicas is 1, must be 2; partition 0 has 1 replicas"
    assert f"topic rowtide-rows-changelog {why}" in text


def test_a_wrong_setting_is_a_wrong_command_line(tmp_path: Path) -> None:
    file = tmp_path / "rowtide.toml"
    file.write_text("prot = 1\n")
    code, text = run_failing("--config", file)
    assert code == 2
    assert f"Error: {file}: unknown setting 'prot': known are" in text


def test_a_tail_ends_with_ctrl_c_and_sits_out_a_restart(cache_dir: Path, tmp_path: Path) -> None:
    options = ["--cache-dir", str(cache_dir), "--port", str(free_port())]
    log = (tmp_path / "log").open("wb")
    with log, Up(tmp_path / "data", options=options, output=log) as up:
        up.start()
        rowtide("table create t --key pk:string --stream 1", tmp_path)
        rowtide("row put t pk=first", tmp_path)
        errors = tmp_path / "errors"
        with errors.open("wb") as written:
            tail = subprocess.Popen(
                [ROWTIDE, "stream", "tail", "t", "--from-start", "--data-dir", tmp_path / "data"],
                stdout=subprocess.PIPE,
                stderr=written,
                text=True,
                preexec_fn=heed_ctrl_c,
            )
        try:
            assert "pk=first" in read_until(tail, "pk=first")
            up.kill()
            until(lambda: "retrying" in errors.read_text(), "the tail has noticed the outage")
            up.start()
            rowtide("row put t pk=second", tmp_path)
            assert read_until(tail, "pk=second").count("pk=") == 1
            tail.send_signal(signal.SIGINT)
            tail.communicate(timeout=END_S_MAX)
        finally:
            if tail.poll() is None:
                tail.kill()
                tail.communicate()
    assert tail.returncode == 0
    assert errors.read_text().count("retrying") == 1


def rowtide(command: str, folder: Path) -> None:
    subprocess.run(
        [ROWTIDE, *command.split(), "--data-dir", folder / "data"], check=True, capture_output=True
    )
