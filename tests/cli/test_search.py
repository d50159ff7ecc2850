"""Searching a table with nothing but a server: each search sees every write before it."""

from __future__ import annotations

import json
import logging
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from rowtide.cli.main import main
from rowtide.connectors.rows import SinkBatch, TableShape
from rowtide.connectors.sinks.tantivy.folder import WritableFolder
from rowtide.core.values.schema import INTEGER, KeyColumn
from tests.connectors.sink_histories import row

pytestmark = pytest.mark.system

TRY_AGAIN = 3
Run = Callable[[str], Result]


@pytest.fixture
def run(data_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run a command of ``rowtide``; indexes are the test's own."""
    monkeypatch.setenv("ROWTIDE_DATA_DIR", str(data_dir))
    monkeypatch.setenv("ROWTIDE_CACHE_DIR", str(tmp_path / "cache"))
    return lambda command: CliRunner().invoke(main, shlex.split(command), prog_name="rowtide")


def get_output(result: Result) -> str:
    assert result.exit_code == 0, result.output
    return result.stdout


def write_until_accepted(run: Run, command: str) -> None:
    """Write as a script would: again, where the answer was that nothing was changed yet."""
    while (result := run(command)).exit_code == TRY_AGAIN:
        assert "Nothing was changed: try again" in result.output
    get_output(result)


def make_flights(run: Run, table: str) -> None:
    get_output(run(f"table create {table} --key id:integer --stream 24"))
    get_output(run(f"row put {table} id=1 carrier=UA dep_delay:=70 note='running shoes'"))
    get_output(run(f"row put {table} id=2 carrier=AA dep_delay:=70"))
    get_output(run(f"row put {table} id=3 carrier=UA dep_delay:=7.5"))


def test_rows_are_found_as_they_are_when_it_is_asked(
    run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    make_flights(run, "flights")
    asked = "search flights 'carrier:UA AND dep_delay:>60'"
    assert get_output(run(asked)).splitlines() == [
        "id  carrier  dep_delay  note",
        "1   UA       70         running shoes",
    ]
    get_output(run("row update flights id=3 dep_delay:=99"))
    get_output(run("row delete flights id=1"))
    found = get_output(run(f"{asked} --output json"))
    assert [json.loads(line) for line in found.splitlines()] == [
        {"id": 3, "carrier": "UA", "dep_delay": 99}
    ]
    warnings = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert warnings == [], "a search that ends has lost nothing"


def test_a_shard_that_is_split_meanwhile_changes_nothing(run: Run) -> None:
    make_flights(run, "split")
    assert "running" in get_output(run("search split running"))
    shards = json.loads(get_output(run("shard list split --output json")))
    get_output(run(f"shard split split {shards[0]['shard']} --at 2"))
    write_until_accepted(run, "row put split id=9 note='running again'")
    write_until_accepted(run, "row put split id=0 note='running too'")
    found = get_output(run("search split running --column id --output json"))
    assert sorted(json.loads(line)["id"] for line in found.splitlines()) == [0, 1, 9]


def test_another_language_finds_other_forms_of_a_word(run: Run) -> None:
    make_flights(run, "words")
    assert get_output(run("search words run")) == ""
    assert "running" in get_output(run("search words run --language english"))


def test_the_limit_says_how_many_there_are(run: Run) -> None:
    make_flights(run, "many")
    result = run("search many 'dep_delay:*' --limit 2 --column id")
    assert len(get_output(result).splitlines()) == 3
    assert result.stderr == "2 of 3 rows; --limit shows more.\n"


def test_searches_at_the_same_time_share_one_index(run: Run, data_dir: Path) -> None:
    make_flights(run, "shared")
    command = "from rowtide.cli.main import main; main()"
    asked = [sys.executable, "-c", command, "search", "shared", "running", "-o", "json"]
    searches = [
        subprocess.Popen(asked, stdout=subprocess.PIPE, stderr=subprocess.PIPE) for _ in range(4)
    ]
    for search in searches:
        output, complaint = search.communicate(timeout=120)
        assert search.returncode == 0, complaint
        assert json.loads(output)["id"] == 1


def test_an_index_whose_place_in_the_stream_is_lost_begins_with_the_rows(
    run: Run, tmp_path: Path
) -> None:
    make_flights(run, "lost")
    get_output(run("search lost running"))
    [positions] = (tmp_path / "cache").rglob("positions.json")
    get_output(run("row delete lost id=1"))
    get_output(run("row put lost id=4 note=running"))
    positions.write_text("half of a")
    found = get_output(run("search lost running --output json"))
    assert [json.loads(line)["id"] for line in found.splitlines()] == [4]
    # A shard that is kept no more, though it was not read to its end.
    kept = json.loads(positions.read_text())
    positions.write_text(json.dumps([*kept, ["gone", "", [], False]]))
    get_output(run("row delete lost id=4"))
    assert get_output(run("search lost running")) == ""


def test_what_cannot_be_searched_says_why(run: Run) -> None:
    get_output(run("table create dry --key id:integer"))
    result = run("search dry anything")
    assert result.exit_code == 1
    assert "`rowtide table update dry --stream 24` keeps its changes" in result.output
    make_flights(run, "asked")
    result = run("search asked 'carrier:('")
    assert result.exit_code == 2
    assert "written in double quotes" in result.output
    result = run("search nowhere x")
    assert "does not exist" in result.output


def test_the_index_of_a_connector_is_searched_as_it_is(run: Run, tmp_path: Path) -> None:
    table = TableShape("made", (KeyColumn("id", INTEGER),))
    folder = tmp_path / "search"
    with WritableFolder(folder, table, "none") as written:
        written.apply([SinkBatch("made", "shard", [row("a", 1, {"note": "running"})])])
        written.refresh()
        # Its writer may be at work.
        assert "running" in get_output(run(f"search made running --index {folder}"))
    result = run(f"search other running --index {folder}")
    assert result.exit_code == 1
    assert "is the index of table made" in result.output
    (tmp_path / "empty").mkdir()
    result = run(f"search made running --index {tmp_path / 'empty'}")
    assert "has no search index yet" in result.output
