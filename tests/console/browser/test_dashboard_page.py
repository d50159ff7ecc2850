"""A dashboard in a browser: it moves in place, takes back deletes, and heals itself."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from itertools import product

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from rowtide.client import Client
from tests.console.browser.stage import Stage
from tests.console.browser.visit import LOST, Person, check_accessibility
from tests.support.dashboards import declare_dashboards
from tests.support.waiting import until

pytestmark = [pytest.mark.system, pytest.mark.xdist_group("browser")]

HOUR_US = 3_600_000_000
NEW_YEAR_US = 1_704_067_200_000_000
FILE = """
dashboards:
  departures:
    table: flights
    types: {origin: text, delay: double, time_hour: timestamp_us}
    panels:
      hourly:
        title: Flights an hour
        chart: lines
        query: |
          SELECT time_bucket(INTERVAL '1 hour', time_hour) AS begun, origin, count(*) AS n
          FROM flights GROUP BY ALL ORDER BY begun, origin
      origins:
        title: Delay by origin
        chart: bars
        unit: min
        query: SELECT origin, avg(delay) AS mean FROM flights GROUP BY ALL ORDER BY origin
      all: {title: All flights, chart: number, query: SELECT count(*) AS n FROM flights}
      late:
        title: Latest
        query: SELECT origin, max(delay) AS longest FROM flights GROUP BY ALL ORDER BY origin
"""
PATH = "/dashboards/departures"
WALL = f"{PATH}?wall=1"
LANGUAGES = {"en": "en-US", "zh": "zh-CN"}
RESET = LOST + "|ERR_NETWORK_CHANGED|status of (401|503)"

FIND_GAP = """() => {
  const canvas = document.querySelector("[data-panel=hourly] canvas");
  const { width, height } = canvas;
  const style = getComputedStyle(document.documentElement);
  const colours = ["--line-1", "--line-2"].map((name) =>
    style.getPropertyValue(name).trim().slice(1).match(/../g).map((hex) => parseInt(hex, 16)));
  const { data } = canvas.getContext("2d").getImageData(0, 0, width, height);
  const isLine = (x, y) => colours.some((colour) =>
    colour.every((part, at) => Math.abs(data[4 * (y * width + x) + at] - part) < 8));
  const has = Array.from({ length: width }, (_, x) =>
    Array.from({ length: height }, (_, y) => y).some((y) => isLine(x, y)));
  const first = has.indexOf(true), last = has.lastIndexOf(true);
  let longest = 0, run = 0;
  for (let x = first; x <= last; x++) {
    run = has[x] ? 0 : run + 1;
    longest = Math.max(longest, run);
  }
  return longest / (last - first);
}"""
"""Return the widest part of the chart without a pixel of a line, as a part of the lines."""


@pytest.fixture(scope="module", autouse=True)
def flights(stage: Stage, store: Client) -> None:
    """Flights with a gap of some hours, and a dashboard that has read them."""
    store.create_table("flights", {"id": str}, stream_hours=24)
    for number in range(40):
        put_flight(store, f"f{number}", "JFK" if number % 3 else "LGA", hour=number // 4)
        put_flight(store, f"g{number}", "JFK" if number % 3 else "LGA", hour=14 + number // 4)
    declare_dashboards(stage.ready, FILE)
    until(
        lambda: json.loads(stage.run("dashboard", "show", "departures", "-o", "json")),
        stage.output,
        not_yet=(AssertionError,),
    )


def put_flight(store: Client, key: str, origin: str, *, hour: int, delay: float = 5.0) -> None:
    at = NEW_YEAR_US + hour * HOUR_US
    store.put("flights", {"id": key, "origin": origin, "delay": delay, "time_hour": at})


def panel(page: Page, name: str) -> Locator:
    return page.locator(f"section[data-panel={name}]")


def number(page: Page) -> Locator:
    return panel(page, "all").locator(".large b")


def open_dashboard(person: Person, path: str = PATH) -> Page:
    page = person.open(path)
    expect(number(page)).to_have_text("80")
    for name in ("hourly", "origins"):
        expect(panel(page, name).locator("canvas")).to_be_visible()
    return page


def mark(page: Page) -> None:
    """Mark what must stay: the drawings, and a row of the table."""
    page.evaluate(
        "for (const one of document.querySelectorAll('canvas, [data-panel=late] tbody tr'))"
        " one.wasThere = true"
    )


def count_marked(page: Page) -> int:
    found: int = page.evaluate(
        "[...document.querySelectorAll('canvas, [data-panel=late] tbody tr')]"
        ".filter((one) => one.wasThere).length"
    )
    return found


def test_a_dashboard_moves_in_place_and_takes_back_deletes(user: Person, store: Client) -> None:
    page = open_dashboard(user)
    mark(page)
    assert count_marked(page) == 4  # Two drawings and two rows.
    longest = panel(page, "late").locator("tbody tr").first.locator("td").nth(1)
    try:
        put_flight(store, "new", "JFK", hour=3, delay=90.25)
        expect(number(page)).to_have_text("81")
        expect(longest).to_have_text("90.25")
        store.update("flights", {"id": "new", "delay": 7.5})
        expect(longest).to_have_text("7.5")
    finally:
        store.delete("flights", {"id": "new"})
    expect(number(page)).to_have_text("80")
    expect(longest).to_have_text("5")
    assert count_marked(page) == 4
    expect(page.locator("#behind")).to_be_hidden()


def test_a_chart_has_its_numbers_as_a_table_that_moves_along(user: Person, store: Client) -> None:
    page = open_dashboard(user)
    hourly = panel(page, "hourly")
    assert hourly.locator("canvas").locator("xpath=ancestor::*[@aria-hidden='true']").count()
    hourly.locator("summary").click()
    rows = hourly.locator(".numbers tbody tr")
    before = rows.count()
    try:
        put_flight(store, "late", "SFO", hour=30)
        expect(rows).to_have_count(before + 1)
        expect(rows.last).to_contain_text("SFO")
    finally:
        store.delete("flights", {"id": "late"})
    expect(rows).to_have_count(before)


def test_hours_without_flights_are_a_gap_in_the_line(user: Person) -> None:
    page = open_dashboard(user)
    # The line has a colour of its own; between hours 10 and 14 no pixel of it may be.
    gap = page.evaluate(FIND_GAP)
    # 5 of 23 hours lie between the last flight before the gap and the first after it.
    assert 0.1 < gap < 0.3, gap


@pytest.mark.parametrize(("language", "theme"), list(product(LANGUAGES, ("light", "dark"))))
@pytest.mark.parametrize("path", [PATH, WALL])
def test_a_dashboard_is_accessible_and_fits(
    browser: Browser, stage: Stage, language: str, theme: str, path: str
) -> None:
    person = Person(
        browser, stage, locale=LANGUAGES[language], color_scheme=theme, reduced_motion="reduce"
    )
    person.enter()
    page = open_dashboard(person, path)
    assert page.locator("html").get_attribute("lang") == language
    assert page.locator("h1").count() == 1
    check_accessibility(page)
    for width in (1200, 390):
        page.set_viewport_size({"width": width, "height": 800})
        beyond = page.evaluate("document.documentElement.scrollWidth - innerWidth")
        assert beyond <= 0, f"{beyond} pixels beyond {width}"
    person.leave()


def test_without_javascript_the_numbers_are_tables(browser: Browser, stage: Stage) -> None:
    person = Person(browser, stage, locale="en-US", java_script_enabled=False)
    person.enter()
    page = person.open(PATH)
    for name in ("hourly", "origins", "all", "late"):
        expect(panel(page, name).locator("table")).to_be_visible()
    expect(panel(page, "all").locator("td")).to_have_text("80")
    person.leave()


@pytest.fixture
def guest(browser: Browser, stage: Stage) -> Iterator[Person]:
    """Someone who has only a link."""
    visitor = Person(browser, stage, locale="en-US", color_scheme="light")
    yield visitor
    visitor.leave()


def open_link(stage: Stage, guest: Person) -> tuple[Page, str]:
    """Open a link that the command line makes; return the page and the token's id."""
    printed = stage.run("dashboard", "share", "departures", "--url", stage.url, "-o", "json")
    made = json.loads(printed)
    page = guest.open(made["link"])
    expect(page).to_have_url(re.compile(r"/dashboards/departures\?"))
    return page, made["token_id"]


def test_a_wall_survives_a_killed_console_and_a_killed_worker(
    guest: Person, stage: Stage, store: Client
) -> None:
    page, _ = open_link(stage, guest)
    expect(number(page)).to_have_text("80")
    expect(page.locator("body > header")).to_be_hidden()
    mark(page)
    behind = page.locator("#behind")
    with guest.allowing(RESET):
        stage.kill_console()
        expect(behind).to_contain_text("The server has not answered since")
        put_flight(store, "meanwhile", "JFK", hour=3)
        stage.start_console()
        expect(number(page)).to_have_text("81")
        expect(behind).to_be_hidden()
        stage.kill_server()
        expect(behind).to_contain_text("The server has not answered since")
        stage.start_server()
        store.delete("flights", {"id": "meanwhile"})
        expect(number(page)).to_have_text("80", timeout=60_000)
        expect(behind).to_be_hidden(timeout=60_000)
    assert count_marked(page) == 4


def test_a_revoked_link_says_so(guest: Person, stage: Stage) -> None:
    page, token_id = open_link(stage, guest)
    expect(number(page)).to_have_text("80")
    assert "#" not in page.url
    with guest.allowing("status of 403"):
        stage.run("token", "revoke", token_id, "--yes")
        expect(page.locator("#behind")).to_contain_text("revoked")
        page.reload()
        expect(page.get_by_role("alert")).to_contain_text("unknown or revoked")
    expect(page.locator("table")).to_have_count(0)
