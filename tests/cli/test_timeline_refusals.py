"""``rowtide timeline`` with bad input, and its followers: words, a code, no stack trace."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner

from rowtide.cli.main import main
from rowtide.testing.instance import InstanceAccess
from rowtide.testing.server import Server
from tests.support.access import access_of
from tests.support.interrupts import heed_ctrl_c
from tests.support.waiting import until

pytestmark = pytest.mark.system

END_S_MAX = 60.0
MIB = 1024 * 1024
RUN = "from rowtide.cli.main import main; main()"


@pytest.fixture(autouse=True)
def variables(
    rowtide_instance: InstanceAccess, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Have commands use the test's instance, and a folder of its own for indexes."""
    monkeypatch.setenv("ROWTIDE_CACHE_DIR", str(tmp_path))
    for name, value in access_of(rowtide_instance).items():
        monkeypatch.setenv(f"ROWTIDE_{name.upper()}", value)


def call(*arguments: str) -> tuple[int, str]:
    """Return the exit code of a command, and what it printed."""
    result = CliRunner().invoke(main, ["timeline", *arguments], prog_name="rowtide")
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert "Traceback" not in result.output
    return result.exit_code, result.output


def require(*arguments: str) -> str:
    """Return what a command that succeeds has printed."""
    code, printed = call(*arguments)
    assert code == 0, printed
    return printed


def create_tables() -> int:
    """Create a chat's tables with one message; return its id."""
    require("create", "im_store")
    require("create", "im_sync", "--id", "user", "--ttl", "604800")
    require("create", "devices", "--id", "device:integer", "--manual")
    require("members", "join", "group:7", "ada")
    return int(require("put", "im_store", "group:7", "sender=bob", "text=hi").split()[1][:-1])


BAD = """
put im_store '' text=x | 1 | Identifier column 'timeline_id' is empty (OTSInvalidPK)
put im_store group:7 sequence_id:=1 | 1 | Field 'sequence_id' has the name of a key column
put im_store group:7 text | 2 | 'text' assigns nothing
put im_store group:7 n:=nope | 2 | n: nope is not JSON
put im_store group:7 n+=1 | 2 | a field of a message has no increment
put im_store group:7 --id 5 text=x | 1 | 'sequence_id' is assigned by the server
put im_store group:7 --id 5 --message-id m | 2 | --id and --message-id exclude each other
put im_store group:7 --message-id= x=1 | 1 | Message_id has 0 bytes
put devices text n:=1 --id 1 | 2 | device
put devices 7 n:=1 | 1 | 'sequence_id' is manual in table 'devices'
put devices 7 n:=1 --id 0 | 1 | 'sequence_id' is 1 to 9223372036854775806, not 0
put devices 7 n:=1 --id -1 | 1 | 'sequence_id' is 1 to 9223372036854775806, not -1
put devices 7 n:=1 --id 9223372036854775807 | 1 | not 9223372036854775807
put devices 7 n:=1 --id 9223372036854775808 | 1 | 9223372036854775808 does not fit 64 bits
put devices 7 n:=1 --message-id m | 1 | Table 'devices' has no index by message id
put im_sync ada n:=1 --message-id m | 1 | Table 'im_sync' has no index by message id
put im_sync ada | 1 | needs a field
put im_cursors ada x=1 | 1 | im_cursors is no table of timelines
get im_store group:7 9223372036854775808 | 1 | does not fit 64 bits
update im_store group:7 1 | 2 | Nothing to change
scan im_store group:7 --from 5 --to 5 | 1 | from_id < to_id
scan im_store group:7 --backward --from 0 | 1 | from_id > to_id
scan im_store group:7 --limit 0 | 2 | 0 is not in the range
follow im_store group:7 --after -1 | 1 | goes on after an id of 0 to
follow im_sync ada --after 1 | 1 | Messages after id 1 may have expired
latest im_store absent | 1 | No message in absent
cursor ada group:7 -1 | 2 | -1
cursor ada group:7 9223372036854775808 | 1 | Read_id takes an id of a message or 0
unread absent ada | 1 | (OTSObjectNotExist)
scan absent group:7 | 1 | (OTSObjectNotExist)
search absent words | 1 | (OTSObjectNotExist)
index absent | 1 | (OTSObjectNotExist)
meta list absent | 1 | (OTSObjectNotExist)
members list group:7 --members absent | 1 | (OTSObjectNotExist)
members list '' | 1 | Identifier column 'conversation' is empty (OTSInvalidPK)
members join '' ada | 1 | Identifier column 'conversation' is empty (OTSInvalidPK)
members join group:7 '' | 1 | Identifier column 'user' is empty (OTSInvalidPK)
inbox im_store '' | 1 | Identifier column 'user' is empty (OTSInvalidPK)
inbox im_store ada --sync absent | 1 | There is no table absent (OTSObjectNotExist)
inbox im_store ada --cursors absent | 1 | There is no table absent (OTSObjectNotExist)
inbox im_store ada --after zero | 1 | No position of an inbox: 'zero' (OTSParameterInvalid)
inbox im_store ada --after 1 | 1 | Messages after id 1 may have expired
inbox im_store ada --limit 0 | 2 | 0 is not in the range
inbox devices ada | 1 | Inboxes need one text as identifier
inbox im_cursors ada | 1 | im_cursors is no table of timelines
search im_store '{"equals": {}}' | 2 | equals
search im_store '{' | 2 | JSON
"""


def test_bad_input_is_answered_with_words_and_a_code() -> None:

    create_tables()
    other: list[str] = []
    for line in BAD.strip().splitlines():
        command, code, words = (part.strip() for part in line.split("|"))
        found, printed = call(*shlex.split(command))
        if found != int(code) or words not in printed:
            other.append(f"{command}: {found} {printed}")
    assert not other, "".join(other)


def test_a_message_of_2_mib_is_stored_and_no_larger_one(tmp_path: Path) -> None:
    require("create", "im_store")
    file = tmp_path / "raw"
    file.write_bytes(bytes(2 * MIB))
    require("put", "im_store", "g", f"raw@={file}")
    file.write_bytes(bytes(2 * MIB + 1))
    code, printed = call("put", "im_store", "g", f"raw@={file}")
    assert code == 1
    assert "'raw' exceeds the MaxLength:2097152" in printed
    wide = [f"f{number}:={number}" for number in range(1025)]
    require("put", "im_store", "g", *wide[:1024])
    code, printed = call("put", "im_store", "g", *wide)
    assert (code, "A message has 1025 fields; the limit is 1024" in printed) == (1, True), printed


READS = """
get im_store group:7 ID
scan im_store group:7
latest im_store group:7
follow im_store group:7 --after 0 --limit 1
search im_store hi
index im_store
unread im_store ada
cursor ada
members list group:7
inbox im_store ada
inbox im_store ada --after 0
"""
WRITES = """
create other
put im_store group:7 text=x
put im_store group:7 text=x --message-id m
update im_store group:7 ID text=x
delete im_store group:7 ID
cursor ada group:7 5
members join group:7 cy
members leave group:7 ada
meta put im_meta group:7 name=x
meta update im_meta group:7 name=x
meta delete im_meta group:7
"""


def test_a_read_only_key_reads_and_does_not_write(
    rowtide_instance: InstanceAccess, rowtide_server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    id = create_tables()
    with rowtide_instance.connect() as client:
        client.create_table("im_meta", {"timeline_id": str})
    fields = {"admin": False, "read_only": True, "instances": [rowtide_instance.name]}
    with rowtide_server.client() as admin:
        made = admin.call_json("RowtideCreateKey", fields)
    for name in ("access_key_id", "access_key_secret"):
        monkeypatch.setenv(f"ROWTIDE_{name.upper()}", made[name])
    for line in READS.strip().splitlines():
        require(*line.replace("ID", str(id)).split())
    for line in WRITES.strip().splitlines():
        code, printed = call(*line.replace("ID", str(id)).split())
        assert code == 1, line
        assert "is read-only" in printed, line
        assert "(OTSNoPermissionAccess)" in printed, line


@contextmanager
def running(output: Path, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run a command as a process of its own; kill it at the end if it still runs."""
    with (
        output.open("wb") as file,
        subprocess.Popen(
            [sys.executable, "-c", RUN, "timeline", *arguments],
            env=dict(os.environ),
            stdout=file,
            stderr=subprocess.STDOUT,
            preexec_fn=heed_ctrl_c,
        ) as child,
    ):
        try:
            yield child
        finally:
            child.kill()


def test_a_follower_of_an_index_keeps_it_up_to_date_until_ctrl_c(tmp_path: Path) -> None:
    require("create", "im_store")
    require("put", "im_store", "g", "text=first")
    output = tmp_path / "printed"
    with running(output, "index", "im_store", "--follow", "--output", "json") as child:
        until(lambda: json.loads(output.read_text()), output.read_text, not_yet=(ValueError,))
        assert json.loads(output.read_text())["rows"] == 1
        for number in range(5):
            require("put", "im_store", "g", f"text=word{number}")
            # This command finds the index in use, so the other process feeds it.
            found = json.loads(require("search", "im_store", f"word{number}", "-o", "json"))
            assert [hit["fields"] for hit in found["hits"]] == [{"text": f"word{number}"}]
        assert child.poll() is None
        child.send_signal(signal.SIGINT)
        assert child.wait(END_S_MAX) == 0, output.read_text()
    assert json.loads(output.read_text())["rows"] == 1, "nothing else was printed"
    assert json.loads(require("index", "im_store", "-o", "json"))["rows"] == 6


@pytest.mark.parametrize(
    "arguments",
    [
        ("index", "im_store", "--follow"),
        ("follow", "im_store", "group:7", "--after", "0"),
        ("inbox", "im_store", "ada", "--after", "0", "--follow"),
    ],
    ids=lambda given: given[0],
)
def test_a_follower_of_a_dropped_table_ends_with_words(
    rowtide_instance: InstanceAccess, tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    id = create_tables()
    require("put", "im_sync", "ada", "conversation=group:7", f"message_id:={id}")
    output = tmp_path / "printed"
    with running(output, *arguments) as child:
        until(output.read_text, "the command printed nothing")
        with rowtide_instance.admin() as admin:
            for table in ("im_sync", "im_store"):
                admin.delete_table(table)
        assert child.wait(END_S_MAX) == 1, output.read_text()
    printed = output.read_text()
    assert "Traceback" not in printed
    assert printed.splitlines()[-1].startswith(("Error: ", "  ")), printed
    assert "(OTSObjectNotExist)" in printed
