"""After the console was killed: pages say that the session has ended, and people come back."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import expect

from rowtide.client import Client
from tests.console.browser.stage import Stage
from tests.console.browser.visit import LOST, Person, check_accessibility, instance_path

pytestmark = [pytest.mark.system, pytest.mark.xdist_group("browser")]

LOG_IN = "Log in to come back"


@pytest.fixture(scope="module", autouse=True)
def orders(store: Client) -> None:
    """A table with a row."""
    store.create_table("orders", {"customer": str, "number": int}, stream_hours=24)
    store.put("orders", {"customer": "ada", "number": 1, "state": "open"})


def restart_console(stage: Stage) -> None:
    stage.kill_console()
    stage.start_console()


def test_a_page_that_is_loaded_again_comes_back_after_the_log_in(
    user: Person, stage: Stage
) -> None:
    path = instance_path(stage, "t", "orders", "rows") + "?filter=number+%3D+1&columns=state"
    page = user.open(path)
    expect(page.locator("td a.value")).to_have_count(1)
    restart_console(stage)
    page.reload()
    expect(page.get_by_role("alert")).to_contain_text("Your session has ended.")
    expect(page.get_by_role("alert")).to_contain_text("when the console restarts")
    check_accessibility(page)
    user.fill_log_in(page)
    expect(page).to_have_url(stage.url + path)
    expect(page.locator("td a.value")).to_have_count(1)


def test_a_page_that_renews_itself_says_so_and_leads_back(user: Person, stage: Stage) -> None:
    path = instance_path(stage, "tables") + "?from=a"
    page = user.open(path)
    expect(page.locator("#tables")).to_contain_text("orders")
    notice = page.locator("#behind")
    with user.allowing(f"{LOST}|status of 401"):
        stage.kill_console()
        expect(notice).to_contain_text("has not answered since")
        stage.start_console()
        expect(notice).to_contain_text("You are logged out")
        expect(notice).to_contain_text("the console was restarted")
        check_accessibility(page)
        # What the page showed stays to be read.
        expect(page.locator("#tables")).to_contain_text("orders")
        page.get_by_role("link", name=re.compile(LOG_IN)).click()
    user.fill_log_in(page)
    expect(page).to_have_url(stage.url + path)
    expect(page.locator("#behind")).to_be_hidden()


def test_a_page_goes_on_if_the_log_in_was_in_another_tab(user: Person, stage: Stage) -> None:
    page = user.open("/")
    with user.allowing(LOST):
        restart_console(stage)
        expect(page.locator("#behind")).to_contain_text("You are logged out")
    other = user.open("/login")
    user.fill_log_in(other)
    expect(page.locator("#behind")).to_be_hidden()


def test_a_form_of_an_ended_session_leads_back_to_its_page(
    user: Person, stage: Stage, store: Client
) -> None:
    path = instance_path(stage, "t", "orders", "row") + "?key1=ada&key2=1"
    page = user.open(path)
    page.locator("textarea[name=value1]").fill("sent")
    restart_console(stage)
    with user.allowing("status of 401"):
        page.locator("button[value=save]").click()
        expect(page.get_by_role("alert")).to_contain_text("Nothing was changed.")
    page.get_by_role("main").get_by_role("link", name=re.compile(LOG_IN)).click()
    user.fill_log_in(page)
    expect(page).to_have_url(stage.url + path)
    assert store.get("orders", {"customer": "ada", "number": 1}) == {
        "customer": "ada",
        "number": 1,
        "state": "open",
    }


def test_a_page_whose_table_was_deleted_says_so(user: Person, stage: Stage, store: Client) -> None:
    store.create_table("brief", {"id": int})
    page = user.open(instance_path(stage, "t", "brief", "shards"))
    expect(page.locator("#tree")).to_be_visible()
    with user.allowing("status of 404"):
        store.delete_table("brief")
        expect(page.get_by_role("alert")).to_contain_text("Requested table does not exist")
        expect(page.locator("#tree")).to_have_count(0)
        page.close()  # It goes on to ask for the table.
