"""The inboxes of users: what the fan-out wrote, with the messages that the rows refer to.

An inbox is a timeline of the sync table, so "everything after N" is all that a device has to
remember. A conversation with very many members has an inbox that its members share. A reader merges
the user's own inbox with those. They are timelines with ids of their own, so a device that follows
several remembers one id for each (``InboxPosition``).
"""

from __future__ import annotations

import math
import time
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Awaitable,
    Callable,
    Collection,
    Mapping,
    Sequence,
)
from contextlib import aclosing
from typing import NamedTuple

from rowtide.client.timeline.change_watch import WAIT_S, ChangeWatch, Outage
from rowtide.client.timeline.cursors import Cursors
from rowtide.client.timeline.inbox_position import OWN, InboxPosition
from rowtide.client.timeline.inbox_schema import (
    INBOX_CONVERSATION,
    INBOX_MESSAGE,
    INBOX_SENDER,
    check_user,
    name_shared_inbox,
)
from rowtide.client.timeline.members import Members
from rowtide.client.timeline.merged_scans import merge_scans, scan_page, take
from rowtide.client.timeline.timeline import (
    SCAN_LIMIT,
    Timeline,
    TimelineEntry,
    Timelines,
)
from rowtide.core.values.errors import OutcomeUnknown, Unavailable, invalid

__all__ = ["Inbox", "InboxEntry", "Inboxes"]

PAGE = 100
"""Messages that are read from the store table at once."""


class InboxEntry(NamedTuple):
    """A message in a user's inbox, and the conversation that it is from.

    ``id`` is its place in the inbox: of the row that the fan-out wrote, or of the message itself if
    conversations are read without a fan-out. ``shared`` is the conversation if the row is in its
    shared inbox. ``is_recalled``: the store table no longer has the message, and the entry's fields
    are empty but for the sender. ``position`` is what a device remembers; pages have none.
    """

    conversation: str
    entry: TimelineEntry
    id: int = 0
    shared: str = OWN
    is_recalled: bool = False
    position: InboxPosition | None = None


class Inboxes:
    """The inboxes in ``sync``, of messages in ``store``.

    ``sync`` has one text as identifier, the user (``inbox_schema``). Each conversation of ``store``
    is named by one text. ``sender`` is the field with the user who sent a message.
    """

    def __init__(
        self,
        store: Timelines,
        sync: Timelines,
        members: Members,
        cursors: Cursors,
        *,
        sender: str = "sender",
    ) -> None:
        for timelines in (store, sync):
            timelines.require_one_text("Inboxes")
        self.store = store
        self.sync = sync
        self.members = members
        self.cursors = cursors
        self.sender = sender

    def of(self, user: str) -> Inbox:
        """Return the inbox of a user."""
        check_user(user)
        return Inbox(self, user)


class Inbox:
    """The inbox of one user. Calls raise ``Rejected``, ``Unavailable`` or ``OutcomeUnknown``."""

    def __init__(self, inboxes: Inboxes, user: str) -> None:
        self._inboxes = inboxes
        self.user = user

    async def page(
        self, *, before: InboxEntry | None = None, limit: int = SCAN_LIMIT
    ) -> Sequence[InboxEntry]:
        """Return messages of the inbox, the newest first.

        ``before`` is the last message of the page that the caller has. Pages have no seam: rows are
        in the order of their ids, and those with one id in the order of the shared inboxes' names.
        """
        if limit < 1:
            raise invalid(f"The limit of a page is 1 at least, not {limit}.")
        last = None if before is None else (before.id, before.shared)
        scans = {
            shared: scan_page(timeline, shared, last, limit)
            for shared, timeline in (await self._timelines()).items()
        }
        async with aclosing(merge_scans(scans, newest_first=True)) as merged:
            rows = await take(merged, limit)
        return await self._resolve(rows, None)

    async def latest_position(self) -> InboxPosition:
        """Return the position after the newest entry, for a device that begins with a page.

        Take it before the page is read.
        """
        latest = {name: await one.latest_id() for name, one in (await self._timelines()).items()}
        return InboxPosition(latest.pop(OWN), latest)

    async def after(
        self, after: int | str | InboxPosition = 0, *, limit: int | None = None
    ) -> AsyncIterator[InboxEntry]:
        """Yield the messages that a device has not seen, the oldest first.

        ``after`` is the ``position`` of the last entry that the device has, or its text, or its id
        in a user's own inbox. Raises ``TimelineExpired`` if some of them may have expired, so there
        is no silent gap.
        """
        scan = self._after(await self._timelines(), InboxPosition.of(after), complete_us=0)
        async with aclosing(scan):
            left = limit
            async for entry in scan:
                if left is not None:
                    if left <= 0:
                        return
                    left -= 1
                yield entry

    async def follow(self, *, after: int | str | InboxPosition = 0) -> AsyncIterator[InboxEntry]:
        """Yield the messages after a position, then each new one as it arrives. It does not end.

        Failures of up to a minute are bridged. Raises ``TimelineExpired`` as ``after`` does. A
        conversation that gets a shared inbox is noticed within ``change_watch.WAIT_S``.
        """
        position, complete_us = InboxPosition.of(after), 0
        watch = _InboxWatch(self._inboxes.sync)
        outage = Outage()
        while True:
            try:
                changed = await watch.begin(self._timelines)
                began_us = self._inboxes.sync.of(self.user).now_us
                scan = self._after(changed, position, complete_us=complete_us)
                async with aclosing(scan):
                    async for entry in scan:
                        position = entry.position or position
                        yield entry
                complete_us = began_us
                outage.end()
                await watch.wait()
            except (Unavailable, OutcomeUnknown) as failure:
                watch.drop()
                await outage.pause(failure)

    async def _timelines(self) -> Mapping[str, Timeline]:
        """Return the user's own inbox and the shared ones, by conversation."""
        inboxes = self._inboxes
        names = [cursor.conversation for cursor in await inboxes.cursors.of(self.user)]
        shared = await inboxes.members.find_shared(names) if names else ()
        found = {OWN: inboxes.sync.of(self.user)}
        return found | {name: inboxes.sync.of(name_shared_inbox(name)) for name in shared}

    async def _after(
        self, timelines: Mapping[str, Timeline], position: InboxPosition, *, complete_us: int
    ) -> AsyncGenerator[InboxEntry, None]:
        """Yield what is after a position in each of the timelines, in the order of the ids.

        Everything was read at the time ``complete_us``.
        """
        scans = {
            shared: timeline.scan_after(position.of_inbox(shared), complete_us=complete_us)
            for shared, timeline in timelines.items()
        }
        async with aclosing(merge_scans(scans)) as merged:
            while rows := await take(merged, PAGE):
                for found in await self._resolve(rows, position):
                    position = found.position or position
                    yield found

    async def _resolve(
        self, rows: Sequence[tuple[str, TimelineEntry]], position: InboxPosition | None
    ) -> list[InboxEntry]:
        """Return the messages that rows refer to. ``position`` is the one before them, if they are
        read forward.
        """
        store, sender = self._inboxes.store, self._inboxes.sender
        references = [_reference(row) for _, row in rows]
        messages = await store.get_many(references)
        found: list[InboxEntry] = []
        for (shared, row), (name, id), message in zip(rows, references, messages, strict=True):
            if position is not None:
                position = position.move(shared, row.id)
            entry = message or _make_recalled(row, id, sender)
            is_recalled = message is None
            found.append(InboxEntry(name, entry, row.id, shared, is_recalled, position))
        return found


def _reference(entry: TimelineEntry) -> tuple[str, int]:
    """Return the conversation and the id of the message that an inbox row refers to."""
    conversation = entry.fields.get(INBOX_CONVERSATION)
    id = entry.fields.get(INBOX_MESSAGE)
    if not isinstance(conversation, str) or not isinstance(id, int):
        raise invalid(
            f"Row {entry.id} of an inbox refers to no message: it needs "
            f"'{INBOX_CONVERSATION}' and '{INBOX_MESSAGE}'."
        )
    return conversation, id


def _make_recalled(row: TimelineEntry, id: int, sender: str) -> TimelineEntry:
    """Return the entry of a message that the store table no longer has."""
    sent_by = row.fields.get(INBOX_SENDER)
    return TimelineEntry(id, {} if sent_by is None else {sender: sent_by})


class _InboxWatch:
    """Watches the timelines that a user's inbox consists of. They change with the memberships."""

    def __init__(self, sync: Timelines) -> None:
        self._sync = sync
        self._timelines: Mapping[str, Timeline] = {}
        self._found_s = -math.inf
        self._watch = ChangeWatch(sync.client, sync.schema.table, [])
        self._changed: Collection[int] = ()

    async def begin(
        self, find: Callable[[], Awaitable[Mapping[str, Timeline]]]
    ) -> Mapping[str, Timeline]:
        """Watch from now on. Return the timelines that may have changed since the last call.

        ``find`` returns the timelines; they are found again after ``change_watch.WAIT_S``.
        """
        now_s = time.monotonic()
        if now_s - self._found_s > WAIT_S:
            timelines = await find()
            if timelines.keys() != self._timelines.keys():
                prefixes = [timeline.identifier for timeline in timelines.values()]
                self._watch = ChangeWatch(self._sync.client, self._sync.schema.table, prefixes)
            self._timelines, self._found_s = timelines, now_s
        if await self._watch.begin():
            return self._timelines
        names = [*self._timelines]
        return {names[number]: self._timelines[names[number]] for number in self._changed}

    async def wait(self) -> None:
        """Return when a timeline may have changed, or after ``change_watch.WAIT_S``."""
        self._changed = await self._watch.wait_once()

    def drop(self) -> None:
        """Begin again with all timelines: changes may have been missed."""
        self._watch.drop()
