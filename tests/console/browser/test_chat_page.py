"""The page of the example ``demo/timeline/chat.py`` in a browser: two devices, and another user."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Page, expect

from tests.console.browser.visit import check_accessibility
from tests.support.waiting import until
from tests.test_timeline_demos import EXAMPLE_S_MAX, printed, running

pytestmark = [pytest.mark.system, pytest.mark.xdist_group("browser")]

INBOX = 31
"""Messages in an inbox when the page opens."""


@pytest.fixture(scope="module")
def links(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """The links of the example by user, while it runs."""
    folder = tmp_path_factory.mktemp("chat")
    with running("chat", folder):
        found: dict[str, str] = {}

        def read_links() -> bool:
            found.update(re.findall(r"(\w+): (http://127\.0\.0\.1:\d+/#rts_\S+)", printed(folder)))
            return len(found) == 2

        until(read_links, lambda: printed(folder), s_max=EXAMPLE_S_MAX)
        yield found


def read_lines(page: Page) -> list[str]:
    """Return the messages that a page shows."""
    return page.locator("#messages li").all_inner_texts()


def test_two_devices_show_a_message_of_another_user(
    browser: Browser, links: dict[str, str]
) -> None:
    errors: list[str] = []

    def note(message: ConsoleMessage) -> None:
        if message.type == "error":
            errors.append(message.text)

    def open_page(link: str) -> Page:
        context = browser.new_context()
        context.on("console", note)
        context.on("weberror", lambda error: errors.append(str(error.error)))
        page = context.new_page()
        page.goto(link)
        return page

    phone, laptop, other = (open_page(links[user]) for user in ("ada", "ada", "bob"))
    for page in (phone, laptop, other):
        expect(page.locator("#messages li")).to_have_count(INBOX)
        expect(page.get_by_role("status")).to_have_text("connected")
    expect(phone.locator(".recalled")).to_have_count(1)
    text = 'Is <b>dan</b> here? "你好"'
    other.get_by_role("textbox", name="Message").fill(text)
    other.get_by_role("button", name="Send").click()
    for page in (phone, laptop, other):
        expect(page.locator("#messages li")).to_have_count(INBOX + 1)
        expect(page.locator("#messages li").last).to_have_text(f"bob{text}")
    assert read_lines(phone) == read_lines(laptop)
    assert phone.title() == "ada · chat"
    check_accessibility(phone)
    assert errors == []


def test_a_link_without_a_valid_token_shows_words(browser: Browser, links: dict[str, str]) -> None:
    page = browser.new_page()
    page.goto(links["ada"][:-1])
    expect(page.get_by_role("status")).to_have_text("This page needs a link with a share token.")
    expect(page.locator("#messages li")).to_have_count(0)
