"""The privileges that a source's user lacks, and the statements that grant them.

``SHOW GRANTS`` shows a user its own privileges and those of its active roles, on MySQL
and MariaDB. In doubt a privilege counts as granted: the server rejects later what is not.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from typing import NamedTuple

__all__ = ["missing_grants"]

_NAME = r"\*|`(?:[^`]|``)*`|[^\s.`]+"
_GRANT = re.compile(rf"GRANT (.+?) ON (?:TABLE )?({_NAME})\.({_NAME}) TO ")
_COLUMNS = re.compile(r"\([^)]*\)")

_READS_LOG = {"REPLICATION SLAVE", "REPLICATION REPLICA"}
_KNOWS_LOG = {"REPLICATION CLIENT", "BINLOG MONITOR", "SUPER"}
_ALL = "ALL PRIVILEGES"


class Grant(NamedTuple):
    """Privileges on a table, on a database's tables, or on all: ``*``.

    ``database`` is a LIKE pattern if ``table`` is ``*``.
    """

    privileges: frozenset[str]
    database: str
    table: str

    def has(self, privileges: Iterable[str]) -> bool:
        """True if one of these privileges is granted."""
        return not self.privileges.isdisjoint({*privileges, _ALL})

    def covers(self, database: str, tables: str) -> bool:
        """True if it applies to some tables of a pattern, or to all."""
        if self.database != "*" and not _like(self.database, database):
            return False
        return self.table == "*" or fnmatchcase(self.table.lower(), tables.lower())


def missing_grants(lines: Iterable[str], user: str, tables: Sequence[str]) -> list[str]:
    """Return statements that grant what is missing. ``lines`` are those of SHOW GRANTS.

    ``user`` is as in CURRENT_USER(), and ``tables`` are the patterns of the settings.
    """
    grants = [grant for line in lines if (grant := _parse(line)) is not None]
    everywhere = [grant for grant in grants if (grant.database, grant.table) == ("*", "*")]
    name, _, host = user.rpartition("@")
    account = f"{_quote(name)}@{_quote(host)}"
    lacking = [
        needed
        for needed, enough in (
            ("REPLICATION SLAVE", _READS_LOG),
            ("REPLICATION CLIENT", _KNOWS_LOG),
        )
        if not any(grant.has(enough) for grant in everywhere)
    ]
    found = [f"GRANT {', '.join(lacking)} ON *.* TO {account};"] if lacking else []
    reading = [grant for grant in grants if grant.has({"SELECT"})]
    for pattern in tables:
        database, table = pattern.split(".", 1)
        if _is_pattern(database) or any(grant.covers(database, table) for grant in reading):
            continue
        which = "*" if _is_pattern(table) else _quote(table)
        found.append(f"GRANT SELECT ON {_quote(database)}.{which} TO {account};")
    return list(dict.fromkeys(found))


def _parse(line: str) -> Grant | None:
    """Return what a line grants on tables, None for a role, a proxy or a default role."""
    found = _GRANT.match(line)
    if found is None:
        return None
    listed = _COLUMNS.sub("", found[1]).split(",")
    privileges = frozenset(privilege.strip().upper() for privilege in listed)
    return Grant(privileges, _plain(found[2]), _plain(found[3]))


def _plain(name: str) -> str:
    return name[1:-1].replace("``", "`") if name.startswith("`") else name


def _quote(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _is_pattern(name: str) -> bool:
    return any(sign in name for sign in "*?[")


def _like(pattern: str, name: str) -> bool:
    """True if a name matches a LIKE pattern, ignoring letter case."""
    parts = re.findall(r"\\.|.", pattern, re.DOTALL)
    wild = {"%": ".*", "_": "."}
    text = "".join(wild.get(part) or re.escape(part[-1]) for part in parts)
    return re.fullmatch(text, name, re.IGNORECASE | re.DOTALL) is not None
