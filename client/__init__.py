"""What an application imports: ``from rowtide.client import Client, AsyncClient``.

Examples are in docs/guides/client.md. Each name is loaded at its first use, so a user of the plain
form does not wait for the import of asyncio.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rowtide.client.async_client import AsyncClient
    from rowtide.client.async_transaction import AsyncLocalTransaction
    from rowtide.client.batches import BatchFailed, DeleteRow, PutRow, RowOutcome, UpdateRow
    from rowtide.client.changes.feed import AsyncChangeFeed
    from rowtide.client.changes.shard_follower import Batch, FollowerSettings
    from rowtide.client.changes.start import ShardPlace
    from rowtide.client.changes.thread_feed import ChangeFeed
    from rowtide.client.failures import ConditionFailed
    from rowtide.client.operations import StoredOnce
    from rowtide.client.predicates import ColumnPage, Predicate, column
    from rowtide.client.protocols import AsyncRowClient, RowClient
    from rowtide.client.row_values import AUTO_INCREMENT, INF_MAX, INF_MIN, RowDict, Versioned
    from rowtide.client.search.query import (
        And,
        Equals,
        Everything,
        Exists,
        In,
        Match,
        Not,
        Or,
        Phrase,
        Prefix,
        Range,
        SearchPage,
        SearchQuery,
        Sort,
    )
    from rowtide.client.search.search_index import SearchIndex
    from rowtide.client.search.stream_index import IndexStatus
    from rowtide.client.sync_client import Client
    from rowtide.client.sync_transaction import LocalTransaction
    from rowtide.client.table_requests import SecondaryIndex, TableDescription
    from rowtide.client.timeline.conversations import Conversation, Conversations, Unread
    from rowtide.client.timeline.cursors import Cursors, ReadCursor
    from rowtide.client.timeline.first_version import FirstVersionMessage
    from rowtide.client.timeline.inbox import Inbox, InboxEntry, Inboxes
    from rowtide.client.timeline.inbox_position import InboxPosition
    from rowtide.client.timeline.inbox_schema import inbox_schema
    from rowtide.client.timeline.inline_fan_out import InlineFanOut
    from rowtide.client.timeline.members import Members
    from rowtide.client.timeline.meta import TimelineMeta, TimelineMetas
    from rowtide.client.timeline.schema import (
        SYNC_TTL_S,
        TimelineMetaSchema,
        TimelineSchema,
    )
    from rowtide.client.timeline.timeline import (
        Timeline,
        TimelineEntry,
        TimelineExpired,
        TimelineHit,
        Timelines,
    )
    from rowtide.core.records.change import Change
    from rowtide.core.values.errors import (
        LogTrimmed,
        OutcomeUnknown,
        Rejected,
        StoreError,
        Unavailable,
    )
    from rowtide.core.values.limits import Limits

__all__ = [
    "AUTO_INCREMENT",
    "INF_MAX",
    "INF_MIN",
    "SYNC_TTL_S",
    "And",
    "AsyncChangeFeed",
    "AsyncClient",
    "AsyncLocalTransaction",
    "AsyncRowClient",
    "Batch",
    "BatchFailed",
    "Change",
    "ChangeFeed",
    "Client",
    "ColumnPage",
    "ConditionFailed",
    "Conversation",
    "Conversations",
    "Cursors",
    "DeleteRow",
    "Equals",
    "Everything",
    "Exists",
    "FirstVersionMessage",
    "FollowerSettings",
    "In",
    "Inbox",
    "InboxEntry",
    "InboxPosition",
    "Inboxes",
    "IndexStatus",
    "InlineFanOut",
    "Limits",
    "LocalTransaction",
    "LogTrimmed",
    "Match",
    "Members",
    "Not",
    "Or",
    "OutcomeUnknown",
    "Phrase",
    "Predicate",
    "Prefix",
    "PutRow",
    "Range",
    "ReadCursor",
    "Rejected",
    "RowClient",
    "RowDict",
    "RowOutcome",
    "SearchIndex",
    "SearchPage",
    "SearchQuery",
    "SecondaryIndex",
    "ShardPlace",
    "Sort",
    "StoreError",
    "StoredOnce",
    "TableDescription",
    "Timeline",
    "TimelineEntry",
    "TimelineExpired",
    "TimelineHit",
    "TimelineMeta",
    "TimelineMetaSchema",
    "TimelineMetas",
    "TimelineSchema",
    "Timelines",
    "Unavailable",
    "Unread",
    "UpdateRow",
    "Versioned",
    "column",
    "inbox_schema",
]

_HOMES = {
    "client.async_client": ("AsyncClient",),
    "client.async_transaction": ("AsyncLocalTransaction",),
    "client.batches": ("BatchFailed", "DeleteRow", "PutRow", "RowOutcome", "UpdateRow"),
    "client.changes.feed": ("AsyncChangeFeed",),
    "client.changes.shard_follower": ("Batch", "FollowerSettings"),
    "client.changes.start": ("ShardPlace",),
    "client.changes.thread_feed": ("ChangeFeed",),
    "client.failures": ("ConditionFailed",),
    "client.operations": ("StoredOnce",),
    "client.predicates": ("ColumnPage", "Predicate", "column"),
    "client.protocols": ("AsyncRowClient", "RowClient"),
    "client.row_values": ("AUTO_INCREMENT", "INF_MAX", "INF_MIN", "RowDict", "Versioned"),
    "client.search.query": (
        *("And", "Equals", "Everything", "Exists", "In", "Match", "Not", "Or", "Phrase"),
        *("Prefix", "Range", "SearchPage", "SearchQuery", "Sort"),
    ),
    "client.search.search_index": ("SearchIndex",),
    "client.search.stream_index": ("IndexStatus",),
    "client.sync_client": ("Client",),
    "client.sync_transaction": ("LocalTransaction",),
    "client.table_requests": ("SecondaryIndex", "TableDescription"),
    "client.timeline.conversations": ("Conversation", "Conversations", "Unread"),
    "client.timeline.cursors": ("Cursors", "ReadCursor"),
    "client.timeline.first_version": ("FirstVersionMessage",),
    "client.timeline.inbox": ("Inbox", "InboxEntry", "Inboxes"),
    "client.timeline.inbox_position": ("InboxPosition",),
    "client.timeline.inbox_schema": ("inbox_schema",),
    "client.timeline.inline_fan_out": ("InlineFanOut",),
    "client.timeline.members": ("Members",),
    "client.timeline.meta": ("TimelineMeta", "TimelineMetas"),
    "client.timeline.schema": ("SYNC_TTL_S", "TimelineMetaSchema", "TimelineSchema"),
    "client.timeline.timeline": (
        *("Timeline", "TimelineEntry", "TimelineExpired", "TimelineHit", "Timelines"),
    ),
    "core.records.change": ("Change",),
    "core.values.errors": ("LogTrimmed", "OutcomeUnknown", "Rejected", "StoreError", "Unavailable"),
    "core.values.limits": ("Limits",),
}
"""The names by their module; a test compares them with ``__all__``."""

_HOME = {name: home for home, names in _HOMES.items() for name in names}


if not TYPE_CHECKING:  # A type checker sees the imports above, and reports a wrong name.

    def __getattr__(name: str) -> object:
        """Return a name of ``__all__`` from its module."""
        if name not in _HOME:
            raise AttributeError(f"module 'rowtide.client' has no attribute {name!r}")
        return getattr(import_module(f"rowtide.{_HOME[name]}"), name)
