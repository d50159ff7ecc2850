"""Who gets in, what they see, and what they can do with the keyboard alone."""

from __future__ import annotations

import re
from urllib.parse import urlencode

import pytest
from playwright.sync_api import Page, expect

from rowtide.client import Client
from tests.console.browser.stage import Stage
from tests.console.browser.visit import Person, instance_path

pytestmark = [pytest.mark.system, pytest.mark.xdist_group("browser")]

READER_PAGES = ("rows", "row?key1=ada&key2=1", "live", "consumers", "")
BYTES_MAX, BYTES_HIGH_BAR = 120_000, 80_000


@pytest.fixture(scope="module", autouse=True)
def orders(store: Client) -> None:
    """A table with one row."""
    store.create_table("orders", {"customer": str, "number": int}, stream_hours=24)
    store.put("orders", {"customer": "ada", "number": 1, "state": "open"})


def test_a_person_logs_in_with_a_key_and_out(person: Person) -> None:
    page = person.open(instance_path(person.stage, "t", "orders", "rows"))
    # The log-in leads back to the page that was wanted.
    expect(page).to_have_url(re.compile("/login"))
    with person.allowing("status of 403"):
        person.fill_log_in(page, secret="wrong")
        expect(page.get_by_role("alert")).to_contain_text("does not accept")
    person.fill_log_in(page)
    expect(page).to_have_url(re.compile("/t/orders/rows"))
    page.get_by_role("button", name="Log out").click()
    expect(page).to_have_url(re.compile("/login"))
    page.goto("/")
    expect(page).to_have_url(re.compile("/login"))


def test_a_link_logs_in_once_and_leaves_no_trace(person: Person, stage: Stage) -> None:
    printed = stage.run("console", "open", "--url", stage.url)
    link = re.search(r"http://\S+/link#\S+", printed)
    assert link, printed
    page = person.open(link[0])
    expect(page).to_have_url(f"{stage.url}/")
    assert page.evaluate("history.length") <= 3
    person.context.clear_cookies()
    with person.allowing("status of 40"):
        page.goto("about:blank")
        page.goto(link[0])
        expect(page.get_by_role("alert")).to_be_visible()
    assert "#" not in page.url


def test_a_read_only_user_sees_no_buttons(person: Person, stage: Stage) -> None:
    printed = stage.run("key", "create", "--read-only", "--output", "json")
    key_id = re.search(r'"access_key_id": "([^"]+)"', printed)
    secret = re.search(r'"access_key_secret": "([^"]+)"', printed)
    assert key_id, printed
    assert secret, printed
    person.enter(key_id[1], secret[1])
    page = person.context.new_page()
    for path in [*(f"t/orders/{name}".rstrip("/") for name in READER_PAGES), "tables", "usage"]:
        page.goto(f"{instance_path(stage)}/{path}")
        expect(page.locator("header")).to_contain_text("read-only")
        assert page.locator("main form[method=post]").count() == 0, path
        # A page that would be refused is offered to nobody.
        assert page.locator("a", has_text="Shards").count() == 0
    for path in ("/", "/connectors"):
        page.goto(path)
        assert page.locator("main form[method=post]").count() == 0, path


def press_until(page: Page, selector: str, *, presses: int = 60) -> None:
    """Move on with the tab key until an element has the focus, which must be seen."""
    page.wait_for_load_state()  # The key before may have led to another page.
    for _ in range(presses):
        page.keyboard.press("Tab")
        shown = page.evaluate(
            "getComputedStyle(document.activeElement).outlineStyle !== 'none' ||"
            "getComputedStyle(document.activeElement).boxShadow !== 'none'"
        )
        assert shown, page.evaluate("document.activeElement.outerHTML")
        if page.evaluate("selector => document.activeElement.matches(selector)", selector):
            return
    pytest.fail(f"the keyboard does not reach {selector}")


def test_the_keyboard_is_enough(person: Person, store: Client) -> None:
    ready = person.stage.ready
    page = person.open("/login")
    press_until(page, "a.skip", presses=1)
    press_until(page, "[name=access_key_id]")
    page.keyboard.type(ready.access_key_id)
    press_until(page, "[name=access_key_secret]")
    page.keyboard.type(ready.access_key_secret)
    press_until(page, "[name=instance]")
    page.keyboard.type(ready.instance)
    page.keyboard.press("Enter")
    expect(page).to_have_url(f"{person.stage.url}/")
    page.goto(instance_path(person.stage, "t", "orders", "rows"))
    press_until(page, "[name=filter]")
    page.keyboard.type("state = 'open'")
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile("filter="))
    press_until(page, "td a.value")
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile("/row"))
    press_until(page, "textarea[name=value1]")
    page.keyboard.press("Control+A")
    page.keyboard.type("sent")
    press_until(page, "button[value=save]")
    page.keyboard.press("Enter")
    expect(page.get_by_text("The row is saved.")).to_be_visible()
    assert store.get("orders", {"customer": "ada", "number": 1}) == {
        "customer": "ada",
        "number": 1,
        "state": "sent",
    }
    page.goto(instance_path(person.stage, "t", "orders", "live") + "?begin=oldest")
    expect(page.locator(".records tbody button").first).to_be_visible()
    press_until(page, "#live .controls button")
    page.keyboard.press("Space")
    expect(page.get_by_role("button", name="Go on")).to_be_focused()
    press_until(page, ".records tbody button")
    page.keyboard.press("Enter")
    expect(page.locator("article")).to_contain_text("sent")
    store.put("orders", {"customer": "ada", "number": 1, "state": "open"})


def count_bytes(person: Person, path: str) -> int:
    """Return the bytes that a page with an empty cache receives, heads included."""
    page = person.context.new_page()
    session = person.context.new_cdp_session(page)
    session.send("Network.enable")
    session.send("Network.clearBrowserCache")
    received: list[float] = []
    session.on("Network.loadingFinished", lambda event: received.append(event["encodedDataLength"]))
    page.goto(path, wait_until="networkidle")
    assert received
    page.close()
    return int(sum(received))


def test_the_first_page_is_small(person: Person) -> None:
    assert count_bytes(person, "/login") <= BYTES_HIGH_BAR
    person.log_in().close()
    assert count_bytes(person, "/") <= BYTES_HIGH_BAR
    assert count_bytes(person, f"{instance_path(person.stage)}/tables") <= BYTES_MAX


def test_pages_work_without_javascript(person: Person, stage: Stage, store: Client) -> None:
    browser = person.context.browser
    assert browser is not None
    plain = Person(browser, stage, java_script_enabled=False)
    page = plain.log_in()
    page.goto(f"{instance_path(stage)}/t/orders/rows")
    page.locator("[name=key1]").fill("ada")
    page.locator("main form .controls button").click()
    page.locator("td a.value").first.click()
    page.locator("textarea[name=value1]").fill("changed")
    page.locator("button[value=save]").click()
    expect(page.get_by_text("The row is saved.")).to_be_visible()
    page.goto(f"{instance_path(stage)}/t/orders/live")
    expect(page.locator("noscript")).to_have_count(1)
    plain.leave()
    store.put("orders", {"customer": "ada", "number": 1, "state": "open"})


HOSTILE = (
    "<script>run()</script>",
    "<img src=x onerror=run()>",
    '"><svg onload=run()>',
    "'-run()-'",
    "javascript:run()",
    "{{ run() }}",
    "${run()}",
    "</script><script>run()</script>",
    "</textarea><script>run()</script>",
    "\u202e\u0000\u2028<b>",
    "&lt;script&gt;run()&lt;/script&gt;",
)


def test_values_are_text_on_every_page(person: Person, stage: Stage, store: Client) -> None:
    store.create_table("hostile", {"id": str}, stream_hours=24)
    person.context.add_init_script("globalThis.run = () => { globalThis.hasRun = true; }")
    person.enter()
    for text in HOSTILE:
        store.put("hostile", {"id": text, "value": text, "other": text})
    table = f"{instance_path(stage)}/t/hostile"
    page = person.open(f"{table}/live?begin=oldest")
    expect(page.locator(".records tbody tr")).to_have_count(len(HOSTILE))
    for at in range(len(HOSTILE)):
        page.locator(".records tbody button").nth(at).click()
        assert page.evaluate("globalThis.hasRun") is None
    page.goto(f"{table}/rows")
    rows = page.locator("td a.value")
    expect(rows).to_have_count(len(HOSTILE))
    for address in [one.get_attribute("href") for one in rows.all()]:
        page.goto(f"{stage.url}{address}&versions=value")
        expect(page.locator("textarea[name=value1]")).to_be_visible()
        assert page.evaluate("globalThis.hasRun") is None
    for text in HOSTILE:
        with person.allowing("status of 400"):
            page.goto(f"{table}/rows?{urlencode({'filter': text, 'key1': text})}")
            page.goto(f"{table}/live?{urlencode({'filter': text, 'columns': text})}")
            expect(page.locator("#live [role=status]")).to_be_visible()
        assert page.evaluate("globalThis.hasRun") is None
