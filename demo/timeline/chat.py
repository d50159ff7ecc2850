"""A group chat: history, members, two devices of each user, unread, recall, search, and a page.

make demo-chat    prove what holds, then show the chat in a browser until Ctrl-C
ONCE=1            stop after the proofs
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence

import click

from demo.timeline.chat_page import ChatPage, read_feed
from demo.timeline.group_chat import GROUP, GroupChat
from demo.timeline.stage import LocalServer, Proofs, read_inbox, run_example
from rowtide.client import AsyncClient, Match, Phrase, TimelineEntry

USERS = ("ada", "bob", "cy")
ROUNDS = 10
COUNT = len(USERS) * ROUNDS
PAGE = 12
READ = 9
"""Bob has read so many messages: those of three rounds."""


async def prove(server: LocalServer, proofs: Proofs) -> None:
    """Run the chat, and prove what holds of it."""
    async with AsyncClient(**server.access) as client:
        chat = GroupChat(client, server.folder / "search")
        await chat.create()
        for user in USERS:
            await chat.members.join(GROUP, user)
        click.echo(f"\nA group of {len(USERS)} users, each with two devices\n")
        sent = await prove_order(chat, proofs)
        await prove_unread(chat, sent, proofs)
        await prove_members(chat, proofs)
        await show_page(chat, server, proofs)


async def prove_order(chat: GroupChat, proofs: Proofs) -> list[TimelineEntry]:
    """Talk while six devices follow; return the messages."""
    async with asyncio.TaskGroup() as tasks:
        devices = [tasks.create_task(chat.follow(user, COUNT)) for user in (*USERS, *USERS)]
        sent = await chat.talk(USERS, ROUNDS)
    stored = [entry async for entry in chat.group.forward()]
    proofs.check(
        "once", f"{COUNT} messages, 12 of them sent twice, are stored once", stored == sent
    )
    ids = [entry.id for entry in sent]
    in_order = all(device.result() == ids for device in devices)
    proofs.check("devices", f"6 devices left and came back; all have {COUNT} in order", in_order)
    return sent


async def prove_unread(chat: GroupChat, sent: Sequence[TimelineEntry], proofs: Proofs) -> None:
    """Read on one device and see it on the other; recall a message that is unread."""
    before = (await chat.conversations.unread("bob", GROUP)).count
    async with asyncio.TaskGroup() as tasks:
        laptop = tasks.create_task(chat.wait_for_cursor("bob", sent[READ - 1].id))
        await chat.cursors.read("bob", GROUP, sent[READ - 1].id)  # On the phone.
    after = laptop.result()
    lunches = [one for one in sent if "lunch" in str(one.fields["text"])]
    found = await chat.store.search(Match("text", "lunch"))
    await chat.group.delete(lunches[-1].id)
    recalled = (await chat.conversations.unread("bob", GROUP)).count
    counts = (before, after, recalled)
    words = f"bob has {before}, then {after} on both devices, and {recalled} after a recall"
    proofs.check("unread", words, counts == (20, 14, 13))

    entries = [entry for entry in await chat.inboxes.of("cy").page() if entry.is_recalled]
    is_shown = [entry.entry.id for entry in entries] == [lunches[-1].id]
    proofs.check("recall", "cy's inbox shows that one message was recalled", is_shown)

    again = await chat.store.search(Match("text", "lunch"))
    chinese = await chat.store.search(Phrase("text", "午饭"))
    totals = (found.total, again.total, chinese.total)
    words = f"'lunch' found {totals[0]}, after the recall {totals[1]}; 午饭 found {totals[2]}"
    proofs.check("search", words, totals == (2, 1, 2))


async def prove_members(chat: GroupChat, proofs: Proofs) -> None:
    """Let dan join and read the history; let cy leave."""
    await chat.members.join(GROUP, "dan", read_id=await chat.group.latest_id())
    history: list[TimelineEntry] = []
    pages = 0
    while page := [
        entry
        async for entry in chat.group.backward(
            *([history[-1].id - 1] if history else []), limit=PAGE
        )
    ]:
        history += page
        pages += 1
    stored = [entry async for entry in chat.group.forward()]
    words = f"dan joined, and read {len(history)} older messages in {pages} pages"
    proofs.check("history", words, history == stored[::-1] and pages == 3)

    await chat.members.leave(GROUP, "cy")
    welcome = await chat.say("ada", ROUNDS)
    new = [entry.entry for entry in await read_inbox(chat.inboxes.of("dan"), 1)]
    old = [entry.entry.id for entry in await read_inbox(chat.inboxes.of("cy"), COUNT)]
    is_right = new == [welcome] and len(old) == COUNT and welcome.id not in old
    proofs.check("members", "dan gets the next message, cy who left does not", is_right)


async def show_page(chat: GroupChat, server: LocalServer, proofs: Proofs) -> None:
    """Prove who may read an inbox in a browser; then serve the page until Ctrl-C."""
    console = await server.console_url()
    tokens = {user: server.share("im_sync", user) for user in ("ada", "bob")}
    async with ChatPage(chat, console, server.ready.instance, tokens).serve() as url:
        own = await read_feed(url, tokens["ada"])
        wanted = await read_inbox(chat.inboxes.of("ada"), COUNT + 1)
        proofs.check(
            "feed",
            f"a page gets the {len(own.ids)} rows of ada's inbox",
            own.ids == [entry.entry.id for entry in wanted],
        )
        other = await read_feed(url, tokens["ada"], key="bob")
        words = f"ada's token opens no other inbox ({other.status})"
        proofs.check("rights", words, other.status == 403 and not other.ids)
        if not os.environ.get("ONCE"):
            click.echo("\n  Open both pages and write. Ctrl-C ends everything.\n")
            for user, token in tokens.items():
                click.echo(f"    {user}: {url}/#{token}")
            await asyncio.Event().wait()


if __name__ == "__main__":
    run_example(prove)
