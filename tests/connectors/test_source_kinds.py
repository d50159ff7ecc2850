"""A source that takes the name of one of another kind: its rows count, whatever was there."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from demo.servers.mariadb import MariaDB
from demo.servers.postgres import PostgreSQL
from demo.servers.sql_server import QUICK
from rowtide.connectors.fields import SettingsRefused
from rowtide.connectors.sources.mysql.position import MySqlCheckpoint as MySqlCheckpoint
from rowtide.connectors.sources.postgres.position import PostgresCheckpoint as PostgresCheckpoint
from tests.connectors.memory_target import MemoryTarget
from tests.connectors.mysql_source.following import following as following_mysql
from tests.connectors.postgres.following import following as following_postgres
from tests.connectors.postgres.following import plain
from tests.connectors.running_source import RunningSource

TABLE = "CREATE TABLE shop.a (id int PRIMARY KEY, n int)"


@pytest.mark.system
async def test_every_table_is_copied_again_above_what_the_other_kind_wrote(
    tmp_path: Path, cache_dir: Path
) -> None:
    """The checkpoint of the other kind was a KeyError each time the source began."""
    target = MemoryTarget()
    with (
        MariaDB(tmp_path / "mariadb", cache_dir, options=QUICK) as maria,
        PostgreSQL(tmp_path / "postgres") as other,
    ):
        maria.execute("CREATE DATABASE shop", TABLE, "INSERT INTO shop.a VALUES (2, 22), (3, 33)")
        other.execute("CREATE SCHEMA shop", TABLE, "INSERT INTO shop.a VALUES (1, 1), (2, 2)")
        for again in (0, 100):
            async with following_postgres(other, target) as running:
                other.execute(f"UPDATE shop.a SET n = {again} WHERE id = 1")
                await _its_own(running, target, "postgres")
                await running.settle()
            assert plain(target.rows["a"]) == {1: {"n": again}, 2: {"n": 2}}
            async with following_mysql(maria, target) as running_mysql:
                maria.execute(f"UPDATE shop.a SET n = {again} WHERE id = 3")
                await _its_own(running_mysql, target, "mysql")
                await running_mysql.settle()
            assert plain(target.rows["a"]) == {2: {"n": 22}, 3: {"n": again}}


async def _its_own(running: RunningSource, target: MemoryTarget, kind: str) -> None:
    """Wait until what is kept is the source's own."""
    await running.until(lambda: f'"kind":"{kind}"'.encode() in target.kept, "it keeps its own")


Begun = Callable[[], MySqlCheckpoint | PostgresCheckpoint]


@pytest.mark.parametrize("kind", [MySqlCheckpoint, PostgresCheckpoint])
@pytest.mark.parametrize("kept", [b"position 5", b"[]", b"{}", b"\xff"])
def test_what_no_source_of_ours_kept_is_refused(kind: Begun, kept: bytes) -> None:
    with pytest.raises(SettingsRefused, match="give the connector another name"):
        kind().parse(kept)
