"""What a connector that is deleted leaves at its server: nothing that is its own, or word of it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from demo.servers.postgres import HOST, PostgreSQL
from rowtide.connectors.sources.postgres import traces
from rowtide.deploy.up import Ready
from tests.connectors.memory_target import MemoryTarget
from tests.connectors.postgres.following import following, source_of
from tests.connectors.processes import ConnectorProcesses, declare, yaml_of
from tests.connectors.runtime.conftest import Run
from tests.support.waiting import until

pytestmark = pytest.mark.system


def list_slots_and_publications(server: PostgreSQL) -> tuple[list[str], list[str]]:
    """Return the names of slots and publications."""
    slots = server.rows("SELECT slot_name FROM pg_replication_slots")
    publications = server.rows("SELECT pubname FROM pg_publication")
    return [name for (name,) in slots], [name for (name,) in publications]


def declare_source(server: Ready, name: str, port: int, **more: object) -> None:
    declare(server, document(name, port, **more))


def document(name: str, port: int, **more: object) -> str:
    where = {"host": HOST, "port": port, "user": "postgres", "database": "shop"}
    source = {"kind": "postgres", **where, "tables": ["shop.*"], **more}
    return yaml_of(name, {"source": source})


def test_a_deleted_connector_leaves_no_slot_and_no_publication(
    server: Ready, postgres: PostgreSQL, processes: ConnectorProcesses, connector: Run
) -> None:
    postgres.execute("CREATE TABLE shop.deleted (id int PRIMARY KEY)")
    declare_source(server, "going", postgres.port)
    processes.start("going")
    until(
        lambda: list_slots_and_publications(postgres) == (["rowtide_going"], ["rowtide_going"]),
        message=processes.said,
    )

    def lag() -> object:
        [report] = connector("status", "going", "--output", "json")
        return report["lag"] if report["state"] == "running" else report

    until(lambda: lag() == {"bytes": 0, "seconds": 0.0}, message=lambda: (lag(), processes.said()))
    # The server's own log may come between: nothing to follow, but a few bytes for a moment.
    until(lambda: re.search(r"going +running +0 B +0.0 ", connector("status", "going")))
    assert connector("delete", "going", "--yes") == "Deleted going.\n"
    assert list_slots_and_publications(postgres) == ([], [])


def test_what_can_not_be_removed_is_told(server: Ready, connector: Run) -> None:
    declare_source(server, "away", 1)
    output = connector("delete", "away", "--yes")
    for part in ("the slot rowtide_away", "DROP PUBLICATION", "Connection refused"):
        assert part in output
    declare_source(server, "secret", 1, password="${NOT_SET_HERE}")
    output = connector("delete", "secret", "--yes")
    for part in ("pg_drop_replication_slot('rowtide_secret')", "not set here: ${NOT_SET_HERE}"):
        assert part in output
    assert "secret" not in connector("list")


def test_what_a_changed_connector_leaves_is_told(connector: Run, tmp_path: Path) -> None:
    """Its slot stayed at the former server and retained the log, without any message."""

    def apply(port: int, **more: object) -> str:
        (tmp_path / "moved.yaml").write_text(document("moved", port, **more))
        return str(connector("apply", str(tmp_path / "moved.yaml")))

    assert "leaves" not in apply(1)
    output = apply(2)
    assert "moved leaves behind the slot rowtide_moved in database shop at 127.0.0.1:1," in output
    assert output.count("moved leaves behind") == 2
    assert "leaves" not in apply(2, chunk_rows=7)
    connector("delete", "moved", "--yes")


async def test_what_others_made_or_read_stays(
    postgres: PostgreSQL, monkeypatch: pytest.MonkeyPatch
) -> None:
    postgres.execute("CREATE TABLE shop.t (a int PRIMARY KEY)", "CREATE PUBLICATION theirs")
    source = source_of(postgres, publication="theirs")
    async with following(postgres, MemoryTarget(), publication="theirs") as running:
        await running.settle()
        with monkeypatch.context() as patched:
            patched.setattr(traces, "READ_S_MAX", 0.5)
            slot, publication = await source.erase()
        assert "the slot rowtide_shop" in slot
        assert "the publication theirs" in publication
    assert list_slots_and_publications(postgres) == (["rowtide_shop"], ["theirs"])
    assert await source.erase() == [publication]
    assert list_slots_and_publications(postgres) == ([], ["theirs"])
    assert await source_of(postgres).erase() == [], "there is nothing"


async def test_one_that_is_declared_again_copies_its_tables_anew(postgres: PostgreSQL) -> None:
    postgres.execute("CREATE TABLE shop.t (a int PRIMARY KEY)", "INSERT INTO shop.t VALUES (1)")
    target = MemoryTarget()
    async with following(postgres, target) as running:
        await running.settle()
    assert await source_of(postgres).erase() == []
    postgres.execute("DELETE FROM shop.t", "INSERT INTO shop.t VALUES (2)")
    async with following(postgres, target) as running:
        await running.settle()
    assert [key for ((_, key),) in target.rows["t"]] == [2]
