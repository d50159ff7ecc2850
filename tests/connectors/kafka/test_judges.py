"""Programs of others read our topics: Debezium's JDBC sink in Kafka Connect, Apicurio's
registry.
"""

from __future__ import annotations

import asyncio
import json
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from demo.servers.apicurio import Apicurio
from demo.servers.connect import Connect
from demo.servers.mariadb import HOST, QUICK, MariaDB, NotToBeHad, find_programs
from demo.servers.server import Answered, fetch
from rowtide.connectors.rows import SinkBatch, SinkRow
from rowtide.connectors.verify.comparison import row_bytes
from rowtide.core.records.change import ROW, UPDATE
from rowtide.core.values.schema import INTEGER, STRING, KeyColumn
from rowtide.core.values.variant import Scalar
from tests.connectors.kafka.sinks import open_sink, records
from tests.connectors.row_histories import Model, delete, put, row_key, shape

pytestmark = [pytest.mark.kafka, pytest.mark.system]

KEY = (KeyColumn("shop", STRING), KeyColumn("id", INTEGER))
STAMP = 1_700_000_000_000_000
COLUMNS = {
    "name": "string",
    "price": "double",
    "count": "integer",
    "open": "boolean",
    "raw": "binary",
    "amount": "DECIMAL(10,2)",
    "day": "DATE",
    "at": "TIMESTAMP",
    "t": "TIME",
}
MIDNIGHT = datetime.fromisoformat("1970-01-01")
READ_AS: Mapping[str, Callable[[Any], object]] = {
    "amount": Decimal,
    "day": date.fromisoformat,
    "at": datetime.fromisoformat,
    "t": lambda text: datetime.fromisoformat(f"1970-01-01 {text}") - MIDNIGHT,
}
"""Of texts in rowtide, what the driver reads from columns of the declared types."""
PLUGIN = "debezium-jdbc"
WAIT_S = 120.0
POLL_S = 0.5


@pytest.fixture
def mariadb(cache_dir: Path, tmp_path: Path) -> Iterator[MariaDB]:
    """A server with the database ``judged`` and a user who may write to it."""
    try:
        find_programs(cache_dir)
    except NotToBeHad as error:
        pytest.skip(str(error))
    # The judge commits row by row.
    with MariaDB(tmp_path / "mariadb", cache_dir, options=QUICK) as server:
        server.execute(
            "CREATE DATABASE judged",
            "CREATE USER cdc@'%' IDENTIFIED BY 'cdc'",  # The sink refuses an empty password.
            "GRANT ALL ON judged.* TO cdc@'%'",
        )
        yield server


def row_columns(at: int) -> dict[str, Scalar]:
    """Return columns of every type, some of them missing."""
    columns: dict[str, Scalar] = {
        "name": f"name {at} äöü 😀",
        "price": at / 4,
        "count": at * 10**12,
        "open": at % 2 == 0,
        "raw": bytes([at % 256, 0, 255]),
        "amount": f"{(at - 750) * 123456}.{at % 100:02}",
        "day": str(date(1970 + at % 100, 1 + at % 12, 1 + at % 28)),
        "at": f"{1971 + at % 60}-07-{1 + at % 31:02} {at % 24:02}:00:59.{at:06}",
        "t": f"{at % 24:02}:59:00.{at * 7:06}",
    }
    return {
        name: value for number, (name, value) in enumerate(columns.items()) if (at + number) % 6
    }


def history() -> list[SinkBatch]:
    """Return a snapshot's page, puts, updates, deletes, and rows that come back."""
    rows: list[SinkRow] = []
    for at in range(300):
        key, key_bytes = row_key(KEY, ["berlin", at])
        rows.append(SinkRow(key, key_bytes, STAMP, row_columns(at), ROW))
    batches = [SinkBatch("things", "s1", rows, (b"", b""), STAMP)]
    changes: list[SinkRow] = []
    for at in range(1, 1500):
        key, key_bytes = row_key(KEY, ["berlin" if at % 3 else "köln", at * 7 % 400])
        if at % 5 == 0:
            changes.append(delete(STAMP + at, [value for _, value in key], KEY, sequence=at))
        elif at % 5 == 1:
            columns = row_columns(at)
            changes.append(SinkRow(key, key_bytes, STAMP + at, columns, UPDATE, None, at))
        else:
            values = [value for _, value in key]
            changes.append(put(STAMP + at, values, row_columns(at), KEY, sequence=at))
    return batches + [
        SinkBatch("things", "s1", changes[at : at + 200]) for at in range(0, 1500, 200)
    ]


async def test_debeziums_jdbc_sink_makes_the_table_of_the_topic(
    broker: str, topic: str, mariadb: MariaDB, cache_dir: Path, tmp_path: Path
) -> None:
    model = Model()
    settings = {"format": "json-schemas", "columns": COLUMNS, "instance": "shop", "prefix": "p"}
    async with open_sink(broker, topic, shape(*KEY), **settings) as sink:
        for batch in history():
            assert await sink.apply(batch) == []
            assert await sink.apply(batch) == []
            model.apply(batch)
        held = [(row.key_bytes, row.stamp) for row in await sink.read_rows(b"", b"", limit=9999)]
        assert held == [(key, stamp) for key, stamp, _ in model.living()]
    connector = {
        "name": "judge",
        "connector.class": "io.debezium.connector.jdbc.JdbcSinkConnector",
        "tasks.max": "1",
        "topics": topic,
        "connection.url": f"jdbc:mariadb://{HOST}:{mariadb.port}/judged",
        "connection.username": "cdc",
        "connection.password": "cdc",
        "insert.mode": "upsert",
        "delete.enabled": "true",
        "primary.key.mode": "record_key",
        "schema.evolution": "basic",
        "table.name.format": "things",
        "batch.size": "500",
    }
    wanted = {
        key: tuple(
            value if value is None or name not in READ_AS else READ_AS[name](value)
            for name, value in ((name, columns.get(name)) for name in COLUMNS)
        )
        for key, _, columns in model.living()
    }
    worker = Connect(
        tmp_path / "connect", cache_dir, plugin=PLUGIN, bootstrap=broker, connector=connector
    )
    with worker as connect:
        found = await asyncio.to_thread(_wait_until_there, mariadb, connect, wanted)
    assert found == wanted
    [[_, made]] = mariadb.rows("SHOW CREATE TABLE judged.things")
    assert "`amount` decimal(10,2)" in made
    assert "`day` date" in made
    assert "`at` datetime(6)" in made
    assert "`t` time(6)" in made


def _wait_until_there(
    mariadb: MariaDB, connect: Connect, wanted: dict[bytes, tuple[Any, ...]]
) -> dict[bytes, tuple[Any, ...]]:
    """Return the table once it is as wanted, or in its last state after the time-out."""
    found: dict[bytes, tuple[Any, ...]] = {}
    names = ", ".join(f"`{name}`" for name in COLUMNS)
    for _ in range(int(WAIT_S / POLL_S)):
        trace = connect.trace()
        causes = [line for line in trace.splitlines() if "Caused by" in line]
        assert trace == "", f"{causes}\n{mariadb.last_words(20)}"
        if mariadb.rows("SHOW TABLES IN judged LIKE 'things'"):
            found = {
                row_key(KEY, [shop, number])[1]: tuple(
                    bool(value) if name == "open" and value is not None else value
                    for name, value in zip(COLUMNS, values, strict=True)
                )
                for shop, number, *values in mariadb.rows(
                    f"SELECT shop, id, {names} FROM judged.things"
                )
            }
            if found == wanted:
                break
        time.sleep(POLL_S)
    return found


@pytest.mark.slow  # It fetches 159 MB.
async def test_apicurio_keeps_the_schemas_and_takes_each_new_one_as_compatible(
    broker: str, topic: str, cache_dir: Path, tmp_path: Path
) -> None:
    values: list[Scalar] = [1, 0.5, "x", True, b"\xff"]
    with Apicurio(tmp_path / "apicurio", cache_dir) as registry:
        _call_registry(registry.url, "PUT", "/config", {"compatibility": "BACKWARD_TRANSITIVE"})
        types = {name: kind for name, kind in COLUMNS.items() if name in READ_AS}
        settings = {"format": "avro", "registry": {"url": registry.url}, "columns": types}
        for at, value in enumerate(values):
            async with open_sink(broker, topic, shape(*KEY), **settings) as sink:
                logical = {name: row_columns(9)[name] for name in types}
                columns = {"v": value, f"c{at}": at, **logical}
                row = put(STAMP + at, ["ä", at], columns, KEY, sequence=at)
                assert await sink.apply(SinkBatch("things", "s1", [row])) == []
                held = await sink.read_rows(b"", b"", limit=9)
                assert [row.columns["v"] for row in held] == values[: at + 1]
                assert row_bytes(held[-1].columns) == row_bytes(sink.convert_columns(columns))
        # A type that is declared later is a new branch, which the registry takes too.
        later = settings | {"columns": types | {"v": "DATE"}}
        async with open_sink(broker, topic, shape(*KEY), **later) as sink:
            row = put(STAMP + 9, ["ä", 9], {"v": "2024-02-29"}, KEY, sequence=9)
            assert await sink.apply(SinkBatch("things", "s1", [row])) == []
        versions = _call_registry(registry.url, "GET", f"/subjects/{topic}-value/versions")
        assert versions == [1, 2, 3, 4, 5, 6]
        assert _call_registry(registry.url, "GET", f"/subjects/{topic}-key/versions") == [1]
        [*_, (_, last)] = await records(broker, topic)
        known = _call_registry(
            registry.url, "GET", f"/schemas/ids/{int.from_bytes(last.value[1:5])}"
        )
        assert json.loads(known["schema"])["name"] == "Envelope"
        # A schema that can't read what is there would have been refused.
        bad = {"type": "record", "name": "Envelope", "fields": [{"name": "must", "type": "string"}]}
        body = {"schema": json.dumps(bad)}
        with pytest.raises(Answered) as refused:
            _call_registry(registry.url, "POST", f"/subjects/{topic}-value/versions", body)
        assert refused.value.status in (409, 422)


def _call_registry(url: str, method: str, path: str, body: object = None) -> Any:
    text = None if body is None else json.dumps(body).encode()
    headers = {"Content-Type": "application/vnd.schemaregistry.v1+json"}
    request = urllib.request.Request(url + path, text, headers, method=method)
    return json.loads(fetch(request))
