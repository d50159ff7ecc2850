"""What a start tells: progress of the download, lines of the log, one sentence per failure."""

from __future__ import annotations

import asyncio
import errno
import json
import logging
import re
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from rowtide.cli.credentials import CREDENTIALS, DamagedFile, load_or_create
from rowtide.cli.kafka_start import ClusterUnreachable, _JarProgress, _StartEnded
from rowtide.cli.log_format import LIBRARIES, set_up_logging
from rowtide.cli.settings import Settings, listening_url
from rowtide.cli.start_failures import explain_failure
from rowtide.core.records.record import CorruptRecord
from rowtide.core.values.errors import OutcomeUnknown, Unavailable
from rowtide.deploy.kafka.errors import JarsUnavailable, JavaUnusable
from rowtide.stream.cluster.worker_directory import DirectoryBusy, OtherCluster
from rowtide.stream.log.kafka.errors import NotDurable

NO_FILE = PermissionError(errno.EACCES, "Permission denied", "/d/lock")
FAILURES: list[tuple[BaseException, int, str]] = [
    (OSError(errno.EADDRINUSE, "in use"), 1, "Port 8087 of 127.0.0.1 is in use"),
    (OSError(errno.EADDRNOTAVAIL, "no such address"), 1, "Cannot listen on 127.0.0.1 port 8087"),
    (
        socket.gaierror(socket.EAI_NONAME, "Name or service not known"),
        1,
        "Cannot listen on 127.0.0.1 port 8087: Name or service not known",
    ),
    (NO_FILE, 1, "Cannot write to /d/lock: Permission denied"),
    (OSError(errno.ENOSPC, "No space"), 1, "No space is left for rowtide-data"),
    (DirectoryBusy("d is in use by process 5"), 1, "d is in use by process 5"),
    (DamagedFile("d/credentials.json is damaged"), 1, "d/credentials.json is damaged"),
    (OtherCluster("the rows in d are not of it"), 1, "the rows in d are not of it"),
    (JarsUnavailable("cannot fetch x"), 1, "cannot fetch x"),
    (JavaUnusable("no Java"), 1, "no Java"),
    (ClusterUnreachable("h:1: no answer"), 3, "Kafka does not answer: h:1: no answer"),
    (NotDurable("topic t is not fsync"), 1, "topic t is not fsync"),
    (Unavailable("topics: no answer within 30 s"), 3, "topics: no answer within 30 s"),
    (OutcomeUnknown(), 3, "Operation timeout."),
    (CorruptRecord("no schema known"), 1, "A log has a record that this version cannot read"),
    (KeyError("x"), 1, "rowtide stopped because of an internal error: KeyError: 'x'"),
]


@pytest.mark.parametrize(("error", "exit_code", "words"), FAILURES)
def test_a_failure_is_told_in_a_sentence(error: BaseException, exit_code: int, words: str) -> None:
    failure = explain_failure(error, Settings())
    assert words in failure.message
    assert (failure.exit_code, "\n" in failure.message) == (exit_code, False)


@pytest.mark.parametrize("error", [Unavailable("no leader"), OutcomeUnknown()])
def test_only_a_topic_that_could_lose_a_write_has_its_settings_blamed(error: BaseException) -> None:
    assert "durability" in explain_failure(NotDurable("topic t is not fsync"), Settings()).hint
    assert "durability" not in explain_failure(error, Settings()).hint


@pytest.mark.parametrize(
    ("content", "what"),
    [
        ("", "Expecting value"),
        ("[]", "no JSON object"),
        ('{"access_key_id": "a"}', "access_key_secret"),
    ],
)
def test_a_damaged_file_is_named_and_left_as_it_is(tmp_path: Path, content: str, what: str) -> None:
    path = tmp_path / CREDENTIALS
    path.write_text(content)
    with pytest.raises(DamagedFile, match=f"{CREDENTIALS} is damaged: .*{what}"):
        load_or_create(tmp_path, "demo")
    assert path.read_text() == content


def test_the_first_failure_of_a_group_is_told() -> None:
    group = BaseExceptionGroup("g", [ExceptionGroup("h", [DirectoryBusy("first")]), KeyError("x")])
    assert explain_failure(group, Settings()).message == "first"


def test_a_download_that_the_user_ended_goes_no_further() -> None:
    stop = asyncio.Event()
    stop.set()
    with pytest.raises(_StartEnded):
        _JarProgress(stop)(1, 46, "a.jar")


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("127.0.0.1", "http://127.0.0.1:1"),
        ("0.0.0.0", "http://127.0.0.1:1"),
        ("::", "http://[::1]:1"),
        ("rows.example", "http://rows.example:1"),
    ],
)
def test_an_endpoint_can_be_reached_from_this_machine(host: str, url: str) -> None:
    assert listening_url(host, 1) == url


@pytest.mark.parametrize(
    ("verbosity", "words"),
    [
        (0, ["event", "WARNING", "ERROR", "Traceback"]),
        (1, ["event", "detail", "WARNING", "Traceback", "ERROR", "Traceback"]),
    ],
)
def test_the_log_has_our_events_and_tracebacks_of_faults_alone(
    verbosity: int, words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with logging_kept():
        set_up_logging(verbosity)
        _log_everything()
    lines = capsys.readouterr().err.splitlines()
    seen = [line for line in lines if re.search("event|detail|WARNING|ERROR|Traceback|noise", line)]
    assert len(seen) == len(words)
    assert all(word in line for word, line in zip(words, seen, strict=True))


@contextmanager
def logging_kept() -> Iterator[None]:
    """Put handlers and levels back: they are the whole process's."""
    loggers = [logging.getLogger(name) for name in ("", "rowtide", *LIBRARIES)]
    before = [(logger, logger.level, logger.handlers[:]) for logger in loggers]
    try:
        yield
    finally:
        for logger, level, handlers in before:
            logger.setLevel(level)
            logger.handlers[:] = handlers


def _log_everything() -> None:
    ours, theirs = logging.getLogger("rowtide.x"), logging.getLogger("aiokafka.y")
    ours.info("event")
    ours.debug("detail")
    theirs.info("noise")
    try:
        raise ValueError("reason")
    except ValueError:
        ours.warning("trouble", exc_info=True)
        ours.exception("fault")


def test_a_line_of_json_has_the_fields_of_its_request(
    capsys: pytest.CaptureFixture[str],
) -> None:
    fields = {"request_id": "id", "operation": "PutRow"}
    with logging_kept():
        set_up_logging(0, "json")
        logging.getLogger("rowtide.x").warning("it %s", "failed", extra={"fields": fields})
    line = json.loads(capsys.readouterr().err)
    assert line.pop("time").endswith("Z")
    assert line == {"level": "warning", "logger": "rowtide.x", "message": "it failed", **fields}


def test_a_line_of_json_has_the_traceback_of_a_fault(
    capsys: pytest.CaptureFixture[str],
) -> None:
    error = ZeroDivisionError("a fault")
    with logging_kept():
        set_up_logging(0, "json")
        logging.getLogger("rowtide.x").error("it failed", exc_info=error)
    assert "ZeroDivisionError: a fault" in json.loads(capsys.readouterr().err)["exception"]
