"""A dashboard's page in Chromium, which notes when each number was painted.

The clock of the page and that of this program are the machine's.
"""

from __future__ import annotations

import bisect
import os
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from playwright.async_api import Page, async_playwright

from rowtide.deploy.kafka.config import default_cache_dir
from rowtide.deploy.up import Ready
from tests.console.browser.chromium import ARGUMENTS, NotToBeHad, find_chromium

__all__ = ["NotToBeHad", "find_delays", "open_page", "read_painted"]

NOTE_NUMBERS = """
() => {
  const panel = document.querySelector("section[data-panel=all]");
  const numbers = (globalThis.numbers = []);
  const painted = new MessageChannel();
  painted.port1.onmessage = ({ data }) =>
    numbers.push([data, (performance.timeOrigin + performance.now()) / 1000]);
  // A task that is posted before a frame runs once that was painted.
  const note = () => painted.port2.postMessage(
    Number(panel.querySelector("tbody td").textContent.replace(/\\D/g, "")));
  new MutationObserver(() => requestAnimationFrame(note))
    .observe(panel, { childList: true, characterData: true, subtree: true });
}
"""

IS_PAINTED = "(last) => numbers.at(-1)?.[0] === last"
WAIT_MS_MAX = 120_000


@asynccontextmanager
async def open_page(url: str, ready: Ready, path: str) -> AsyncIterator[Page]:
    """Log in to a console and open a dashboard whose panel ``all`` begins with a number.

    Raises ``NotToBeHad`` if there is no Chromium.
    """
    chromium = find_chromium(default_cache_dir(os.environ, sys.platform), os.environ)
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(
            executable_path=chromium.executable, args=ARGUMENTS, env={**chromium.environment}
        )
        try:
            page = await browser.new_page()
            await page.goto(f"{url}/login")
            for name in ("access_key_id", "access_key_secret", "instance"):
                await page.locator(f"[name={name}]").fill(getattr(ready, name))
            await page.locator("main form button").click()
            await page.wait_for_url(f"{url}/")
            await page.goto(f"{url}{path}")
            await page.locator("section[data-panel=all] tbody td").first.wait_for(state="attached")
            await page.evaluate(NOTE_NUMBERS)
            yield page
        finally:
            await browser.close()


async def read_painted(page: Page, last: int) -> list[tuple[int, float]]:
    """Return the numbers that the page has painted up to the last, with their Unix seconds."""
    await page.wait_for_function(IS_PAINTED, arg=last, timeout=WAIT_MS_MAX)
    return [(int(number), float(at_s)) for number, at_s in await page.evaluate("numbers")]


def find_delays(
    answered: Sequence[float], base: int, painted: Sequence[tuple[int, float]]
) -> list[float]:
    """Return how long after its answer each row was painted, in seconds.

    The first row makes the number ``base`` + 1. A number includes all rows up to it.
    """
    numbers = [number for number, _ in painted]
    return [
        max(0.0, painted[bisect.bisect_left(numbers, base + row)][1] - at_s)
        for row, at_s in enumerate(answered, 1)
    ]
