"""What a server and a role need to be followed. All missing requirements are reported at once."""

from __future__ import annotations

from collections.abc import Sequence

from rowtide.connectors.fields import SettingsRefused
from rowtide.connectors.sources.postgres.publication import list_members, publication
from rowtide.connectors.sources.postgres.server import PostgresServer, quote_name
from rowtide.connectors.sources.postgres.tables import read_catalog
from rowtide.connectors.sources.postgres.unfit import CatalogRow, grants

__all__ = ["check"]

LEAST_VERSION = 140_000
"""The first version whose pgoutput sends the messages that mark a place in the stream."""


def check(server: PostgresServer) -> None:
    """Raise SettingsRefused with all faults if no table can be followed.

    The text also has what single tables lack, so that one visit to the server is enough.
    That alone is no fault.
    """
    if server.version < LEAST_VERSION:
        raise SettingsRefused(
            f"The source must be PostgreSQL {LEAST_VERSION // 10_000} or later, but the "
            f"server is {server.version // 10_000}."
        )
    faults = _faults(server)
    if faults:
        raise SettingsRefused("The server can't be followed: " + " ".join(faults + _grants(server)))


def _faults(server: PostgresServer) -> list[str]:
    [(level, encoding, standby, role, slots, senders, may_publish)] = server.rows(_CONDITIONS)
    user = server.settings.user
    faults = []
    if level != "logical":
        faults.append(
            f"wal_level is {level}; it must be logical: ALTER SYSTEM SET wal_level = logical; "
            f"and restart the server."
        )
    if standby:
        faults.append("It is a standby; the source must be the primary.")
    if encoding == "SQL_ASCII":
        faults.append("The database's encoding is SQL_ASCII: the encoding of its texts is unknown.")
    if not role:
        faults.append(
            f"The role {user} must have REPLICATION: ALTER ROLE {quote_name(user)} REPLICATION; "
            f"(on Amazon RDS and Aurora GRANT rds_replication TO {quote_name(user)};)."
        )
    if int(slots) < 1 or int(senders) < 1:
        faults.append("max_replication_slots and max_wal_senders must be above 0.")
    if not may_publish and publication(server) is None:
        database = quote_name(server.settings.database)
        faults.append(
            f"There is no publication {server.settings.publication}, and the role {user} can't "
            f"make it: GRANT CREATE ON DATABASE {database} TO {quote_name(user)};"
        )
    return faults


def _grants(server: PostgresServer) -> list[str]:
    """Return the statements that the role lacks for single tables."""
    settings = server.settings
    rows = read_catalog(server)
    wanted = list(dict.fromkeys(grant for row in rows for grant in grants(row, settings.user)))
    wanted += _owners(server, [row for row in rows if not row.owned])
    return [f"For single tables: {' '.join(wanted)}"] if wanted else []


def _owners(server: PostgresServer, others: Sequence[CatalogRow]) -> list[str]:
    """Return statements that allow tables of other owners to be published."""
    name = quote_name(server.settings.publication)
    made = publication(server)
    if made is not None:
        there = list_members(server, made)
        return [
            f"ALTER PUBLICATION {name} ADD TABLE ONLY {row.quoted};"
            for row in others
            if row.full_name not in there
        ]
    user = quote_name(server.settings.user)
    return [f"ALTER TABLE {row.quoted} OWNER TO {user};" for row in others]


# On Amazon RDS a role replicates as a member of rds_replication, without the attribute.
_CONDITIONS = """
SELECT current_setting('wal_level'), current_setting('server_encoding'), pg_is_in_recovery(),
       (SELECT rolreplication OR rolsuper FROM pg_roles WHERE rolname = current_user)
       OR EXISTS (SELECT FROM pg_roles
                   WHERE rolname = 'rds_replication' AND pg_has_role(oid, 'MEMBER')),
       current_setting('max_replication_slots'), current_setting('max_wal_senders'),
       has_database_privilege(current_database(), 'CREATE')
"""
