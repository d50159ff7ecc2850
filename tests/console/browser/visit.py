"""A person at a browser: pages whose errors are all noted, and what tests do with them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import quote

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page

from tests.console.browser.stage import Stage

__all__ = ["Person", "check_accessibility", "instance_path"]

REPORT_VIOLATIONS = """
addEventListener("securitypolicyviolation", (event) => {
  console.error(`policy: ${event.violatedDirective} ${event.blockedURI} ${event.sample}`);
});
"""
LOST = r"net::ERR_(CONNECTION_(REFUSED|RESET|CLOSED)|INCOMPLETE_CHUNKED_ENCODING|EMPTY_RESPONSE)"
"""What a browser says when a server was killed."""
AXE_RULES = {
    "runOnly": {"type": "tag", "values": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"]},
    # Without it a third of the time is spent on selectors of all that is right.
    "resultTypes": ["violations"],
}
SERIOUS = ("serious", "critical")


class Person:
    """One browser profile: its cookies, its pages, and every error that they report."""

    def __init__(self, browser: Browser, stage: Stage, **options: Any) -> None:
        self.stage = stage
        self.context: BrowserContext = browser.new_context(
            base_url=stage.url, viewport={"width": 1200, "height": 800}, **options
        )
        self.context.set_default_timeout(30_000)
        self.context.add_init_script(REPORT_VIOLATIONS)
        self.context.on("weberror", lambda error: self.errors.append(str(error.error)))
        self.context.on("console", self._note)
        self.errors: list[str] = []
        self.allowed = ""

    def _note(self, message: ConsoleMessage) -> None:
        text = f"{message.text} {message.location.get('url', '')}"
        is_error = message.type in ("error", "warning")
        if is_error and not (self.allowed and re.search(self.allowed, text)):
            self.errors.append(text)

    @contextmanager
    def allowing(self, pattern: str = LOST) -> Iterator[None]:
        """Let the browser report errors of one kind: a test causes them."""
        self.allowed = pattern
        try:
            yield
        finally:
            self.allowed = ""

    def open(self, path: str) -> Page:
        """Open a page in a new tab."""
        page = self.context.new_page()
        page.goto(path)
        return page

    def log_in(self, key_id: str = "", secret: str = "") -> Page:
        """Log in by the form, and return the first page."""
        page = self.open("/login")
        self.fill_log_in(page, key_id, secret)
        page.wait_for_url(f"{self.stage.url}/")
        return page

    def enter(self, key_id: str = "", secret: str = "") -> None:
        """Log in as the form does, but without a page, which costs as much as most tests.

        A session of the same key is shared while it lasts: log-ins are limited to ten a minute.
        """
        ready, sessions = self.stage.ready, self.stage.sessions
        key_id = key_id or ready.access_key_id
        self.context.add_cookies(sessions.get(key_id, []))
        if self.context.request.get("/", max_redirects=0).status == 200:
            return
        fields: dict[str, str | float | bool] = {
            "access_key_id": key_id,
            "access_key_secret": secret or ready.access_key_secret,
            "instance": ready.instance,
        }
        origin = {"Origin": self.stage.url}
        answer = self.context.request.post("/login", form=fields, headers=origin, max_redirects=0)
        assert answer.status == 303, answer.text()
        sessions[key_id] = self.context.cookies()

    def fill_log_in(self, page: Page, key_id: str = "", secret: str = "") -> None:
        """Fill in the form of the log-in and send it."""
        ready = self.stage.ready
        page.locator("[name=access_key_id]").fill(key_id or ready.access_key_id)
        page.locator("[name=access_key_secret]").fill(secret or ready.access_key_secret)
        page.locator("[name=instance]").fill(ready.instance)
        page.locator("main form button").click()

    def leave(self) -> None:
        """Close all tabs. Fails if any page reported an error."""
        self.context.close()
        assert not self.errors, self.errors


def instance_path(stage: Stage, *parts: str) -> str:
    """Return the path of a page of the stage's instance."""
    return "/".join(["/i", stage.ready.instance, *(quote(part, safe="") for part in parts)])


def check_accessibility(page: Page) -> None:
    """Fail if axe-core finds something serious in a page as it is now."""
    found = Axe().run(page, options=AXE_RULES).response["violations"]
    faults = [
        (one["id"], one["help"], [node["html"][:200] for node in one["nodes"]][:3])
        for one in found
        if one["impact"] in SERIOUS
    ]
    assert not faults, faults
