"""Every page in both languages and both themes: it is accessible, fits, and reports no error.

The pictures that the documents show are made here.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from itertools import cycle, product
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from rowtide.client import Client, PutRow
from tests.console.browser.stage import Stage
from tests.console.browser.visit import Person, check_accessibility, instance_path
from tests.support.waiting import until

pytestmark = [pytest.mark.system, pytest.mark.xdist_group("browser")]

ROOT = Path(__file__).resolve().parents[3]
LANGUAGES = {"en": "en-US", "zh": "zh-CN"}
THEMES = ("light", "dark")
ROWS_MAX = 200
PAGES = {
    "health": "/",
    "tables": "{instance}/tables",
    "table": "{instance}/t/orders",
    "rows": "{instance}/t/orders/rows",
    "found": "{instance}/t/orders/rows?filter=paid+%3D+true&columns=total,paid&reverse=1",
    "row": "{instance}/t/orders/row?key1=ada&key2=0&versions=status",
    "live": "{instance}/t/orders/live?begin=oldest",
    "shards": "{instance}/t/orders/shards",
    "consumers": "{instance}/t/orders/consumers",
    "connectors": "/connectors",
    "dashboards": "/dashboards",
    "keys": "/keys",
    "tokens": "/tokens",
    "usage": "{instance}/usage",
    "wrong": "{instance}/t/nothing/rows",
    "login": "/login",
    "link": "/link",
}
PICTURES = ROOT / "docs/guides/images"
"""Pictures for documents are made here. ``ROWTIDE_PICTURES=1`` writes them; without it they are
made, so that this works on, and not kept: each would differ by the times that it shows."""
PICTURED = {("health", "en", "light"), ("rows", "en", "light"), ("row", "en", "light")} | {
    ("live", language, theme) for language, theme in (("en", "light"), ("zh", "dark"))
}
PICTURED |= {("table", "en", "dark")}
PICTURE_BYTES_MAX = 120_000
BACKGROUNDS = {"light": (200, 256), "dark": (0, 60)}


@pytest.fixture(scope="module", autouse=True)
def orders(stage: Stage, store: Client) -> None:
    """Tables as an application has them."""
    people = ("ada", "bob", "cleo", "dan", "eve")
    stage.create_table_keeping("orders", ["paid", "status", "total"])
    store.create_table("customers", {"customer": str}, stream_hours=24)
    store.write([PutRow("customers", {"customer": name, "country": "ch"}) for name in people])
    rows = [
        {
            "customer": people[number % 5],
            "number": number,
            "total": number * 1.5,
            "paid": number % 2 == 0,
            "status": ("open", "paid", "sent")[number % 3],
            "note": f"订单 {number}" if number % 4 == 0 else "leave it at the door",
            "seal": bytes(range(number % 7)),
        }
        for number in range(200)
    ]
    store.write([PutRow("orders", row) for row in rows])
    for status in ("paid", "sent"):
        store.update("orders", {"customer": "ada", "number": 0, "status": status})
    store.delete("orders", {"customer": "bob", "number": 1})


@pytest.fixture(scope="module")
def people(browser: Browser, stage: Stage) -> Iterator[dict[tuple[str, str], Person]]:
    """A user, logged in, for each language and theme; the browser says what they prefer.

    Each has one tab for all pages: a new one costs as much as the page itself.
    """
    found = {
        (language, theme): Person(
            browser, stage, locale=LANGUAGES[language], color_scheme=theme, reduced_motion="reduce"
        )
        for language, theme in product(LANGUAGES, THEMES)
    }
    for person in found.values():
        person.enter()
        person.context.new_page()
    yield found
    for person in found.values():
        person.leave()


def open_page(person: Person, name: str) -> Page:
    path = PAGES[name].replace("{instance}", instance_path(person.stage))
    page = person.context.pages[0]
    with person.allowing("status of 404" if name == "wrong" else ""):
        answer = page.goto(path)
        assert answer
        assert answer.status == (404 if name == "wrong" else 200)
        if name == "live":
            expect(page.locator("#live .good")).to_be_visible()
            until(lambda: page.locator(".records tbody button").count())
            page.locator(".records tbody button").nth(2).click()
        for chart in page.locator("figure.chart").all():
            expect(chart.locator("canvas")).to_be_visible()
    return page


def check_colours(page: Page, theme: str) -> None:
    colour = page.evaluate("getComputedStyle(document.documentElement).backgroundColor")
    low, high = BACKGROUNDS[theme]
    assert all(low <= int(part) < high for part in re.findall(r"\d+", colour)[:3]), colour


def check_fits(page: Page) -> None:
    """Check that a page scrolls to no side, also on a phone, and has few rows."""
    for width in (1200, 390):
        page.set_viewport_size({"width": width, "height": 800})
        beyond = page.evaluate("document.documentElement.scrollWidth - innerWidth")
        assert beyond <= 0, f"{beyond} pixels beyond {width}"
    page.set_viewport_size({"width": 1200, "height": 800})
    assert page.locator("tr").count() <= ROWS_MAX


def views() -> list[Any]:
    """Return (page, language, theme). In ``make test`` a page is seen once, each second one in the
    other language and theme, and wherever it is pictured. ``make test-all`` has the other views.
    """
    turns = cycle([("en", "light"), ("zh", "dark")])
    quick = PICTURED | {(name, *next(turns)) for name in PAGES}
    return [
        pytest.param(*view, marks=() if view in quick else pytest.mark.slow)
        for view in product(PAGES, LANGUAGES, THEMES)
    ]


@pytest.mark.parametrize(("name", "language", "theme"), views())
def test_a_page_is_accessible_and_fits(
    people: dict[tuple[str, str], Person], name: str, language: str, theme: str
) -> None:
    person = people[language, theme]
    page = open_page(person, name)
    assert page.locator("html").get_attribute("lang") == language
    assert page.locator("h1").count() == 1
    check_colours(page, theme)
    check_accessibility(page)
    check_fits(page)
    if (name, language, theme) in PICTURED:
        take_picture(page, picture_name(name, language))
    page.goto("about:blank")
    assert person.errors == []


def picture_name(name: str, language: str) -> str:
    return f"console-{name}" + ("-zh" if language == "zh" else "")


def take_picture(page: Page, name: str) -> None:
    """Make the picture of a page for the documents."""
    page.set_viewport_size({"width": 1000, "height": 640})
    picture = page.screenshot(animations="disabled", caret="hide", scale="css")
    assert len(picture) < PICTURE_BYTES_MAX
    if os.environ.get("ROWTIDE_PICTURES"):
        PICTURES.mkdir(parents=True, exist_ok=True)
        (PICTURES / f"{name}.png").write_bytes(picture)


def test_the_pictures_of_the_documents_are_those_that_are_made_here() -> None:
    made = {picture_name(name, language) for name, language, _ in PICTURED}
    assert {path.stem for path in PICTURES.iterdir()} == made
    guide = (ROOT / "docs/guides/console.md").read_text(encoding="utf-8")
    assert set(re.findall(r"\(images/([\w-]+)\.png\)", guide)) == made


def test_a_choice_wins_over_what_the_browser_prefers(
    people: dict[tuple[str, str], Person],
) -> None:
    page = people["en", "light"].open("/")
    for language, theme in (("zh", "dark"), ("en", "light")):
        page.locator("footer [name=language]").select_option(language)
        page.locator("footer [name=theme]").select_option(theme)
        page.locator("footer button").click()
        expect(page.locator("html")).to_have_attribute("lang", language)
        check_colours(page, theme)
    page.locator("footer [name=theme]").select_option("auto")
    page.locator("footer button").click()
    check_colours(page, "light")


def test_nothing_moves_for_those_who_asked_for_less_motion(
    people: dict[tuple[str, str], Person],
) -> None:
    page = open_page(people["en", "light"], "live")
    moving = page.evaluate(
        "[...document.querySelectorAll('*')].map((element) => getComputedStyle(element))"
        ".filter((style) => style.animationName !== 'none' || style.transitionDuration !== '0s')"
        ".length"
    )
    assert moving == 0


@pytest.mark.parametrize("name", ["tables", "table"])
def test_a_chart_has_its_figures_as_a_table(
    people: dict[tuple[str, str], Person], name: str
) -> None:
    page = open_page(people["en", "light"], name)
    for chart in page.locator("figure.chart").all():
        assert chart.locator("canvas").locator("xpath=ancestor::*[@aria-hidden='true']").count()
    place = page.locator("details", has_text="The same figures as a table")
    place.locator("summary").click()
    expect(place.locator("table")).to_be_visible()
    assert place.locator("th[scope=col]").count() >= 2


def test_axe_would_find_a_fault(people: dict[tuple[str, str], Person]) -> None:
    page = open_page(people["en", "light"], "rows")
    page.evaluate("document.querySelector('[name=filter]').closest('label').before('x')")
    page.evaluate("document.querySelector('main').append(document.createElement('button'))")
    with pytest.raises(AssertionError, match="button-name"):
        check_accessibility(page)


def test_a_page_that_renews_itself_keeps_what_is_open(
    people: dict[tuple[str, str], Person],
) -> None:
    page = open_page(people["en", "light"], "health")
    main = page.locator("main")
    if main.get_attribute("data-refresh") is None:
        pytest.fail("the page of health does not renew itself")
    page.evaluate("document.querySelector('main').append(document.createElement('mark'))")
    expect(page.locator("main mark")).to_have_count(0)
