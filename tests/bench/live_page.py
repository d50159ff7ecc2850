"""How soon a browser shows a change: ``python -m tests.bench.live_page`` (see ``--help``).

Server, console and Chromium are processes of their own, and share the processors with this one.
The page notes when each row was painted; both clocks are the machine's.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

import click
from playwright.sync_api import Page, sync_playwright

from rowtide.client import Client, PutRow
from rowtide.deploy.kafka.config import default_cache_dir
from tests.bench.circumstances import circumstances, format_circumstances
from tests.bench.report import Result, as_markdown, percentile
from tests.console.browser.chromium import ARGUMENTS, NotToBeHad, find_chromium
from tests.support.consoles import RunningConsole, serving_console
from tests.support.waiting import until

TEXT = "x" * 100
FLOOD_PER_S, BATCH_ROWS, HEAPS = 5000, 100, 6
NOTE_ROWS = """
() => {
  const seen = (globalThis.seen = {});
  const painted = new MessageChannel();
  let waiting = [];
  painted.port1.onmessage = () => {
    const now = (performance.timeOrigin + performance.now()) / 1000;
    for (const key of waiting) seen[key] ??= now;
    waiting = [];
  };
  new MutationObserver((changes) => {
    for (const { addedNodes } of changes) {
      for (const node of addedNodes) {
        const key = node.querySelector?.("button.link")?.textContent.trim();
        if (key) waiting.push(key);
      }
    }
    // The page draws in requestAnimationFrame: a task posted there runs once that was painted.
    painted.port2.postMessage(null);
  }).observe(document.getElementById("live"), { childList: true, subtree: true });
}
"""
PAINT = """
() => new Promise((resolve) => {
  new PerformanceObserver((list) => {
    const entries = list.getEntries();
    resolve(entries[entries.length - 1].startTime);
  }).observe({ type: "largest-contentful-paint", buffered: true });
})
"""
TASKS = """
() => {
  globalThis.tasks = [];
  globalThis.collections = [];
  new PerformanceObserver((list) => tasks.push(...list.getEntries())).observe({ type: "longtask" });
}
"""
LONGEST = """
() => tasks
  .filter((task) => !collections.some(([began, ended]) =>
    task.startTime < ended && began < task.startTime + task.duration))
  .sort((one, other) => other.duration - one.duration)
  .map((task) => [task.duration, task.startTime / 1000])
"""
"""Without the tasks in which this program had the garbage collected; those of 50 ms and more."""
COUNT = """
() => setInterval(() => { for (const end = performance.now() + 10; performance.now() < end;); }, 50)
"""
"""A task of 10 ms twenty times a second: what makes it longer is the machine, not a page."""


@click.command(context_settings={"show_default": True})
@click.option("--seconds", default=10.0, help="Length of the measurement.")
@click.option("--rate", default=100, help="Changes per second.")
@click.option("--flood-seconds", default=20.0, help="How long a tab gets 5,000 changes/s.")
def main(seconds: float, rate: int, flood_seconds: float) -> None:
    """Measure the live page and print a Markdown table."""
    click.echo(format_circumstances(circumstances("live_page")))
    try:
        chromium = find_chromium(
            default_cache_dir(os.environ, sys.platform), os.environ, has_window=True
        )
    except NotToBeHad as error:
        click.echo(f"NOT MEASURED: the live page in a browser: {error}")
        return
    with ExitStack() as stack:
        where = stack.enter_context(tempfile.TemporaryDirectory(prefix="rowtide-bench-"))
        console = stack.enter_context(serving_console(Path(where)))
        playwright = stack.enter_context(sync_playwright())
        browser = playwright.chromium.launch(
            executable_path=chromium.executable, args=ARGUMENTS, env={**chromium.environment}
        )
        stack.callback(browser.close)
        client = stack.enter_context(Client(**console.ready._asdict()))
        client.create_table("seen", {"n": int}, stream_hours=24)
        page = browser.new_page()
        paint = measure_first_paint(page, console)
        open_live(page, console)
        results = measure(client, page, count=int(seconds * rate), rate=rate)
        beside = browser.new_page()
        beside.evaluate(TASKS)
        beside.evaluate(COUNT)
        results += measure_flood(client, page, flood_seconds)
        results.append(longest_task("longest task of a page that only counts", beside))
        click.echo(as_markdown([paint, *results]))


def measure_first_paint(page: Page, console: RunningConsole) -> Result:
    """Return when the first page was painted, in a browser that has nothing in its cache."""
    page.goto(f"{console.url}/", wait_until="load")
    return Result("first page, empty cache, largest paint", page.evaluate(PAINT) / 1000, "s")


def open_live(page: Page, console: RunningConsole) -> Page:
    """Log in and open the live page of the table."""
    ready = console.ready
    page.goto(f"{console.url}/login")
    for name in ("access_key_id", "access_key_secret", "instance"):
        page.locator(f"[name={name}]").fill(getattr(ready, name))
    page.locator("main form button").click()
    page.wait_for_url(f"{console.url}/")
    page.goto(f"{console.url}/i/{ready.instance}/t/seen/live")
    page.locator("#live .good").wait_for()
    page.evaluate(NOTE_ROWS)
    page.evaluate(TASKS)
    return page


def measure(client: Client, page: Page, *, count: int, rate: int) -> list[Result]:
    """Return how long after its answer a change is painted."""
    answered: dict[str, float] = {}
    began_s = time.time()
    for number in range(count):
        time.sleep(max(0.0, began_s + number / rate - time.time()))
        client.put("seen", {"n": number, "text": TEXT})
        answered[str(number)] = time.time()
    written_s = time.time() - began_s
    until(lambda: str(count - 1) in page.evaluate("seen"), "the last row is shown")
    seen: dict[str, float] = page.evaluate("seen")
    # A busy browser shows the newest rows alone; the others were never in the page.
    delays = [max(0.0, seen[key] - answered[key]) for key in answered if key in seen]
    return [
        Result("changes written", count / written_s, "/s"),
        Result("rows painted", 100 * len(delays) / count, "%"),
        *[
            Result(f"put answered -> painted in the page, p{p}", percentile(delays, p) * 1000, "ms")
            for p in (50, 99)
        ],
        longest_task("longest task of the page", page),
    ]


def measure_flood(client: Client, page: Page, seconds: float) -> list[Result]:
    """Return the heap and the longest task of a tab whose table has many changes."""
    page.reload()
    page.locator("#live .good").wait_for()
    page.evaluate(TASKS)
    heaps = [heap_mib(page)]
    began_s = time.time()
    batches = 0
    while (now_s := time.time() - began_s) < seconds:
        if now_s > len(heaps) * seconds / HEAPS:
            heaps.append(heap_mib(page))
        time.sleep(max(0.0, batches * BATCH_ROWS / FLOOD_PER_S - now_s))
        first = batches * BATCH_ROWS
        client.write(
            [PutRow("seen", {"n": n, "text": TEXT}) for n in range(first, first + BATCH_ROWS)]
        )
        batches += 1
    written = batches * BATCH_ROWS / (time.time() - began_s)
    shown = f"{', '.join(f'{heap:.1f}' for heap in heaps)} MiB after equal times"
    return [
        Result("changes written to one tab", written, "/s"),
        Result("heap of the tab", max(heaps), "MiB", remark=shown),
        longest_task("longest task of the tab", page),
    ]


def longest_task(name: str, page: Page) -> Result:
    """Return the longest task of a page, 0 if none took 50 ms; and those of the five worst seconds.

    One pause of the machine makes several tasks of one second long.
    """
    tasks: list[tuple[float, float]] = page.evaluate(LONGEST)
    by_second: dict[int, float] = {}
    for length_ms, at_s in tasks:  # The longest come first.
        by_second.setdefault(int(at_s), length_ms)
    worst = [*by_second.items()][:5]
    shown = ", ".join(f"{length_ms:.0f} at {at_s} s" for at_s, length_ms in worst)
    return Result(name, max(by_second.values(), default=0.0), "ms", remark=shown)


def heap_mib(page: Page) -> float:
    """Return what the page's objects take once the garbage is collected."""
    session = page.context.new_cdp_session(page)
    page.evaluate("collections.push([performance.now(), Infinity])")
    session.send("HeapProfiler.collectGarbage")
    page.evaluate("collections.at(-1)[1] = performance.now()")
    used: float = session.send("Runtime.getHeapUsage")["usedSize"]
    session.detach()
    return used / 2**20


if __name__ == "__main__":
    main()
