"""A social feed: posts are pushed to the followers of most authors, and pulled from the famous.

Above ``COPIES_MAX`` followers a post is one row, in an inbox that the followers share. A reader's
pages merge the reader's own inbox with the shared ones. Run it by ``make demo-social``.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping, Sequence

import click

from demo.timeline.stage import LocalServer, Proofs, declare_fan_out, read_inbox, run_example
from rowtide.client import (
    AsyncClient,
    Cursors,
    Inbox,
    InboxEntry,
    Inboxes,
    Members,
    Timelines,
    TimelineSchema,
    inbox_schema,
)

SEED = 28
READERS = [f"reader{number:02}" for number in range(40)]
ORDINARY = ("ann", "ben", "cleo")
FAMOUS = "star"
COPIES_MAX = 20
POSTS = 25  # Of each author.
PAGE_SIZES = (1, 7, 30)
Feed = list[tuple[str, int]]  # Author and id of each post.


class SocialFeed:
    """Posts are timelines by author; who follows whom are the members of these timelines."""

    def __init__(self, client: AsyncClient) -> None:
        self.client = client
        self.posts = Timelines(client, TimelineSchema("posts", ("author",)))
        self.feeds = Timelines(client, inbox_schema("feeds"))
        self.following = Cursors(client, "following")
        self.followers = Members(client, self.following, "followers")
        self.inboxes = Inboxes(self.posts, self.feeds, self.followers, self.following)

    async def create(self) -> None:
        """Create the tables; declare that posts are pushed up to so many followers."""
        for table in (self.posts, self.feeds, self.following, self.followers):
            await table.create()
        sink = {"members": "followers", "inbox": "feeds", "copies_max": COPIES_MAX}
        await declare_fan_out(self.client, table="posts", **sink)

    async def publish(self, author: str, number: int) -> tuple[str, int]:
        """Publish a post."""
        post = {"sender": author, "text": f"post {number}"}
        return author, (await self.posts.of(author).store(post)).id


async def prove(server: LocalServer, proofs: Proofs) -> None:
    """Publish posts, and prove what holds of the readers' pages."""
    async with AsyncClient(**server.access) as client:
        social = SocialFeed(client)
        await social.create()
        authors = {name: READERS[at::4] for at, name in enumerate(ORDINARY)} | {FAMOUS: READERS}
        async with asyncio.TaskGroup() as tasks:
            for author, readers in authors.items():
                for reader in readers:
                    tasks.create_task(social.followers.join(author, reader))
        order = random.Random(SEED).sample([*authors] * POSTS, len(authors) * POSTS)
        posts = [await social.publish(author, number) for number, author in enumerate(order)]
        click.echo(f"\n{len(READERS)} readers, {len(authors)} authors, {len(posts)} posts\n")
        wanted = {
            reader: [post for post in posts if reader in authors[post[0]]] for reader in READERS
        }
        await prove_feeds(social, wanted, proofs)
        await prove_rows(social, authors, proofs)
        await prove_pages(social, wanted, proofs)
        await prove_unfollowing(social, proofs)


async def prove_feeds(social: SocialFeed, wanted: Mapping[str, Feed], proofs: Proofs) -> None:
    """Prove that each feed has each post once, and those of an author in order."""
    found = {
        reader: feed_of(await read_inbox(social.inboxes.of(reader), len(posts)))
        for reader, posts in wanted.items()
    }
    is_whole = all(sorted(found[reader]) == sorted(posts) for reader, posts in wanted.items())
    proofs.check("once", "each reader has each post of those followed, once", is_whole)
    in_order = all(
        [post for post in found[reader] if post[0] == author]
        == [post for post in posts if post[0] == author]
        for reader, posts in wanted.items()
        for author in (*ORDINARY, FAMOUS)
    )
    proofs.check("order", "the posts of an author are in their order in each feed", in_order)


async def prove_rows(
    social: SocialFeed, authors: Mapping[str, Sequence[str]], proofs: Proofs
) -> None:
    """Prove how many rows were written."""
    pushed = POSTS * sum(len(authors[author]) for author in ORDINARY)
    rows = len([row async for row in social.client.range("feeds")])
    words = f"{pushed} rows pushed, {rows - pushed} pulled; with copies for all {pushed + 1000}"
    proofs.check("rows", words, rows == pushed + POSTS)


async def prove_pages(social: SocialFeed, wanted: Mapping[str, Feed], proofs: Proofs) -> None:
    """Prove that pages have no seam, though the famous author publishes between two of them."""
    reader = READERS[0]
    inbox = social.inboxes.of(reader)
    is_seamless = True
    for number, size in enumerate(PAGE_SIZES):
        expected = feed_of(await read_inbox(inbox, len(wanted[reader]) + number))
        pages = await read_pages(inbox, size)
        is_seamless = is_seamless and sorted(feed_of(pages)) == sorted(expected)
        is_seamless = is_seamless and pages == sorted(pages, key=lambda e: e.id, reverse=True)
        await social.publish(FAMOUS, len(wanted[reader]) + number)
    words = f"pages of {', '.join(map(str, PAGE_SIZES))} posts have all of them, newest first"
    proofs.check("pages", words, is_seamless)


async def read_pages(inbox: Inbox, size: int) -> list[InboxEntry]:
    """Return all pages of an inbox."""
    found: list[InboxEntry] = []
    while page := await inbox.page(before=found[-1] if found else None, limit=size):
        found += page
    return found


async def prove_unfollowing(social: SocialFeed, proofs: Proofs) -> None:
    """Prove that who leaves a famous author sees none of the posts, and nothing else is gone."""
    reader = READERS[0]
    await social.followers.leave(FAMOUS, reader)
    left = await read_pages(social.inboxes.of(reader), 30)
    is_right = {author for author, _ in feed_of(left)} == {ORDINARY[0]} and len(left) == POSTS
    proofs.check("unfollow", "who leaves the famous author keeps the other posts alone", is_right)


def feed_of(entries: Sequence[InboxEntry]) -> Feed:
    """Return author and id of each post."""
    return [(entry.conversation, entry.entry.id) for entry in entries]


if __name__ == "__main__":
    run_example(prove)
