"""What MariaDB and MySQL have after rows were applied."""

from __future__ import annotations

import asyncio
import math
import random
import struct
from collections.abc import Mapping
from math import isfinite

import pytest

from demo.servers.sql_server import SqlServer
from rowtide.connectors.rows import SinkBatch, SinkRow
from rowtide.connectors.verify.comparison import row_bytes
from rowtide.core.records.change import ROW
from rowtide.core.values.errors import Rejected
from rowtide.core.values.schema import INTEGER, STRING, KeyColumn
from rowtide.core.values.variant import Scalar
from tests.connectors.mysql_sink.sinks import open_sink
from tests.connectors.row_histories import MIXED, TRICKY, delete, put, row_key, shape

pytestmark = pytest.mark.system

TABLE = shape(KeyColumn("id", INTEGER))
STAMP = 1_700_000_000_000_000


def batch(*rows: SinkRow) -> SinkBatch:
    return SinkBatch("things", "shard-1", rows)


async def test_rows_are_set_replaced_and_ended(sql_server: SqlServer, database: str) -> None:
    async with open_sink(sql_server, database, TABLE) as sink:
        await sink.apply(batch(put(STAMP, [1], {"a": 1, "b": "x"}), put(STAMP + 1, [2], {"a": 2})))
        await sink.apply(batch(put(STAMP + 2, [1], {"a": 3}), delete(STAMP + 3, [2])))
    things = f"SELECT id, a, b, _rowtide_stamp FROM {database}.things"
    assert sql_server.rows(things) == [(1, 3, None, STAMP + 2)]
    gone = f"SELECT id, _rowtide_stamp FROM {database}.things_rowtide_deleted"
    assert sql_server.rows(gone) == [(2, STAMP + 3)]


async def test_what_is_late_changes_nothing(sql_server: SqlServer, database: str) -> None:
    late = batch(put(STAMP, [1], {"a": 0, "late": True}), put(STAMP, [2], {"a": 0}))
    async with open_sink(sql_server, database, TABLE) as sink:
        await sink.apply(batch(put(STAMP + 5, [1], {"a": 5}), delete(STAMP + 6, [2])))
        await sink.apply(late)
        await sink.apply(batch(delete(STAMP + 4, [1])))
        [row] = await sink.read_rows(b"", b"", limit=9)
        assert (row.stamp, row.columns) == (STAMP + 5, {"a": 5})
        # A newer row is set again, and the note of its delete is not needed any more.
        await sink.apply(batch(put(STAMP + 7, [2], {"a": 7}), put(STAMP + 8, [1], {"a": 8})))
        assert [row.stamp for row in await sink.read_rows(b"", b"", limit=9)] == [
            STAMP + 8,
            STAMP + 7,
        ]
    assert sql_server.rows(f"SELECT * FROM {database}.things_rowtide_deleted") == []


async def test_a_page_ends_what_it_leaves_out_and_keeps_out_what_is_older(
    sql_server: SqlServer, database: str
) -> None:
    begin, end = (row_key(TABLE.key, [at])[1] for at in (2, 5))
    key, key_bytes = row_key(TABLE.key, [3])
    page = SinkBatch(
        "things",
        "s",
        [SinkRow(key, key_bytes, STAMP + 9, {"a": 3}, ROW)],
        (begin, end),
        STAMP + 9,
    )
    async with open_sink(sql_server, database, TABLE) as sink:
        await sink.apply(batch(*(put(STAMP + at, [at], {"a": 0}) for at in range(1, 7))))
        await sink.apply(batch(put(STAMP + 10, [2], {"a": 10})))
        await sink.apply(page)
        rows = {row.stamp: row.columns for row in await sink.read_rows(b"", b"", limit=9)}
        assert rows == {
            STAMP + 1: {"a": 0},
            STAMP + 10: {"a": 10},
            STAMP + 9: {"a": 3},
            STAMP + 5: {"a": 0},
            STAMP + 6: {"a": 0},
        }
        # Number 4 was never there for the page; a process that was paused knows it still.
        await sink.apply(batch(put(STAMP + 8, [4], {"a": 4}), put(STAMP + 8, [6], {"a": 6})))
        assert len(await sink.read_rows(b"", b"", limit=9)) == 5
        await sink.apply(batch(put(STAMP + 11, [4], {"a": 11})))
        assert len(await sink.read_rows(b"", b"", limit=9)) == 6


async def test_a_page_as_of_the_same_stamp_counts_with_what_it_says_now(
    sql_server: SqlServer, database: str
) -> None:
    """The connector's settings have changed, and nothing in the table has: it was passed over."""

    def page(first: Mapping[str, Scalar], second: Mapping[str, Scalar] | None) -> SinkBatch:
        pairs = enumerate([first, second])
        rows = [SinkRow(*row_key(TABLE.key, [at]), STAMP, columns, ROW) for at, columns in pairs]
        return SinkBatch("things", "s", rows, (b"", b""), STAMP)

    async with open_sink(sql_server, database, TABLE) as sink:
        for second in ({}, None, {"a": 4}, None, {}):
            await sink.apply(page({"a": 1, "b": 2}, second))
            await sink.apply(page({"a": 3}, second))
            held = [row.columns for row in await sink.read_rows(b"", b"", limit=9)]
            assert held == [{"a": 3}] + [second] * (second is not None)


STEPS: list[tuple[list[Scalar], str, list[Scalar]]] = [
    ([True, 5], "bigint(20)", [1, 5]),
    ([1, 0.5], "double", [1.0, 0.5]),
    ([2**60, 0.5], "longtext", [str(2**60), "0.5"]),
    ([0.5, 2**60], "longtext", ["0.5", str(2**60)]),
    ([1.5, math.nan, -math.inf], "longtext", ["1.5", "NaN", "-Infinity"]),
    ([1e16, 1e300, "x"], "longtext", ["1e16", "1e300", "x"]),
    ([7, "ä😀\x00'\\", b"\xff"], "longblob", [b"7", "ä😀\x00'\\".encode(), b"\xff"]),
    ([-(2**63), 2**63 - 1], "bigint(20)", [-(2**63), 2**63 - 1]),
    ([True, False], "tinyint(1)", [True, False]),
]


@pytest.mark.parametrize("together", [True, False])
async def test_a_column_is_widened_until_it_holds_every_value(
    sql_server: SqlServer, database: str, together: bool
) -> None:
    for at, (values, kind, wanted) in enumerate(STEPS):
        table = shape(KeyColumn("id", INTEGER))._replace(name=f"t{at}")
        rows = [put(STAMP, [number], {"v": value}) for number, value in enumerate(values)]
        async with open_sink(sql_server, database, table) as sink:
            for some in [rows] if together else [[row] for row in rows]:
                assert await sink.apply(SinkBatch(table.name, "s", some)) == []
            held = await sink.read_rows(b"", b"", limit=99)
            assert [row.columns["v"] for row in held] == wanted
            assert [sink.convert_columns({"v": value})["v"] for value in values] == wanted
        shown = f"SHOW COLUMNS FROM {database}.{table.name} LIKE 'v'"
        assert sql_server.rows(shown)[0][1] in (kind, kind.removesuffix("(20)"))


async def test_a_number_becomes_the_text_that_the_server_makes_of_it(
    sql_server: SqlServer, database: str, seed: int
) -> None:
    chance = random.Random(seed)
    numbers = [0.0, -0.0, 1e14, 1e15, 1e16, 1e-15, 1e-16, 5e-324, 1.7976931348623157e308]
    for _ in range(300):
        numbers.append(chance.uniform(-1, 1) * 10.0 ** chance.randint(-20, 25))
        numbers.append(float(chance.randint(-999, 999)) * 10.0 ** chance.randint(-20, 25))
        numbers.append(struct.unpack("<d", chance.randbytes(8))[0])
    rows = [put(STAMP, [at], {"v": value}) for at, value in enumerate(numbers) if isfinite(value)]
    async with open_sink(sql_server, database, TABLE) as sink:
        assert await sink.apply(batch(*rows)) == []
        assert [row.columns["v"] for row in await sink.read_rows(b"", b"", limit=9999)] == [
            row.columns["v"] for row in rows if row.columns
        ]
        # What was a double is made a text by the server, what comes now by the sink.
        again = [put(STAMP, [10_000 + at], row.columns or {}) for at, row in enumerate(rows)]
        await sink.apply(batch(put(STAMP, [-1], {"v": "text"}), *again))
        texts = [row.columns["v"] for row in await sink.read_rows(b"", b"", limit=9999)][1:]
    assert texts[: len(rows)] == texts[len(rows) :]


async def test_a_minus_zero_is_expected_as_the_zero_that_it_is_held_as(
    sql_server: SqlServer, database: str
) -> None:
    async with open_sink(sql_server, database, TABLE) as sink:
        await sink.apply(batch(put(STAMP, [1], {"v": -0.0, "w": 1.5})))
        [row] = await sink.read_rows(b"", b"", limit=9)
        assert row_bytes(sink.convert_columns({"v": -0.0, "w": 1.5})) == row_bytes(row.columns)


async def test_a_column_that_is_called_as_the_hash_of_a_key_is_a_column(
    sql_server: SqlServer, database: str
) -> None:
    async with open_sink(sql_server, database, TABLE) as sink:
        await sink.apply(batch(put(STAMP, [1], {"_rowtide_key": "mine"})))
        [row] = await sink.read_rows(b"", b"", limit=9)
        assert row.columns == {"_rowtide_key": "mine"}


async def test_names_that_the_server_takes_for_one_are_columns_of_their_own(
    sql_server: SqlServer, database: str
) -> None:
    names = ["a", "A", "ä", "b ", "b", "x`y", "😀", "n" * 200, "_rowtide_stamp", "é'\"\\"]
    columns: dict[str, Scalar] = {name: number for number, name in enumerate(names)}
    async with open_sink(sql_server, database, TABLE) as sink:
        assert await sink.apply(batch(put(STAMP, [1], columns))) == []
    async with open_sink(sql_server, database, TABLE) as sink:
        [row] = await sink.read_rows(b"", b"", limit=9)
        assert row.columns == columns
        await sink.apply(batch(put(STAMP + 1, [1], {"A": 7})))
        [row] = await sink.read_rows(b"", b"", limit=9)
        assert row.columns == {"A": 7}


@pytest.mark.parametrize("primary_key", ["native", "hashed"])
async def test_keys_are_told_apart_and_stand_in_their_order(
    sql_server: SqlServer, database: str, primary_key: str
) -> None:
    table = shape(*MIXED)
    keys = [
        (number, text, raw)
        for number in (-1, 0, 2**62)
        for text in TRICKY
        for raw in (b"", b"\x00", b"\xff ")
    ]
    in_order = sorted(row_key(MIXED, key)[1] for key in keys)
    rows = [put(STAMP, key, {"v": 1}, MIXED) for key in keys]
    async with open_sink(sql_server, database, table, primary_key=primary_key) as sink:
        assert await sink.apply(batch(*rows)) == []
        held = [row.key_bytes for row in await sink.read_rows(b"", b"", limit=999)]
        assert held == in_order
        for begin, end in ((3, 40), (0, 1), (17, 18)):
            low, high = in_order[begin], in_order[end]
            range_keys = [row.key_bytes for row in await sink.read_rows(low, high, limit=999)]
            assert range_keys == in_order[begin:end]
        behind = [
            row.key_bytes for row in await sink.read_rows(in_order[5] + b"\x00", b"", limit=2)
        ]
        assert behind == in_order[6:8]


async def test_a_key_that_does_not_fit_is_refused_unless_keys_are_hashed(
    sql_server: SqlServer, database: str
) -> None:
    table = shape(KeyColumn("name", STRING))
    rows = [put(STAMP, ["n" * 1024], {}, table.key), put(STAMP, ["😀" * 256], {}, table.key)]
    async with open_sink(sql_server, database, table) as sink:
        [refused] = await sink.apply(batch(*rows))
        assert refused.row is rows[0]
        assert "1024 of at most 768 characters; `primary_key: hashed`" in refused.reason
    hashed = table._replace(name="hashed")
    async with open_sink(sql_server, database, hashed, primary_key="hashed") as sink:
        assert await sink.apply(batch(*rows)) == []
        assert len(await sink.read_rows(b"", b"", limit=9)) == 2


async def test_a_row_that_the_server_refuses_is_told_and_the_others_flow(
    sql_server: SqlServer, database: str
) -> None:
    sql_server.execute(
        f"CREATE TABLE {database}.things (id BIGINT PRIMARY KEY, short VARCHAR(3), small TINYINT,"
        " CHECK (small <> 7))"
    )
    values: list[dict[str, Scalar]] = [
        {"short": "abc"},
        {"short": "abcd"},
        {"small": 1000},
        {"small": 7},
        {"small": "x"},
        {"small": 3},
    ]
    async with open_sink(sql_server, database, TABLE) as sink:
        rows = [put(STAMP, [number], columns) for number, columns in enumerate(values)]
        refused = await sink.apply(batch(*rows))
        assert [refusal.row.key[0][1] for refusal in refused] == [1, 2, 3, 4]
        assert "Data too long for column 'short'" in refused[0].reason
        assert "Out of range value for column 'small'" in refused[1].reason
        assert [row.columns for row in await sink.read_rows(b"", b"", limit=9)] == [
            values[0],
            values[5],
        ]


async def test_a_row_larger_than_a_packet_is_refused(sql_server: SqlServer, database: str) -> None:
    rows = [put(STAMP, [1], {"b": b"x" * (9 << 20)}), put(STAMP, [2], {"b": b"x" * (2 << 20)})]
    async with open_sink(sql_server, database, TABLE) as sink:
        [refused] = await sink.apply(batch(*rows))
        assert refused.row is rows[0]
        assert "max_allowed_packet" in refused.reason
        assert len(await sink.read_rows(b"", b"", limit=9)) == 1


async def test_a_row_of_more_columns_than_a_table_can_have_is_refused(
    sql_server: SqlServer, database: str
) -> None:
    sql_server.execute(
        f"CREATE TABLE {database}.things (id BIGINT PRIMARY KEY, _rowtide_stamp BIGINT NOT NULL, "
        + ", ".join(f"c{at} TINYINT(1)" for at in range(1010))
        + ")"
    )
    wide = put(STAMP, [1], {f"d{at}": True for at in range(20)})
    async with open_sink(sql_server, database, TABLE) as sink:
        [refused] = await sink.apply(batch(wide, put(STAMP, [2], {"c7": True})))
        assert refused.row is wide
        assert "Too many columns" in refused.reason
        assert [row.columns for row in await sink.read_rows(b"", b"", limit=9)] == [{"c7": True}]


UNFIT = [
    ("(id BIGINT PRIMARY KEY) ENGINE=MyISAM", "no transactions"),
    ("(id BIGINT, x INT PRIMARY KEY)", "primary key is not"),
    ("(id BIGINT PRIMARY KEY, x INT UNIQUE)", "another unique index, x"),
    ("(id VARCHAR(20) PRIMARY KEY)", "two keys of rowtide may be equal"),
    ("(id INT PRIMARY KEY)", "two keys of rowtide may be equal"),
]


@pytest.mark.parametrize(("definition", "why"), UNFIT)
async def test_a_table_in_which_rows_could_be_lost_is_not_used(
    sql_server: SqlServer, database: str, definition: str, why: str
) -> None:
    sql_server.execute(f"CREATE TABLE {database}.things {definition}")
    with pytest.raises(Rejected, match=why):
        async with open_sink(sql_server, database, TABLE):
            pass


async def test_a_text_key_in_which_letter_case_does_not_count_is_not_used(
    sql_server: SqlServer, database: str
) -> None:
    sql_server.execute(f"CREATE TABLE {database}.things (name VARCHAR(9) PRIMARY KEY)")
    with pytest.raises(Rejected, match=r"utf8mb4_(nopad|0900)_bin"):
        async with open_sink(sql_server, database, shape(KeyColumn("name", STRING))):
            pass


async def test_two_processes_add_and_widen_columns_at_once(
    sql_server: SqlServer, database: str
) -> None:
    async with (
        open_sink(sql_server, database, TABLE) as one,
        open_sink(sql_server, database, TABLE) as other,
    ):
        steps: list[Scalar] = [1, 0.5, "x", b"\xff"]

        async def apply(sink: object, first: int) -> None:
            for at, value in enumerate(steps):
                columns = {"v": value, f"c{at}": value}
                assert await sink.apply(batch(put(STAMP + at, [first + at], columns))) == []  # type: ignore[attr-defined]

        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(apply(one, 0))
            tasks.create_task(apply(other, 10))
        assert [row.columns["v"] for row in await one.read_rows(b"", b"", limit=99)] == [
            *(b"1", b"0.5", b"x", b"\xff"),
            *(b"1", b"0.5", b"x", b"\xff"),
        ]
        # The other one's columns are nothing to a row that lacks them: they are emptied too.
        await one.apply(batch(put(STAMP + 9, [1], {"only_here": True})))
        await other.apply(batch(put(STAMP + 10, [1], {"c0": 1})))
        rows = await other.read_rows(row_key(TABLE.key, [1])[1], b"", limit=1)
        assert rows[0].columns == {"c0": 1}


async def test_a_table_that_was_dropped_is_filled_anew(
    sql_server: SqlServer, database: str
) -> None:
    rows = batch(put(STAMP, [1], {"a": 1}), put(STAMP, [2], {"a": 2}))
    async with open_sink(sql_server, database, TABLE) as sink:
        await sink.apply(rows)
        await sink.apply(batch(delete(STAMP + 1, [1])))
        sql_server.execute(f"DROP TABLE {database}.things")
        with pytest.raises(Rejected, match="doesn't exist"):
            await sink.apply(rows)
    async with open_sink(sql_server, database, TABLE) as sink:
        await sink.apply(rows)
        assert len(await sink.read_rows(b"", b"", limit=9)) == 2


async def test_what_was_deleted_long_ago_is_forgotten(sql_server: SqlServer, database: str) -> None:
    hour = 3_600_000_000
    async with open_sink(sql_server, database, TABLE, keep_deleted_hours=2) as sink:
        await sink.apply(batch(delete(STAMP, [1]), delete(STAMP + 2 * hour, [2])))
        for number in range(63):
            await sink.apply(batch(put(STAMP + 3 * hour + number, [9], {})))
    assert sql_server.rows(f"SELECT id FROM {database}.things_rowtide_deleted") == [(2,)]
