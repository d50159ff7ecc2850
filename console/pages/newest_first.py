"""Pages of a list that has its newest entries first, such as access keys.

An entry is named by its time, a commit stamp of the catalog, which no two entries share. So an
address that ends before a time shows the same entries whatever is created or removed meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from aiohttp import web

from rowtide.console.web.refusals import RequestRefused

__all__ = ["ENTRIES_SHOWN", "NewestPage", "page_newest"]

ENTRIES_SHOWN = 100
"""Entries of one page."""

TIME_DIGITS_MAX = 19


class NewestPage(NamedTuple):
    """``entries`` of one page. ``next`` is the address of the next page; empty if there is none.

    ``first`` is that of the newest page, empty on that page. ``total`` counts the whole list.
    """

    entries: list[dict[str, Any]]
    total: int
    first: str
    next: str


def page_newest(request: web.Request, entries: Iterable[dict[str, Any]]) -> NewestPage:
    """Return the page that an address asks for with ``before``, in microseconds since 1970.

    Each entry has ``created_us``. Raises ``RequestRefused`` if ``before`` is no such time.
    """
    newest = sorted(entries, key=lambda entry: -int(entry["created_us"]))
    text = request.query.get("before", "")
    if text and not (text.isascii() and text.isdecimal() and len(text) <= TIME_DIGITS_MAX):
        raise RequestRefused(400, "frame.bad_before", value=text[:20])
    left = [entry for entry in newest if not text or int(entry["created_us"]) < int(text)]
    shown, more = left[:ENTRIES_SHOWN], left[ENTRIES_SHOWN:]
    path = request.path.removesuffix(".json")
    return NewestPage(
        shown,
        len(newest),
        path if text else "",
        f"{path}?before={shown[-1]['created_us']}" if more else "",
    )
