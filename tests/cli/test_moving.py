"""``rowtide export`` and ``rowtide import`` as commands: what they say, and what they refuse."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from uuid import uuid4

import pytest

from rowtide.cli.client import ProtocolClient
from rowtide.cli.moving import ProgressLines
from rowtide.client.wire_row import Put
from rowtide.core.values.schema import STRING, KeyColumn
from rowtide.deploy.ports import free_ports
from rowtide.deploy.up import Up
from rowtide.stream.moving.folder import ExportFolder
from tests.system.small_disk import Ballast, NoDisk, small_disk

pytestmark = pytest.mark.system

ROWTIDE = str(Path(sys.executable).with_name("rowtide"))
END_S_MAX = 120.0
ROWS = 200


def rowtide(*arguments: str | Path) -> tuple[int, str, str]:
    """Run a command to its end; return exit code, stdout and stderr."""
    done = subprocess.run([ROWTIDE, *arguments], capture_output=True, text=True, timeout=END_S_MAX)
    assert "Traceback" not in done.stderr
    return done.returncode, done.stdout, done.stderr


def write(directory: Path, value: str) -> None:
    """Run ``rowtide dev`` on a directory, and write a table there."""
    with (
        Up(directory, options=["--port", "0"], command="dev") as up,
        ProtocolClient(**up.start()._asdict()) as client,
    ):
        if "t" not in client.list_table():
            client.create_table("t", [KeyColumn("k", STRING)])
        for number in range(ROWS):
            client.put_row("t", (("k", f"k{number}"),), [Put("a", value)])


@pytest.fixture(scope="module")
def local_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A stopped directory, which nothing here changes."""
    path = tmp_path_factory.mktemp("local") / "data"
    write(path, "x" * 1000)
    return path


@pytest.fixture(scope="module")
def export_dir(local_dir: Path) -> Path:
    """An export, which nothing here changes."""
    folder = local_dir.with_name("export")
    assert rowtide("export", folder, "--data", local_dir)[0] == 0
    return folder


def test_an_export_says_what_it_has(export_dir: Path, local_dir: Path, tmp_path: Path) -> None:
    code, out, error = rowtide("export", tmp_path / "export", "--data", local_dir)
    assert (code, error) == (0, "")
    lines = [line.split() for line in out.splitlines()]
    assert lines[0] == ["topics", "partitions", "records", "bytes"]
    assert [line[:2] for line in lines[1:5]] == [
        ["catalog", "1"],
        ["lease", "4"],
        ["changelog", "4"],
        ["shard", "1"],
    ]
    assert "the secrets of access keys" in out
    assert sorted(path.name for path in export_dir.iterdir()) == sorted(
        path.name for path in (tmp_path / "export").iterdir()
    )


def test_a_directory_in_use_is_refused(tmp_path: Path) -> None:
    with Up(tmp_path / "data", options=["--port", "0"], command="dev") as up:
        up.start()
        code, _, error = rowtide("export", tmp_path / "export", "--data", tmp_path / "data")
        assert code == 1
        assert f"data is in use by process {up.pid}: stop it, or choose another" in error
    assert not (tmp_path / "export").exists()
    assert rowtide("export", tmp_path / "export", "--data", tmp_path / "data")[0] == 0


def of_kafka(folder: Path) -> None:
    (folder / "kafka").mkdir()


def with_a_file(folder: Path) -> None:
    (folder / "log").write_text("")


@pytest.mark.parametrize("made", [of_kafka, with_a_file, lambda _: None])
def test_a_directory_without_a_local_log_is_refused(
    tmp_path: Path, made: Callable[[Path], None]
) -> None:
    made(tmp_path)
    code, _, error = rowtide("export", tmp_path / "export", "--data", tmp_path)
    assert code == 1
    assert f"{tmp_path} has no local log" in error
    assert not (tmp_path / "export").exists()


def test_folders_of_others_are_refused(local_dir: Path, export_dir: Path, tmp_path: Path) -> None:
    (tmp_path / "foreign").mkdir()
    (tmp_path / "foreign" / "letter").write_text("dear")
    (tmp_path / "file").write_text("dear")
    for folder, words in (
        (tmp_path / "foreign", "foreign is not empty: it has letter"),
        (tmp_path / "file", "file: File exists"),
    ):
        code, _, error = rowtide("export", folder, "--data", local_dir)
        assert (code, words in error) == (1, True), error
    copy = tmp_path / "copy"
    shutil.copytree(local_dir, copy)
    code, _, error = rowtide("export", export_dir, "--data", copy)
    assert code == 1
    assert "has an export of another directory or state" in error


def test_another_prefix_is_refused(local_dir: Path, tmp_path: Path) -> None:
    code, _, error = rowtide(
        *("export", tmp_path / "export", "--data", local_dir, "--topic-prefix", "other")
    )
    assert code == 1
    assert "no topic other.catalog; it has rowtide.catalog\n  Name their prefix" in error


def test_rows_ahead_of_their_log_are_not_left_behind(local_dir: Path, tmp_path: Path) -> None:
    """A disk that lost the end of the log: the server would keep the shard closed."""
    data = tmp_path / "data"
    shutil.copytree(local_dir, data)
    shutil.copytree(data / "log", tmp_path / "older")
    write(data, "y")
    shutil.rmtree(data / "log")
    shutil.copytree(tmp_path / "older", data / "log")
    code, _, error = rowtide("export", tmp_path / "export", "--data", data)
    assert code == 1
    assert "the log of shard s" in error
    assert "lacks entries that its rows have: it ends at" in error
    assert "`rowtide shard repair s" in error
    shutil.rmtree(data / "rows")  # Nobody knows any more.
    assert rowtide("export", tmp_path / "export", "--data", data)[0] == 0


def test_an_export_goes_on_once_a_full_disk_has_room(local_dir: Path, tmp_path: Path) -> None:
    try:
        with small_disk(tmp_path / "disk", 4 << 20) as disk:
            ballast = Ballast(disk)
            ballast.leave(64 << 10)
            code, _, error = rowtide("export", disk / "export", "--data", local_dir)
            assert code == 1
            assert "No space left on device" in error
            assert not (disk / "export" / "manifest.json").exists()
            ballast.drop()
            assert rowtide("export", disk / "export", "--data", local_dir)[0] == 0
    except NoDisk as error:
        pytest.skip(str(error))


def test_progress_is_a_line_a_second(capsys: pytest.CaptureFixture[str]) -> None:
    now_s = [0.0]
    progress = ProgressLines(lambda: now_s[0])
    for now_s[0], name, records in (
        (0.5, "catalog[0]", 100),
        (0.9, "shard.s1[0]", 1000),
        (2.0, "shard.s1[0]", 2900),
        (2.5, "shard.s1[0]", 3400),
        (3.0, "shard.s1[0]", 4900),
    ):
        progress(name, records, records * 1000)
    assert capsys.readouterr().err.splitlines() == [
        "shard.s1[0]: 2,900 records, 2.9 MB, 1,500 records/s",
        "shard.s1[0]: 4,900 records, 4.9 MB, 2,000 records/s",
    ]


# Import.


def copy_changed(export_dir: Path, folder: Path, change: Callable[[Path], None]) -> Path:
    shutil.copytree(export_dir, folder)
    change(folder)
    return folder


def of_a_later_format(folder: Path) -> None:
    path = folder / "manifest.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "format": 2}))


def flip_last_byte(folder: Path) -> None:
    [path] = folder.glob("shard.*.records")
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda folder: (folder / "manifest.json").unlink(), "it is not a whole export"),
        (lambda folder: shutil.rmtree(folder), "it is not a whole export"),
        (of_a_later_format, "it has format 2, this version reads 1"),
        (lambda folder: (folder / "catalog-0.records").unlink(), "catalog-0.records is missing"),
        (flip_last_byte, "does not match its checksum"),
    ],
)
@pytest.mark.kafka
def test_a_folder_that_is_no_whole_export_is_refused(
    export_dir: Path, tmp_path: Path, broker: str, change: Callable[[Path], None], words: str
) -> None:
    folder = copy_changed(export_dir, tmp_path / "export", change)
    prefix = f"none{uuid4().hex[:8]}"
    code, _, error = rowtide("import", folder, "--kafka", broker, "--topic-prefix", prefix)
    assert (code, words in error) == (1, True), error
    assert error.splitlines()[-1] == "  Give the folder of a finished `rowtide export`."


@pytest.mark.kafka
def test_a_cluster_with_topics_is_refused(export_dir: Path, tmp_path: Path, broker: str) -> None:
    prefix = f"taken{uuid4().hex[:8]}"
    kafka = ("--kafka", broker, "--topic-prefix", prefix)
    with Up(tmp_path / "worker", options=["--port", "0", *kafka], command="worker") as up:
        up.start()
    code, _, error = rowtide("import", export_dir, *kafka)
    assert code == 1
    assert f"the cluster has topics of {prefix} already, such as {prefix}" in error


@pytest.mark.kafka
def test_the_rows_are_served_and_the_local_directory_is_not(
    export_dir: Path, local_dir: Path, tmp_path: Path, broker: str
) -> None:
    prefix = f"moved{uuid4().hex[:8]}"
    kafka = ("--kafka", broker, "--topic-prefix", prefix)
    code, out, error = rowtide("import", export_dir, *kafka)
    assert code == 0, error
    assert f"Imported into {broker}: every record and setting was compared" in out
    started = f"rowtide worker {' '.join(kafka)} --data-dir NEW-DIRECTORY"
    assert out.splitlines()[-1] == f"Now start workers: {started}"
    code, out, _ = rowtide("import", export_dir, *kafka)
    assert (code, f"{broker} was complete" in out) == (0, True)
    code, _, error = rowtide("worker", "--data-dir", local_dir, "--port", "0", *kafka)
    assert code == 1
    assert "has its logs in 'log', which --log kafka does not read" in error
    (tmp_path / "worker").mkdir()
    shutil.copy(local_dir / "credentials.json", tmp_path / "worker")
    with (
        Up(tmp_path / "worker", options=["--port", "0", *kafka], command="worker") as up,
        ProtocolClient(**up.start()._asdict()) as client,
    ):
        assert client.list_table() == ["t"]
        keys = client.call_json("RowtideListKeys", {})["keys"]
        assert len(keys) == 1, "the worker has the key that it was given"


def test_a_second_import_of_a_folder_is_refused(export_dir: Path) -> None:
    with ExportFolder(export_dir).lock():
        code, _, error = rowtide("import", export_dir, "--kafka", "127.0.0.1:1")
    assert code == 1
    assert f"another import of {export_dir} is under way" in error


def test_a_broker_that_does_not_answer_is_told(export_dir: Path) -> None:
    port = next(iter(free_ports("127.0.0.1")))
    code, _, error = rowtide("import", export_dir, "--kafka", f"127.0.0.1:{port}")
    assert code == 3
    assert "Kafka does not answer: " in error


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["export"], "Missing argument 'DIR'"),
        (["import", "x"], "Missing option '--kafka'"),
        (["import", "x", "--kafka", "nowhere"], "kafka must be HOST:PORT"),
        (["import", "x", "--kafka", "h:1", "--topic-prefix", "a.b"], "topic_prefix must be"),
        (["export", "x", "--topic-prefix", ""], "topic_prefix must be"),
    ],
)
def test_a_wrong_command_line_is_refused(arguments: list[str], words: str) -> None:
    code, _, error = rowtide(*arguments)
    assert (code, words in error) == (2, True), error
