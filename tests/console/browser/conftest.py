"""A browser, a server and a console for each file of browser tests.

Playwright keeps an event loop running while a browser is open. It is closed at the end of a file,
so that tests of coroutines may follow in the same process.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect, sync_playwright

from rowtide.client import Client
from tests.console.browser.chromium import ARGUMENTS, Chromium, NotToBeHad, find_chromium
from tests.console.browser.stage import Stage, on_stage
from tests.console.browser.visit import Person

expect.set_options(timeout=20_000)  # A page may be slow on a busy machine.


@pytest.fixture(scope="session")
def chromium(cache_dir: Path) -> Chromium:
    """Chromium with fonts."""
    try:
        return find_chromium(cache_dir, os.environ)
    except NotToBeHad as error:
        pytest.skip(f"NOT CHECKED: the console in a browser: {error}")


@pytest.fixture(scope="module")
def browser(chromium: Chromium) -> Iterator[Browser]:
    """A browser without profile."""
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(
            executable_path=chromium.executable,
            args=ARGUMENTS,
            env={**chromium.environment},
        )
        yield running
        running.close()


@pytest.fixture(scope="module")
def stage(chromium: Chromium, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """A server with tables, and a console."""
    with on_stage(tmp_path_factory.mktemp("stage")) as running:
        yield running


@pytest.fixture(scope="module")
def store(stage: Stage) -> Iterator[Client]:
    """A client of the server."""
    with stage.connect() as client:
        yield client


@pytest.fixture
def person(browser: Browser, stage: Stage) -> Iterator[Person]:
    """A user who prefers English and light colours, not logged in."""
    visitor = Person(browser, stage, locale="en-US", color_scheme="light")
    yield visitor
    visitor.leave()


@pytest.fixture
def user(person: Person) -> Person:
    """A user who is logged in."""
    person.enter()
    return person
