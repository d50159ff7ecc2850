"""The live page in a real browser: nothing is lost, and it says when it is behind."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from playwright.sync_api import Locator, Page, expect

from rowtide.client import Client, PutRow
from rowtide.console.feed.feed_lens import SAMPLED_RECORDS_MAX
from tests.console.browser.stage import Stage
from tests.console.browser.visit import LOST, Person, instance_path
from tests.support.waiting import until

pytestmark = [pytest.mark.system, pytest.mark.xdist_group("browser")]

HIDE = """
(state) => {
  Object.defineProperty(document, "visibilityState", { value: state, configurable: true });
  document.dispatchEvent(new Event("visibilitychange"));
}
"""

NO_WEBSOCKETS = """
globalThis.WebSocket = class extends EventTarget {
  constructor() {
    super();
    setTimeout(() => this.dispatchEvent(new Event("close")));
  }
  close() {}
};
"""


@pytest.fixture(scope="module", autouse=True)
def table(store: Client) -> str:
    """A table with a stream."""
    store.create_table("orders", {"customer": str, "number": int}, stream_hours=24)
    return "orders"


def write(store: Client, customer: str, count: int, begin: int = 0) -> None:
    rows: list[dict[str, Any]] = [
        {"customer": customer, "number": number, "state": "open"}
        for number in range(begin, begin + count)
    ]
    for at in range(0, count, 200):
        store.write([PutRow("orders", row) for row in rows[at : at + 200]])


def open_live(user: Person, query: str = "") -> Page:
    page = user.open(instance_path(user.stage, "t", "orders", "live") + query)
    expect(page.locator("#live .good")).to_be_visible()
    return page


def counts(page: Page) -> int:
    """Return how many changes a page has received: those shown and those left out."""
    place = page.locator("#counts")
    return int(place.get_attribute("data-shown") or 0) + int(
        place.get_attribute("data-left-out") or 0
    )


def keys(page: Page) -> list[str]:
    return [text.strip() for text in page.locator(".records tbody button").all_inner_texts()]


def status(page: Page) -> Locator:
    return page.locator("#live [role=status]")


def test_a_change_appears_as_it_is_written(user: Person, store: Client) -> None:
    page = open_live(user)
    store.put("orders", {"customer": "<b>bold</b>", "number": 1, "v": 1.0})
    row = page.locator(".records tbody tr").first
    expect(row).to_contain_text("<b>bold</b>, 1")
    expect(row).to_contain_text("put")
    row.locator("button").click()
    expect(row).to_have_attribute("aria-current", "true")
    expect(page.locator("article")).to_contain_text("1.0 double")
    store.delete("orders", {"customer": "<b>bold</b>", "number": 1})
    expect(page.locator(".records tbody tr").first).to_contain_text("delete")
    # What was chosen stays, whatever comes.
    expect(page.locator("article")).to_contain_text("1.0 double")


def test_a_record_is_shown_before_and_after(user: Person, store: Client) -> None:
    user.stage.create_table_keeping("kept", ["a", "b"])
    key: dict[str, Any] = {"customer": "ada", "number": 1}
    store.put("kept", {**key, "a": 1, "b": "x", "c": True})
    page = user.open(instance_path(user.stage, "t", "kept", "live"))
    expect(page.locator("#live .good")).to_be_visible()
    store.update("kept", {**key, "a": 2})
    page.locator(".records tbody button").first.click()
    rows = page.locator("article tbody tr")
    expect(rows).to_have_count(2)
    expect(rows.nth(0)).to_have_text(re.compile(r"a\s*1 integer\s*2 integer"))
    expect(rows.nth(0)).to_have_class("changed")
    expect(rows.nth(1)).to_have_text(re.compile(r"b\s*x text\s*x text"))
    expect(rows.nth(1)).not_to_have_class("changed")


def test_a_filter_is_in_the_address_and_is_kept(user: Person, store: Client) -> None:
    page = open_live(user, "?filter=state+%3D+'sent'")
    store.put("orders", {"customer": "filter", "number": 1, "state": "open"})
    store.put("orders", {"customer": "filter", "number": 2, "state": "sent"})
    expect(page.locator(".records tbody button")).to_have_text(["filter, 2"])
    assert page.locator("[name=filter]").input_value() == "state = 'sent'"


def test_a_wrong_filter_is_answered_with_words(user: Person) -> None:
    with user.allowing("status of 400"):
        page = user.open(instance_path(user.stage, "t", "orders", "live") + "?filter=state+%3D")
        expect(status(page)).to_contain_text("state =")


def test_a_paused_page_loses_nothing(user: Person, store: Client) -> None:
    page = open_live(user)
    write(store, "before", 3)
    until(lambda: counts(page) == 3)
    page.get_by_role("button", name="Pause").click()
    write(store, "paused", 30)
    expect(page.locator("#counts")).to_contain_text("30 more wait")
    assert counts(page) == 3
    assert "after=" in page.url
    page.get_by_role("button", name="Go on").click()
    until(lambda: counts(page) == 33, lambda: str(counts(page)))
    assert "after=" not in page.url


def test_a_page_that_is_paused_for_long_reads_the_log_when_it_goes_on(
    user: Person, store: Client
) -> None:
    page = open_live(user)
    write(store, "held", 2)
    until(lambda: counts(page) == 2)
    page.get_by_role("button", name="Pause").click()
    # A page gets 200 records a second at most, so it must let go after ten seconds. Writes
    # that just fill its frames are not many by then, also on a fast machine.
    written = 0
    while not page.get_by_text("Paused. What comes now").is_visible():
        write(store, "held", SAMPLED_RECORDS_MAX, begin=2 + written)
        written += SAMPLED_RECORDS_MAX
        assert written < 100_000
    page.get_by_role("button", name="Go on").click()
    until(lambda: counts(page) == 2 + written, lambda: f"{counts(page)} of {2 + written}")


def test_a_copy_of_a_paused_pages_address_goes_on_there(user: Person, store: Client) -> None:
    page = open_live(user)
    write(store, "copy", 2)
    until(lambda: counts(page) == 2)
    page.get_by_role("button", name="Pause").click()
    write(store, "copied", 5)
    other = user.context.new_page()
    other.goto(page.url)
    until(lambda: counts(other) == 5, lambda: str(keys(other)))
    assert sorted(keys(other)) == [f"copied, {number}" for number in range(5)]


def list_workers(user: Person) -> list[str]:
    """Return the addresses of the shared workers that run in the browser."""
    assert user.context.browser is not None
    session = user.context.browser.new_browser_cdp_session()
    targets = session.send("Target.getTargets")["targetInfos"]
    session.detach()
    return [one["url"] for one in targets if one["type"] == "shared_worker"]


def test_eight_tabs_are_live_at_once_over_one_worker(user: Person, store: Client) -> None:
    """Half of them show the same changes, and each of the others its own."""
    same = [open_live(user) for _ in range(4)]
    others = [open_live(user, f"?filter=number+%3D+{number}") for number in range(4)]
    write(store, "tabs", 10)
    for page in same:
        until(lambda page=page: counts(page) == 10, lambda page=page: str(keys(page)))  # type: ignore[misc]
    for number, page in enumerate(others):
        expect(page.locator(".records tbody button")).to_have_text([f"tabs, {number}"])
    # The worker of a page that was closed ends a moment after it.
    until(lambda: len(list_workers(user)) == 1, lambda: list_workers(user))
    # Another page of the console loads while all of them are open.
    assert user.open("/").title()


def test_a_page_whose_proxy_lacks_websockets_is_live(user: Person, store: Client) -> None:
    user.context.add_init_script("delete globalThis.SharedWorker")
    page = user.context.new_page()
    page.add_init_script(NO_WEBSOCKETS)
    page.goto(instance_path(user.stage, "t", "orders", "live"))
    expect(page.locator("#live .good")).to_be_visible()
    write(store, "proxy", 3)
    until(lambda: counts(page) == 3)


def test_a_page_without_shared_workers_has_a_feed_of_its_own(user: Person, store: Client) -> None:
    user.context.add_init_script("delete globalThis.SharedWorker")
    sockets: list[str] = []
    page = user.context.new_page()
    page.on("websocket", lambda socket: sockets.append(socket.url))
    page.goto(instance_path(user.stage, "t", "orders", "live"))
    expect(page.locator("#live .good")).to_be_visible()
    write(store, "alone", 3)
    until(lambda: counts(page) == 3)
    assert [url.rpartition("/")[2] for url in sockets] == ["stream"]


def test_a_hidden_tab_leaves_after_thirty_seconds_and_comes_back_without_a_gap(
    user: Person, store: Client
) -> None:
    page = user.context.new_page()
    page.clock.install()
    page.goto(instance_path(user.stage, "t", "orders", "live"))
    expect(page.locator("#live .good")).to_be_visible()
    write(store, "hidden", 2)
    until(lambda: counts(page) == 2)
    page.evaluate(HIDE, "hidden")
    page.clock.fast_forward(29_000)
    write(store, "hidden", 2, begin=2)
    until(lambda: counts(page) == 4)
    page.clock.fast_forward(2_000)
    # An open page of the same browser tells when these have been sent to whoever still listens.
    other = open_live(user, "?filter=customer+%3D+'hidden'&begin=oldest")
    until(lambda: counts(other) == 4, lambda: str(keys(other)))
    write(store, "hidden", 3, begin=4)
    until(lambda: counts(other) == 7, lambda: str(keys(other)))
    assert counts(page) == 4
    page.evaluate(HIDE, "visible")
    until(lambda: counts(page) == 7, lambda: str(keys(page)))


def test_a_page_says_since_when_it_is_behind_and_heals_when_the_worker_is_back(
    user: Person, store: Client, stage: Stage
) -> None:
    page = open_live(user)
    write(store, "worker", 2)
    until(lambda: counts(page) == 2)
    with user.allowing(f"{LOST}|status of 50"):
        stage.kill_server()
        expect(status(page)).to_contain_text(re.compile(r"Behind since \d\d:\d\d:\d\d"))
        stage.start_server()
        expect(page.locator("#live .good")).to_be_visible()
        with stage.connect() as client:
            write(client, "worker", 3, begin=2)
        until(lambda: counts(page) == 5, lambda: str(keys(page)))
    assert sorted(keys(page)) == [f"worker, {number}" for number in range(5)]


def test_a_console_that_hangs_is_noticed(user: Person, store: Client, stage: Stage) -> None:
    page = open_live(user)
    write(store, "hang", 2)
    until(lambda: counts(page) == 2)
    with user.allowing():
        stage.pause_console(is_paused=True)
        try:
            expect(status(page)).to_contain_text("Behind since")
        finally:
            stage.pause_console(is_paused=False)
        write(store, "hang", 2, begin=2)
        until(lambda: counts(page) == 4, lambda: str(keys(page)))


def test_a_page_goes_on_without_a_gap_when_the_console_was_killed(
    user: Person, store: Client, stage: Stage
) -> None:
    page = open_live(user)
    write(store, "console", 2)
    until(lambda: counts(page) == 2)
    with user.allowing(f"{LOST}|status of 401"):
        stage.kill_console()
        expect(status(page)).to_contain_text("Behind since")
        write(store, "console", 3, begin=2)
        stage.start_console()
        # Sessions are in the memory of the process: the person logs in again, in another tab.
        expect(status(page)).to_contain_text("You are logged out")
        with user.context.expect_page() as opened:
            page.get_by_role("link", name=re.compile("Log in")).click()
        user.fill_log_in(opened.value)
        until(lambda: counts(page) == 5, lambda: str(keys(page)))
    assert sorted(keys(page)) == [f"console, {number}" for number in range(5)]
    expect(page.locator("#live .good")).to_be_visible()


def test_a_table_that_is_deleted_ends_the_page_with_the_reason(user: Person, store: Client) -> None:
    store.create_table("brief", {"id": int}, stream_hours=24)
    page = user.open(instance_path(user.stage, "t", "brief", "live"))
    expect(page.locator("#live .good")).to_be_visible()
    with user.allowing("status of 404"):
        store.delete_table("brief")
        expect(status(page)).to_contain_text("The feed has ended.")
        assert len(status(page).inner_text()) > len("The feed has ended. ")


def test_a_key_that_is_revoked_ends_the_page(person: Person, stage: Stage, store: Client) -> None:
    printed = json.loads(stage.run("key", "create", "--read-only", "--output", "json"))
    person.enter(printed["access_key_id"], printed["access_key_secret"])
    page = open_live(person)
    with person.allowing("status of 40"):
        stage.run("key", "revoke", "--yes", printed["access_key_id"])
        expect(page.locator("#live .good")).to_have_count(0)
        expect(status(page)).to_contain_text(re.compile("ended|logged out"))
        write(store, "revoked", 1)
    assert counts(page) == 0


def test_a_page_has_few_rows_whatever_comes(user: Person, store: Client) -> None:
    page = open_live(user)
    for _ in range(5):
        write(store, "many", 100)
    until(lambda: counts(page) == 500, lambda: str(counts(page)))
    page.locator(".records tbody button").first.click()
    assert page.locator("tr").count() <= 200


def count_table_rows(page: Page) -> int:
    """Return how many rows the browser keeps, in the page or not, once garbage is collected."""
    session = page.context.new_cdp_session(page)
    prototype = session.send("Runtime.evaluate", {"expression": "HTMLTableRowElement.prototype"})
    asked = {"prototypeObjectId": prototype["result"]["objectId"]}
    rows = session.send("Runtime.queryObjects", asked)["objects"]
    length = {
        "objectId": rows["objectId"],
        "functionDeclaration": "function () { return this.length; }",
    }
    found: int = session.send("Runtime.callFunctionOn", length)["result"]["value"]
    session.detach()
    return found


def test_a_page_forgets_the_rows_that_it_shows_no_more(user: Person, store: Client) -> None:
    """Each change is drawn while most of the former ones are still shown."""
    page = open_live(user)
    for number in range(300):
        store.put("orders", {"customer": "forgotten", "number": number})
        if number % 10 == 9:
            expect(page.locator(".records tbody")).to_contain_text(f"forgotten, {number}")
    shown = page.locator("tr").count()
    assert shown < count_table_rows(page) + 1 <= shown + 20
