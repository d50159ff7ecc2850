"""The tables at the target: rowtide's rows, and notes of deletes beside them.

``TABLE`` has the living rows: the key, a column per name, the stamp.
``TABLE_rowtide_deleted`` has the stamps of deleted keys. ``TABLE_rowtide_covered`` has
the ranges of snapshot pages. A late row that is older than either is dropped. If the
server does not accept a column's name, the column has another one, with the name in its
comment. Every column that is not generated is rowtide's.

Columns are added and widened, never narrowed. A process does that under the table's
advisory lock, just after it read the table.
"""

from __future__ import annotations

import copy
import hashlib
import json
import secrets
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from rowtide.connectors.sinks.mysql.connections import (
    MySqlConnection,
    StatementRefused,
    ValueRefused,
)
from rowtide.connectors.sinks.mysql.keys import KeyLayout, join_names, quote_name
from rowtide.connectors.sinks.mysql.values import EXACT, SQL_TYPE, Kind, kind_of
from rowtide.core.values.errors import Rejected, Unavailable
from rowtide.core.values.schema import BINARY, INTEGER

__all__ = ["BY_STAMP", "NAME_MAX", "STAMP", "MySqlLayout", "TargetTable"]

STAMP = "_rowtide_stamp"
BY_STAMP = "by_stamp"
"""The index of the stamps in both tables of notes."""
NAME_MAX = 64
NAMED = "rowtide:"
"""Prefix of a comment with a column's name as JSON."""
LOCK_S = 60
OPTIONS = "ENGINE=InnoDB ROW_FORMAT=DYNAMIC DEFAULT CHARSET=utf8mb4 COLLATE="
NOT_ALLOWED = frozenset({1044, 1142, 1227})
NOT_SO_NAMED = frozenset({1059, 1060, 1166})
"""The name is too long, taken (ignoring letter case and accents), or invalid."""


@dataclass(slots=True)
class MySqlLayout:
    """A table's columns: rowtide's name to the server's name and the kind."""

    columns: dict[str, tuple[str, Kind]] = field(default_factory=dict)
    seen: tuple[tuple[str, int], ...] = ()
    """The server's description of the table. It changes with the layout."""


class TargetTable:
    """One table with its two tables of notes.

    ``width`` is the most characters of a double without an exponent at this server.
    ``types`` are of columns that are created with them and never altered.
    """

    def __init__(
        self, database: str, name: str, keys: KeyLayout, *, width: int, types: Mapping[str, str]
    ) -> None:
        self.keys = keys
        self.types = types
        self.width = width
        self._plain = name
        self._database = database
        self.name = quote_name(name)
        self.deleted = quote_name(sibling(name, "_rowtide_deleted"))
        self.covered = quote_name(sibling(name, "_rowtide_covered"))
        self.layout = MySqlLayout()

    @property
    def foreign(self) -> Mapping[str, tuple[str, Kind]]:
        """The columns whose types are not the sink's."""
        return {name: column for name, column in self.layout.columns.items() if column[1].foreign}

    @asynccontextmanager
    async def temporary_copy(self, connection: MySqlConnection) -> AsyncIterator[TargetTable]:
        """Yield an empty temporary table with only the key and the ``foreign`` columns."""
        made = copy.copy(self)
        made.layout = MySqlLayout(dict(self.foreign))
        made.name = quote_name(f"rowtide_{secrets.token_hex(8)}")
        columns = [*self.keys.primary, *self.keys.names, STAMP]
        columns = list(dict.fromkeys([*columns, *(name for name, _ in self.foreign.values())]))
        try:
            await connection.run(
                f"CREATE TEMPORARY TABLE {made.name}"
                f" (PRIMARY KEY ({join_names(self.keys.primary)}))"
                f" ENGINE=InnoDB ROW_FORMAT=DYNAMIC SELECT {join_names(columns)} FROM {self.name}"
                f" LIMIT 0"
            )
        except StatementRefused as error:
            if error.number not in NOT_ALLOWED:
                raise
            raise Rejected(
                "OTSNoPermissionAccess",
                f"Only the server knows how the columns {', '.join(self.foreign)} of the table "
                f"{self._plain} convert a value. The sink needs a temporary table for that. "
                f"Run GRANT CREATE TEMPORARY TABLES ON {quote_name(self._database)}.* "
                f"TO the sink's user.",
            ) from error
        yield made
        await connection.run(f"DROP TEMPORARY TABLE {made.name}")

    async def make(self, connection: MySqlConnection) -> None:
        """Create missing tables, and check existing ones."""
        async with self._lock(connection):
            if not await self._exists(connection):
                await self._create(connection)
            await self._check(connection)
            await self._adopt(connection)
            await self._make_siblings(connection)
            await self.read(connection)

    async def is_as_read(self, connection: MySqlConnection) -> bool:
        """True if the table has the columns of ``layout``. In a transaction this stays true."""
        return await connection.describe(f"SELECT * FROM {self.name} LIMIT 0") == self.layout.seen

    async def read(self, connection: MySqlConnection) -> None:
        """Read the table's columns."""
        found = MySqlLayout(seen=await connection.describe(f"SELECT * FROM {self.name} LIMIT 0"))
        query = (
            "SELECT COLUMN_NAME, COLUMN_TYPE, COLUMN_COMMENT FROM information_schema.COLUMNS"
            f" WHERE {self._is_this()} AND COALESCE(GENERATION_EXPRESSION, '') = ''"
            " ORDER BY ORDINAL_POSITION"
        )
        own = {STAMP, *self.keys.primary, *self.keys.names}
        for column, kind, comment in await connection.rows(query):
            if column not in own:
                name, of_type = read_name(column, comment), kind_of(kind)
                declared = name in self.types and not of_type.foreign
                found.columns[name] = (column, Kind.FOREIGN if declared else of_type)
        self.layout = found

    async def widen(
        self, connection: MySqlConnection, wanted: Mapping[str, Kind]
    ) -> dict[str, str]:
        """Make columns fit ``wanted``. Return those that can't, each with the reason."""
        lacking: dict[str, str] = {}
        async with self._lock(connection):
            await self.read(connection)
            for name, kind in wanted.items():
                has = self.layout.columns.get(name)
                try:
                    if has is None:
                        await self._add(connection, name, kind)
                    elif kind > has[1]:
                        await self._modify(connection, name, kind)
                except ValueRefused as error:
                    lacking[name] = str(error)
            await self.read(connection)
        return lacking

    async def _add(self, connection: MySqlConnection, name: str, kind: Kind) -> None:
        """Add a column with its own name, or with another if the server rejects the name."""
        other = f"{''.join(c for c in name if c.isascii() and c.isalnum())[:40]}_{digest(name)}"
        failure: StatementRefused | ValueRefused | None = None
        for column in (name, other) if fits(name) else (other,):
            note = "" if column == name else f" COMMENT '{NAMED}{encode_name(name)}'"
            of_type = self.types.get(name) or self._type(kind)
            change = f"ADD COLUMN {quote_name(column)} {of_type} NULL{note}"
            try:
                await connection.run(f"ALTER TABLE {self.name} {change}")
            except ValueRefused as error:
                failure = error
            except StatementRefused as error:
                if not (error.number in NOT_SO_NAMED or "Too many columns" in str(error)):
                    raise
                failure = error
            else:
                return
        assert failure is not None, "one of them failed"
        raise ValueRefused(f"no column {name!r}: {failure}") from failure

    async def _modify(self, connection: MySqlConnection, name: str, kind: Kind) -> None:
        column, has = self.layout.columns[name]
        if kind == Kind.DOUBLE and has == Kind.INTEGER:
            great = f"{quote_name(column)} NOT BETWEEN {-EXACT} AND {EXACT}"
            if await connection.rows(f"SELECT 1 FROM {self.name} WHERE {great} LIMIT 1"):
                kind = Kind.TEXT
        note = "" if column == name else f" COMMENT '{NAMED}{encode_name(name)}'"
        change = f"MODIFY COLUMN {quote_name(column)} {self._type(kind)} NULL{note}"
        await connection.run(f"ALTER TABLE {self.name} {change}")

    def _type(self, kind: Kind) -> str:
        if kind == Kind.TEXT:
            return f"{SQL_TYPE[kind]} CHARACTER SET utf8mb4 COLLATE {self.keys.collation}"
        return SQL_TYPE[kind]

    async def _create(self, connection: MySqlConnection) -> None:
        # Notes of a dropped table would keep rows out of the new one.
        await connection.run(f"DROP TABLE IF EXISTS {self.deleted}, {self.covered}")
        parts = [
            *self.keys.definitions(),
            f"{quote_name(STAMP)} BIGINT NOT NULL",
            *self.keys.indexes(),
        ]
        await connection.run(self._create_statement(self.name, parts))

    async def _make_siblings(self, connection: MySqlConnection) -> None:
        stamp = f"{quote_name(STAMP)} BIGINT NOT NULL"
        deleted = [
            *self.keys.primary_definitions(),
            stamp,
            f"PRIMARY KEY ({join_names(self.keys.primary)})",
            f"KEY {BY_STAMP} ({quote_name(STAMP)})",
        ]
        covered = [
            "`id` BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY",
            "`range_begin` LONGBLOB NOT NULL",
            "`range_end` LONGBLOB NOT NULL",
            stamp,
            f"KEY {BY_STAMP} ({quote_name(STAMP)})",
        ]
        await connection.run(self._create_statement(self.deleted, deleted))
        await connection.run(self._create_statement(self.covered, covered))

    def _create_statement(self, name: str, parts: list[str]) -> str:
        options = OPTIONS + self.keys.collation
        return f"CREATE TABLE IF NOT EXISTS {name} ({', '.join(parts)}) {options}"

    async def _adopt(self, connection: MySqlConnection) -> None:
        """Add a column for stamps to a table that a user created."""
        described = await connection.describe(f"SELECT * FROM {self.name} LIMIT 0")
        if STAMP not in {name for name, _ in described}:
            change = f"ADD COLUMN {quote_name(STAMP)} BIGINT NOT NULL DEFAULT 0"
            await connection.run(f"ALTER TABLE {self.name} {change}")

    async def _exists(self, connection: MySqlConnection) -> bool:
        query = f"SELECT 1 FROM information_schema.TABLES WHERE {self._is_this()}"
        return bool(await connection.rows(query))

    async def _check(self, connection: MySqlConnection) -> None:
        """Refuse a table in which one row could replace another."""
        where = self._is_this()
        [(engine,)] = await connection.rows(
            f"SELECT ENGINE FROM information_schema.TABLES WHERE {where}"
        )
        if str(engine).upper() != "INNODB":
            raise self._unfit(f"its engine is {engine}, which has no transactions")
        unique: dict[str, list[str]] = {}
        for index, column in await connection.rows(
            "SELECT INDEX_NAME, COLUMN_NAME FROM information_schema.STATISTICS"
            f" WHERE {where} AND NON_UNIQUE = 0 ORDER BY INDEX_NAME, SEQ_IN_INDEX"
        ):
            unique.setdefault(index, []).append(column)
        if set(unique.pop("PRIMARY", [])) != set(self.keys.primary):
            raise self._unfit(f"its primary key is not ({', '.join(self.keys.primary)})")
        if unique:
            raise self._unfit(f"it has another unique index, {next(iter(unique))}")
        query = (
            "SELECT COLUMN_NAME, DATA_TYPE, COLLATION_NAME FROM information_schema.COLUMNS"
            f" WHERE {where}"
        )
        found = {name: (kind, collation) for name, kind, collation in await connection.rows(query)}
        for column in self.keys.columns:
            self._check_key_column(column.name, column.type, found)

    def _check_key_column(
        self, name: str, kind: int, found: Mapping[str, tuple[str, str | None]]
    ) -> None:
        if name not in found:
            raise self._unfit(f"it has no column {name}")
        has, collation = found[name]
        if kind == INTEGER:
            good = has == "bigint"
        elif kind == BINARY:
            good = has == "varbinary"
        else:
            exact = ("nopad_bin", "0900_bin")
            good = has == "varchar" and str(collation).endswith(exact)
        if not good:
            shown = f"{has} {collation}" if collation else has
            raise self._unfit(
                f"two keys of rowtide may be equal in its column {name} ({shown}): it must be "
                f"BIGINT, VARBINARY, or VARCHAR with the collation {self.keys.collation}"
            )

    def _unfit(self, why: str) -> Rejected:
        return Rejected("OTSParameterInvalid", f"The table {self._plain} can't be used: {why}.")

    def _is_this(self) -> str:
        name, database = self._plain.encode().hex(), self._database.encode().hex()
        return (
            f"TABLE_SCHEMA = CONVERT(x'{database}' USING utf8mb4)"
            f" AND TABLE_NAME = CONVERT(x'{name}' USING utf8mb4)"
        )

    @asynccontextmanager
    async def _lock(self, connection: MySqlConnection) -> AsyncIterator[None]:
        """Hold the table's advisory lock. It ends with the connection at the latest."""
        lock = f"'rowtide.{digest(f'{self._database}.{self._plain}')}'"
        if await connection.rows(f"SELECT GET_LOCK({lock}, {LOCK_S})") != [(1,)]:
            raise Unavailable(f"another process is changing the table {self._plain}")
        yield
        await connection.rows(f"SELECT RELEASE_LOCK({lock})")


def read_name(column: str, comment: str) -> str:
    """Return rowtide's name of a column."""
    if not comment.startswith(NAMED):
        return column
    return str(json.loads(comment.removeprefix(NAMED)))


def encode_name(name: str) -> str:
    """Return a name for a comment: ASCII JSON, escaped for SQL."""
    return json.dumps(name).replace("\\", "\\\\").replace("'", "\\'")


def fits(name: str) -> bool:
    """True if the server accepts a name: it has no characters beyond 16 bits."""
    plain = all("\x00" < character <= "\uffff" for character in name)
    return plain and len(name) <= NAME_MAX and not name.endswith(" ")


def digest(text: str) -> str:
    """Return a short digest of a long name."""
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def sibling(name: str, ending: str) -> str:
    """Return the name of a table of notes."""
    whole = name + ending
    if len(whole) <= NAME_MAX:
        return whole
    return f"{name[: NAME_MAX - len(ending) - 13]}_{digest(name)}{ending}"
